"""A linear layer and its loss in one. Most losses then never need the whole matrix of scores."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from symloss import checks
from symloss.losses import criterion, validation
from symloss.losses.base import Loss
from symloss.losses.criterion import AnyLoss, Criterion, Options, ScoreMap
from symloss.losses.kernels.batch import Examples
from symloss.losses.kernels.linear import CappedKernel, LinearKernel, Unit, UnitLinearKernel
from symloss.losses.kernels.linear_head import Allowance, BlockHead, Head, UnhingedHead, pays, unhinged_head
from symloss.losses.kernels.targets import kernel_for
from symloss.losses.layers import SoftCap, Temperature, UnitScores
from symloss.losses.logits import HALF, full_precision, without_autocast, working_type
from symloss.losses.operators import Symmetrize
from symloss.losses.potentials import CEPotential
from symloss.losses.spec import create_loss
from symloss.losses.validation import PLAIN


def linear_unhinged(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    normalize: str | None = "l2",
    **options: Any,
) -> Tensor:
    """Return the unhinged loss of the scores features @ weight.T + bias. The scores are not computed.

    Args:
        features: inputs of the linear layer, shape (..., d).
        weight: of the linear layer, shape (C, d).
        bias: of the linear layer, shape (C,), or None.
        target: class indices, shape (...).
        normalize: ``"l2"`` divides each score vector by its norm, None does not.
        options: all others of :func:`linear_loss`.

    Reference: Lemire Paquin, Chaib-draa, Giguère: Symmetrization of loss functions for robust training of neural
    networks in the presence of noisy labels. Section 4.1.

    >>> from symloss.functional import linear_unhinged, unhinged
    >>> h, w, y = torch.randn(80, 4), torch.randn(100, 4), torch.arange(80)
    >>> torch.allclose(linear_unhinged(h, w, None, y), unhinged(h @ w.T, y), atol=1e-6)
    True
    """
    return linear_loss(Symmetrize(CEPotential()), features, weight, bias, target, normalize=normalize, **options)


def linear_loss(
    loss: AnyLoss,
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    normalize: str | ScoreMap | None = None,
    temperature: Temperature = 1.0,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    num_items: float | Tensor | None = None,
    softcap: float | None = None,
    block_bytes: int | None = None,
    accumulate: torch.dtype | None = None,
) -> Tensor:
    """Any loss of the scores features @ weight.T + bias. Most losses need only a block of the scores at a time.

    Products are computed in the type of the weights, and the scores of a block in float32 at least. Features in another
    type are turned into that of the weights. Gradients are computed with the value. Only without a reduction, and in
    float16, they are computed in the backward pass, by a second product.

    Args:
        loss: of any kind that :class:`symloss.Criterion` takes, with its options.
        features: inputs of the linear layer, shape (..., d).
        weight: of the linear layer, shape (C, d). It may be shared with an embedding.
        bias: of the linear layer, shape (C,), or None.
        target: class indices, shape (...).
        normalize, temperature, ignore_index, reduction: as in :class:`symloss.Criterion`.
        class_weight: a weight for each class, shape (C,), as ``weight`` in :class:`symloss.Criterion`.
        num_items: a mean divides the sum of the values by this number instead of the number of examples that count.
            With it the parts of a batch add up to the mean of the whole batch, as gradient accumulation needs it.
        softcap: replaces the scores z by softcap * tanh(z / softcap), as some language models do.
        block_bytes: how many bytes the scores of a block may take; by default 160 MiB on a CPU and 1 GiB elsewhere.
        accumulate: ``torch.float32`` adds up the gradient of the weights in float32, which half precision rounds at
            every block. It takes one float32 tensor of their shape.

    >>> linear_loss("mae", torch.zeros(2, 3), torch.ones(4, 3), None, torch.tensor([0, 3]))
    tensor(0.7500)
    """
    if isinstance(loss, Loss):  # to build a module takes a third of the time of a small batch
        options = Options(class_weight, ignore_index, reduction, score_map=criterion.score_map(normalize, temperature))
    else:
        whole = Criterion(
            loss,
            weight=class_weight,
            ignore_index=ignore_index,
            reduction=reduction,
            normalize=normalize,
            temperature=temperature,
        )
        _refuse_smoothing(whole)
        options = Options(whole.weight, whole.ignore_index, whole.reduction, score_map=whole.score_map)
        loss = whole.loss
    how = _HeadLoss(loss, options, num_items, softcap, Allowance(block_bytes, accumulate))
    return _of_head(how, features, weight, bias, target)


class _HeadLoss(NamedTuple):
    """What a head computes, as a function of its tensors."""

    loss: Loss
    options: Options
    num_items: float | Tensor | None
    softcap: float | None
    allowance: Allowance

    def plain(self, z: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of all scores."""
        z = full_precision(z)
        z = z if self.softcap is None else SoftCap(self.softcap)(z)
        if self.num_items is None:
            return criterion.evaluate(self.loss, z, labels, self.options)
        return criterion.evaluate(self.loss, z, labels, self.options._replace(reduction="sum")) / self.num_items

    def way(self, head: Head, labels: Tensor) -> BlockHead | UnhingedHead | None:
        """Return what never holds all scores; None if only plain formulas serve this case."""
        (loss, options, num_items, softcap, allowance), classes = self, len(head.weight)
        scores = options.score_map
        unit = Unit(scores.temperature, scores.eps) if isinstance(scores, UnitScores) else None
        kernel = kernel_for(loss, classes, unit) if unit is not None or scores is None else None
        if kernel is None:
            return None
        kept = validation.kept(labels, classes, options.ignore_index)
        examples = Examples(labels, kept, None, options.reduction, num_items)

        def plain(*parts: Any) -> Tensor:
            return self.plain(Head(*parts).scores(), labels)

        if isinstance(kernel, (LinearKernel, UnitLinearKernel)) and softcap is None:
            # Only a look tells whether classes are masked out and whether the Gram matrix has lost digits.
            looks = validation.can_look(head.weight) or (unit is None and head.bias is None)
            if looks and pays(head, unit) and allowance.accumulate in (None, head.weight.dtype):
                return unhinged_head(kernel.factor, head, examples, unit, options.weight, plain)
        if options.weight is not None:
            if loss.symmetric:  # class weights keep it so, which takes all scores
                return None
            examples = examples.weighed(options.weight)
        return BlockHead(examples, plain, kernel if softcap is None else CappedKernel(kernel, softcap), allowance)


def _of_head(how: _HeadLoss, features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    options = how.options
    if not torch.compiler.is_compiling():
        criterion.check_options(options.ignore_index, options.reduction, 0.0)
        _check_head_options(how.num_items, options.reduction, how.softcap, how.allowance)
    _check_shapes(features, weight, bias, target)
    if options.weight is not None:
        validation.class_vector("class_weight", options.weight, len(weight))
    if options.score_map is not None:
        criterion.warn_of_flat_scores(how.loss, options.score_map, len(weight))
    labels = target.reshape(-1).long()
    rows = features.reshape(-1, features.shape[-1])
    if rows.dtype != weight.dtype and {rows.dtype, weight.dtype} & set(HALF):
        rows = rows.to(weight.dtype)
    with without_autocast(features.device):
        head = Head(rows, weight, None if bias is None else full_precision(bias))
        if not torch.compiler.is_compiling():
            value = _quick(how, head, labels)
        else:  # where all scores fit into the memory, the compiler fuses them with their loss
            value = None if len(labels) <= how.allowance.rows(weight) else _between_graphs(how, head, labels)
        value = how.plain(head.scores(), labels) if value is None else value
    return value.reshape(target.shape) if options.reduction == "none" else value


def _quick(how: _HeadLoss, head: Head, labels: Tensor) -> Tensor | None:
    """Return the loss without a matrix of all scores; None if there is no such way."""
    mixed = len({working_type(part) for part in head if part is not None}) > 1
    if mixed or labels.numel() == 0 or not validation.is_eager() or PLAIN.get():
        return None
    way = how.way(head, labels)
    return None if way is None else way.loss(*head)


_between_graphs = torch.compiler.disable(_quick)  # type: ignore[no-untyped-call]
"""The same, outside of the graphs that torch compiles: traced, it would hold all scores."""


def _check_head_options(num_items: object, reduction: str, softcap: object, allowance: Allowance) -> None:
    if num_items is not None:
        if reduction != "mean":
            raise ValueError(f"num_items is what a mean divides by; got reduction={reduction!r}")
        if not isinstance(num_items, Tensor):
            checks.number("num_items", num_items, "(0, inf)")
        elif num_items.numel() != 1:
            raise ValueError(f"num_items must be one number; got a tensor of shape {tuple(num_items.shape)}")
    if softcap is not None:
        checks.number("softcap", softcap, "(0, inf)")
    if allowance.block_bytes is not None:
        checks.number("block_bytes", allowance.block_bytes, "[1, inf)", whole=True)
    checks.choice("accumulate", allowance.accumulate, (None, torch.float32))


def _check_shapes(features: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> None:
    if weight.dim() != 2 or features.dim() < 1 or features.shape[-1] != weight.shape[1]:
        raise ValueError(
            "features must have shape (..., d) and weight (C, d); "
            f"got {tuple(features.shape)} and {tuple(weight.shape)}"
        )
    if bias is not None:
        validation.class_vector("bias", bias, len(weight))
    if target.is_floating_point() or target.dtype == torch.bool or target.shape != features.shape[:-1]:
        raise ValueError(
            f"target must hold class indices of shape {tuple(features.shape[:-1])}; "
            f"got {target.dtype} of shape {tuple(target.shape)}"
        )


def _refuse_smoothing(loss: Criterion) -> None:
    if loss.label_smoothing > 0:
        raise ValueError("a linear head takes no label_smoothing; on a symmetric loss it would only scale it")


class LinearLoss(nn.Module):
    """A linear layer and a loss in one module, for many classes. The scores of a batch are never all in memory.

    The parameters ``weight`` and ``bias`` start as in ``torch.nn.Linear``.

    Args:
        loss: a name such as ``"unhinged"`` or ``"sgce:q=0.8"``, or a loss of this package.
        in_features: size d of the features.
        num_classes: number of classes C.
        bias: whether the layer has a bias.
        class_weight: a weight for each class, shape (C,).
        softcap, block_bytes, accumulate: as in :func:`symloss.functional.linear_loss`.
        options: parameters and options of the loss, if ``loss`` is a name.

    Shapes: features (..., d), target (...) of class indices. ``forward`` also takes ``num_items``, as
    :func:`symloss.functional.linear_loss` does.

    >>> head = LinearLoss("unhinged", in_features=16, num_classes=1000)
    >>> features = torch.randn(8, 16)
    >>> head(features, torch.arange(8)).backward()
    >>> head.predict(features).shape
    torch.Size([8])
    """

    def __init__(
        self,
        loss: str | Criterion,
        in_features: int,
        num_classes: int,
        bias: bool = True,
        *,
        class_weight: Tensor | None = None,
        softcap: float | None = None,
        block_bytes: int | None = None,
        accumulate: torch.dtype | None = None,
        **options: Any,
    ):
        super().__init__()
        checks.number("in_features", in_features, "[1, inf)", whole=True)
        checks.number("num_classes", num_classes, "[1, inf)", whole=True)
        if isinstance(loss, Criterion) and options:
            raise TypeError(
                f"options such as {checks.shortened(next(iter(options)))} go with the name of a loss; "
                "got a loss that has its own"
            )
        if not isinstance(loss, (str, Criterion)):
            raise TypeError(f"loss must be a name or a loss of this package; got {type(loss).__name__}")
        self.criterion = create_loss(loss, **options) if isinstance(loss, str) else loss
        _refuse_smoothing(self.criterion)
        self.allowance, self.softcap = Allowance(block_bytes, accumulate), softcap
        _check_head_options(None, self.criterion.reduction, softcap, self.allowance)
        layer = nn.Linear(in_features, num_classes, bias)
        self.weight, self.bias = layer.weight, layer.bias
        class_weight = self.criterion.weight if class_weight is None else class_weight
        self.register_buffer("class_weight", class_weight, persistent=False)

    class_weight: Tensor | None

    def forward(self, features: Tensor, target: Tensor, num_items: float | Tensor | None = None) -> Tensor:
        c = self.criterion
        options = Options(self.class_weight, c.ignore_index, c.reduction, score_map=c.score_map)
        how = _HeadLoss(c.loss, options, num_items, self.softcap, self.allowance)
        return _of_head(how, features, self.weight, self.bias, target)

    def logits(self, features: Tensor) -> Tensor:
        """Return the scores (..., C) of features (..., d), for inference."""
        scores = F.linear(features, self.weight, self.bias)
        return scores if self.softcap is None else SoftCap(self.softcap)(scores)

    def predict(self, features: Tensor) -> Tensor:
        """Return the class with the largest score, shape (...), of features (..., d)."""
        return self.logits(features).argmax(-1)

    def extra_repr(self) -> str:
        classes, in_features = self.weight.shape
        return f"in_features={in_features}, classes={classes}, bias={self.bias is not None}"
