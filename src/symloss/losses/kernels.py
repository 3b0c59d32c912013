"""Fast paths: the value and its gradient in one pass over the scores, block of rows by block of rows.

A loss made of potentials phi_j is a function of the label's log p and of sums over the other classes,
v = G(l_y, R_1, ...) with R_j = sum_{k != y} phi_j(l_k). With a = dG/dl_y, b_j = dG/dR_j, T_j = sum_{k != y} phi_j'(l_k)
and tau = a + sum_j b_j T_j its gradient in the scores is

    g_k = sum_j b_j phi_j'(l_k) - p_k tau   (k != y),        g_y = a (1 - p_y) - p_y sum_j b_j T_j.

No label is subtracted from a sum that contains it, so confident and hopeless examples keep their digits.

Both kernels take t = z - max z and e = exp(t), once. With r = sum_{k != y} e_k the label's log p is
t_y - log1p(r + expm1(t_y)), exact wherever the label stands.

Two kernels serve every such loss: `_Narrow` where nothing is summed (its exponentials lie in the gradient's own
memory), and `_Summed` for the others. What is linear in the scores needs neither. The plain formulas of the algebra
remain the truth, and serve whatever these do not.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

if TYPE_CHECKING:
    from symloss.losses.algebra import Loss
    from symloss.losses.potentials import Potential


@functools.lru_cache(maxsize=256)
def constant(value: float, dtype: torch.dtype) -> Tensor:
    """A number as a tensor: torch takes longer over a Python number than over a small batch."""
    return torch.tensor(value, dtype=dtype)


BLOCK = 2**20
"""Scores that are worked on at a time: few enough to stay in the cache, many enough to be worth the calls."""


class AtLabel:
    """What a loss reads of each example: the label's p, 1 - p, log p, sums over other classes, how many there are."""

    def __init__(self, behind: Tensor, others: Tensor, classes: int):
        """``behind``: the label's score less the largest; ``others``: sum of the other classes' exp(z - max z)."""
        own = behind.exp()
        self.behind, self.others = behind, others
        self.inverse = (own + others).reciprocal_()
        self.p, self.miss = own.mul_(self.inverse), others * self.inverse
        self.rest: dict[Loss, Tensor] = {}
        self._classes, self.counted = classes, False
        self._logp: Tensor | None = None
        self._log_total: Tensor | None = None

    @property
    def classes(self) -> int:
        """How many classes there are; who asks must not be served where some are masked out."""
        self.counted = True
        return self._classes

    @property
    def logp(self) -> Tensor:
        """Found when it is asked for: not every loss reads it."""
        if self._logp is None:
            self._logp = self.behind - self.log_total
        return self._logp

    @property
    def log_total(self) -> Tensor:
        """log sum_k exp(z_k - max z)."""
        if self._log_total is None:
            self._log_total = self.behind.expm1().add_(self.others).log1p_()
        return self._log_total


@dataclass
class Partials:
    """A loss at the label: value, derivative in the label's log p, and derivatives in the sums over other classes.

    ``linear`` times the unhinged loss is to be added: it needs no log p.
    """

    value: Tensor
    own: Tensor
    sums: dict[Loss, Tensor | float]
    linear: float = 0.0

    def plus(self, factor: float, other: Partials) -> Partials:
        sums = dict(self.sums)
        for potential, slope in other.sums.items():
            sums[potential] = sums[potential] + factor * slope if potential in sums else factor * slope
        value = torch.add(self.value, other.value, alpha=factor)
        own = torch.add(self.own, other.own, alpha=factor)
        return Partials(value, own, sums, self.linear + factor * other.linear)

    def __mul__(self, factor: float) -> Partials:
        if factor == 1:
            return self
        sums = {potential: factor * slope for potential, slope in self.sums.items()}
        return Partials(factor * self.value, factor * self.own, sums, factor * self.linear)


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
        return held if held.shape == like.shape else held[: like.shape[0]]


class Job(NamedTuple):
    """A block of work: scores, labels, the shares of the examples in the gradient, and where that is written."""

    z: Tensor
    y: Tensor
    share: Tensor
    out: Tensor
    scratch: Scratch


Block = Callable[[Job], Tensor]
"""Writes the gradient of a job, returns the values.

Classes are along dimension 1, and have size 1 in y and share. A share that all examples have in common is a scalar.
"""


def by_blocks(block: Block, z: Tensor, y: Tensor, share: Tensor, out: Tensor, scratch: Scratch) -> Tensor:
    """Values at the labels; the gradient of sum(share * values) is written to out."""
    scratch.next_block()
    if z.numel() <= BLOCK:
        return block(Job(z, y, share, out, scratch))
    rows = max(1, BLOCK * len(z) // z.numel())
    values = torch.empty_like(y, dtype=z.dtype)
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        scratch.next_block()
        shares = share[part] if share.dim() else share
        values[part] = block(Job(z[part], y[part], shares, out[part], scratch))
    return values


def kernel(loss: Loss, classes: int, unit: tuple[float, float] | None = None) -> Block | None:
    """The kernel that serves a loss, behind a division by the norm where unit says so; None if there is none."""
    known = loss.kernels
    key = (classes, unit)
    if key not in known:
        known[key] = _kernel(loss, classes, unit) if loss.any_classes else None
    return known[key]


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
    return _Summed(loss, summed) if summed else _Narrow(loss, *_constants(loss, classes))


def _constants(loss: Loss, classes: int) -> tuple[float, bool]:
    """The factor of what is linear in the scores, and whether the classes are counted: the same at all scores."""
    at = AtLabel(torch.zeros(1, 1), torch.full((1, 1), classes - 1.0), classes)
    return loss.partials(at).linear, at.counted


@dataclass
class _Linear:
    """factor * (mean_k z_k - z_y)."""

    factor: float

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, _ = job
        weight = share if self.factor == 1 else share * self.factor
        mean = weight / z.shape[1]
        out.copy_(mean.expand_as(out)).scatter_(1, y, (mean - weight).expand_as(y))
        values = z.mean(1, keepdim=True).sub_(z.gather(1, y))
        return values if self.factor == 1 else values.mul_(self.factor)


@dataclass
class _Narrow:
    """Losses of the label's probability alone, and of what is linear in the scores."""

    loss: Loss
    linear: float
    counted: bool

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, _ = job
        t = torch.sub(z, z.amax(1, keepdim=True), out=out)
        behind = t.gather(1, y)
        mean = t.mean(1, keepdim=True) if self.linear != 0 else None
        e = t.exp_().scatter_(1, y, 0.0)
        at = AtLabel(behind, e.sum(1, keepdim=True), z.shape[1])
        found = self.loss.partials(at)
        slope = found.own * share
        e.mul_(slope.mul(at.inverse).neg_())
        slope.mul_(at.miss)
        if mean is None:
            if self.counted and not math.isfinite(float(z.sum())):
                raise Unserved
            e.scatter_(1, y, slope)
            return found.value
        even = self.linear / z.shape[1]
        e.add_(share, alpha=even).scatter_(1, y, slope.add_(share, alpha=even - self.linear))
        return torch.add(found.value, mean.sub_(behind), alpha=self.linear)


class Everywhere(NamedTuple):
    """The other classes of a block: log p and exponentials (0 at the label), what makes these p, memory to work in."""

    logp: Tensor
    e: Tensor
    inverse: Tensor
    y: Tensor
    zero: Tensor
    total_logp: Tensor
    scratch: Scratch

    @property
    def others(self) -> int:
        return self.e.shape[1] - 1


class Swept(NamedTuple):
    """A potential summed over the other classes; how fast it falls there, -phi' (0 at the label), and the sum of that.

    A number stands for a potential that falls as fast everywhere.
    """

    total: Tensor
    fall: Tensor | float
    fall_total: Tensor | float


@dataclass
class _Summed:
    """Losses that read sums over the other classes too."""

    loss: Loss
    summed: tuple[Potential, ...]

    def __call__(self, job: Job) -> Tensor:
        z, y, _, out, scratch = job
        t = torch.sub(z, z.amax(1, keepdim=True), out=scratch.take(out))
        behind = t.gather(1, y)
        zero = torch.zeros_like(behind)
        e = torch.exp(t, out=out).scatter_(1, y, zero)
        at = AtLabel(behind, e.sum(1, keepdim=True), z.shape[1])
        logp = t.sub_(at.log_total).scatter_(1, y, zero)
        total_logp = logp.sum(1, keepdim=True)
        if not math.isfinite(float(total_logp.sum())):
            raise Unserved
        everywhere = Everywhere(logp, e, at.inverse, y, zero, total_logp, scratch)
        swept: dict[Loss, Swept] = {potential: potential.sweep(everywhere) for potential in self.summed}
        at.rest.update((potential, sweep.total) for potential, sweep in swept.items())
        found = self.loss.partials(at)
        self._finish(job, at, found, swept)
        if found.linear == 0:
            return found.value
        return torch.add(found.value, z.mean(1, keepdim=True).sub_(z.gather(1, y)), alpha=found.linear)

    def _finish(self, job: Job, at: AtLabel, found: Partials, swept: dict[Loss, Swept]) -> None:
        """Write the gradient over the exponentials."""
        share, e = job.share, job.out
        terms = [(share * b, swept[potential]) for potential, b in found.sums.items()]
        falls = [weight * sweep.fall_total for weight, sweep in terms]
        fall, own = sum(falls[1:], falls[0]), found.own * share
        e.mul_((fall - own).mul_(at.inverse))
        linear = found.linear / e.shape[1]
        for weight, sweep in terms:
            if isinstance(sweep.fall, Tensor):
                e.addcmul_(sweep.fall, weight.expand_as(own), value=-1)
            else:
                e.sub_(weight, alpha=sweep.fall)
        if linear != 0:
            e.add_(share, alpha=linear)
        own.mul_(at.miss).addcmul_(at.p, fall)
        e.scatter_(1, job.y, own if linear == 0 else own.add_(share, alpha=linear - found.linear))


@dataclass
class _UnitLinear:
    """factor * (mean_k u_k - u_y) with u = z / (temperature max(|z|, eps)): a multiple of z, and constants."""

    factor: float
    temperature: float
    eps: float

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, _ = job
        norm, own = torch.linalg.vector_norm(z, dim=1, keepdim=True), z.gather(1, y)
        inverse = _inverse(norm, self.temperature, self.eps)
        scale = inverse if self.factor == 1 else inverse * self.factor
        values = z.mean(1, keepdim=True).sub_(own).mul_(scale)
        along = _along(values * share * inverse.square(), norm, self.temperature, self.eps)
        weight = scale * share
        mean = weight / z.shape[1]
        torch.mul(z, along, out=out).add_(mean)
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
        inverse = _inverse(norm, self.temperature, self.eps)
        u = torch.mul(z, inverse, out=job.scratch.take(out))
        values = self.block(Job(u, job.y, inverse * job.share, out, job.scratch))
        dot = torch.mul(u, out, out=job.scratch.take(out)).sum(1, keepdim=True)
        out.addcmul_(u, _along(dot, norm, self.temperature, self.eps))
        return values


def _inverse(norm: Tensor, temperature: float, eps: float) -> Tensor:
    size = norm.clamp_min(eps)
    return (size if temperature == 1 else size.mul_(temperature)).reciprocal_()


def _along(dot: Tensor, norm: Tensor, temperature: float, eps: float) -> Tensor:
    """What is taken from a gradient along unit scores, given its product with them: nothing where eps is the norm."""
    along = dot.neg_() if temperature == 1 else dot.mul_(-temperature * temperature)
    return along.mul_(norm > eps)


class Work(Protocol):
    """A loss of a batch, as a function of its scores."""

    def found(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The value and its gradient, by a kernel."""

    def plain(self, z: Tensor) -> Tensor:
        """The value by the plain formulas."""


class _Done(torch.autograd.Function):
    """A value that is computed together with its gradient. A second derivative is taken from the plain formula."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, work: Work) -> Tensor:
        value, ctx.gradient = work.found(z)
        ctx.save_for_backward(z)
        ctx.work = work
        return value

    @staticmethod
    def backward(ctx: Any, incoming: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            (gradient,) = torch.autograd.grad(ctx.work.plain(z), z, incoming, create_graph=True)
            return gradient, None
        # Handed over, not kept: autograd would have to copy what somebody else still holds.
        gradient, ctx.gradient = ctx.gradient, None
        if gradient is None:
            _, gradient = ctx.work.found(z)
        weight = incoming.unsqueeze(1) if incoming.dim() else incoming
        try:
            gradient = gradient if not incoming.dim() and float(incoming) == 1 else gradient.mul_(weight)
        except RuntimeError:  # several gradients in a batch can be neither looked at nor written in place
            gradient = gradient * weight
        return gradient, None


def do(work: Work, z: Tensor) -> Tensor:
    """The value, with its gradient where one is wanted; Unserved where plain must do."""
    if not (z.requires_grad and torch.is_grad_enabled()):
        return work.found(z)[0]
    done: Tensor = _Done.apply(z, work)  # type: ignore[no-untyped-call]
    return done
