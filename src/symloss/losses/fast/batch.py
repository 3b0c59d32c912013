"""A batch by a kernel: which kernel serves a loss, the work block of rows by block of rows, and autograd around it.

Whether classes are masked out and squares overflow is found here, in the checking step, so that kernels need not look.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.losses.algebra import Loss
from symloss.losses.fast.kernels import Job, Kernel, LabelKernel, SumsKernel, UnitKernel
from symloss.losses.fast.linear_kernels import LinearKernel, UnitLinearKernel
from symloss.losses.fast.partials import constant, fast_form
from symloss.losses.scores import Scores

BLOCK = 2**20
"""Scores that are worked on at a time: few enough to stay in the cache, many enough to be worth the calls."""


class Unit(NamedTuple):
    """Scores are divided by temperature * max(norm, eps) before the loss."""

    temperature: float
    eps: float


class _NotCachedError(Exception):
    """No kernel, for a loss that holds tensors or modules: a cache must not keep these alive."""


def kernel_for(loss: Loss, classes: int, unit: Unit | None = None) -> Kernel | None:
    """The kernel that serves a loss of so many classes, behind a division by the norm; None if there is none."""
    try:
        return _cached_kernel(loss, classes, unit)
    except _NotCachedError:
        return None
    except TypeError:
        if not _has_hash(loss):  # somebody else's loss; it is served, only not as fast
            return _kernel(loss, classes, unit) if loss.any_classes else None
        raise


@functools.lru_cache(maxsize=256)
def _cached_kernel(loss: Loss, classes: int, unit: Unit | None) -> Kernel | None:
    if not loss.any_classes:
        raise _NotCachedError
    return _kernel(loss, classes, unit)


def _has_hash(loss: Loss) -> bool:
    try:
        hash(loss)
    except TypeError:
        return False
    return True


def _kernel(loss: Loss, classes: int, unit: Unit | None) -> Kernel | None:
    form = fast_form(loss, classes)
    # Of two classes the other alone is summed, and may be as small as 1 - p: the plain formulas keep its digits.
    if form is None or (classes < 3 and form.summed):
        return None
    if form.linear is not None:
        return LinearKernel(form.linear) if unit is None else UnitLinearKernel(form.linear, *unit)
    kernel = SumsKernel(form) if form.summed else LabelKernel(form, classes)
    return kernel if unit is None else UnitKernel(kernel, *unit)


def by_kernel(
    kernel: Kernel,
    z: Tensor,
    target: Tensor,
    kept: Tensor | None,
    reduction: str,
    plain: Callable[[Tensor], Tensor],
) -> Tensor | None:
    """The loss of a batch, with its gradient where one is wanted; None if no example is kept.

    ``z`` (N, C) or (N, C, d1, ...), ``target`` class indices, ``kept`` which of these count (None: all). ``plain``
    computes the same by the plain formulas, for second derivatives.
    """
    count = target.numel() if kept is None else int(kept.sum())
    if count == 0:
        return None
    batch = _Batch(kernel, target, kept, count, reduction, plain)
    if not (z.requires_grad and torch.is_grad_enabled()):
        return batch.value_and_gradient(z)[0]
    value: Tensor = _WithGradient.apply(z, batch)  # type: ignore[no-untyped-call]
    return value


class _Batch(NamedTuple):
    """A loss at the labels of a batch, as a function of its scores."""

    kernel: Kernel
    target: Tensor
    kept: Tensor | None
    examples: int
    reduction: str
    plain: Callable[[Tensor], Tensor]

    def value_and_gradient(self, z: Tensor) -> tuple[Tensor, Tensor]:
        mean, kept = self.reduction == "mean", self.kept
        y = (self.target if kept is None else torch.where(kept, self.target, 0)).unsqueeze(1)
        share = constant(1 / self.examples if mean else 1.0, z.dtype)
        if kept is not None:
            share = torch.where(kept.unsqueeze(1), share, 0.0)
        gradient = torch.empty_like(z)
        values = by_blocks(self.kernel, z, y, share, gradient)
        if self.reduction == "none":
            return values.squeeze(1), gradient
        if mean and kept is None:
            return values.mean(), gradient
        return values.sum() / self.examples if mean else values.sum(), gradient


class _WithGradient(torch.autograd.Function):
    """A value that is computed together with its gradient. A second derivative is taken from the plain formula."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, batch: _Batch) -> Tensor:
        value, ctx.gradient = batch.value_and_gradient(z)
        ctx.save_for_backward(z)
        ctx.batch = batch
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = torch.autograd.grad(ctx.batch.plain(z), z, incoming, create_graph=True)
            return gradient, None
        # Handed over, not kept: autograd would have to copy what somebody else still holds.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            _, gradient = ctx.batch.value_and_gradient(z)
        weight = incoming.unsqueeze(1) if incoming.dim() else incoming
        try:
            gradient = gradient if not incoming.dim() and float(incoming) == 1 else gradient.mul_(weight)
        except RuntimeError:  # several gradients in a batch can be neither looked at nor written in place
            gradient = gradient * weight
        return gradient, None


class Memory:
    """Tensors that one block after the other works in: fresh pages cost more than the work done on them."""

    def __init__(self, like: Tensor):
        # An endless iterator that remembers: each copy of it yields the same tensors again.
        (self._tensors,) = itertools.tee(map(torch.empty_like, itertools.repeat(like)), 1)

    def of(self, rows: int) -> Iterator[Tensor]:
        """The tensors from the first on, cut to so many rows."""
        return map(operator.itemgetter(slice(rows)), copy.copy(self._tensors))


def by_blocks(kernel: Kernel, z: Tensor, y: Tensor, share: Tensor, out: Tensor, memory: Memory | None = None) -> Tensor:
    """Values at the labels; the gradient of sum(share * values) is written to out. Shares of 0 are left out of both."""
    if z.numel() <= BLOCK:
        tensors = map(torch.empty_like, itertools.repeat(out)) if memory is None else memory.of(len(z))
        return _do_block(kernel, Job(z, y, share, out, tensors))
    rows = max(1, BLOCK * len(z) // z.numel())
    memory = memory or Memory(out[:rows])
    values = torch.empty_like(y, dtype=z.dtype)
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        shares = share[part] if share.dim() else share
        block = z[part]
        values[part] = _do_block(kernel, Job(block, y[part], shares, out[part], memory.of(len(block))))
    return values


def _do_block(kernel: Kernel, job: Job) -> Tensor:
    shows_masks = kernel.shows_masks
    values = kernel(job if shows_masks else _checked(kernel, job))
    if shows_masks and not math.isfinite(float(values.sum())):
        checked = _checked(kernel, job)
        values = kernel(checked._replace(scores=Scores(job.z, 1)))
    if job.share.dim():  # an example that is left out may hold anything, NaN too
        left_out = job.share == 0
        job.out.masked_fill_(left_out, 0.0)
        values = values.masked_fill(left_out, 0.0)
    return values


def _checked(kernel: Kernel, job: Job) -> Job:
    """The checking step: whether classes are masked out (no label must be), and norms, if all of them are finite."""
    z = job.z
    if kernel.squares:
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        if float(norm.amax()) < torch.inf:
            return job._replace(norm=norm)
    if float(z.amin()) > -torch.inf:
        return job
    validation.present_labels(z, job.y, job.share != 0, 1)
    return job._replace(scores=Scores(z, 1))
