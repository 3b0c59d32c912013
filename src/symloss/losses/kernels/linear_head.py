"""A linear layer and its loss in one, for one block of rows after another. The scores are never all in memory.

The unhinged loss needs no scores. For W h + b it is h . (mean_k W_k - W_y) + mean(b) - b_y: two rows instead of C. If
scores are divided by their norm, the squared norm is h' (W'W) h + 2 h' W'b + b'b: it needs a d x d matrix instead of
N x C scores. That takes 2 (C + N) d^2 multiplications instead of 3 N C d, and is done if it is less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss.losses import validation
from symloss.losses.kernels import batch
from symloss.losses.kernels.batch import Examples, Gradients, Kernel, Way
from symloss.losses.kernels.linear import Unit
from symloss.losses.logits import HALF, full_precision, working_type

MEMORY = {"cpu": 160 * 2**20}  # bytes for the scores of a block if nothing else is asked for, by the kind of device
DEVICE_MEMORY = 2**30  # the same on all other devices, which have more of it


class Allowance(NamedTuple):
    """What a head may use."""

    block_bytes: int | None = None  # bytes for the scores of a block; None for what suits the device
    accumulate: torch.dtype | None = None  # type in which the gradient of the weights is added up; None for their own

    def rows(self, weight: Tensor) -> int:
        """Return the number of examples whose scores fit, with a copy in the type of the weights if needed."""
        kind = working_type(weight)
        each = len(weight) * (kind.itemsize + (weight.dtype.itemsize if weight.dtype != kind else 0))
        return max(1, (self.block_bytes or MEMORY.get(weight.device.type, DEVICE_MEMORY)) // each)


@dataclass
class BlockHead(Way):
    """The loss of a linear layer by a kernel, which computes the gradients of a block together with its values."""

    kernel: Kernel
    allowance: Allowance

    def forward(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> tuple[Tensor, Gradients | None]:
        head = Head(*inputs)
        # float16 cannot hold small gradients before they are multiplied by what comes from above.
        if self.examples.reduction == "none" or head.weight.dtype == torch.float16 or not any(wanted):
            return self._computed(head, [False] * 3)[0], None
        return self._computed(head, wanted)

    def backward(self, inputs: Sequence[Any], wanted: Sequence[bool], incoming: Tensor, kept: None) -> Gradients:
        return self._computed(Head(*inputs), wanted, incoming)[1]

    def rows(self, head: Head) -> int:
        """Return the number of examples whose scores are in memory at a time."""
        most = self.allowance.rows(head.weight)
        if head.weight.is_cpu:  # a block that stays in the cache is quicker, but products of few rows are slow
            most = min(most, max(256, batch.BLOCK // len(head.weight)))
        return min(most, len(head.features))

    @torch.no_grad()
    def _computed(self, head: Head, wanted: Sequence[bool], upstream: Tensor | None = None) -> tuple[Tensor, Gradients]:
        """Return the value of each example, and the gradients of the loss, times ``upstream``, that are wanted."""
        h, weight, bias = head
        kinds = (h.dtype, self.allowance.accumulate or weight.dtype, working_type(weight))
        gradients = [
            torch.zeros_like(part, dtype=kind) if part is not None and want else None
            for part, want, kind in zip(head, wanted, kinds, strict=True)
        ]
        d_h, d_weight, d_bias = gradients
        kind, rows, labels = working_type(weight), self.rows(head), self.examples.labels
        share = self.examples.share(kind, upstream)
        z = torch.empty(rows, len(weight), dtype=kind, device=weight.device)
        scratch = batch.new_scratch(self.kernel, z[: batch.block_rows(z)])
        ignores = self.examples.kept is not None
        values = []
        for start in range(0, len(h), rows):
            part = slice(start, start + rows)
            block = z[: len(h[part])]
            write_scores(h[part], weight, bias, block)
            shares = share[part] if share.dim() else share
            out = block if any(wanted) else None
            values.append(batch.by_blocks(self.kernel, block, labels[part], shares, out, ignores, scratch))
            if d_h is not None:
                write_feature_gradient(block, weight, d_h[part])
            if d_weight is not None:
                add_weight_gradient(block, h[part], d_weight)
            if d_bias is not None:
                d_bias += block.sum(0)
        pairs = zip(gradients, head, strict=True)
        typed = [None if part is None or of is None else part.to(of.dtype) for part, of in pairs]
        return torch.cat(values), typed


CLASSES = 4096  # rows of the weights that are turned into float32 at a time

# Only torch knows what the processor can do, and it has no public question for it.
_has_bfloat16 = getattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)


class Head(NamedTuple):
    """A linear layer and its inputs. All parts have one type, but the bias may have more precision."""

    features: Tensor  # (N, d)
    weight: Tensor  # (C, d)
    bias: Tensor | None  # (C,)

    def scores(self) -> Tensor:
        """All scores, shape (N, C)."""
        bias = None if self.bias is None else self.bias.to(self.weight.dtype)
        return F.linear(self.features, self.weight, bias)


def is_cast(weight: Tensor) -> bool:
    """Whether blocks of these weights are turned into float32, because products in their type would be slower."""
    if weight.dtype not in HALF or not weight.is_cpu:
        return False
    return weight.dtype == torch.float16 or not _has_bfloat16()


def has_wide_products(factor: Tensor) -> bool:
    """Whether torch can multiply in half precision without rounding the result to it."""
    return factor.is_cuda and hasattr(torch.ops.aten.mm, "dtype_out")  # CUDA and ROCm, from torch 2.8 on


def write_scores(features: Tensor, weight: Tensor, bias: Tensor | None, out: Tensor) -> None:
    """Write features @ weight.T + bias to ``out``, which has full precision."""
    if is_cast(weight):
        wide = features.float()
        for part, block in _blocks(weight):
            torch.mm(wide, block.T, out=out[:, part])
    elif weight.dtype == out.dtype:
        torch.mm(features, weight.T, out=out)
    elif has_wide_products(weight):
        torch.mm(features, weight.T, out_dtype=out.dtype, out=out)
    else:
        out.copy_(torch.mm(features, weight.T))
    if bias is not None:
        out += bias


def write_feature_gradient(gradient: Tensor, weight: Tensor, out: Tensor) -> None:
    """Write gradient @ weight to ``out``, where the gradient is one of scores."""
    if is_cast(weight):
        out.copy_(weighted_rows(gradient, weight))
    else:
        torch.mm(gradient.to(weight.dtype), weight, out=out)


def add_weight_gradient(gradient: Tensor, features: Tensor, out: Tensor) -> None:
    """Add gradient.T @ features to ``out``, which has the type of the weights or float32."""
    if out.dtype == features.dtype and not is_cast(features):
        out.addmm_(gradient.to(features.dtype).T, features)
    elif has_wide_products(features):
        out += torch.mm(gradient.to(features.dtype).T, features, out_dtype=out.dtype)
    else:  # a product in half precision would be rounded before it is added
        wide = full_precision(features)
        for part, block in _blocks(out, cast=False):
            block.add_(torch.mm(gradient[:, part].T, wide))


def weighted_rows(factors: Tensor, weight: Tensor) -> Tensor:
    """factors @ weight in full precision, for factors (C,) or (n, C)."""
    if weight.dtype not in HALF:
        return factors @ weight
    out = torch.zeros(*factors.shape[:-1], weight.shape[1], dtype=torch.float32, device=weight.device)
    for part, block in _blocks(weight):
        out += factors[..., part].float() @ block
    return out


def add_at_labels(out: Tensor, labels: Tensor, rows: Tensor) -> None:
    """Add rows (N, d), which have full precision, to the rows of ``out`` (C, d) that the labels name."""
    if out.dtype == rows.dtype:
        out.index_add_(0, labels, rows)
        return
    # Half precision would round every addition. So the rows of a label are added up at one of its examples first.
    place = torch.zeros(len(out), dtype=torch.long, device=out.device)
    place.index_copy_(0, labels, torch.arange(len(labels), device=out.device))
    place = place[labels]
    total = torch.zeros_like(rows).index_add_(0, place, rows)
    out.index_copy_(0, labels, (out[labels] + total[place]).to(out.dtype))


def _blocks(rows: Tensor, cast: bool = True) -> Iterator[tuple[slice, Tensor]]:
    for start in range(0, len(rows), CLASSES):
        part = slice(start, start + CLASSES)
        yield part, rows[part].to(working_type(rows)) if cast else rows[part]


LOST = 1000  # a squared norm below this many times its rounding error is computed from the scores instead
LOST_ROWS = 128  # the number of such rows whose scores are in memory at a time
GRAM_ROWS = 8192  # the number of rows of the weights that are multiplied at a time; the blocks share their memory

Norms = tuple[Tensor, Tensor]
"""The norms (N,) of the scores, and W'(W h + b) of shape (N, d), which is half the gradient of their squares."""


def pays(head: Head, unit: Unit | None) -> bool:
    """Whether the Gram matrix takes fewer multiplications than the scores."""
    (n, d), c = head.features.shape, len(head.weight)
    return unit is None or 2 * (c + n) * d * d < 3 * n * c * d


@dataclass
class UnhingedHead(Way):
    """A multiple of the unhinged loss. For each example it is r h . (mean W - W_y) + h . mean(spread W).

    With class weights w, r = w_y and spread = w - mean(w), times the factor of the loss. A mean is a sum over the
    classes that are present, divided by their number. A class that is masked out has weights of 0.
    """

    unit: Unit | None  # divides the scores by their norm
    present: Tensor | None  # the classes that are not masked out; None for all
    classes: int  # their number
    r: Tensor | float
    spread: Tensor | None

    def forward(self, inputs: Sequence[Any], wanted: Sequence[bool]) -> tuple[Tensor, tuple[Tensor, Norms | None]]:
        h, weight, bias = head = self._visible(Head(*inputs))
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
        self, inputs: Sequence[Any], wanted: Sequence[bool], incoming: Tensor, kept: tuple[Tensor, Norms | None] | None
    ) -> Gradients:
        values, found = self.forward(inputs, wanted)[1] if kept is None else kept
        h, weight, bias = head = self._visible(Head(*inputs))
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
    plain: Callable[..., Tensor],
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
