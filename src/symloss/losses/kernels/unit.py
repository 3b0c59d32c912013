"""Kernels of scores that are divided by their norm, or capped."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.kernels.job import Job, Kernel
from symloss.losses.layers import Temperature, resolved_temperature
from symloss.losses.logits import Scores


class Unit(NamedTuple):
    """The loss sees the scores divided by temperature * max(norm, eps)."""

    temperature: Temperature
    eps: float

    def for_classes(self, classes: int) -> tuple[float, float]:
        """Return the temperature for this number of classes, and eps."""
        return resolved_temperature(self.temperature, classes), self.eps


class Length(NamedTuple):
    """The length of score vectors, max(norm, eps), as a product that cannot overflow: length = size * root."""

    ratio: Tensor  # The scores divided by size. If no square overflows, size is 1.
    root: Tensor  # the length divided by size
    free: Tensor  # whether the length is the norm, so that it depends on the scores
    share: Tensor  # the shares of the examples, divided by the length


def length(job: Job, eps: float, out: Tensor) -> Length:
    """Return the lengths. If squares may overflow, or vanish because eps is tiny, the ratio is written to ``out``."""
    z, scores = job.z, job.scores
    finite = z if scores is None else torch.where(scores.present, z, 0.0)
    if job.norm is not None and eps > torch.finfo(z.dtype).tiny ** 0.4:
        root = job.norm.clamp_min(eps)
        return Length(finite, root, job.norm > eps, job.share / root)
    size = torch.abs(finite, out=out).amax(1, keepdim=True).clamp_min_(eps)
    norm = torch.linalg.vector_norm(torch.div(finite, size, out=out), dim=1, keepdim=True)
    root = norm.clamp_min(1)
    return Length(out, root, norm >= 1, (job.share / root).div_(size))


class UnitKernel(Kernel):
    """A kernel of the scores z / (temperature max(|z|, eps)). It turns the gradient into one of z."""

    squares = True

    def __init__(self, kernel: Kernel, temperature: float, eps: float):
        self.kernel, self.temperature, self.eps, self.scratch = kernel, temperature, eps, 2 + kernel.scratch

    def __call__(self, job: Job) -> Tensor:
        _, y, _, out, (unit, work, *for_kernel), scores, _, _ = job
        lengths = length(job, self.eps, unit)
        torch.div(lengths.ratio, lengths.root, out=unit)
        u, share = unit, lengths.share
        if self.temperature != 1:
            u, share = torch.div(unit, self.temperature, out=work), share.div_(self.temperature)
        if scores is not None:
            u = u.masked_fill(~scores.present, -torch.inf)
            scores = Scores(u, 1)
        values = self.kernel(Job(u, y, share, out, for_kernel, scores))
        dot = torch.mul(unit, out, out=work).sum(1, keepdim=True)
        out.addcmul_(unit, dot.mul_(lengths.free).neg_())
        return values


class CappedKernel(Kernel):
    """A kernel of the scores cap * tanh(z / cap). It turns the gradient into one of z."""

    def __init__(self, kernel: Kernel, cap: float):
        self.kernel, self.cap, self.scratch = kernel, cap, 1 + kernel.scratch

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, (capped, *for_kernel), scores, _, _ = job
        torch.mul(z, 1 / self.cap, out=capped).tanh_().mul_(self.cap)
        if scores is not None:
            capped.masked_fill_(~scores.present, -torch.inf)
            scores = Scores(capped, 1)
        values = self.kernel(Job(capped, y, share, out, for_kernel, scores))
        if scores is not None:
            capped.masked_fill_(~scores.present, 0.0)
        # The derivative of the cap is 1 - (capped / cap)^2.
        out.sub_(capped.mul_(1 / self.cap).square_().mul_(out))
        return values
