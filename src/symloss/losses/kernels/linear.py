"""Kernels of losses that are linear in the scores, that is, multiples of the unhinged loss. They need no softmax."""

from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.kernels.batch import Job, Kernel, class_mean
from symloss.losses.layers import Temperature, resolved_temperature
from symloss.losses.logits import Scores


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
