"""A linear layer and its loss in one. The scores of a batch are never all in memory.

The unhinged loss has a way of its own. Every other loss is computed for one block of rows after another, together with
the gradients of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.losses.kernels.batch import (
    BLOCK,
    Examples,
    TooLargeError,
    block_rows,
    by_blocks,
    by_plain,
    is_batched,
    new_scratch,
    times,
)
from symloss.losses.kernels.job import Kernel
from symloss.losses.kernels.linear import LinearKernel, UnitLinearKernel
from symloss.losses.kernels.products import Head, add_weight_gradient, write_feature_gradient, write_scores
from symloss.losses.kernels.unhinged_head import pays, unhinged
from symloss.losses.kernels.unit import CappedKernel, Unit
from symloss.losses.logits import working_type

MEMORY = {"cpu": 160 * 2**20}
"""How many bytes the scores of a block take if nothing else is asked for, by the kind of device."""
DEVICE_MEMORY = 2**30
"""The same on all other devices, which have more of it."""


class Allowance(NamedTuple):
    """What a head may use."""

    memory: int | None = None
    """So many bytes for the scores of a block; None for what suits the device."""
    accumulate: torch.dtype | None = None
    """The type in which the gradient of the weights is added up; None for that of the weights."""
    symmetric: bool = False
    """Whether the loss is symmetric. Class weights keep it so, which takes all scores."""

    def bytes_on(self, device: torch.device) -> int:
        """How many bytes the scores of a block may take on a device."""
        return self.memory or MEMORY.get(device.type, DEVICE_MEMORY)


def by_head_kernel(
    kernel: Kernel,
    unit: Unit | None,
    head: Head,
    examples: Examples,
    class_weight: Tensor | None,
    softcap: float | None,
    allowance: Allowance,
    plain: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """Return the loss of a linear layer's scores, without a matrix of all scores; None if only plain formulas serve it.

    Args:
        kernel: computes the loss of a block of scores.
        unit: how the kernel divides scores by their norm; None if it does not.
        head: the linear layer and its inputs.
        examples: the labels, and what each example counts for, without the class weights.
        class_weight: a weight for each class, shape (C,), or None.
        softcap: the scores z are replaced by softcap * tanh(z / softcap); None if they stay as they are.
        allowance: what may be used.
        plain: computes the loss from the scores, for second derivatives.
    """
    if examples.none_counts():
        return None
    looks = validation.can_look(*(part for part in head if part is not None))
    if isinstance(kernel, (LinearKernel, UnitLinearKernel)) and softcap is None:
        # Only a look tells whether classes are masked out and whether the Gram matrix has lost digits.
        known = looks or (unit is None and head.bias is None)
        if known and pays(head, unit) and allowance.accumulate in (None, head.weight.dtype):
            return unhinged(kernel.factor, head, examples, unit, class_weight)
    if class_weight is not None and allowance.symmetric:
        return None
    kernel = kernel if softcap is None else CappedKernel(kernel, softcap)
    try:
        weighed = examples if class_weight is None else examples.weighed(class_weight)
        return _Blocks(kernel, weighed, allowance, plain).loss(head)
    except TooLargeError:
        return None


def value_and_gradients(
    kernel: Kernel, head: Head, examples: Examples, allowance: Allowance, wanted: Sequence[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """The loss of a linear layer's scores and its gradients in features, weight and bias, without autograd.

    Args:
        kernel: computes the loss of a block of scores.
        head: the linear layer and its inputs.
        examples: the labels, and what each example counts for. There must be a reduction.
        allowance: what may be used.
        wanted: whether each of the gradients is wanted.
    """
    blocks = _Blocks(kernel, examples, allowance, lambda z: z)
    gradients = blocks.gradients(head, wanted)
    value = examples.reduced(blocks.values(head, gradients))
    return value, _typed(gradients, head)


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


class _Blocks(NamedTuple):
    """A loss at the labels of a batch, as a function of a linear layer and its inputs."""

    kernel: Kernel
    examples: Examples
    allowance: Allowance
    plain: Callable[[Tensor], Tensor]

    def loss(self, head: Head) -> Tensor:
        wanted = [part is not None and part.requires_grad and torch.is_grad_enabled() for part in head]
        if not any(wanted):
            return self.examples.reduced(self.values(head))
        value: Tensor = _OfHead.apply(*head, self)  # type: ignore[no-untyped-call]
        return value

    def rows(self, head: Head) -> int:
        """The number of examples whose scores are in memory at a time."""
        weight = head.weight
        memory = self.allowance.bytes_on(weight.device)
        kind = working_type(weight)
        each = len(weight) * (kind.itemsize + (weight.dtype.itemsize if weight.dtype != kind else 0))
        most = max(1, memory // each)
        if weight.is_cpu:  # a block that stays in the cache is quicker, but products of few rows are slow
            most = min(most, max(256, BLOCK // len(weight)))
        return min(most, len(head.features))

    @torch.no_grad()
    def values(self, head: Head, gradients: Gradients = (None, None, None), upstream: Tensor | None = None) -> Tensor:
        """The value of each example. The gradients of the loss, times ``upstream``, are added to ``gradients``."""
        h, weight, bias = head
        d_h, d_weight, d_bias = gradients
        kind, rows = working_type(weight), self.rows(head)
        share = self.examples.share(kind, upstream)
        labels = self.examples.labels
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

    def gradients(self, head: Head, wanted: Any) -> Gradients:
        """Tensors for the gradients, filled with 0."""
        kinds = (head.features.dtype, self.allowance.accumulate or head.weight.dtype, working_type(head.weight))
        made = [
            torch.zeros_like(part, dtype=kind) if part is not None and want else None
            for part, want, kind in zip(head, wanted, kinds, strict=False)
        ]
        return made[0], made[1], made[2]


class _OfHead(torch.autograd.Function):
    """A value whose gradients are computed with it, unless they depend on what comes from above."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, weight: Tensor, bias: Tensor | None, blocks: _Blocks) -> Tensor:
        head = Head(h, weight, bias)
        ctx.save_for_backward(h, weight, bias)
        ctx.blocks, ctx.gradients = blocks, None
        # float16 cannot hold small gradients before they are multiplied by what comes from above.
        later = blocks.examples.reduction == "none" or weight.dtype == torch.float16
        if later:
            return blocks.examples.reduced(blocks.values(head))
        gradients = blocks.gradients(head, ctx.needs_input_grad)
        values = blocks.values(head, gradients)
        ctx.gradients = _typed(gradients, head)
        return blocks.examples.reduced(values)

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor | None, ...]:
        head, wanted = Head(*ctx.saved_tensors), ctx.needs_input_grad[:3]
        gradients, ctx.gradients = ctx.gradients, None
        if torch.is_grad_enabled() or (gradients is None and is_batched(incoming)):
            plain = ctx.blocks.plain
            return *by_plain(lambda *parts: plain(Head(*parts).scores()), head, wanted, incoming), None
        if gradients is not None:
            return *(None if part is None else times(part, incoming) for part in gradients), None
        gradients = ctx.blocks.gradients(head, wanted)
        ctx.blocks.values(head, gradients, incoming)
        return *_typed(gradients, head), None


def _typed(gradients: Gradients, head: Head) -> list[Tensor | None]:
    """The gradients in the types of what they belong to."""
    pairs = zip(gradients, head, strict=True)
    return [None if part is None or of is None else part.to(of.dtype) for part, of in pairs]
