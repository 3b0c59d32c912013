"""The loop over blocks of rows around a kernel.

The checking step of this module detects classes that are masked out and squares that overflow. Kernels need not look.
Where looking would have to wait for a device, every block is treated as if classes may be masked out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.losses.fast.kernels import Job, Kernel
from symloss.losses.logits import Scores, working_type

BLOCK = 2**20
"""The number of scores in a block on a CPU: few enough to stay in the cache, many enough to be worth the calls."""
DEVICE_BLOCK = 2**24
"""The same on other devices, where a call costs more and a block of float32 scratch takes 64 MiB."""


def block_rows(z: Tensor) -> int:
    """The number of rows in a block of these scores."""
    scores, size = z.numel(), BLOCK if z.is_cpu else DEVICE_BLOCK
    return z.shape[0] if scores <= size else max(1, size * z.shape[0] // scores)


def new_scratch(kernel: Kernel, out: Tensor) -> list[Tensor]:
    """The scratch tensors of a kernel, each like ``out``. All blocks share them, because new memory is slow."""
    return [torch.empty_like(out) for _ in range(kernel.scratch)]


def by_blocks(
    kernel: Kernel, z: Tensor, y: Tensor, share: Tensor, out: Tensor | None, scratch: Sequence[Tensor] | None = None
) -> Tensor:
    """The values at the labels. The gradient of sum(share * values) is written to ``out``.

    Args:
        kernel: from ``kernel_for``.
        z: scores. Those in half precision are turned into float32 block by block.
        y: labels. Dimension 1 has size 1, as in all that follow.
        share: what each example counts for in the gradient. An example with a share of 0 gets the value 0 and the
            gradient 0.
        out: has the shape and type of z. It may be z itself, which is then overwritten. None: no gradient is wanted.
        scratch: what :func:`new_scratch` returns, with at least as many rows as a block; None makes new tensors.
    """
    rows, kind = block_rows(z), working_type(z)
    if rows == z.shape[0] and out is not None and out is not z and z.dtype == kind:
        tensors = new_scratch(kernel, out) if scratch is None else [each[: len(z)] for each in scratch]
        return _do_block(kernel, Job(z, y, share, out, tensors))
    like = z[:rows]
    copies = out is z or kind != z.dtype
    source = torch.empty_like(like, dtype=kind) if copies else like
    target = torch.empty_like(like, dtype=kind) if out is None or kind != z.dtype else like
    scratch = new_scratch(kernel, target) if scratch is None else scratch
    values = torch.empty_like(y, dtype=kind)
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        block = z[part]
        if copies:
            block = source[: len(block)].copy_(block)
        gradient = out[part] if out is not None and out.dtype == kind else target[: len(block)]
        tensors = [each[: len(block)] for each in scratch]
        shares = share[part] if share.dim() else share
        values[part] = _do_block(kernel, Job(block, y[part], shares, gradient, tensors))
        if out is not None and out.dtype != kind:
            out[part].copy_(gradient)
    return values


def _do_block(kernel: Kernel, job: Job) -> Tensor:
    if not validation.looks_at(job.z):
        values = kernel(job._replace(scores=Scores(job.z, 1)))
    else:
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
