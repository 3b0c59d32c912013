"""The unhinged loss of a linear layer. Its scores are not computed.

The unhinged loss of the scores W h + b is h . (mean_k W_k - W_y) + mean(b) - b_y: it needs two rows instead of C. If
scores are divided by their norm, the squared norm is h' (W'W) h + 2 h' W'b + b'b: it needs a d x d matrix instead of
N x C scores. That takes 2 (C + N) d^2 multiplications instead of 3 N C d, and is done if it is less.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.losses.kernels.batch import Examples
from symloss.losses.kernels.linear import Unit
from symloss.losses.kernels.linear_head import Head, add_at_labels, weighted_rows, write_scores
from symloss.losses.logits import full_precision, working_type

LOST = 1000  # a squared norm below this many times its rounding error is computed from the scores instead
LOST_ROWS = 128  # the number of such rows whose scores are in memory at a time
GRAM_ROWS = 8192  # the number of rows of the weights that are multiplied at a time; the blocks share their memory

Norms = tuple[Tensor, Tensor]
"""The norms (N,) of the scores, and W'(W h + b) of shape (N, d), which is half the gradient of their squares."""


def pays(head: Head, unit: Unit | None) -> bool:
    """Whether the Gram matrix takes fewer multiplications than the scores."""
    (n, d), c = head.features.shape, len(head.weight)
    return unit is None or 2 * (c + n) * d * d < 3 * n * c * d


class UnhingedHead(NamedTuple):
    """A multiple of the unhinged loss. For each example it is r h . (mean W - W_y) + h . mean(spread W).

    With class weights w, r = w_y and spread = w - mean(w), times the factor of the loss. A mean is a sum over the
    classes that are present, divided by their number. A class that is masked out has weights of 0.
    """

    examples: Examples
    plain: Callable[[Tensor], Tensor]  # computes the loss from all scores, for second derivatives
    unit: Unit | None  # divides the scores by their norm
    present: Tensor | None  # the classes that are not masked out; None for all
    classes: int  # their number
    r: Tensor | float
    spread: Tensor | None

    def forward(self, head: Head, wanted: Sequence[bool]) -> tuple[Tensor, tuple[Tensor, Norms | None]]:
        """Return the value of each example; and with the norms once more, for the backward pass."""
        h, weight, bias = head = self._visible(head)
        wide = full_precision(h)
        values = (wide * self._to_mean(weight)).sum(1)
        if bias is not None:
            values += bias.sum() / self.classes - bias[self._labels]
        values = values * self.r
        if self.spread is not None:
            values += wide @ (weighted_rows(self.spread, weight) / self.classes)
            if bias is not None:
                values += self.spread @ bias / self.classes
        found = None
        if self.unit is not None:
            found = norms(head)
            temperature, eps = self.unit.for_classes(len(weight))
            values = (values / found[0].clamp_min(eps) / temperature).to(wide.dtype)
        return values[:, None], (values, found)

    def backward(
        self, head: Head, wanted: Sequence[bool], incoming: Tensor, kept: tuple[Tensor, Norms | None] | None
    ) -> list[Tensor | None]:
        """Return the gradients, times what comes from above."""
        values, found = self.forward(head, wanted)[1] if kept is None else kept
        h, weight, bias = head = self._visible(head)
        g = self.examples.share(values.dtype, incoming).expand(len(h), 1).squeeze(1)
        bend = pull = None
        if self.unit is not None and found is not None:
            norm, pull = found
            temperature, eps = self.unit.for_classes(len(weight))
            bend = torch.where(norm <= eps, 0.0, -g * values / norm / norm)
            g = (g / norm.clamp_min(eps) / temperature).to(values.dtype)
        d_h = self._feature_gradient(head, g, bend, pull) if wanted[0] else None
        d_weight = self._weight_gradient(head, g, bend) if wanted[1] else None
        d_bias = self._bias_gradient(head, bias, g, bend) if wanted[2] and bias is not None else None
        if self.present is not None:
            for part in (d_weight, d_bias):
                if part is not None:
                    part[~self.present] = 0.0
        return [d_h, d_weight, d_bias]

    # In all three g is the derivative in the numerator of the loss, and bend twice the derivative in the squared norm.

    def _feature_gradient(self, head: Head, g: Tensor, bend: Tensor | None, pull: Tensor | None) -> Tensor:
        total = self._to_mean(head.weight).mul_((g * self.r)[:, None])
        if self.spread is not None:
            total += torch.outer(g, weighted_rows(self.spread, head.weight) / self.classes)
        if bend is not None and pull is not None:
            total += (bend[:, None] * pull).to(total.dtype)
        return total.to(head.features.dtype)

    def _weight_gradient(self, head: Head, g: Tensor, bend: Tensor | None) -> Tensor:
        (h, weight, bias), wide, to_mean = head, full_precision(head.features), g * self.r
        row = (to_mean @ wide / self.classes).to(weight.dtype)
        if bend is None:
            total = row.expand_as(weight).contiguous()
        else:
            bent = bend[:, None] * wide
            total = torch.addmm(row, weight, (bent.T @ h.double()).to(weight.dtype))
            if bias is not None:
                total.addr_(bias.to(weight.dtype), bent.sum(0).to(weight.dtype))
        if self.spread is not None:
            total.addr_((self.spread / self.classes).to(weight.dtype), (g @ wide).to(weight.dtype))
        add_at_labels(total, self._labels, wide * -to_mean[:, None])
        return total

    def _bias_gradient(self, head: Head, bias: Tensor, g: Tensor, bend: Tensor | None) -> Tensor:
        weight, to_mean = head.weight, g * self.r
        total = (to_mean.sum() / self.classes).expand_as(bias).clone().index_add_(0, self._labels, -to_mean)
        if self.spread is not None:
            total += self.spread / self.classes * g.sum()
        if bend is not None:
            bent = (bend @ head.features.double()).to(weight.dtype)
            total += (weight @ bent).to(total.dtype) + bias * bend.sum().to(total.dtype)
        return total

    @property
    def _labels(self) -> Tensor:
        return self.examples.labels.squeeze(1)

    def _visible(self, head: Head) -> Head:
        """Return the head with zeros for classes that are masked out."""
        (h, weight, bias), present = head, self.present
        if present is None or bias is None:
            return head
        return Head(h, torch.where(present[:, None], weight, 0.0), torch.where(present, bias, 0.0))

    def _to_mean(self, weight: Tensor) -> Tensor:
        """Return the mean of all rows minus the row of each label, shape (N, d), in full precision."""
        return weight.sum(0, dtype=working_type(weight)) / self.classes - full_precision(weight[self._labels])


def unhinged_head(
    factor: float,
    head: Head,
    examples: Examples,
    unit: Unit | None,
    class_weight: Tensor | None,
    plain: Callable[[Tensor], Tensor],
) -> UnhingedHead:
    """``factor`` times the unhinged loss, for examples without class weights. A masked label raises an error."""
    y, bias, present = examples.labels.squeeze(1), head.bias, None
    if bias is not None and float(bias.detach().amin()) == -torch.inf:
        present = bias.detach() != -torch.inf
        counted = torch.ones_like(y, dtype=torch.bool) if examples.kept is None else examples.kept
        validation.present_labels(bias.detach().expand(len(y), -1), y[:, None], counted[:, None], 1)
    classes = len(head.weight) if present is None else int(present.sum())
    if class_weight is None:
        return UnhingedHead(examples, plain, unit, present, classes, factor, None)
    w = class_weight.to(head.weight.device, working_type(head.weight))
    shown = torch.ones_like(w, dtype=torch.bool) if present is None else present
    mean_weight = torch.where(shown, w, 0.0).sum() / classes
    if examples.divisor is None:
        examples = examples._replace(divisor=examples.total * mean_weight)
    spread = factor * torch.where(shown, w - mean_weight, 0.0)
    return UnhingedHead(examples, plain, unit, present, classes, factor * w[y], spread)


def norms(head: Head) -> Norms:
    """Return the norms of the scores and half the gradient of their squares, both in float64."""
    (h, weight, bias), (gram, gram_error) = head, _gram(head.weight)
    wide = h.double()
    pull, length = wide @ gram, wide.square().sum(1)
    square, error = (pull * wide).sum(1), gram_error * length
    if bias is not None:
        moment, offset = weighted_rows(bias, weight).double(), bias.double().square().sum()
        square += 2 * (wide @ moment) + offset
        pull += moment
        error += torch.finfo(weight.dtype).eps * (offset * gram.trace() * length).sqrt()
    norm = square.clamp_min(0).sqrt()
    # If large terms cancel in a squared norm, the Gram matrix has lost its digits. Such rows use their scores instead.
    lost = ((square < LOST * error) & (length > 0)).nonzero().flatten()
    for start in range(0, len(lost), LOST_ROWS):
        rows = lost[start : start + LOST_ROWS]
        z = torch.empty(len(rows), len(weight), dtype=working_type(weight))
        write_scores(h[rows], weight, bias, z)
        norm[rows] = torch.linalg.vector_norm(z, dim=1, dtype=torch.float64)
        pull[rows] = weighted_rows(z, weight).double()
    return norm, pull


def _gram(weight: Tensor) -> tuple[Tensor, float]:
    """W'W in float64, and a bound of its rounding error. A large mean row would cost digits: it is added in the end."""
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
    return matrix, torch.finfo(kind).eps * size + torch.finfo(double).eps * float(matrix.norm())
