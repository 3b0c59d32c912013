"""The loss of a batch by a kernel: the choice of the kernel, the loop over blocks of rows, and autograd around it.

The checking step of this module detects classes that are masked out and squares that overflow. Kernels need not look.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
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
"""The number of scores in a block: few enough to stay in the cache, many enough to be worth the calls."""


class Unit(NamedTuple):
    """The loss sees the scores divided by temperature * max(norm, eps)."""

    temperature: float
    eps: float


class _NotCachedError(Exception):
    """The loss holds tensors or modules. It has no kernel, and a cache must not keep it alive."""


def kernel_for(loss: Loss, classes: int, unit: Unit | None = None) -> Kernel | None:
    """The kernel of a loss for this number of classes; None if there is none.

    With ``unit`` the kernel divides the scores by their norm first.
    """
    try:
        return _cached_kernel(loss, classes, unit)
    except _NotCachedError:
        return None
    except TypeError:
        if not _has_hash(loss):  # a loss from outside this package; its kernel is built anew for each batch
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
    # With two classes the sum has one term, which may be as small as 1 - p. The plain formulas keep its digits.
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
    """The loss of a batch, with its gradient if z requires one; None if no example is kept.

    Args:
        kernel: from :func:`kernel_for`.
        z: scores (N, C) or (N, C, d1, ...).
        target: class indices (N,) or (N, d1, ...).
        kept: which examples count, in the shape of the target; None if all do.
        reduction: "mean", "sum" or "none".
        plain: computes the same by the plain formulas, for second derivatives.
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
        """The reduced loss, and the gradient of its sum or mean in the scores."""
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
        # Autograd would have to copy a gradient to which another reference exists.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            _, gradient = ctx.batch.value_and_gradient(z)
        weight = incoming.unsqueeze(1) if incoming.dim() else incoming
        try:
            gradient = gradient if not incoming.dim() and float(incoming) == 1 else gradient.mul_(weight)
        except RuntimeError:  # inside vmap a gradient can be neither looked at nor written in place
            gradient = gradient * weight
        return gradient, None


def new_scratch(kernel: Kernel, out: Tensor) -> list[Tensor]:
    """The scratch tensors of a kernel, each like ``out``. All blocks share them, because new memory is slow."""
    return [torch.empty_like(out) for _ in range(kernel.scratch)]


def by_blocks(
    kernel: Kernel, z: Tensor, y: Tensor, share: Tensor, out: Tensor, scratch: Sequence[Tensor] | None = None
) -> Tensor:
    """The values at the labels. The gradient of sum(share * values) is written to ``out``.

    An example with a share of 0 gets the value 0 and the gradient 0. ``scratch`` is what :func:`new_scratch` returns,
    with at least as many rows as a block; None makes new tensors.
    """
    if z.numel() <= BLOCK:
        tensors = new_scratch(kernel, out) if scratch is None else [each[: len(z)] for each in scratch]
        return _do_block(kernel, Job(z, y, share, out, tensors))
    rows = max(1, BLOCK * len(z) // z.numel())
    scratch = new_scratch(kernel, out[:rows]) if scratch is None else scratch
    values = torch.empty_like(y, dtype=z.dtype)
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        shares = share[part] if share.dim() else share
        block = z[part]
        tensors = [each[: len(block)] for each in scratch]
        values[part] = _do_block(kernel, Job(block, y[part], shares, out[part], tensors))
    return values


def _do_block(kernel: Kernel, job: Job) -> Tensor:
    shows_masks = kernel.shows_masks
    values = kernel(job if shows_masks else _checked(kernel, job))
    if shows_masks and not math.isfinite(float(values.sum())):
        checked = _checked(kernel, job)
        values = kernel(checked._replace(scores=Scores(job.z, 1)))
    if job.share.dim():  # the scores of an ignored example may be anything, even NaN
        left_out = job.share == 0
        job.out.masked_fill_(left_out, 0.0)
        values = values.masked_fill(left_out, 0.0)
    return values


def _checked(kernel: Kernel, job: Job) -> Job:
    """The job, with its norms if the kernel squares and all are finite, or with its masks if classes are masked out.

    A label must not be masked out.
    """
    z = job.z
    if kernel.squares:
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        if float(norm.amax()) < torch.inf:
            return job._replace(norm=norm)
    if float(z.amin()) > -torch.inf:
        return job
    validation.present_labels(z, job.y, job.share != 0, 1)
    return job._replace(scores=Scores(z, 1))
