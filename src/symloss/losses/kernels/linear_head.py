"""A linear layer and its loss in one, for one block of rows after another. The scores are never all in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss.losses.kernels import batch
from symloss.losses.kernels.batch import Examples, Kernel
from symloss.losses.logits import HALF, working_type

if TYPE_CHECKING:
    from symloss.losses.kernels.unhinged_head import UnhingedHead

MEMORY = {"cpu": 160 * 2**20}  # bytes for the scores of a block if nothing else is asked for, by the kind of device
DEVICE_MEMORY = 2**30  # the same on all other devices, which have more of it

Gradients = Sequence[Tensor | None]  # The gradients in features, weight and bias. None where one is not wanted.


class Allowance(NamedTuple):
    """What a head may use."""

    block_bytes: int | None = None  # bytes for the scores of a block; None for what suits the device
    accumulate: torch.dtype | None = None  # type in which the gradient of the weights is added up; None for their own

    def rows(self, weight: Tensor) -> int:
        """Return the number of examples whose scores fit, with a copy in the type of the weights if needed."""
        kind = working_type(weight)
        each = len(weight) * (kind.itemsize + (weight.dtype.itemsize if weight.dtype != kind else 0))
        return max(1, (self.block_bytes or MEMORY.get(weight.device.type, DEVICE_MEMORY)) // each)


class BlockHead(NamedTuple):
    """The loss of a linear layer by a kernel, which computes the gradients of a block together with its values."""

    kernel: Kernel
    examples: Examples
    plain: Callable[[Tensor], Tensor]  # computes the loss from all scores, for second derivatives
    allowance: Allowance

    def forward(self, head: Head, wanted: Sequence[bool]) -> tuple[Tensor, Gradients | None]:
        """Return the value of each example; and the gradients, unless they depend on what comes from above."""
        # float16 cannot hold small gradients before they are multiplied by what comes from above.
        if self.examples.reduction == "none" or head.weight.dtype == torch.float16 or not any(wanted):
            return self._values(head, [None] * 3), None
        gradients = self._zeros(head, wanted)
        return self._values(head, gradients), _typed(gradients, head)

    def backward(self, head: Head, wanted: Sequence[bool], incoming: Tensor, kept: Gradients | None) -> Gradients:
        """Return the gradients, times what comes from above."""
        if kept is not None:
            return [None if part is None else batch.times(part, incoming) for part in kept]
        gradients = self._zeros(head, wanted)
        self._values(head, gradients, incoming)
        return _typed(gradients, head)

    def rows(self, head: Head) -> int:
        """Return the number of examples whose scores are in memory at a time."""
        most = self.allowance.rows(head.weight)
        if head.weight.is_cpu:  # a block that stays in the cache is quicker, but products of few rows are slow
            most = min(most, max(256, batch.BLOCK // len(head.weight)))
        return min(most, len(head.features))

    @torch.no_grad()
    def _values(self, head: Head, gradients: Gradients, upstream: Tensor | None = None) -> Tensor:
        """Return the value of each example. Add the gradients of the loss, times ``upstream``, to ``gradients``."""
        (h, weight, bias), (d_h, d_weight, d_bias) = head, gradients
        kind, rows, labels = working_type(weight), self.rows(head), self.examples.labels
        share = self.examples.share(kind, upstream)
        z = torch.empty(rows, len(weight), dtype=kind, device=weight.device)
        scratch = batch.new_scratch(self.kernel, z[: batch.block_rows(z)])
        wanted, ignores = any(part is not None for part in gradients), self.examples.kept is not None
        values = []
        for start in range(0, len(h), rows):
            part = slice(start, start + rows)
            block = z[: len(h[part])]
            write_scores(h[part], weight, bias, block)
            shares = share[part] if share.dim() else share
            out = block if wanted else None
            values.append(batch.by_blocks(self.kernel, block, labels[part], shares, out, ignores, scratch))
            if d_h is not None:
                write_feature_gradient(block, weight, d_h[part])
            if d_weight is not None:
                add_weight_gradient(block, h[part], d_weight)
            if d_bias is not None:
                d_bias += block.sum(0)
        return torch.cat(values)

    def _zeros(self, head: Head, wanted: Sequence[bool]) -> Gradients:
        kinds = (head.features.dtype, self.allowance.accumulate or head.weight.dtype, working_type(head.weight))
        return [
            torch.zeros_like(part, dtype=kind) if part is not None and want else None
            for part, want, kind in zip(head, wanted, kinds, strict=True)
        ]


def _typed(gradients: Gradients, head: Head) -> Gradients:
    """Return the gradients in the types of what they belong to."""
    pairs = zip(gradients, head, strict=True)
    return [None if part is None or of is None else part.to(of.dtype) for part, of in pairs]


def loss_of(way: BlockHead | UnhingedHead, head: Head) -> Tensor:
    """Return the loss of a linear layer's scores, for autograd."""
    if not torch.is_grad_enabled() or not any(part is not None and part.requires_grad for part in head):
        return way.examples.reduced(way.forward(head, [False] * 3)[0])
    value: Tensor = _OfHead.apply(*head, way)  # type: ignore[no-untyped-call]
    return value


class _OfHead(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, way: BlockHead | UnhingedHead) -> Tensor:
        ctx.save_for_backward(h, weight, bias)
        values, ctx.kept = way.forward(Head(h, weight, bias), ctx.needs_input_grad[:3])
        ctx.way = way
        return way.examples.reduced(values)

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        way, head, wanted = ctx.way, Head(*ctx.saved_tensors), ctx.needs_input_grad[:3]
        # Autograd would have to copy a gradient to which another reference exists.
        kept, ctx.kept = ctx.kept, None
        if torch.is_grad_enabled() or batch.is_batched(incoming):
            return *batch.by_plain(lambda *parts: way.plain(Head(*parts).scores()), head, wanted, incoming), None
        return *way.backward(head, wanted, incoming, kept), None


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
        total = torch.zeros(out.shape, dtype=torch.float32)
        for part, block in _blocks(weight):
            total.addmm_(gradient[:, part], block)
        out.copy_(total)
    else:
        torch.mm(gradient.to(weight.dtype), weight, out=out)


def add_weight_gradient(gradient: Tensor, features: Tensor, out: Tensor) -> None:
    """Add gradient.T @ features to ``out``, which has the type of the weights or float32."""
    if is_cast(features):
        wide = features.float()
        for part, block in _blocks(out, cast=False):
            block.add_(torch.mm(gradient[:, part].T, wide))
    elif out.dtype == features.dtype:
        out.addmm_(gradient.to(features.dtype).T, features)
    elif has_wide_products(features):
        out += torch.mm(gradient.to(features.dtype).T, features, out_dtype=out.dtype)
    else:  # the product would be rounded before it is added
        wide = features.to(out.dtype)
        for part, block in _blocks(out, cast=False):
            block.addmm_(gradient[:, part].T, wide)


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
