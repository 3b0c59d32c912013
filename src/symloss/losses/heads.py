"""Losses of a linear layer, without its matrix of scores.

The unhinged loss of the scores W h + b is h . (mean_k W_k - W_y) + mean(b) - b_y: it reads two rows, not C. With
Euclidean normalisation the squared norm is h' (W'W) h + 2 h' W'b + b'b: a d x d matrix in place of N x C scores. That
takes 2 (C + N) d^2 multiplications against 3 N C d, and is chosen where it is less. Every other loss is taken in blocks
of rows whose gradients are formed at once, so that no more than a block of scores ever lives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from symloss import checks
from symloss.losses import kernels, validation
from symloss.losses.algebra import Loss
from symloss.losses.create import create_loss
from symloss.losses.criterion import Criterion, ScoreMap, score_map
from symloss.losses.evaluate import Options, check_options, evaluate
from symloss.losses.leaves import CE
from symloss.losses.operators import Symmetrize
from symloss.losses.scores import UnitScores, full_precision

ROWS = 128
"""Examples whose scores live at a time."""
LOST = 1000
"""How many times its rounding error a squared norm must be, lest the scores are taken."""
GRAM_ROWS = 8192
"""Rows of the weights that are multiplied at a time, in memory that is used again: fresh pages take longer."""


class Head(NamedTuple):
    """A linear layer and what goes into it."""

    features: Tensor
    weight: Tensor
    bias: Tensor | None

    def scores(self) -> Tensor:
        return F.linear(self.features, self.weight, self.bias)


def linear_unhinged(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    normalize: str | None = "l2",
    **options: Any,
) -> Tensor:
    """The unhinged loss of the scores features @ weight.T + bias, without the scores.

    Shapes: features (..., d), weight (C, d), bias (C,) or None, target (...) of class indices. Options:
    ``temperature``, ``class_weight``, ``ignore_index``, ``reduction``, as in every loss.

    >>> from symloss.functional import linear_unhinged, unhinged
    >>> h, w, y = torch.randn(80, 4), torch.randn(100, 4), torch.arange(80)
    >>> torch.allclose(linear_unhinged(h, w, None, y), unhinged(h @ w.T, y), atol=1e-6)
    True
    """
    return linear_loss(Symmetrize(CE()), features, weight, bias, target, normalize=normalize, **options)


def linear_loss(
    loss: Loss,
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    normalize: str | ScoreMap | None = None,
    temperature: float = 1.0,
    class_weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Any loss of the scores features @ weight.T + bias; where it can be, without a matrix of all of them."""
    if not torch.compiler.is_compiling():
        check_options(ignore_index, reduction, 0.0)
    _check_shapes(features, weight, bias, target)
    if class_weight is not None:
        validation.class_vector("class_weight", class_weight, len(weight))
    scores = score_map(normalize, temperature)
    labels = target.reshape(-1).long()
    with torch.autocast(features.device.type, enabled=False):
        rows = features.reshape(-1, features.shape[-1])
        head = Head(full_precision(rows), full_precision(weight), None if bias is None else full_precision(bias))
        quick = None
        if _quick_head(head, scores, labels):
            kept = validation.kept(labels, len(weight), ignore_index)
            if loss.linear is not None and _pays(head, scores):
                quick = _unhinged(loss.linear, head, labels, kept, scores, class_weight, reduction)
            elif class_weight is None and reduction != "none":
                quick = _in_blocks(loss, head, labels, kept, scores, reduction, ignore_index)
        if quick is None:
            options = Options(class_weight, ignore_index, reduction, score_map=scores)
            quick = evaluate(loss, head.scores(), labels, options)
    return quick.reshape(target.shape) if reduction == "none" else quick


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


def _quick_head(head: Head, scores: ScoreMap | None, labels: Tensor) -> bool:
    parts = [part for part in head if part is not None]
    if labels.numel() == 0 or not validation.can_look(*parts) or validation.forward_mode():
        return False
    return (scores is None or isinstance(scores, UnitScores)) and len({part.dtype for part in parts}) == 1


def _pays(head: Head, scores: ScoreMap | None) -> bool:
    """Whether the Gram matrix takes fewer multiplications than the scores."""
    (n, d), c = head.features.shape, len(head.weight)
    return scores is None or 2 * (c + n) * d * d < 3 * n * c * d


class _Plan(NamedTuple):
    """The unhinged loss as r h . (mean W - W_y) + h . mean(spread W), example by example.

    With class weights w that is r = w_y and spread = w - mean(w). A mean is a sum over classes that are present,
    divided by how many these are; those that are masked out have weights 0.
    """

    labels: Tensor
    r: Tensor | float
    spread: Tensor | None
    classes: int
    unit: tuple[float, float] | None


def _unhinged(
    factor: float,
    head: Head,
    labels: Tensor,
    kept: Tensor | None,
    scores: ScoreMap | None,
    class_weight: Tensor | None,
    reduction: str,
) -> Tensor:
    y = labels if kept is None else torch.where(kept, labels, 0)
    head, present = _without_masked(head, y, kept)
    classes = len(head.weight) if present is None else int(present.sum())
    r: Tensor | float = 1.0
    mean_weight: Tensor | float = 1.0
    spread = None
    if class_weight is not None:
        w = class_weight.to(head.weight)
        w = w if present is None else torch.where(present, w, 0.0)
        mean_weight = w.sum() / classes
        r, spread = w[y], w - mean_weight if present is None else torch.where(present, w - mean_weight, 0.0)
    plan = _Plan(y, r, spread, classes, scores.unit if isinstance(scores, UnitScores) else None)
    values: Tensor = _Unhinged.apply(*head, plan)  # type: ignore[no-untyped-call]
    values = values if factor == 1 else factor * values
    values = values if kept is None else torch.where(kept, values, 0.0)
    if reduction != "mean":
        return values if reduction == "none" else values.sum()
    count = len(labels) if kept is None else kept.sum()
    return values.sum() / (count * mean_weight)


def _without_masked(head: Head, y: Tensor, kept: Tensor | None) -> tuple[Head, Tensor | None]:
    """The head with zeros for classes whose bias is -inf, and which are left; None for all. No label must be masked."""
    h, weight, bias = head
    if bias is None or float(bias.detach().amin()) != -torch.inf:
        return head, None
    present = bias != -torch.inf
    each = torch.ones_like(y, dtype=torch.bool) if kept is None else kept
    validation.present_labels(bias.detach().expand(len(y), -1), y[:, None], each[:, None], 1)
    return Head(h, torch.where(present[:, None], weight, 0.0), torch.where(present, bias, 0.0)), present


class _Unhinged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, plan: _Plan) -> Tensor:
        y = plan.labels
        values = (h * (weight.sum(0) / plan.classes - weight[y])).sum(1)
        if bias is not None:
            values += bias.sum() / plan.classes - bias[y]
        values = values * plan.r
        if plan.spread is not None:
            values += h @ (plan.spread @ weight / plan.classes)
            if bias is not None:
                values += plan.spread @ bias / plan.classes
        norm = pull = None
        if plan.unit is not None:
            norm, pull = _norm(Head(h, weight, bias))
            values = (values / norm.clamp_min(plan.unit[1]) / plan.unit[0]).to(h.dtype)
        ctx.save_for_backward(h, weight, bias, norm, pull, values)
        ctx.plan = plan
        return values

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        h, weight, bias, norm, pull, values = ctx.saved_tensors
        plan, wanted = ctx.plan, ctx.needs_input_grad
        if torch.is_grad_enabled():
            parts = [part for part, want in zip((h, weight, bias), wanted, strict=False) if want]
            found = iter(torch.autograd.grad(_plain_unhinged(Head(h, weight, bias), plan), parts, g, create_graph=True))
            return *(next(found) if want else None for want in wanted[:3]), None  # type: ignore[return-value]
        bend = None
        if plan.unit is not None:
            temperature, eps = plan.unit
            bend = torch.where(norm <= eps, 0.0, -g * values / norm / norm)
            g = (g / norm.clamp_min(eps) / temperature).to(h.dtype)
        return _unhinged_gradients(Head(h, weight, bias), plan, g, bend, pull, wanted)


class _Gram(NamedTuple):
    """W'W in float64, and what it may be off by."""

    matrix: Tensor
    error: float


def _gram(weight: Tensor) -> _Gram:
    """W'W in float64. Products are in W's own precision, of blocks without the mean row, which they would drown in."""
    mean, double = weight.mean(0), torch.float64
    total = torch.zeros(weight.shape[1], weight.shape[1], dtype=double)
    rest = torch.zeros(weight.shape[1], dtype=double)
    half = weight.shape[1] // 2
    memory = torch.empty(min(GRAM_ROWS, len(weight)), weight.shape[1], dtype=weight.dtype)
    for start in range(0, len(weight), GRAM_ROWS):
        rows = weight[start : start + GRAM_ROWS]
        block = torch.sub(rows, mean, out=memory[: len(rows)])
        # The lower left quarter is the upper right one's mirror image.
        total[:half] += block[:, :half].T @ block
        total[half:, half:] += block[:, half:].T @ block[:, half:]
        rest += block.sum(0)
    total[half:, :half] = total[:half, half:].T
    size = float(total.norm())
    if weight.dtype != double and not math.isfinite(size):
        return _gram(weight.double())
    mean = mean.to(double)
    cross = torch.outer(mean, rest + len(weight) / 2 * mean)
    matrix = total + cross + cross.T
    return _Gram(matrix, torch.finfo(weight.dtype).eps * size + torch.finfo(double).eps * float(matrix.norm()))


def _norm(head: Head) -> tuple[Tensor, Tensor]:
    """The norm of the scores, and W'(W h + b), which its gradient takes; both in float64.

    Where the square is what is left of terms that cancel, the Gram matrix has lost it: the scores have not.
    """
    (h, weight, bias), gram = head, _gram(head.weight)
    wide = h.double()
    pull, length = wide @ gram.matrix, wide.square().sum(1)
    square, error = (pull * wide).sum(1), gram.error * length
    if bias is not None:
        moment, offset = (weight.T @ bias).double(), bias.double().square().sum()
        square += 2 * (wide @ moment) + offset
        pull += moment
        error += torch.finfo(h.dtype).eps * (offset * gram.matrix.trace() * length).sqrt()
    norm = square.clamp_min(0).sqrt()
    lost = ((square < LOST * error) & (length > 0)).nonzero().flatten()
    for start in range(0, len(lost), ROWS):
        rows = lost[start : start + ROWS]
        z = head._replace(features=h[rows]).scores()
        norm[rows] = torch.linalg.vector_norm(z, dim=1, dtype=torch.float64)
        pull[rows] = (z @ weight).double()
    return norm, pull


def _unhinged_gradients(
    head: Head, plan: _Plan, g: Tensor, bend: Tensor | None, pull: Tensor | None, wanted: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
    """g: derivative in the numerator; bend: in the squared norm, twice; pull: half the squared norm's gradient."""
    (h, weight, bias), y, spread, classes = head, plan.labels, plan.spread, plan.classes
    to_mean = g * plan.r
    bent = None if bend is None else bend[:, None] * h
    d_h = d_weight = d_bias = None
    if wanted[0]:
        d_h = (weight.sum(0) / classes - weight[y]).mul_(to_mean[:, None])
        if spread is not None:
            d_h += torch.outer(g, spread @ weight / classes)
        if bend is not None and pull is not None:
            d_h += (bend[:, None] * pull).to(h.dtype)
    if wanted[1]:
        row = to_mean @ h / classes
        if bent is None:
            d_weight = row.expand_as(weight).contiguous()
        else:
            d_weight = torch.addmm(row, weight, (bent.T @ h.double()).to(h.dtype))
            if bias is not None:
                d_weight.addr_(bias, bent.sum(0).to(h.dtype))
        d_weight.index_add_(0, y, h * -to_mean[:, None])
        if spread is not None:
            d_weight.addr_(spread / classes, g @ h)
    if bias is not None and wanted[2]:
        d_bias = (to_mean.sum() / classes).expand_as(bias).clone()
        d_bias.index_add_(0, y, -to_mean)
        if spread is not None:
            d_bias += spread / classes * g.sum()
        if bend is not None and bent is not None:
            d_bias += weight @ bent.sum(0).to(h.dtype) + bias * bend.sum().to(h.dtype)
    return d_h, d_weight, d_bias, None


def _plain_unhinged(head: Head, plan: _Plan) -> Tensor:
    """The same by way of the scores, for second derivatives."""
    z = head.scores()
    if plan.unit is not None:
        z = UnitScores(*plan.unit)(z)
    own = z.gather(1, plan.labels[:, None]).squeeze(1)
    values = (z.sum(1) / plan.classes - own) * plan.r
    return values if plan.spread is None else values + z @ plan.spread / plan.classes


def _in_blocks(
    loss: Loss,
    head: Head,
    labels: Tensor,
    kept: Tensor | None,
    scores: ScoreMap | None,
    reduction: str,
    ignore_index: int,
) -> Tensor | None:
    """The loss and its gradients, a block of rows at a time; None where only the plain formulas serve."""
    unit = scores.unit if isinstance(scores, UnitScores) else None
    kernel = kernels.kernel(loss, len(head.weight), unit)
    count = len(labels) if kept is None else int(kept.sum())
    if kernel is None or count == 0:
        return None
    share = kernels.constant(1 / count if reduction == "mean" else 1.0, head.weight.dtype)
    if kept is not None:
        share = torch.where(kept[:, None], share, 0.0)
    y = labels if kept is None else torch.where(kept, labels, 0)
    wanted = [part is not None and part.requires_grad and torch.is_grad_enabled() for part in head]
    found = _block_gradients(kernel, head, y[:, None], share, wanted)
    if not any(wanted):
        return found[0]

    def plain(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        z = Head(h, weight, bias).scores()
        return evaluate(loss, z, labels, Options(None, ignore_index, reduction, score_map=scores))

    attached: Tensor = _Attached.apply(*head, *found, plain)  # type: ignore[no-untyped-call]
    return attached


def _block_gradients(
    kernel: kernels.Block, head: Head, y: Tensor, share: Tensor, wanted: list[bool]
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    with torch.no_grad():
        h, weight, bias = (None if part is None else part.detach() for part in head)
        assert h is not None
        assert weight is not None
        d_h, d_weight, d_bias = (
            torch.zeros_like(part) if part is not None and want else None
            for part, want in zip(head, wanted, strict=True)
        )
        total, scratch = torch.zeros((), dtype=torch.float64), kernels.Scratch()
        z, out = (torch.empty(min(ROWS, len(h)), len(weight), dtype=h.dtype) for _ in range(2))
        for start in range(0, len(h), ROWS):
            part = slice(start, start + ROWS)
            rows = len(h[part])
            torch.mm(h[part], weight.T, out=z[:rows])
            if bias is not None:
                z[:rows] += bias
            shares = share[part] if share.dim() else share
            values = kernels.by_blocks(kernel, z[:rows], y[part], shares, out[:rows], scratch)
            total += (values * shares).sum()
            if d_h is not None:
                torch.mm(out[:rows], weight, out=d_h[part])
            if d_weight is not None:
                d_weight.addmm_(out[:rows].T, h[part])
            if d_bias is not None:
                d_bias += out[:rows].sum(0)
    return total.to(h.dtype), d_h, d_weight, d_bias


class _Attached(torch.autograd.Function):
    """A value whose gradients are known already."""

    @staticmethod
    def forward(
        ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, value: Tensor,
        d_h: Tensor | None, d_weight: Tensor | None, d_bias: Tensor | None, plain: Callable[..., Tensor],
    ) -> Tensor:  # fmt: skip
        ctx.save_for_backward(h, weight, bias)
        ctx.gradients, ctx.plain = (d_h, d_weight, d_bias), plain
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is None or torch.is_grad_enabled():
            return *_by_plain(ctx, g), None, None, None, None, None
        if float(g) != 1:
            gradients = tuple(None if part is None else part.mul_(g) for part in gradients)
        return *gradients, None, None, None, None, None


def _by_plain(ctx: Any, g: Tensor) -> list[Tensor | None]:
    """Second derivatives, and a second backward: the first one gave its gradients away."""
    again, wanted = torch.is_grad_enabled(), ctx.needs_input_grad[:3]
    with torch.enable_grad():
        parts = [part if again or part is None else part.detach().requires_grad_() for part in ctx.saved_tensors]
        inputs = [part for part, want in zip(parts, wanted, strict=True) if want]
        found = iter(torch.autograd.grad(ctx.plain(*parts), inputs, g, create_graph=again))
    return [next(found) if want else None for want in wanted]


class LinearLoss(nn.Module):
    """A linear layer and a loss in one, for many classes: the scores of a batch are never all in memory.

    Args:
        loss: a name such as ``"unhinged"`` or ``"sgce:q=0.8"``, or a loss of this package.
        in_features, classes, bias: of the layer; ``weight`` and ``bias`` start as in ``torch.nn.Linear``.
        options: of the loss, if it is given by name (``class_weight`` for its weights).

    >>> head = LinearLoss("unhinged", in_features=16, classes=1000)
    >>> features = torch.randn(8, 16)
    >>> head(features, torch.arange(8)).backward()
    >>> head.predict(features).shape
    torch.Size([8])
    """

    def __init__(
        self,
        loss: str | Criterion,
        in_features: int,
        classes: int,
        bias: bool = True,
        *,
        class_weight: Tensor | None = None,
        **options: Any,
    ):
        super().__init__()
        checks.number("in_features", in_features, "[1, inf)", whole=True)
        checks.number("classes", classes, "[1, inf)", whole=True)
        if isinstance(loss, Criterion) and options:
            raise TypeError(
                f"options such as {next(iter(options))} go with the name of a loss; got a loss that has its own"
            )
        if not isinstance(loss, (str, Criterion)):
            raise TypeError(f"loss must be a name or a loss of this package; got {type(loss).__name__}")
        self.criterion = create_loss(loss, **options) if isinstance(loss, str) else loss
        if self.criterion.label_smoothing > 0:
            raise ValueError("LinearLoss takes no label_smoothing; on a symmetric loss it would only scale it")
        layer = nn.Linear(in_features, classes, bias)
        self.weight, self.bias = layer.weight, layer.bias
        self.register_buffer("class_weight", self.criterion.weight if class_weight is None else class_weight)

    class_weight: Tensor | None

    def forward(self, features: Tensor, target: Tensor) -> Tensor:
        c = self.criterion
        return linear_loss(
            c.loss, features, self.weight, self.bias, target,
            normalize=c.normalize, temperature=c.temperature, class_weight=self.class_weight,
            ignore_index=c.ignore_index, reduction=c.reduction,
        )  # fmt: skip

    def logits(self, features: Tensor) -> Tensor:
        """The scores of every class, for inference."""
        return F.linear(features, self.weight, self.bias)

    def predict(self, features: Tensor) -> Tensor:
        """The class with the largest score."""
        return self.logits(features).argmax(-1)

    def extra_repr(self) -> str:
        classes, in_features = self.weight.shape
        return f"in_features={in_features}, classes={classes}, bias={self.bias is not None}"
