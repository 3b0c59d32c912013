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

Whether classes are masked out and squares overflow is found in the checking step, `_do_block`, and kernels do not look;
a device that cannot be looked at may take both for granted. NaN passes through to the value and to the whole gradient
of its row.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.losses.scores import Scores

if TYPE_CHECKING:
    from symloss.losses.algebra import Loss
    from symloss.losses.leaves import Potential


@functools.lru_cache(maxsize=256)
def constant(value: float, dtype: torch.dtype) -> Tensor:
    """A number as a tensor: torch takes longer over a Python number than over a small batch."""
    return torch.tensor(value, dtype=dtype)


BLOCK = 2**20
"""Scores that are worked on at a time: few enough to stay in the cache, many enough to be worth the calls."""


class AtLabel:
    """What a loss reads of each example: the label's p, 1 - p, log p, sums over other classes, how many there are."""

    def __init__(self, behind: Tensor, others: Tensor, classes: int, scores: Scores | None = None):
        """``behind``: the label's score less the largest; ``others``: sum of the other classes' exp(z - max z).

        ``scores`` are given where classes may be masked out: then each example has its own number of classes.
        """
        own = behind.exp()
        self.behind, self.others = behind, others
        self.inverse = (own + others).reciprocal_()
        self.p, self.miss = own.mul_(self.inverse), others * self.inverse
        self.rest: dict[Loss, Tensor] = {}
        self.classes: int | Tensor = classes if scores is None else scores.count
        self.scores = scores
        self._logp: Tensor | None = None
        self._log_total: Tensor | None = None

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


def add_multiple(x: Tensor, factor: float | Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """x + factor * y. A number as a factor takes one operation instead of two."""
    if isinstance(factor, Tensor):
        return torch.add(x, factor * y, out=out)
    return torch.add(x, y, alpha=factor, out=out)


@dataclass
class Partials:
    """A loss at the label: value, derivative in the label's log p, and derivatives in the sums over other classes.

    ``linear`` times the unhinged loss is to be added: it needs no log p.
    """

    value: Tensor
    own: Tensor
    sums: dict[Loss, Tensor | float]
    linear: float | Tensor = 0.0

    @property
    def has_linear_part(self) -> bool:
        return isinstance(self.linear, Tensor) or self.linear != 0

    def plus(self, factor: float, other: Partials) -> Partials:
        sums = dict(self.sums)
        for potential, slope in other.sums.items():
            sums[potential] = sums[potential] + factor * slope if potential in sums else factor * slope
        value = torch.add(self.value, other.value, alpha=factor)
        own = torch.add(self.own, other.own, alpha=factor)
        return Partials(value, own, sums, self.linear + factor * other.linear)

    def __mul__(self, factor: float | Tensor) -> Partials:
        if not isinstance(factor, Tensor) and factor == 1:
            return self
        sums = {potential: factor * slope for potential, slope in self.sums.items()}
        return Partials(factor * self.value, factor * self.own, sums, factor * self.linear)


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
    """A block of work: scores, labels, the shares of the examples in the gradient, and where that is written.

    ``masked`` says that classes may be masked out. ``norm`` is given where it is known, and no square overflows.
    """

    z: Tensor
    y: Tensor
    share: Tensor
    out: Tensor
    scratch: Scratch
    masked: bool
    norm: Tensor | None = None

    @property
    def scores(self) -> Scores | None:
        """What counts the classes, where some may be masked out."""
        return Scores(self.z, 1) if self.masked else None


class Block(Protocol):
    """Writes the gradient of a job, returns the values.

    Classes are along dimension 1, and have size 1 in y and share. A share that all examples have in common is a scalar.
    """

    @property
    def shows_masks(self) -> bool:
        """Whether values are not finite where a class is masked out and the job does not say so."""

    @property
    def squares(self) -> bool:
        """Whether scores are squared."""

    def __call__(self, job: Job) -> Tensor: ...


def by_blocks(block: Block, z: Tensor, y: Tensor, share: Tensor, out: Tensor, scratch: Scratch) -> Tensor:
    """Values at the labels; the gradient of sum(share * values) is written to out. Shares of 0 are left out of both."""
    if z.numel() <= BLOCK:
        return _do_block(block, z, y, share, out, scratch)
    rows = max(1, BLOCK * len(z) // z.numel())
    values = torch.empty_like(y, dtype=z.dtype)
    for start in range(0, len(z), rows):
        part = slice(start, start + rows)
        shares = share[part] if share.dim() else share
        values[part] = _do_block(block, z[part], y[part], shares, out[part], scratch)
    return values


def _do_block(block: Block, z: Tensor, y: Tensor, share: Tensor, out: Tensor, scratch: Scratch) -> Tensor:
    scratch.next_block()
    masked, norm = (False, None) if block.shows_masks else _checked(block, z, y, share)
    values = block(Job(z, y, share, out, scratch, masked, norm))
    if block.shows_masks and not math.isfinite(float(values.sum())):
        scratch.next_block()
        _, norm = _checked(block, z, y, share)
        values = block(Job(z, y, share, out, scratch, True, norm))
    if share.dim():  # an example that is left out may hold anything, NaN too
        left_out = share == 0
        out.masked_fill_(left_out, 0.0)
        values = values.masked_fill(left_out, 0.0)
    return values


def _checked(block: Block, z: Tensor, y: Tensor, share: Tensor) -> tuple[bool, Tensor | None]:
    """The checking step: whether classes are masked out (no label must be), and norms, if all of them are finite."""
    if block.squares:
        norm = torch.linalg.vector_norm(z, dim=1, keepdim=True)
        if float(norm.amax()) < torch.inf:
            return False, norm
    if float(z.amin()) > -torch.inf:
        return False, None
    validation.present_labels(z, y, share != 0, 1)
    return True, None


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
    return _Summed(loss, summed) if summed else _Narrow(loss, _has_linear_part(loss, classes))


def _has_linear_part(loss: Loss, classes: int) -> bool:
    at = AtLabel(torch.zeros(1, 1), torch.full((1, 1), classes - 1.0), classes)
    return loss.partials(at).has_linear_part


def _mean(t: Tensor, scores: Scores | None) -> Tensor:
    # torch's mean takes longer over few classes.
    return t.sum(1, keepdim=True).div_(t.shape[1]) if scores is None else scores.mean(t)


@dataclass
class _Linear:
    """factor * (mean_k z_k - z_y)."""

    factor: float
    shows_masks: ClassVar = True
    squares: ClassVar = False

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, scratch, *_ = job
        scores, weight = job.scores, share if self.factor == 1 else share * self.factor
        # Relative to the label's score: what all scores have in common must not take the digits of their differences.
        values = _mean(torch.sub(z, z.gather(1, y), out=scratch.take(out)), scores)
        if scores is not None:
            weight = torch.add(weight, values, alpha=0)  # NaN, where the value is
        mean = weight / (z.shape[1] if scores is None else scores.count)
        out.copy_(mean.expand_as(out)).scatter_(1, y, (mean - weight).expand_as(y))
        if scores is not None:
            out.masked_fill_(~scores.present, 0.0)
        return values if self.factor == 1 else values.mul_(self.factor)


@dataclass
class _Narrow:
    """Losses of the label's probability alone, and of what is linear in the scores."""

    loss: Loss
    linear: bool
    squares: ClassVar = False

    @property
    def shows_masks(self) -> bool:
        return self.linear

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, _, masked, _ = job
        scores = job.scores
        t = torch.sub(z, z.amax(1, keepdim=True), out=out)
        behind = t.gather(1, y)
        mean = _mean(t, scores) if self.linear or masked else None
        e = t.exp_().scatter_(1, y, 0.0)
        at = AtLabel(behind, e.sum(1, keepdim=True), z.shape[1], scores)
        found = self.loss.partials(at)
        slope = found.own * share
        e.mul_(slope.mul(at.inverse).neg_())
        slope.mul_(at.miss)
        if mean is None:
            e.scatter_(1, y, slope)
            return found.value
        even = found.linear / at.classes
        add_multiple(e, even, share, out=e)
        e.scatter_(1, y, add_multiple(slope, even - found.linear, share))
        if scores is not None:
            e.masked_fill_(~scores.present, 0.0)
        return add_multiple(found.value, found.linear, mean.sub_(behind))


@dataclass
class Everywhere:
    """The other classes of a block: log p and exponentials, what makes these p, memory to work in.

    Log p and exponentials are 0 at the label, and where classes are masked out.
    """

    logp: Tensor
    e: Tensor
    inverse: Tensor
    y: Tensor
    zero: Tensor
    scratch: Scratch
    others: float | Tensor
    absent: Tensor | None
    _total_logp: Tensor | None = None

    @property
    def total_logp(self) -> Tensor:
        """Found when it is asked for: not every potential reads it."""
        if self._total_logp is None:
            self._total_logp = self.logp.sum(1, keepdim=True)
        return self._total_logp

    def blank(self, x: Tensor) -> Tensor:
        """Write 0 at the label, and where classes are masked out."""
        x.scatter_(1, self.y, self.zero)
        return x if self.absent is None else x.masked_fill_(self.absent, 0.0)


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
    shows_masks: ClassVar = False
    squares: ClassVar = False

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, scratch, *_ = job
        scores = job.scores
        t = torch.sub(z, z.amax(1, keepdim=True), out=scratch.take(out))
        behind = t.gather(1, y)
        zero = torch.zeros_like(behind)
        e = torch.exp(t, out=out).scatter_(1, y, zero)
        at = AtLabel(behind, e.sum(1, keepdim=True), z.shape[1], scores)
        if scores is None:
            logp, absent = t.sub_(at.log_total).scatter_(1, y, zero), None
        else:  # of two classes the other alone is summed: it must be exact however far it leads
            absent = ~scores.present
            logp = t.copy_(scores.logp).scatter_(1, y, zero).masked_fill_(absent, 0.0)
        everywhere = Everywhere(logp, e, at.inverse, y, zero, scratch, at.classes - 1, absent)
        swept: dict[Loss, Swept] = {potential: potential.sweep(everywhere) for potential in self.summed}
        at.rest.update((potential, sweep.total) for potential, sweep in swept.items())
        found = self.loss.partials(at)
        total_logp = everywhere.total_logp if found.has_linear_part else zero
        slope = self._finish(job, at, found, swept, logp)
        value = found.value
        if found.has_linear_part:
            even = found.linear / at.classes
            add_multiple(e, even, share, out=e)
            slope = add_multiple(slope, even - found.linear, share)
            value = add_multiple(value, found.linear, (total_logp + at.logp) / at.classes - at.logp)
        e.scatter_(1, y, slope)
        if absent is not None:
            e.masked_fill_(absent, 0.0)
        return value

    def _finish(self, job: Job, at: AtLabel, found: Partials, swept: dict[Loss, Swept], spare: Tensor) -> Tensor:
        """Write the gradient over the exponentials, save for the label's entry, which is returned."""
        share, e = job.share, job.out
        terms = [(share * b, swept[potential]) for potential, b in found.sums.items()]
        falls = [weight * sweep.fall_total for weight, sweep in terms]
        fall, own = sum(falls[1:], falls[0]), found.own * share
        per_e = (fall - own).mul_(at.inverse)
        own.mul_(at.miss).addcmul_(at.p, fall)
        cancels = any(potential.falls_to_the_end for potential in self.summed)
        gradient = torch.mul(e, per_e, out=spare if cancels else e)
        for weight, sweep in terms:
            if isinstance(sweep.fall, Tensor):
                gradient.sub_(sweep.fall.mul_(weight))
            else:
                gradient.sub_(weight, alpha=sweep.fall)
        if cancels:
            gradient.scatter_(1, job.y, own)
            if at.scores is not None:
                gradient.masked_fill_(~at.scores.present, 0.0)
            # A gradient sums to 0. Rounding leaves a gap, all of it at a class that leads the label by far: there the
            # two terms cancel. Shared out as p is, it goes back there.
            gap = gradient.sum(1, keepdim=True).mul_(at.inverse).neg_()
            e.mul_(gap).add_(gradient)
        return own


class _Length(NamedTuple):
    """The length of score vectors, max(norm, eps), as a product that cannot overflow: size * root."""

    ratio: Tensor
    """The scores divided by size."""
    size: Tensor | None
    """None stands for 1."""
    root: Tensor
    free: Tensor
    """Where the length is the norm, and depends on the scores."""

    def per(self, share: Tensor) -> Tensor:
        per = share / self.root
        return per if self.size is None else per.div_(self.size)


def _length(job: Job, eps: float, out: Tensor) -> _Length:
    """The length. Where squares may overflow, or eps is so small that they may vanish, out holds the ratio."""
    z, scores = job.z, job.scores
    finite = z if scores is None else torch.where(scores.present, z, 0.0)
    if job.norm is not None and eps > torch.finfo(z.dtype).tiny ** 0.4:
        return _Length(finite, None, job.norm.clamp_min(eps), job.norm > eps)
    size = torch.abs(finite, out=out).amax(1, keepdim=True).clamp_min_(eps)
    root = torch.linalg.vector_norm(torch.div(finite, size, out=out), dim=1, keepdim=True)
    return _Length(out, size, root.clamp_min(1), root >= 1)


@dataclass
class _UnitLinear:
    """factor * (mean_k u_k - u_y) with u = z / (temperature max(|z|, eps)): a multiple of z, and constants."""

    factor: float
    temperature: float
    eps: float
    shows_masks: ClassVar = False
    squares: ClassVar = True

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, *_ = job
        scores, length = job.scores, _length(job, self.eps, out)
        own, scale = length.ratio.gather(1, y), self.factor / self.temperature
        values = _mean(length.ratio, scores).sub_(own).div_(length.root)
        weight = per = length.per(share)
        if scale != 1:
            values.mul_(scale)
            weight = per * scale
        along = (values * per).div_(length.root).mul_(length.free).neg_()
        mean = weight / (z.shape[1] if scores is None else scores.count)
        torch.mul(length.ratio, along, out=out).add_(mean)
        out.scatter_(1, y, (mean - weight).addcmul_(own, along))
        if scores is not None:
            out.masked_fill_(~scores.present, 0.0)
        return values


@dataclass
class _Unit:
    """A kernel on z / (temperature max(|z|, eps)), and its gradient brought back to z."""

    block: Block
    temperature: float
    eps: float
    shows_masks: ClassVar = False
    squares: ClassVar = True

    def __call__(self, job: Job) -> Tensor:
        out, scratch, scores = job.out, job.scratch, job.scores
        unit = scratch.take(out)
        length = _length(job, self.eps, unit)
        torch.div(length.ratio, length.root, out=unit)
        u, share = unit, length.per(job.share)
        if self.temperature != 1:
            u, share = torch.div(unit, self.temperature, out=scratch.take(out)), share.div_(self.temperature)
        if scores is not None:
            u = u.masked_fill(~scores.present, -torch.inf)
        values = self.block(Job(u, job.y, share, out, scratch, job.masked))
        dot = torch.mul(unit, out, out=scratch.take(out)).sum(1, keepdim=True)
        out.addcmul_(unit, dot.mul_(length.free).neg_())
        return values


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
    """The value, with its gradient where one is wanted."""
    if not (z.requires_grad and torch.is_grad_enabled()):
        return work.found(z)[0]
    done: Tensor = _Done.apply(z, work)  # type: ignore[no-untyped-call]
    return done
