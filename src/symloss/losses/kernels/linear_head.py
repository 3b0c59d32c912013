"""A linear layer and its loss in one, for one block of rows after another. The scores are never all in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symloss.losses.kernels.batch import (
    BLOCK,
    Examples,
    block_rows,
    by_blocks,
    by_plain,
    is_batched,
    new_scratch,
    times,
)
from symloss.losses.kernels.job import Kernel
from symloss.losses.kernels.products import Head, add_weight_gradient, write_feature_gradient, write_scores
from symloss.losses.kernels.unhinged_head import UnhingedHead
from symloss.losses.logits import working_type

MEMORY = {"cpu": 160 * 2**20}  # bytes for the scores of a block if nothing else is asked for, by the kind of device
DEVICE_MEMORY = 2**30  # the same on all other devices, which have more of it

Gradients = Sequence[Tensor | None]
"""The gradients in features, weight and bias. None where one is not wanted."""


class Allowance(NamedTuple):
    """What a head may use."""

    memory: int | None = None  # bytes for the scores of a block; None for what suits the device
    accumulate: torch.dtype | None = None  # type in which the gradient of the weights is added up; None for their own

    def rows(self, weight: Tensor) -> int:
        """The number of examples whose scores fit, with a copy in the type of the weights if that is another one."""
        kind = working_type(weight)
        each = len(weight) * (kind.itemsize + (weight.dtype.itemsize if weight.dtype != kind else 0))
        return max(1, (self.memory or MEMORY.get(weight.device.type, DEVICE_MEMORY)) // each)


class BlockHead(NamedTuple):
    """The loss of a linear layer by a kernel, which computes the gradients of a block together with its values."""

    kernel: Kernel
    examples: Examples
    plain: Callable[[Tensor], Tensor]  # computes the loss from all scores, for second derivatives
    allowance: Allowance

    def forward(self, head: Head, wanted: Sequence[bool]) -> tuple[Tensor, Gradients | None]:
        """The value of each example; and the gradients, unless they depend on what comes from above."""
        # float16 cannot hold small gradients before they are multiplied by what comes from above.
        if self.examples.reduction == "none" or head.weight.dtype == torch.float16 or not any(wanted):
            return self._values(head, [None] * 3), None
        gradients = self._zeros(head, wanted)
        return self._values(head, gradients), _typed(gradients, head)

    def backward(self, head: Head, wanted: Sequence[bool], incoming: Tensor, kept: Gradients | None) -> Gradients:
        """The gradients, times what comes from above."""
        if kept is not None:
            return [None if part is None else times(part, incoming) for part in kept]
        gradients = self._zeros(head, wanted)
        self._values(head, gradients, incoming)
        return _typed(gradients, head)

    def rows(self, head: Head) -> int:
        """The number of examples whose scores are in memory at a time."""
        most = self.allowance.rows(head.weight)
        if head.weight.is_cpu:  # a block that stays in the cache is quicker, but products of few rows are slow
            most = min(most, max(256, BLOCK // len(head.weight)))
        return min(most, len(head.features))

    @torch.no_grad()
    def _values(self, head: Head, gradients: Gradients, upstream: Tensor | None = None) -> Tensor:
        """The value of each example. The gradients of the loss, times ``upstream``, are added to ``gradients``."""
        (h, weight, bias), (d_h, d_weight, d_bias) = head, gradients
        kind, rows, labels = working_type(weight), self.rows(head), self.examples.labels
        share = self.examples.share(kind, upstream)
        z = torch.empty(rows, len(weight), dtype=kind, device=weight.device)
        scratch = new_scratch(self.kernel, z[: block_rows(z)])
        wanted, ignores = any(part is not None for part in gradients), self.examples.kept is not None
        values = []
        for start in range(0, len(h), rows):
            part = slice(start, start + rows)
            block = z[: len(h[part])]
            write_scores(h[part], weight, bias, block)
            shares = share[part] if share.dim() else share
            out = block if wanted else None
            values.append(by_blocks(self.kernel, block, labels[part], shares, out, ignores, scratch))
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
    """The gradients in the types of what they belong to."""
    pairs = zip(gradients, head, strict=True)
    return [None if part is None or of is None else part.to(of.dtype) for part, of in pairs]


def loss_of(way: BlockHead | UnhingedHead, head: Head) -> Tensor:
    """The loss of a linear layer's scores, for autograd."""
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
        if torch.is_grad_enabled() or is_batched(incoming):
            return *by_plain(lambda *parts: way.plain(Head(*parts).scores()), head, wanted, incoming), None
        return *way.backward(head, wanted, incoming, kept), None
