"""Symmetric regression losses: the symmetric part of any loss, and losses linear in the prediction (app. F)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.criterion import REDUCTIONS
from symloss.losses.layers import tensors_of
from symloss.losses.logits import full_precision
from symloss.losses.operators import unreduced_copy
from symloss.noise.targets import WANTED, AnyTargetDistribution
from symloss.theory.regression.target_noise import Rule, Sample, TargetNoise, recognised, target_noise

RegressionLoss = nn.Module | Callable[..., Tensor]

TRUSTED = 1e-2
"""A mean with a larger error than this times (1 + mean absolute loss) is refused, since it may not exist."""


def check_pair(input: object, target: object) -> None:
    """Check that predictions and targets have one shape. Broadcasting is refused, since it is mostly a mistake."""
    for name, value in (("input", input), ("target", target)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(value).__name__}")
    assert isinstance(input, Tensor)
    assert isinstance(target, Tensor)
    if not input.is_floating_point():
        raise TypeError(f"input must hold floating-point predictions; got {input.dtype}")
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must hold real numbers; got {target.dtype}")
    if input.shape != target.shape:
        raise ValueError(
            f"target must have the input's shape {tuple(input.shape)}, one number for each prediction; "
            f"got {tuple(target.shape)}"
        )


def reduced(values: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of the values, or the values themselves for ``"none"``."""
    if reduction == "none":
        return values
    return values.sum() if reduction == "sum" else values.mean()


class SymmetrizedRegression(nn.Module):
    """The loss L(z, y) - E_{T ~ q} L(z, T). :func:`symmetrize_regression` returns it.

    Args:
        loss, corruption, nodes, reduction: as in :func:`symmetrize_regression`.

    Shapes: input and target have one shape, to which the batch of a distribution must broadcast. Everything is computed
    in float64, because the two terms nearly cancel, and returned in the input's precision (float32 for half precision).
    """

    def __init__(
        self, loss: RegressionLoss, corruption: AnyTargetDistribution, nodes: int = 64, reduction: str = "mean"
    ):
        super().__init__()
        if isinstance(loss, type) or not callable(loss):
            given = loss.__name__ if isinstance(loss, type) else type(loss).__name__
            raise TypeError(f"loss must be a torch module or a function of (input, target); got {given}")
        checks.choice("reduction", reduction, REDUCTIONS)
        self.nodes = int(checks.number("nodes", nodes, "[4, 160]", whole=True))
        self.loss, self.reduction = loss, reduction
        self.residual = recognised(loss)
        self.of_x = callable(corruption) and not isinstance(corruption, TargetNoise)
        self.corruption = corruption if self.of_x else target_noise(corruption)
        self._rules: dict[int, Rule] = {}
        if not self.of_x:
            self._refuse_no_mean()

    def forward(self, input: Tensor, target: Tensor, x: Any = None) -> Tensor:
        """The symmetrized loss of predictions at targets. x is the argument of a corruption that is a function of x."""
        check_pair(input, target)
        z = input.double()
        values = self._values(z, target.double()) - self._mean(z, self.at(x), self.nodes)
        return reduced(values.to(full_precision(input).dtype), self.reduction)

    def expected(self, input: Tensor, x: Any = None) -> Tensor:
        """E_{T ~ q} L(z, T) for each prediction z: the label-insensitive part of the loss (gamma in lemma F.2)."""
        check_pair(input, input)
        return self._mean(input.double(), self.at(x), self.nodes).to(full_precision(input).dtype)

    def error(self, input: Tensor, x: Any = None) -> Tensor:
        """An estimate of the error of ``expected``, for each prediction. It is not a bound.

        0 for a closed form. For a quadrature: 1.5 times the largest difference to rules of two and three times as many
        nodes, plus the terms at the outermost points. For a sample: the standard error of its mean. Where the loss has
        kinks, the estimate is as rough as the quadrature.
        """
        check_pair(input, input)
        return self._error(input.double(), self.at(x)).to(full_precision(input).dtype)

    def method(self, x: Any = None) -> str:
        """How the mean is computed: ``"closed form"``, ``"sum"`` (finitely many values) or ``"quadrature"``."""
        q = self.at(x)
        if self._closed(torch.zeros((), dtype=torch.float64), q) is not None:
            return "closed form"
        return "sum" if self._rule(q, self.nodes).exact else "quadrature"

    def extra_repr(self) -> str:
        name = (
            "" if isinstance(self.loss, nn.Module) else f"{getattr(self.loss, '__name__', type(self.loss).__name__)}, "
        )
        return f"{name}corruption={checks.brief(self.corruption)}, reduction={self.reduction!r}"

    def at(self, x: Any = None) -> TargetNoise:
        """The corruption, at x if it is a function of x."""
        if not self.of_x:
            assert isinstance(self.corruption, TargetNoise)
            return self.corruption
        if x is None:
            raise TypeError("x must be given, because the corruption is a function of x; got None")
        assert callable(self.corruption)
        return target_noise(self.corruption(x))

    def _rule(self, q: TargetNoise, nodes: int) -> Rule:
        if self.of_x:
            return q.rule(nodes)
        if nodes not in self._rules:
            self._rules[nodes] = q.rule(nodes)
        return self._rules[nodes]

    def _closed(self, z: Tensor, q: TargetNoise) -> Tensor | None:
        return None if self.residual is None else self.residual.mean(z, q)

    def _mean(self, z: Tensor, q: TargetNoise, nodes: int) -> Tensor:
        refuse_unfit(q.batch, z)
        found = self._closed(z, q)
        if found is None:
            values, weights = self._terms(z, self._rule(q, nodes))
            found = (weights * values).sum(0)
        if validation.can_look(found) and not bool(found.isfinite().all()) and bool(z.isfinite().all()):
            raise ValueError(f"the mean of the loss under corruption {q!r} is not finite at a prediction of the batch")
        return found

    def _terms(self, z: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
        """The loss of every prediction at every point, and the weights: both (n, *shape of z)."""
        count, *batch = rule.points.shape
        shape = (count, *(1,) * (z.dim() - len(batch)), *batch)
        points, weights = (part.to(z.device).reshape(shape).expand(count, *z.shape) for part in rule[:2])
        values = self._values(z.expand(count, *z.shape), points)
        # The loss may overflow at a point of weight 0.
        return torch.where(weights > 0, values, 0.0), weights

    def _values(self, z: Tensor, t: Tensor) -> Tensor:
        values = unreduced_copy(self.loss)(z, t)
        if not isinstance(values, Tensor) or values.shape != z.shape:
            given = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                "the loss must return one value for each prediction (reduction='none'), "
                f"shape {tuple(z.shape)}; got {given}"
            )
        return values

    def _error(self, z: Tensor, q: TargetNoise) -> Tensor:
        if isinstance(q, Sample):
            values, _ = self._terms(z, self._rule(q, self.nodes))
            alone = len(values) == 1
            return torch.full_like(z, torch.inf) if alone else values.std(0) / math.sqrt(len(values))
        return self._quadrature_error(z, q)

    def _quadrature_error(self, z: Tensor, q: TargetNoise) -> Tensor:
        refuse_unfit(q.batch, z)
        if self._closed(z, q) is not None:
            return torch.zeros_like(z)
        rule = self._rule(q, self.nodes)
        if rule.exact:
            return torch.zeros_like(z)
        values, weights = self._terms(z, rule)
        terms = weights * values
        found = terms.sum(0)
        finer = [(found - self._mean(z, q, factor * self.nodes)).abs() for factor in (2, 3)]
        ends = terms[list(rule.ends)].abs().sum(0)
        # At a kink the error falls with the square of the distance of nodes: a finer rule has a quarter of it left.
        return 1.5 * torch.maximum(*finer) + ends + rule.lost * found.abs()

    def _refuse_no_mean(self) -> None:
        q = self.at()
        z = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64).reshape(3, *(1,) * len(q.batch)).expand(3, *q.batch)
        with torch.no_grad():
            self._mean(z, q, self.nodes)
            if self._closed(z, q) is None:
                self.refuse_rough(z, q)

    def refuse_rough(self, z: Tensor, q: TargetNoise) -> Tensor:
        """The error of the quadrature at z; ValueError if it is too large, as where the mean does not exist."""
        values, weights = self._terms(z, self._rule(q, self.nodes))
        error, size = self._quadrature_error(z, q), (weights * values.abs()).sum(0)
        off = ~(error <= TRUSTED * (1 + size))
        if bool(off.any()):
            doubt, where = (float(part[off].flatten()[0]) for part in (error, z))
            raise ValueError(
                f"the mean of the loss under corruption {q!r} does not exist or needs more nodes: with {self.nodes} "
                f"its error is {doubt:.2g} at the prediction {where:g}"
            )
        return error


def refuse_unfit(batch: tuple[int, ...], z: Tensor) -> None:
    """Raise ValueError unless the batch of a corruption broadcasts to the shape of the predictions."""
    fits = len(batch) <= z.dim() and all(n in (1, m) for n, m in zip(reversed(batch), reversed(z.shape), strict=False))
    if not fits:
        raise ValueError(
            f"the corruption's batch must broadcast to the predictions' shape {tuple(z.shape)}; got {batch}"
        )


def symmetrize_regression(
    loss: RegressionLoss, corruption: AnyTargetDistribution, *, nodes: int = 64, reduction: str = "mean"
) -> SymmetrizedRegression:
    """The symmetric part L(z, y) - E_{T ~ q} L(z, T) of a regression loss, which corrupted targets do not bias.

    If a share p < 1 of the targets is replaced by draws from q, the risk of this loss on the corrupted data is 1 - p
    times its risk on the clean data (lemma F.2 and corollary F.4).

    Args:
        loss: any differentiable function or module of (input, target) that works entry by entry. Its own reduction is
            ignored.
        corruption: q, as a distribution of torch (a batch of them differs from example to example), a sample of
            corrupted targets of shape (M,), or a function of x that returns either; x is then the third argument of
            the call.
        nodes: the number of nodes of the quadrature, where there is no closed form. There are closed forms for torch's
            squared error under any distribution with a variance, and for its absolute error, Huber and smooth L1 loss
            under normal, uniform and Laplace distributions, their mixtures, and samples.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Of the result, ``expected(z)`` is the mean, ``method()`` tells how it is computed, and ``error(z)`` estimates its
    error.

    >>> from torch.distributions import Normal
    >>> robust = symmetrize_regression(nn.MSELoss(), Normal(0.0, 1.0))
    >>> robust(torch.tensor([3.0]), torch.tensor([2.0]))  # -2 z y + y^2 - 1
    tensor(-9.)
    >>> robust.method()
    'closed form'
    >>> logcosh = symmetrize_regression(lambda z, y: (z - y).cosh().log(), Normal(0.0, 1.0), reduction="none")
    >>> logcosh.method(), bool(logcosh.error(torch.tensor([0.5])) < 1e-8)
    ('quadrature', True)
    """
    if corruption is None:
        raise TypeError(f"corruption {WANTED}; got None")
    return SymmetrizedRegression(loss, corruption, nodes, reduction)


def clipped(values: Tensor, delta: float | None) -> Tensor:
    """chi_delta: values clipped to [-delta, delta]; unchanged if delta is None."""
    return values if delta is None else values.clamp(-delta, delta)


class BoundedOutput(nn.Module):
    """The map center + bound * tanh((z - center) / bound), which keeps predictions within center -+ bound.

    It does not read the target. So a symmetric loss stays symmetric, and a linear loss becomes bounded.

    Args:
        bound: the largest distance from the center.
        center: the middle of the range.

    >>> BoundedOutput(2.0)(torch.tensor([0.01, 100.0]))
    tensor([0.0100, 2.0000])
    """

    def __init__(self, bound: float, center: float = 0.0):
        super().__init__()
        self.bound = checks.number("bound", bound, "(0, inf)")
        self.center = checks.number("center", center, "(-inf, inf)")

    def forward(self, input: Tensor) -> Tensor:
        return self.center + self.bound * torch.tanh((input - self.center) / self.bound)

    def extra_repr(self) -> str:
        return f"bound={self.bound:g}, center={self.center:g}"


class LinearRegressionLoss(nn.Module):
    """The loss (f(y) - E_{T ~ q} f(T)) z. Every linear loss that is symmetric under q has this form (app. F).

    Args:
        f: a function of a tensor of targets, entry by entry. The unhinged loss has f(y) = -y.
        corruption: q, as in :func:`symmetrize_regression`. None if f has mean zero already.
        bound: z is replaced by bound * tanh(z / bound). With None the loss is unbounded below, and a penalty such as
            :func:`weight_decay` must keep the network finite.
        nodes, reduction: as in :func:`symmetrize_regression`.

    >>> from torch.distributions import Exponential
    >>> loss = LinearRegressionLoss(lambda y: -y, Exponential(0.5))  # corrupted targets have mean 2
    >>> loss(torch.tensor([1.0]), torch.tensor([5.0]))
    tensor(-3.)
    """

    def __init__(
        self,
        f: Callable[[Tensor], Tensor],
        corruption: AnyTargetDistribution | None = None,
        *,
        bound: float | None = None,
        nodes: int = 160,
        reduction: str = "mean",
    ):
        super().__init__()
        if not callable(f):
            raise TypeError(f"f must be a function of a tensor of targets; got {checks.brief(f)}")
        checks.choice("reduction", reduction, REDUCTIONS)
        self.f, self.reduction = f, reduction
        self.bounded = nn.Identity() if bound is None else BoundedOutput(bound)
        # As a loss, f does not read the prediction. Its mean is what symmetrization subtracts.
        self.as_loss = None if corruption is None else SymmetrizedRegression(self._f, corruption, nodes, "none")

    def _f(self, _: Tensor, target: Tensor) -> Tensor:
        return self.f(target)

    def forward(self, input: Tensor, target: Tensor, x: Any = None) -> Tensor:
        check_pair(input, target)
        z = full_precision(input)
        slope = self.f(target.to(z.dtype))
        if not isinstance(slope, Tensor) or slope.shape != z.shape:
            given = f"shape {tuple(slope.shape)}" if isinstance(slope, Tensor) else type(slope).__name__
            raise ValueError(f"f must return one number for each target, shape {tuple(z.shape)}; got {given}")
        if self.as_loss is not None:
            refuse_unfit(self.as_loss.at(x).batch, z)
            slope = slope - self.mean(x).to(slope)
        return reduced(slope * self.bounded(z), self.reduction)

    def mean(self, x: Any = None) -> Tensor:
        """E_{T ~ q} f(T), in the shape of the corruption's batch; 0 without a corruption."""
        return torch.zeros(()) if self.as_loss is None else self.as_loss.expected(self._zero(x), x)

    def error(self, x: Any = None) -> Tensor:
        """An estimate of the error of ``mean``, as in :meth:`SymmetrizedRegression.error`."""
        return torch.zeros(()) if self.as_loss is None else self.as_loss.error(self._zero(x), x)

    def _zero(self, x: Any) -> Tensor:
        assert self.as_loss is not None
        return torch.zeros(self.as_loss.at(x).batch, dtype=torch.float64)


class UnhingedRegressionLoss(nn.Module):
    """The unhinged loss of regression, -chi_delta(y - m) (z - m) (examples F.5 and F.7).

    Without delta it is half the symmetrization of the squared error, up to terms without z, for any corruption of
    mean m. With delta it is the linear approximation at m of the symmetrized Huber loss, for any corruption that is
    symmetric about m.

    Args:
        delta: targets are clipped to m -+ delta; None for no clipping.
        corruption_mean: m, the mean of corrupted targets.
        bound: z is replaced by m + bound * tanh((z - m) / bound). With None the loss is unbounded below, and a penalty
            such as :func:`weight_decay` must keep the network finite.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    >>> UnhingedRegressionLoss(delta=2.0)(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 50.0]))
    tensor(-1.5000)
    """

    def __init__(
        self,
        delta: float | None = None,
        corruption_mean: float = 0.0,
        *,
        bound: float | None = None,
        reduction: str = "mean",
    ):
        super().__init__()
        checks.choice("reduction", reduction, REDUCTIONS)
        self.delta = None if delta is None else checks.number("delta", delta, "(0, inf)")
        self.corruption_mean = checks.number("corruption_mean", corruption_mean, "(-inf, inf)")
        self.bounded = nn.Identity() if bound is None else BoundedOutput(bound, self.corruption_mean)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        check_pair(input, target)
        z = full_precision(input)
        offset = target.to(z.dtype) - self.corruption_mean
        values = -clipped(offset, self.delta) * (self.bounded(z) - self.corruption_mean)
        return reduced(values, self.reduction)

    def extra_repr(self) -> str:
        return f"delta={self.delta}, corruption_mean={self.corruption_mean:g}, reduction={self.reduction!r}"


def weight_decay(parameters: nn.Module | Iterable[Tensor], decay: float, layers: int = 1) -> Tensor:
    """The penalty decay / 2 * |w|^(2 layers), with the Euclidean norm |w| of all parameters.

    Add it to a linear loss, which is unbounded below without it. The output of a bias-free network of l layers grows
    like |w|^l, and a linear loss falls as fast. So plain weight decay (layers=1, as in the paper) bounds the loss of a
    linear model only, and a deeper network needs its number of layers.

    Args:
        parameters: a module, or tensors.
        decay: the factor.
        layers: the number of layers of the network.

    >>> weight_decay([torch.tensor([3.0, 4.0])], decay=0.1)
    tensor(1.2500)
    """
    decay = checks.number("decay", decay, "(0, inf)")
    layers = int(checks.number("layers", layers, "[1, inf)", whole=True))
    squares = torch.stack([tensor.square().sum() for tensor in tensors_of(parameters)]).sum()
    return decay / 2 * squares**layers
