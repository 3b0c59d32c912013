"""Kernels of a linear layer and its loss in one. The scores of a batch are never all in memory.

The unhinged loss of the scores W h + b is h . (mean_k W_k - W_y) + mean(b) - b_y: it needs two rows instead of C. If
scores are divided by their norm, the squared norm is h' (W'W) h + 2 h' W'b + b'b: it needs a d x d matrix instead of
N x C scores. That takes 2 (C + N) d^2 multiplications instead of 3 N C d, and is done if it is less. Every other loss
is computed for one block of rows after another, together with the gradients of the block.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss.losses import validation
from symloss.losses.algebra import Loss
from symloss.losses.fast.batch import Unit, by_blocks, kernel_for, new_scratch
from symloss.losses.fast.kernels import Kernel
from symloss.losses.fast.linear_kernels import LinearKernel, UnitLinearKernel
from symloss.losses.fast.partials import constant
from symloss.losses.scores import unit as unit_scores

ROWS = 128
"""The number of examples whose scores are in memory at a time."""
LOST = 1000
"""A squared norm below this many times its rounding error is computed from the scores instead."""
GRAM_ROWS = 8192
"""The number of rows of the weights that are multiplied at a time. The blocks share their memory."""


class Head(NamedTuple):
    """A linear layer and its inputs."""

    features: Tensor
    """Shape (N, d)."""
    weight: Tensor
    """Shape (C, d)."""
    bias: Tensor | None
    """Shape (C,)."""

    def scores(self) -> Tensor:
        """All scores, shape (N, C)."""
        return F.linear(self.features, self.weight, self.bias)


def by_head_kernel(
    loss: Loss,
    head: Head,
    labels: Tensor,
    kept: Tensor | None,
    unit: Unit | None,
    class_weight: Tensor | None,
    reduction: str,
    plain: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """The loss of a linear layer's scores, without a matrix of all scores; None if there is no kernel for this case.

    Args:
        loss: an expression of the algebra.
        head: the linear layer and its inputs.
        labels: class indices (N,).
        kept: which examples count, shape (N,); None if all do.
        unit: divides the scores by their norm; None if they stay as they are.
        class_weight: a weight for each class, shape (C,), or None.
        reduction: "mean", "sum" or "none".
        plain: computes the loss from the scores, for second derivatives.
    """
    kernel = kernel_for(loss, len(head.weight), unit)
    if isinstance(kernel, (LinearKernel, UnitLinearKernel)) and pays(head, unit):
        return _unhinged(kernel.factor, head, labels, kept, unit, class_weight, reduction)
    if kernel is None or class_weight is not None or reduction == "none":
        return None
    return _in_blocks(kernel, head, labels, kept, reduction, plain)


def pays(head: Head, unit: Unit | None) -> bool:
    """Whether the Gram matrix takes fewer multiplications than the scores."""
    (n, d), c = head.features.shape, len(head.weight)
    return unit is None or 2 * (c + n) * d * d < 3 * n * c * d


class _Terms(NamedTuple):
    """The terms of the unhinged loss. It is r h . (mean W - W_y) + h . mean(spread W) for each example.

    With class weights w, r = w_y and spread = w - mean(w). A mean is a sum over the classes that are present, divided
    by their number. A class that is masked out has weights of 0.
    """

    labels: Tensor
    r: Tensor | float
    spread: Tensor | None
    classes: int
    unit: Unit | None


def _unhinged(
    factor: float,
    head: Head,
    labels: Tensor,
    kept: Tensor | None,
    unit: Unit | None,
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
    terms = _Terms(y, r, spread, classes, unit)
    values: Tensor = _Unhinged.apply(*head, terms)  # type: ignore[no-untyped-call]
    values = values if factor == 1 else factor * values
    values = values if kept is None else torch.where(kept, values, 0.0)
    if reduction != "mean":
        return values if reduction == "none" else values.sum()
    count = len(labels) if kept is None else kept.sum()
    return values.sum() / (count * mean_weight)


def _without_masked(head: Head, y: Tensor, kept: Tensor | None) -> tuple[Head, Tensor | None]:
    """The head with zeros for classes whose bias is -inf, and which classes are present (None: all).

    A label that is masked out raises an error.
    """
    h, weight, bias = head
    if bias is None or float(bias.detach().amin()) != -torch.inf:
        return head, None
    present = bias != -torch.inf
    each = torch.ones_like(y, dtype=torch.bool) if kept is None else kept
    validation.present_labels(bias.detach().expand(len(y), -1), y[:, None], each[:, None], 1)
    return Head(h, torch.where(present[:, None], weight, 0.0), torch.where(present, bias, 0.0)), present


class _Unhinged(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, terms: _Terms) -> Tensor:
        y = terms.labels
        values = (h * (weight.sum(0) / terms.classes - weight[y])).sum(1)
        if bias is not None:
            values += bias.sum() / terms.classes - bias[y]
        values = values * terms.r
        if terms.spread is not None:
            values += h @ (terms.spread @ weight / terms.classes)
            if bias is not None:
                values += terms.spread @ bias / terms.classes
        norm = pull = None
        if terms.unit is not None:
            norm, pull = norms(Head(h, weight, bias))
            values = (values / norm.clamp_min(terms.unit.eps) / terms.unit.temperature).to(h.dtype)
        ctx.save_for_backward(h, weight, bias, norm, pull, values)
        ctx.terms = terms
        return values

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        h, weight, bias, norm, pull, values = ctx.saved_tensors
        terms, wanted = ctx.terms, ctx.needs_input_grad
        if torch.is_grad_enabled():
            parts = [part for part, want in zip((h, weight, bias), wanted, strict=False) if want]
            value = _plain_unhinged(Head(h, weight, bias), terms)
            gradients = iter(torch.autograd.grad(value, parts, g, create_graph=True))
            return *(next(gradients) if want else None for want in wanted[:3]), None  # type: ignore[return-value]
        bend = None
        if terms.unit is not None:
            temperature, eps = terms.unit
            bend = torch.where(norm <= eps, 0.0, -g * values / norm / norm)
            g = (g / norm.clamp_min(eps) / temperature).to(h.dtype)
        return _unhinged_gradients(Head(h, weight, bias), terms, g, bend, pull, wanted)


class _Gram(NamedTuple):
    """W'W in float64, and a bound of its rounding error."""

    matrix: Tensor
    error: float


def _gram(weight: Tensor) -> _Gram:
    """W'W in float64.

    The products are computed in the precision of W, block by block. The mean row is subtracted first: if it is large,
    the products would lose their digits.
    """
    mean, double = weight.mean(0), torch.float64
    total = torch.zeros(weight.shape[1], weight.shape[1], dtype=double)
    rest = torch.zeros(weight.shape[1], dtype=double)
    half = weight.shape[1] // 2
    memory = torch.empty(min(GRAM_ROWS, len(weight)), weight.shape[1], dtype=weight.dtype)
    for start in range(0, len(weight), GRAM_ROWS):
        rows = weight[start : start + GRAM_ROWS]
        block = torch.sub(rows, mean, out=memory[: len(rows)])
        # The matrix is symmetric, so the lower left quarter is not computed.
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


def norms(head: Head) -> tuple[Tensor, Tensor]:
    """The norms (N,) of the scores, and W'(W h + b) of shape (N, d), which the gradient needs. Both are float64.

    If large terms cancel in a squared norm, the Gram matrix has lost its digits. Such rows use their scores instead.
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
    head: Head, terms: _Terms, g: Tensor, bend: Tensor | None, pull: Tensor | None, wanted: Any
) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
    """The gradients of the unhinged loss in features, weight and bias.

    Args:
        head: the linear layer and its inputs.
        terms: the terms of the loss.
        g: the derivative in the numerator of the loss.
        bend: twice the derivative in the squared norm.
        pull: half the gradient of the squared norm in the features.
        wanted: which of the gradients autograd needs.
    """
    (h, weight, bias), y, spread, classes = head, terms.labels, terms.spread, terms.classes
    to_mean = g * terms.r
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


def _plain_unhinged(head: Head, terms: _Terms) -> Tensor:
    """The unhinged loss by way of the scores, for second derivatives."""
    z = head.scores()
    if terms.unit is not None:
        z = unit_scores(z, 1, terms.unit.eps) / terms.unit.temperature
    label = z.gather(1, terms.labels[:, None]).squeeze(1)
    values = (z.sum(1) / terms.classes - label) * terms.r
    return values if terms.spread is None else values + z @ terms.spread / terms.classes


def _in_blocks(
    kernel: Kernel,
    head: Head,
    labels: Tensor,
    kept: Tensor | None,
    reduction: str,
    plain: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """The loss and its gradients, one block of rows after another; None if no example is kept."""
    count = len(labels) if kept is None else int(kept.sum())
    if count == 0:
        return None
    share = constant(1 / count if reduction == "mean" else 1.0, head.weight.dtype)
    if kept is not None:
        share = torch.where(kept[:, None], share, 0.0)
    y = labels if kept is None else torch.where(kept, labels, 0)
    wanted = [part is not None and part.requires_grad and torch.is_grad_enabled() for part in head]
    results = _block_gradients(kernel, head, y[:, None], share, wanted)
    if not any(wanted):
        return results[0]
    attached: Tensor = _Attached.apply(*head, *results, plain)  # type: ignore[no-untyped-call]
    return attached


def _block_gradients(
    kernel: Kernel, head: Head, y: Tensor, share: Tensor, wanted: list[bool]
) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    with torch.no_grad():
        h, weight, bias = (None if part is None else part.detach() for part in head)
        assert h is not None
        assert weight is not None
        d_h, d_weight, d_bias = (
            torch.zeros_like(part) if part is not None and want else None
            for part, want in zip(head, wanted, strict=True)
        )
        total = torch.zeros((), dtype=torch.float64)
        z, out = (torch.empty(min(ROWS, len(h)), len(weight), dtype=h.dtype) for _ in range(2))
        scratch = new_scratch(kernel, out)
        for start in range(0, len(h), ROWS):
            part = slice(start, start + ROWS)
            rows = len(h[part])
            torch.mm(h[part], weight.T, out=z[:rows])
            if bias is not None:
                z[:rows] += bias
            shares = share[part] if share.dim() else share
            values = by_blocks(kernel, z[:rows], y[part], shares, out[:rows], scratch)
            total += (values * shares).sum()
            if d_h is not None:
                torch.mm(out[:rows], weight, out=d_h[part])
            if d_weight is not None:
                d_weight.addmm_(out[:rows].T, h[part])
            if d_bias is not None:
                d_bias += out[:rows].sum(0)
    return total.to(h.dtype), d_h, d_weight, d_bias


class _Attached(torch.autograd.Function):
    """A value whose gradients have been computed already."""

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
    """The gradients by the plain formula: for second derivatives, and for a second backward pass."""
    again, wanted = torch.is_grad_enabled(), ctx.needs_input_grad[:3]
    with torch.enable_grad():
        parts = [part if again or part is None else part.detach().requires_grad_() for part in ctx.saved_tensors]
        inputs = [part for part, want in zip(parts, wanted, strict=True) if want]
        gradients = iter(torch.autograd.grad(ctx.plain(Head(*parts).scores()), inputs, g, create_graph=again))
    return [next(gradients) if want else None for want in wanted]
