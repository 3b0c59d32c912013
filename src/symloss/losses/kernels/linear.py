"""Kernels of losses that are linear in the scores, that is, multiples of the unhinged loss. They need no softmax."""

from __future__ import annotations

import torch
from torch import Tensor

from symloss.losses.kernels.job import Job, Kernel, class_mean
from symloss.losses.kernels.unit import length


class LinearKernel(Kernel):
    """The kernel of factor * (mean_k z_k - z_y)."""

    shows_masks, adds, scratch = True, True, 1

    def __init__(self, factor: float):
        self.factor = factor

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, (differences,), scores, _, _ = job
        weight = share if self.factor == 1 else share * self.factor
        # The label's score is subtracted first. Otherwise an offset that all scores share would cost digits.
        values = class_mean(torch.sub(z, z.gather(1, y), out=differences), scores)
        if scores is not None:
            weight = torch.add(weight, values, alpha=0)  # NaN where the value is NaN
        mean = weight / (z.shape[1] if scores is None else scores.count)
        out.copy_(mean.expand_as(out)).scatter_(1, y, (mean - weight).expand_as(y))
        if scores is not None:
            out.masked_fill_(~scores.present, 0.0)
        return values if self.factor == 1 else values.mul_(self.factor)


class UnitLinearKernel(Kernel):
    """The kernel of factor * (mean_k u_k - u_y) with u = z / (temperature max(|z|, eps)).

    Its gradient is a multiple of z plus one constant for the label and one for all other classes.
    """

    squares = True

    def __init__(self, factor: float, temperature: float, eps: float):
        self.factor, self.temperature, self.eps = factor, temperature, eps

    def __call__(self, job: Job) -> Tensor:
        z, y, _, out, _, scores, _, _ = job
        lengths = length(job, self.eps, out)
        label, scale = lengths.ratio.gather(1, y), self.factor / self.temperature
        values = class_mean(lengths.ratio, scores).sub_(label).div_(lengths.root)
        weight = per = lengths.share
        if scale != 1:
            values.mul_(scale)
            weight = per * scale
        along = (values * per).div_(lengths.root).mul_(lengths.free).neg_()
        mean = weight / (z.shape[1] if scores is None else scores.count)
        torch.mul(lengths.ratio, along, out=out).add_(mean)
        out.scatter_(1, y, (mean - weight).addcmul_(label, along))
        if scores is not None:
            out.masked_fill_(~scores.present, 0.0)
        return values
