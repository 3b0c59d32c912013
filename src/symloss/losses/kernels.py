"""Fast paths: the value and its gradient in one pass over the scores, block of rows by block of rows.

A loss made of potentials phi_j is a function of the label's log p and of sums over the other classes,
v = G(l_y, R_1, ...) with R_j = sum_{k != y} phi_j(l_k). With a = dG/dl_y, b_j = dG/dR_j, T_j = sum_{k != y} phi_j'(l_k)
and tau = a + sum_j b_j T_j its gradient in the scores is

    g_k = sum_j b_j phi_j'(l_k) - p_k tau   (k != y),        g_y = a (1 - p_y) - p_y sum_j b_j T_j.

No label is subtracted from a sum that contains it, so confident and hopeless examples keep their digits.

Two kernels serve every such loss: `_Narrow` where nothing is summed (one softmax, in the gradient's own memory), and
`_Summed` for the others. What is linear in the scores needs neither. The plain formulas of the algebra remain the
truth, and serve whatever these do not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

if TYPE_CHECKING:
    from symloss.losses.algebra import Loss
    from symloss.losses.potentials import Potential

BLOCK = 2**20
"""Scores that are worked on at a time: few enough to stay in the cache."""


class AtLabel:
    """What a loss reads of each example: the label's p, 1 - p, log p, sums over other classes, how many there are."""

    def __init__(self, p: Tensor, miss: Tensor, classes: int, *, logp: Callable[[], Tensor]):
        self.p, self.miss = p, miss
        self.rest: dict[Loss, Tensor] = {}
        self._classes, self.counted = classes, False
        self._find_logp = logp
        self._logp: Tensor | None = None

    @property
    def classes(self) -> int:
        """How many classes there are; who asks must not be served where some are masked out."""
        self.counted = True
        return self._classes

    @property
    def logp(self) -> Tensor:
        """Found when it is asked for: not every loss reads it."""
        if self._logp is None:
            self._logp = self._find_logp()
        return self._logp


@dataclass
class Partials:
    """A loss at the label: value, derivative in the label's log p, and derivatives in the sums over other classes.

    ``linear`` times the unhinged loss is to be added: it needs no log p.
    """

    value: Tensor
    own: Tensor
    sums: dict[Loss, Tensor | float]
    linear: float = 0.0

    def __add__(self, other: Partials) -> Partials:
        sums = dict(self.sums)
        for potential, slope in other.sums.items():
            sums[potential] = sums[potential] + slope if potential in sums else slope
        return Partials(self.value + other.value, self.own + other.own, sums, self.linear + other.linear)

    def __mul__(self, factor: float) -> Partials:
        if factor == 1:
            return self
        sums = {potential: factor * slope for potential, slope in self.sums.items()}
        return Partials(factor * self.value, factor * self.own, sums, factor * self.linear)


@dataclass
class Result:
    """Values of the examples (classes kept, with size 1), and the gradient of their weighted sum."""

    values: Tensor
    gradient: Tensor


class Unserved(Exception):  # noqa: N818
    """Scores that only the plain formulas handle: masked classes, NaN."""


class Scratch:
    """Memory that one block after the other works in: fresh pages cost more than the work done on them."""

    def __init__(self) -> None:
        self._held: list[Tensor] = []
        self._taken = 0

    def next_block(self) -> None:
        self._taken = 0

    def take(self, like: Tensor) -> Tensor:
        if self._taken == len(self._held):
            self._held.append(torch.empty_like(like))
        held = self._held[self._taken]
        self._taken += 1
        return held[: len(like)]


class Job(NamedTuple):
    """A block of work: scores, labels, the shares of the examples in the gradient, and where that is written."""

    z: Tensor
    y: Tensor
    share: Tensor | float
    out: Tensor
    scratch: Scratch


Block = Callable[[Job], Tensor]
"""Writes the gradient of a job, returns the values. Classes are along dimension 1."""


def run(loss: Loss, z: Tensor, y: Tensor, share: Tensor | float, unit: tuple[float, float] | None) -> Result | None:
    """Values at the labels y, and the gradient of sum(share * values); None where plain must do.

    ``unit`` is (temperature, eps) where the scores are to be divided by their norm.
    """
    block = kernel(loss, z.shape[1], unit)
    if block is None:
        return None
    z = z.detach()
    gradient = torch.empty_like(z)
    try:
        values = by_blocks(block, z, y, share, gradient, Scratch())
    except Unserved:
        return None
    return Result(values, gradient)


def by_blocks(block: Block, z: Tensor, y: Tensor, share: Tensor | float, out: Tensor, scratch: Scratch) -> Tensor:
    """Values at the labels; the gradient is written to out."""
    rows = max(1, BLOCK * len(z) // z.numel())
    scratch.next_block()
    if rows >= len(z):
        return block(Job(z, y, share, out, scratch))
    values = torch.empty_like(y, dtype=z.dtype)
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        scratch.next_block()
        shares = share[part] if isinstance(share, Tensor) else share
        values[part] = block(Job(z[part], y[part], shares, out[part], scratch))
    return values


def kernel(loss: Loss, classes: int, unit: tuple[float, float] | None = None) -> Block | None:
    """The kernel that serves a loss, behind a division by the norm where unit says so; None if there is none."""
    # A loss that holds tensors, perhaps a batch of them, has no kernel, and must not be kept alive by being remembered.
    return _kernel(loss, classes, unit) if loss.any_classes else None


@functools.lru_cache(maxsize=512)
def _kernel(loss: Loss, classes: int, unit: tuple[float, float] | None) -> Block | None:
    if unit is not None:
        inner = _kernel(loss, classes, None)
        if isinstance(inner, _Linear):
            return _UnitLinear(inner.factor, *unit)
        return None if inner is None else _Unit(inner, *unit)
    summed = loss.summed
    # Of two classes the other alone is summed, and may be as small as 1 - p: the plain formulas keep its digits.
    if summed is None or (classes < 3 and summed):
        return None
    if loss.linear is not None:
        return _Linear(loss.linear)
    return _Summed(loss, summed) if summed else _Narrow(loss)


@dataclass
class _Linear:
    """factor * (mean_k z_k - z_y)."""

    factor: float

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, _ = job
        weight, classes = self.factor * share, z.shape[1]
        own = weight / classes - weight
        if isinstance(weight, Tensor):
            out.copy_((weight / classes).expand_as(out)).scatter_(1, y, own)
        else:
            out.fill_(weight / classes).scatter_(1, y, own)
        values = z.mean(1, keepdim=True).sub_(z.gather(1, y))
        return values if self.factor == 1 else values * self.factor


@dataclass
class _Narrow:
    """Losses of the label's probability alone."""

    loss: Loss

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, _ = job
        p = torch.softmax(z, 1, out=out)
        own = p.gather(1, y)
        miss = p.scatter_(1, y, 0.0).sum(1, keepdim=True)
        at = AtLabel(own, miss, z.shape[1], logp=lambda: _logp(own, miss, p, z, y))
        found = self.loss.partials(at)
        if at.counted and not math.isfinite(float(z.sum())):
            raise Unserved
        slope = found.own * -share
        if found.linear == 0:
            p.mul_(slope).scatter_(1, y, slope.mul_(miss).neg_())
            return found.value
        weight = found.linear * share
        mean = weight / z.shape[1]
        constant = mean if isinstance(mean, Tensor) else torch.full((), mean, dtype=z.dtype)
        torch.addcmul(constant, p, slope, out=out).scatter_(1, y, slope.mul_(miss).neg_().add_(mean - weight))
        return _linear_value(found.linear, z, y).add_(found.value)


def _linear_value(factor: float, z: Tensor, y: Tensor) -> Tensor:
    return (z.mean(1, keepdim=True) - z.gather(1, y)).mul_(factor)


def _logp(own: Tensor, miss: Tensor, others: Tensor, z: Tensor, y: Tensor) -> Tensor:
    """log p of the labels: from 1 - p where they lead, from the leader's where p is too small to be told from 0."""
    low, high = (float(end) for end in own.aminmax())
    logp = own.log()
    if low < 1e-30:
        behind = z.gather(1, y) - z.amax(1, keepdim=True)
        logp = torch.where(own > 1e-30, logp, behind + others.amax(1, keepdim=True).log())
    return _where_it_leads(logp, miss) if high > 0.5 else logp


def _where_it_leads(logp: Tensor, miss: Tensor) -> Tensor:
    return torch.where(miss < 0.5, miss.neg().log1p_(), logp)


class Everywhere(NamedTuple):
    """The other classes of a block: log p and p (0 at the label), where the label is, and memory to work in."""

    logp: Tensor
    p: Tensor
    y: Tensor
    total_logp: Tensor
    scratch: Scratch

    @property
    def others(self) -> int:
        return self.p.shape[1] - 1


class Swept(NamedTuple):
    """A potential summed over the other classes, and its derivative: a factor, times a tensor unless that is None."""

    total: Tensor
    slope_total: Tensor | float
    factor: float
    slope: Tensor | None = None


@dataclass
class _Summed:
    """Losses that read sums over the other classes too."""

    loss: Loss
    summed: tuple[Potential, ...]

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, scratch = job
        logp = torch.log_softmax(z, 1, out=scratch.take(out))
        low = logp.gather(1, y)
        total_logp = logp.scatter_(1, y, 0.0).sum(1, keepdim=True)
        if not math.isfinite(float(total_logp.sum())):
            raise Unserved
        p = torch.exp(logp, out=out).scatter_(1, y, 0.0)
        own, miss = low.exp(), p.sum(1, keepdim=True)
        at = AtLabel(own, miss, z.shape[1], logp=lambda: _where_it_leads(low, miss))
        everywhere = Everywhere(logp, p, y, total_logp, scratch)
        swept: dict[Loss, Swept] = {potential: potential.sweep(everywhere) for potential in self.summed}
        at.rest = {potential: sweep.total for potential, sweep in swept.items()}
        found = self.loss.partials(at)
        through_sums: Tensor | float = 0.0
        constant: Tensor | float = 0.0
        for potential, b in found.sums.items():
            through_sums = through_sums + b * swept[potential].slope_total
            if swept[potential].slope is None:
                constant = constant + b * (swept[potential].factor * share)
        p.mul_((found.own + through_sums) * -share)
        for potential, b in found.sums.items():
            sweep = swept[potential]
            weight = b * (sweep.factor * share)
            if sweep.slope is not None and isinstance(weight, Tensor):
                p.addcmul_(sweep.slope, weight)
            elif sweep.slope is not None and isinstance(weight, float):
                p.add_(sweep.slope, alpha=weight)
        weight = found.linear * share
        constant = constant + weight / z.shape[1]
        if isinstance(constant, Tensor) or constant != 0:
            p.add_(constant)
        out.scatter_(1, y, (found.own * miss - own * through_sums) * share + weight * (1 / z.shape[1] - 1))
        return found.value if found.linear == 0 else found.value + _linear_value(found.linear, z, y)


@dataclass
class _UnitLinear:
    """factor * (mean_k u_k - u_y) with u = z / (temperature max(|z|, eps)): a multiple of z, and constants."""

    factor: float
    temperature: float
    eps: float

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, _ = job
        norm, own = torch.linalg.vector_norm(z, dim=1, keepdim=True), z.gather(1, y)
        inverse = (norm.clamp_min(self.eps) * self.temperature).reciprocal_()
        values = z.mean(1, keepdim=True).sub_(own).mul_(inverse * self.factor)
        weight = inverse * share
        along = values * weight * inverse * -(self.temperature * self.temperature)
        along.mul_(norm > self.eps)
        weight.mul_(self.factor)
        mean = weight / z.shape[1]
        torch.addcmul(mean, z, along, out=out)
        out.scatter_(1, y, mean.sub_(weight).addcmul_(own, along))
        return values


@dataclass
class _Unit:
    """A kernel on z / (temperature max(|z|, eps)), and its gradient brought back to z."""

    block: Block
    temperature: float
    eps: float

    def __call__(self, job: Job) -> Tensor:
        z, out = job.z, job.out
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        inverse = (norm.clamp_min(self.eps) * self.temperature).reciprocal_()
        u = torch.mul(z, inverse, out=job.scratch.take(out))
        values = self.block(job._replace(z=u, share=inverse * job.share))
        along = torch.mul(u, out, out=job.scratch.take(out)).sum(1, keepdim=True)
        along.mul_(norm > self.eps).mul_(-self.temperature * self.temperature)
        out.addcmul_(u, along)
        return values


class _Attached(torch.autograd.Function):
    """A value whose gradient is known already. A second derivative is taken from the plain formula."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, value: Tensor, gradient: Tensor, source: Source) -> Tensor:
        ctx.save_for_backward(z)
        ctx.gradient, ctx.source = gradient, source
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None, None, None]:
        (z,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = torch.autograd.grad(ctx.source.plain(z), z, incoming, create_graph=True)
            return gradient, None, None, None
        # Handed over, not kept: autograd would have to copy what somebody else still holds.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            gradient = ctx.source.gradient(z)
        weight = incoming.unsqueeze(1) if incoming.dim() else incoming
        try:
            gradient = gradient if not incoming.dim() and float(incoming) == 1 else gradient.mul_(weight)
        except RuntimeError:  # several gradients in a batch can be neither looked at nor written in place
            gradient = gradient * weight
        return gradient, None, None, None


class Source(NamedTuple):
    """Where a value came from: the same by the plain formulas, and its gradient once more."""

    plain: Callable[[Tensor], Tensor]
    gradient: Callable[[Tensor], Tensor]


def attach(z: Tensor, value: Tensor, gradient: Tensor, source: Source) -> Tensor:
    """The value, as a function of z with that gradient."""
    attached: Tensor = _Attached.apply(z, value, gradient, source)  # type: ignore[no-untyped-call]
    return attached
