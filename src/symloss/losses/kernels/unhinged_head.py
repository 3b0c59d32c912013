"""The unhinged loss of a linear layer. Its scores are not computed.

The unhinged loss of the scores W h + b is h . (mean_k W_k - W_y) + mean(b) - b_y: it needs two rows instead of C. If
scores are divided by their norm, the squared norm is h' (W'W) h + 2 h' W'b + b'b: it needs a d x d matrix instead of
N x C scores. That takes 2 (C + N) d^2 multiplications instead of 3 N C d, and is done if it is less.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.losses.kernels.batch import Examples, by_plain, is_batched
from symloss.losses.kernels.products import Head, add_at_labels, weighted_rows, write_scores
from symloss.losses.kernels.unit import Unit
from symloss.losses.logits import full_precision, working_type
from symloss.losses.logits import unit as unit_scores

LOST = 1000
"""A squared norm below this many times its rounding error is computed from the scores instead."""
LOST_ROWS = 128
"""The number of such rows whose scores are in memory at a time."""
GRAM_ROWS = 8192
"""The number of rows of the weights that are multiplied at a time. The blocks share their memory."""


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


def unhinged(factor: float, head: Head, examples: Examples, unit: Unit | None, class_weight: Tensor | None) -> Tensor:
    """The loss ``factor`` times unhinged of a linear layer's scores.

    Args:
        factor: a number.
        head: the linear layer and its inputs.
        examples: the labels, without the class weights.
        unit: divides the scores by their norm; None if they stay as they are.
        class_weight: a weight for each class, shape (C,), or None.
    """
    y = examples.labels.squeeze(1)
    head, present = _without_masked(head, y, examples.kept)
    classes = len(head.weight) if present is None else int(present.sum())
    r: Tensor | float = 1.0
    mean_weight: Tensor | float = 1.0
    spread = None
    if class_weight is not None:
        w = class_weight.to(head.weight.device, working_type(head.weight))
        w = w if present is None else torch.where(present, w, 0.0)
        mean_weight = w.sum() / classes
        r, spread = w[y], w - mean_weight if present is None else torch.where(present, w - mean_weight, 0.0)
    terms = _Terms(y, r, spread, classes, unit)
    values: Tensor = _Unhinged.apply(*head, terms)  # type: ignore[no-untyped-call]
    values = values if factor == 1 else factor * values
    divisor = examples.total if examples.divisor is not None else examples.total * mean_weight
    return examples._replace(divisor=divisor).reduced(values[:, None])


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
        y, wide = terms.labels, full_precision(h)
        values = (wide * _to_mean(weight, terms)).sum(1)
        if bias is not None:
            values += bias.sum() / terms.classes - bias[y]
        values = values * terms.r
        if terms.spread is not None:
            values += wide @ (weighted_rows(terms.spread, weight) / terms.classes)
            if bias is not None:
                values += terms.spread @ bias / terms.classes
        norm = pull = None
        if terms.unit is not None:
            norm, pull = norms(Head(h, weight, bias))
            temperature, eps = terms.unit.for_classes(len(weight))
            values = (values / norm.clamp_min(eps) / temperature).to(wide.dtype)
        ctx.save_for_backward(h, weight, bias, norm, pull, values)
        ctx.terms = terms
        return values

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        h, weight, bias, norm, pull, values = ctx.saved_tensors
        terms, wanted = ctx.terms, ctx.needs_input_grad
        if torch.is_grad_enabled() or is_batched(g):
            gradients = by_plain(lambda *parts: _plain_unhinged(Head(*parts), terms), (h, weight, bias), wanted[:3], g)
            return gradients[0], gradients[1], gradients[2], None
        bend = None
        if terms.unit is not None:
            temperature, eps = terms.unit.for_classes(len(weight))
            bend = torch.where(norm <= eps, 0.0, -g * values / norm / norm)
            g = (g / norm.clamp_min(eps) / temperature).to(values.dtype)
        return _unhinged_gradients(Head(h, weight, bias), terms, g, bend, pull, wanted)


def _to_mean(weight: Tensor, terms: _Terms) -> Tensor:
    """The mean of all rows minus the row of each label, shape (N, d), in full precision."""
    return weight.sum(0, dtype=working_type(weight)) / terms.classes - full_precision(weight[terms.labels])


class _Gram(NamedTuple):
    """W'W in float64, and a bound of its rounding error."""

    matrix: Tensor
    error: float


def _gram(weight: Tensor) -> _Gram:
    """W'W in float64.

    The products are computed in the precision of W, block by block. The mean row is subtracted first: if it is large,
    the products would lose their digits.
    """
    kind, double = working_type(weight), torch.float64
    mean = weight.mean(0, dtype=kind)
    total = torch.zeros(weight.shape[1], weight.shape[1], dtype=double)
    rest = torch.zeros(weight.shape[1], dtype=double)
    half = weight.shape[1] // 2
    memory = torch.empty(min(GRAM_ROWS, len(weight)), weight.shape[1], dtype=kind)
    for start in range(0, len(weight), GRAM_ROWS):
        rows = weight[start : start + GRAM_ROWS]
        block = torch.sub(rows, mean, out=memory[: len(rows)])
        # The matrix is symmetric, so the lower left quarter is not computed.
        total[:half] += block[:, :half].T @ block
        total[half:, half:] += block[:, half:].T @ block[:, half:]
        rest += block.sum(0)
    total[half:, :half] = total[:half, half:].T
    size = float(total.norm())
    if kind != double and not math.isfinite(size):
        return _gram(weight.double())
    mean = mean.to(double)
    cross = torch.outer(mean, rest + len(weight) / 2 * mean)
    matrix = total + cross + cross.T
    return _Gram(matrix, torch.finfo(kind).eps * size + torch.finfo(double).eps * float(matrix.norm()))


def norms(head: Head) -> tuple[Tensor, Tensor]:
    """The norms (N,) of the scores, and W'(W h + b) of shape (N, d), which the gradient needs. Both are float64.

    If large terms cancel in a squared norm, the Gram matrix has lost its digits. Such rows use their scores instead.
    """
    (h, weight, bias), gram = head, _gram(head.weight)
    wide = h.double()
    pull, length = wide @ gram.matrix, wide.square().sum(1)
    square, error = (pull * wide).sum(1), gram.error * length
    if bias is not None:
        moment, offset = weighted_rows(bias, weight).double(), bias.double().square().sum()
        square += 2 * (wide @ moment) + offset
        pull += moment
        error += torch.finfo(weight.dtype).eps * (offset * gram.matrix.trace() * length).sqrt()
    norm = square.clamp_min(0).sqrt()
    lost = ((square < LOST * error) & (length > 0)).nonzero().flatten()
    for start in range(0, len(lost), LOST_ROWS):
        rows = lost[start : start + LOST_ROWS]
        z = torch.empty(len(rows), len(weight), dtype=working_type(weight))
        write_scores(h[rows], weight, bias, z)
        norm[rows] = torch.linalg.vector_norm(z, dim=1, dtype=torch.float64)
        pull[rows] = weighted_rows(z, weight).double()
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
    wide, kind = full_precision(h), working_type(h)
    to_mean = g * terms.r
    bent = None if bend is None else bend[:, None] * wide
    d_h = d_weight = d_bias = None
    if wanted[0]:
        d_h = _to_mean(weight, terms).mul_(to_mean[:, None])
        if spread is not None:
            d_h += torch.outer(g, weighted_rows(spread, weight) / classes)
        if bend is not None and pull is not None:
            d_h += (bend[:, None] * pull).to(kind)
        d_h = d_h.to(h.dtype)
    if wanted[1]:
        row = (to_mean @ wide / classes).to(weight.dtype)
        if bent is None:
            d_weight = row.expand_as(weight).contiguous()
        else:
            d_weight = torch.addmm(row, weight, (bent.T @ h.double()).to(weight.dtype))
            if bias is not None:
                d_weight.addr_(bias.to(weight.dtype), bent.sum(0).to(weight.dtype))
        if spread is not None:
            d_weight.addr_((spread / classes).to(weight.dtype), (g @ wide).to(weight.dtype))
        add_at_labels(d_weight, y, wide * -to_mean[:, None])
    if bias is not None and wanted[2]:
        d_bias = (to_mean.sum() / classes).expand_as(bias).clone()
        d_bias.index_add_(0, y, -to_mean)
        if spread is not None:
            d_bias += spread / classes * g.sum()
        if bend is not None and bent is not None:
            d_bias += (weight @ bent.sum(0).to(weight.dtype)).to(kind) + bias * bend.sum().to(kind)
    return d_h, d_weight, d_bias, None


def _plain_unhinged(head: Head, terms: _Terms) -> Tensor:
    """The unhinged loss by way of the scores, for second derivatives."""
    z = full_precision(head.scores())
    if terms.unit is not None:
        temperature, eps = terms.unit.for_classes(len(head.weight))
        z = unit_scores(z, 1, eps) / temperature
    label = z.gather(1, terms.labels[:, None]).squeeze(1)
    values = (z.sum(1) / terms.classes - label) * terms.r
    return values if terms.spread is None else values + z @ terms.spread / terms.classes
