"""A bound on the unhinged risk of a network that was trained with another loss (proposition 5.3), from data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses.base import Loss
from symloss.losses.criterion import AnyLoss
from symloss.losses.logits import Scores
from symloss.theory.certificates import Constant, certify
from symloss.theory.linearize import linearize
from symloss.theory.subject import raw_loss

__all__ = ["GapBound", "convolution_norm_bound", "gap_bound", "weight_product"]

Lipschitz = Mapping[type[nn.Module], float]


@dataclass(frozen=True)
class GapBound:
    """The bound of proposition 5.3 on L_D(f_phi) - L_D(f_unhinged), what it is made of, and what the data show.

    phi is the loss divided by its slope, so that its linear approximation at 0 is the unhinged loss L.
    """

    loss: str
    """The loss, as text."""
    num_classes: int
    """The number of classes."""
    examples: int
    """The number of inputs that were measured."""
    bound: float
    """R^2 beta c^2 r^2, with c the product of the Lipschitz constants of the non-linearities."""
    exact: bool
    """Whether beta is exact. Else it is a lower bound, and ``bound`` is an estimate."""
    slope: float
    """At 0, the linear approximation of the loss is this multiple of the unhinged loss."""
    beta: Constant
    """The smoothness of the loss, divided by the slope."""
    radius: float
    """R, the largest Euclidean norm of an input."""
    weights: float
    """r, the product of the norms of the layers' weights; of two networks, the larger one."""
    lipschitz: float
    """c, the product of the Lipschitz constants of the non-linearities."""
    output: float
    """The largest Euclidean norm of an output on the data, of either network. It is at most R c r."""
    remainder: float
    """The largest remainder |phi(z, y) - phi(0, y) - L(z, y)| on the data, over all labels and both networks.

    On these data, the gap is at most twice this number, which is often far below ``bound``."""
    remainder_bound: float
    """beta / 2 (R c r)^2, the bound on the remainder, half of ``bound``."""
    gap: float | None
    """The measured gap L_D(f) - L_D(f_unhinged) on the data; None without a second network or without labels."""
    excess: float | None
    """By how much the phi-risk of the network exceeds that of the second one; None where ``gap`` is.

    A network of least phi-risk has at most 0. For another one, the gap is at most ``bound`` plus this."""

    def __str__(self) -> str:
        sure = "a bound" if self.exact else "an estimate, not a bound, because beta is a lower bound"
        limit = self.radius * self.lipschitz * self.weights
        lines = [
            f"{self.loss}, {self.num_classes} classes, raw scores; {self.examples} inputs",
            f"  gap to unhinged at most    {self.bound:.6g} ({sure})",
            f"  R, largest input           {self.radius:.6g}",
            f"  c, non-linearities         {self.lipschitz:.6g}",
            f"  r, product of norms        {self.weights:.6g}",
            f"  slope of the loss at 0     {self.slope:.6g}",
            f"  beta of the loss / slope   {self.beta}",
            f"  largest output             {self.output:.6g}; R c r is {limit:.6g}",
            f"  largest remainder          {self.remainder:.6g}; beta/2 (R c r)^2 is {self.remainder_bound:.6g}",
        ]
        if self.gap is not None and self.excess is not None:
            lines.append(f"  measured gap               {self.gap:.6g}")
            if self.excess > 0:
                lines.append(f"  excess risk of the loss    {self.excess:.6g}, which comes on top of the bound")
        return "\n".join(lines)


def gap_bound(
    network: nn.Module,
    loss: AnyLoss,
    data: Tensor | tuple[Tensor, Tensor] | Iterable[Any],
    unhinged_network: nn.Module | None = None,
    *,
    smoothness: float | None = None,
    lipschitz: Lipschitz | None = None,
) -> GapBound:
    """Bound how much more unhinged risk a network of least risk of the loss has than the best network for unhinged.

    The bound is R^2 beta c^2 r^2 (proposition 5.3). It holds for all networks with these layers whose product of norms
    is at most r, and for data whose inputs are no longer than R. R is the longest input of the data, r and c are read
    from the network's modules. beta and the slope come from the loss: it is divided by its slope at 0, where its linear
    approximation must be a positive multiple of the unhinged loss. Every layer's claim is checked on the data.

    Args:
        network: an ``nn.Sequential``, which may be nested, of bias-free ``nn.Linear`` and convolutions,
            non-linearities that are 0 at 0, and pools whose windows do not overlap. Batch normalisation is refused:
            it has a bias, and its slope depends on the data.
        loss: of any kind. The loss itself is meant, on raw scores, as in ``symloss.certify``.
        data: inputs (N, ...), a pair (inputs, labels), or batches of either, such as a ``DataLoader``.
        unhinged_network: a network that was trained with the unhinged loss. If labels are there, the gap is measured.
        smoothness: of the loss as it is passed, if you know it. None measures it with ``symloss.certify``, which may
            return a lower bound; the result is then called an estimate.
        lipschitz: Lipschitz constants of other non-linearities, by their class, such as ``{Snake: 2.0}``. They go
            before those that are read from the parameters of torch's own.

    Reference: proposition 5.3 of the paper.

    >>> network = nn.Sequential(nn.Linear(4, 3, bias=False))
    >>> inputs = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    >>> found = gap_bound(network, "ce", inputs)
    >>> found.exact, found.remainder <= found.remainder_bound, 2 * found.remainder_bound == found.bound
    (True, True, True)
    """
    networks = [network] if unhinged_network is None else [network, unhinged_network]
    layers = [layers_of(each, lipschitz) for each in networks]
    weights = max(math.prod(layer.factor for layer in own if layer.is_linear) for own in layers)
    steepness = max(math.prod(layer.factor for layer in own if not layer.is_linear) for own in layers)
    outputs = _outputs(networks, layers, data)
    scores = torch.cat(outputs.scores)
    classes = scores.shape[1]
    expression = raw_loss(loss)
    name = loss if isinstance(loss, str) else repr(expression)
    slope = _slope(loss, classes, name)
    beta = _smoothness(loss, classes, smoothness, name) / slope
    size = outputs.radius * steepness * weights
    # A lower bound on beta is raised to what the data show: |remainder| <= beta / 2 |z|^2.
    remainder, shown = _remainders(expression, slope, scores)
    if shown > beta * (1 + 1e-4):
        if smoothness is not None:
            raise ValueError(f"smoothness must be at least {shown * slope:.6g}, as the data show; got {smoothness:g}")
        beta = Constant(shown, exact=False)
    gap, excess = _measured_gap(expression, slope, outputs)
    return GapBound(
        loss=name,
        num_classes=classes,
        examples=len(outputs.scores[0]),
        bound=float(beta) * size**2,
        exact=beta.exact,
        slope=slope,
        beta=beta,
        radius=outputs.radius,
        weights=weights,
        lipschitz=steepness,
        output=float(scores.norm(dim=1).max()),
        remainder=remainder,
        remainder_bound=float(beta) / 2 * size**2,
        gap=gap,
        excess=excess,
    )


def _slope(loss: AnyLoss, classes: int, name: str) -> float:
    """Return the positive multiple of the unhinged loss that the linear approximation at 0 is."""
    facts = linearize(loss, 0.0, classes).facts
    multiple = facts.multiple_of_unhinged
    if multiple is None or not multiple > 0:
        if multiple is None:
            found = f"no multiple of it (distance {facts.distance_from_unhinged:.3g})"
        else:
            found = f"{multiple:.6g} times it"
        raise ValueError(
            f"the linear approximation of the loss at 0 must be a positive multiple of the unhinged loss for the bound "
            f"to hold; for {name} with {classes} classes it is {found}"
        )
    return multiple


def _smoothness(loss: AnyLoss, classes: int, given: float | None, name: str) -> Constant:
    if given is not None:
        return Constant(checks.number("smoothness", given, "[0, inf)"), exact=True)
    beta = certify(loss, classes).smoothness
    if not math.isfinite(beta):
        raise ValueError(
            f"the loss must be beta-smooth for the bound to hold; {name} has no finite smoothness, its gradient jumps "
            "or grows without bound"
        )
    return beta


class _Outputs(NamedTuple):
    """The scores (N, C) of each network in float64, the labels (N,) if there are any, and the longest input."""

    scores: list[Tensor]
    labels: Tensor | None
    radius: float


@torch.no_grad()
def _outputs(networks: list[nn.Module], layers: list[list[Layer]], data: object) -> _Outputs:
    scores: list[list[Tensor]] = [[] for _ in networks]
    labels: list[Tensor | None] = []
    radius = 0.0
    for inputs, target in _batches(data):
        norm = float(inputs.flatten(1).double().norm(dim=1).max())
        if not math.isfinite(norm):
            raise ValueError("data must hold finite inputs; got NaN or infinity")
        radius = max(radius, norm)
        for found, network, own in zip(scores, networks, layers, strict=True):
            first = next(network.parameters())
            found.append(_checked_output(network, own, inputs.to(first)))
        labels.append(None if target is None else target.cpu().long())
    if not labels:
        raise ValueError("data must hold at least one input; got none")
    whole = [torch.cat(found) for found in scores]
    if len({found.shape for found in whole}) > 1:
        shapes = " and ".join(str(tuple(found.shape)) for found in whole)
        raise ValueError(f"both networks must have scores of one shape; got {shapes}")
    found_labels = [target for target in labels if target is not None]
    if len(found_labels) not in (0, len(labels)):
        raise ValueError("data must have labels in every batch or in none; got both kinds")
    if found_labels:
        target = torch.cat(found_labels)
        if int(target.min()) < 0 or int(target.max()) >= whole[0].shape[1]:
            raise ValueError(
                f"labels must be 0 to {whole[0].shape[1] - 1}, as there are scores; got {int(target.max())}"
            )
        return _Outputs(whole, target, radius)
    return _Outputs(whole, None, radius)


def _checked_output(network: nn.Module, layers: list[Layer], inputs: Tensor) -> Tensor:
    """Return the scores. Run the layers one by one too, and refuse a network or layer that does something else."""
    was_training = [(module, module.training) for module in network.modules()]
    network.eval()
    try:
        z, scores = inputs.clone(), network(inputs.clone())
        rounding = 1e-9 if z.dtype == torch.float64 else 1e-3
        for layer in layers:
            before = z.flatten(1).double().norm(dim=1)
            zero = layer.module(torch.zeros_like(z))
            z = layer.module(z)
            after = z.flatten(1).double().norm(dim=1)
            if bool(zero.any()):
                raise ValueError(f"network must have layers that are 0 at 0 for the bound to hold; got {layer.module}")
            if bool((after > layer.factor * before * (1 + rounding) + 1e-30).any()):
                found = float((after / before.clamp_min(1e-300)).max())
                raise ValueError(
                    f"network must have layers that make no vector longer than their constant says; "
                    f"{layer.module} has {layer.factor:g}, and made one {found:g} times as long"
                )
    finally:
        for module, training in was_training:
            module.training = training
    if not isinstance(scores, Tensor) or scores.dim() != 2 or scores.shape[1] < 2:
        got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        raise ValueError(f"network must turn inputs (N, ...) into scores (N, C) of at least two classes; got {got}")
    if z.shape != scores.shape or not torch.allclose(z, scores, rtol=rounding, atol=rounding * float(z.abs().max())):
        raise ValueError("network must do nothing but run its layers one after the other; its output is another one")
    return scores.cpu().double()


def _batches(data: object) -> Iterator[tuple[Tensor, Tensor | None]]:
    """Yield inputs and labels. Inputs and a one-dimensional tensor, in a tuple or list, are one batch."""
    pair = isinstance(data, (tuple, list)) and len(data) == 2 and isinstance(data[1], Tensor) and data[1].dim() == 1
    if isinstance(data, Tensor) or pair:
        data = [data]
    if not isinstance(data, Iterable) or isinstance(data, str):
        raise TypeError(
            f"data must be a tensor of inputs, a pair (inputs, labels) or batches of either; got {checks.brief(data)}"
        )
    for batch in data:
        parts = batch if isinstance(batch, (tuple, list)) else [batch]
        inputs, target = parts[0], parts[1] if len(parts) > 1 else None
        if not isinstance(inputs, Tensor) or not inputs.is_floating_point() or inputs.dim() < 2 or not len(inputs):
            got = f"{inputs.dtype} of {tuple(inputs.shape)}" if isinstance(inputs, Tensor) else type(inputs).__name__
            raise TypeError(f"data must hold floating-point tensors of inputs (N, ...); got {got}")
        if target is not None and not (_is_labels(target) and len(target) == len(inputs)):
            got = f"{target.dtype} of {tuple(target.shape)}" if isinstance(target, Tensor) else type(target).__name__
            raise TypeError(f"data must hold an integer label for each of the {len(inputs)} inputs; got {got}")
        yield inputs, target


def _is_labels(part: object) -> bool:
    integers = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
    return isinstance(part, Tensor) and part.dim() == 1 and part.dtype in integers


def _unhinged(z: Tensor) -> Tensor:
    return z.mean(1, keepdim=True) - z


@torch.no_grad()
def _remainders(loss: Loss, slope: float, z: Tensor) -> tuple[float, float]:
    """Return the largest remainder, and the smoothness that the remainders show: the largest 2 |remainder| / |z|^2."""
    largest = shown = 0.0
    rows = max(1, 2**24 // z.shape[1] ** 2)  # a wrapped loss is called with C times the rows
    for part in torch.split(z, rows):
        values = loss.per_class(part) / slope
        at_zero = loss.per_class(torch.zeros_like(part[:1])) / slope
        linear = _unhinged(part)
        remainder = (values - at_zero - linear).abs()
        # Differences within the rounding of the values show nothing.
        size = values.abs().amax() + at_zero.abs().amax() + linear.abs().amax()
        beyond = (remainder - 1e-12 * size).clamp_min(0)
        largest = max(largest, float(remainder.max()))
        shown = max(shown, float((2 * beyond / part.square().sum(1, keepdim=True).clamp_min(1e-300)).max()))
    return largest, shown


@torch.no_grad()
def _measured_gap(loss: Loss, slope: float, outputs: _Outputs) -> tuple[float | None, float | None]:
    """Return the gap of the unhinged risks, and the difference of the phi-risks."""
    if outputs.labels is None or len(outputs.scores) < 2:
        return None, None
    labels = outputs.labels[:, None]

    def risks(z: Tensor) -> tuple[float, float]:
        return float(_unhinged(z).gather(1, labels).mean()), float(loss.values(Scores(z), labels).mean()) / slope

    (own, own_phi), (best, best_phi) = map(risks, outputs.scores)
    return own - best, own_phi - best_phi


Convolution = nn.Conv1d | nn.Conv2d | nn.Conv3d
LINEAR: tuple[type[nn.Module], ...] = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NEUTRAL: tuple[type[nn.Module], ...] = (nn.Identity, nn.Flatten, nn.Unflatten)
_POOLS: tuple[type[nn.Module], ...] = (
    *(nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d),
    *(nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d),
)


def _one(_: Any) -> float:
    return 1.0


def _hardtanh(module: Any) -> float:
    if not module.min_val <= 0 <= module.max_val:
        raise ValueError(f"network must have non-linearities that are 0 at 0 for the bound to hold; got {module}")
    return 1.0


def _celu(module: Any) -> float:
    if module.alpha <= 0:
        raise ValueError(f"network must have non-linearities with a Lipschitz constant; got {module}")
    return 1.0


# Lipschitz constants of non-linearities that are 0 at 0, as functions of the module.
_LIPSCHITZ: dict[type[nn.Module], Callable[[Any], float]] = {
    nn.ReLU: _one,
    nn.ReLU6: _one,
    nn.Tanh: _one,
    nn.Softsign: _one,
    nn.Softshrink: _one,
    nn.Tanhshrink: _one,
    nn.Hardtanh: _hardtanh,
    nn.LeakyReLU: lambda module: max(1.0, abs(module.negative_slope)),
    nn.PReLU: lambda module: max(1.0, float(module.weight.detach().abs().max())),
    nn.ELU: lambda module: max(1.0, abs(module.alpha)),
    nn.CELU: _celu,
    nn.SELU: lambda module: 1.7580993408473769,  # scale * alpha, at 0 from below
    nn.GELU: lambda module: 1.13,
    nn.SiLU: lambda module: 1.1,
    nn.Mish: lambda module: 1.09,
    nn.Hardswish: lambda module: 1.5,
}


class Layer(NamedTuple):
    """A layer, and by how much it can lengthen a vector."""

    module: nn.Module
    factor: float

    @property
    def is_linear(self) -> bool:
        """Whether the factor is the norm of weights."""
        return isinstance(self.module, LINEAR)


def layers_of(network: nn.Module, lipschitz: Lipschitz | None = None) -> list[Layer]:
    """Return the layers of a network in order, each with its factor. A layer without a known factor is refused.

    Args:
        network, lipschitz: as in :func:`gap_bound`.

    >>> [layer.factor for layer in layers_of(nn.Sequential(nn.LeakyReLU(2.0), nn.Linear(2, 2, bias=False)))][0]
    2.0
    """
    own = dict(lipschitz or {})
    for kind, constant in own.items():
        if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
            raise TypeError(f"lipschitz must have classes of torch modules as keys; got {checks.brief(kind)}")
        checks.number(f"lipschitz of {kind.__name__}", constant, "[0, inf)")
    found = list(_layers(network, own))
    linear = [layer.module for layer in found if layer.is_linear]
    if not linear:
        raise ValueError("network must hold at least one nn.Linear layer or convolution; got none")
    return found


def _layers(part: object, own: Lipschitz) -> Iterator[Layer]:
    given = type(part).__name__ if isinstance(part, nn.Module) else checks.brief(part)
    if isinstance(part, nn.Module) and type(part) in own:
        yield Layer(part, float(own[type(part)]))
        return
    kinds = (nn.Sequential, *LINEAR, *_POOLS, *_NEUTRAL, *_LIPSCHITZ)
    kind = next((kind for kind in kinds if isinstance(part, kind)), None)
    # A ReLU6 is a Hardtanh: the nearest class counts.
    kind = type(part) if type(part) in kinds else kind
    if kind is None or not isinstance(part, nn.Module):
        known = ", ".join(each.__name__ for each in kinds[1:])
        hint = "; build the network without batch normalisation" if "Norm" in given else ""
        raise TypeError(f"network must be an nn.Sequential of {known}, or of what `lipschitz` names; got {given}{hint}")
    if _computes_otherwise(part, kind):
        raise TypeError(
            f"network must have layers that compute as torch's own do for the bound to hold; {given} is a "
            f"{kind.__name__} with another `forward`, or with hooks"
        )
    if isinstance(part, nn.Sequential):
        for child in part:
            yield from _layers(child, own)
    elif isinstance(part, LINEAR):
        yield Layer(part, _norm(part))
    elif isinstance(part, _POOLS):
        _refuse_overlap(part)
        yield Layer(part, 1.0)
    else:
        yield Layer(part, _LIPSCHITZ.get(kind, _one)(part))


def _computes_otherwise(part: nn.Module, kind: type[nn.Module]) -> bool:
    names = ("forward", "__call__", "_call_impl", "_wrapped_call_impl", "_conv_forward")
    overridden = any(getattr(type(part), name, None) is not getattr(kind, name, None) for name in names)
    return (
        overridden or any(name in vars(part) for name in names) or bool(part._forward_hooks or part._forward_pre_hooks)
    )


def _refuse_overlap(pool: nn.Module) -> None:
    # Without overlap a pool has Lipschitz constant 1.
    size, stride, dilation = (torch.as_tensor(getattr(pool, name, 1)) for name in ("kernel_size", "stride", "dilation"))
    overlap = bool((stride < size).any()) or bool((dilation != 1).any())
    if overlap or getattr(pool, "divisor_override", None) is not None:
        raise ValueError(f"network must pool over windows that do not overlap for the bound to hold; got {pool}")


def weight_product(network: nn.Module, lipschitz: Lipschitz | None = None) -> float:
    """Return a bound on the product of the layers' operator norms, the r of prop. 5.3.

    A linear layer counts with the Euclidean (Frobenius) norm of its weights, as in the paper, and a convolution with
    :func:`convolution_norm_bound`.

    Args:
        network, lipschitz: as in :func:`gap_bound`.

    >>> weight_product(nn.Sequential(nn.Linear(2, 3, bias=False), nn.ReLU(), nn.Linear(3, 1, bias=False))) > 0
    True
    """
    return math.prod(layer.factor for layer in layers_of(network, lipschitz) if layer.is_linear)


def _norm(layer: Any) -> float:
    if layer.bias is not None:
        raise ValueError(
            f"network must be bias-free for the bound to hold; got {layer} (models of this package take bias=false)"
        )
    if isinstance(layer, nn.Linear):
        return float(layer.weight.detach().double().norm())
    return convolution_norm_bound(layer)


def convolution_norm_bound(layer: Convolution) -> float:
    """Return a bound on the operator norm of a convolution with zero padding, for inputs of every size.

    Each output is the kernel, as a matrix with a row for each channel, times a patch of the input. No input is part of
    more than prod_i ceil(k_i / s_i) patches, with kernel sizes k_i and strides s_i. So the norm of the output is at
    most that of the input, times the kernel's spectral norm, times the square root of that number. The bound is reached
    where patches do not overlap. Power iteration would give a lower bound, for one size of input.

    Args:
        layer: a convolution.

    >>> convolution_norm_bound(nn.Conv2d(1, 4, 3, stride=3, bias=False)) > 0
    True
    """
    if layer.padding_mode != "zeros":
        raise ValueError(f"network must pad with zeros for the bound to hold; got {layer}")
    groups = layer.weight.detach().double().reshape(layer.groups, layer.out_channels // layer.groups, -1)
    steps = zip(layer.kernel_size, layer.stride, layer.dilation, strict=True)
    overlap = math.prod(math.ceil(k * math.gcd(stride, dilation) / stride) for k, stride, dilation in steps)
    return math.sqrt(overlap) * float(torch.linalg.matrix_norm(groups, 2).max())
