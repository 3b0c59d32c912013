"""The kernel of losses that also read sums over the classes besides the label.

With a = dG/dl_y, b_j = dG/dR_j (see ``forms``), T_j = sum_{k != y} phi_j'(l_k) and tau = a + sum_j b_j T_j it is

    g_k = sum_j b_j phi_j'(l_k) - p_k tau   (k != y),        g_y = a (1 - p_y) - p_y sum_j b_j T_j.

The label's term is never subtracted from a sum that contains it. With r = sum_{k != y} exp(z_k - max z) the label's
log p is t_y - log1p(r + expm1(t_y)), where t = z - max z. That is exact for every t_y.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from symloss.losses.kernels.at_label import AtLabel
from symloss.losses.kernels.forms import Form, Number, Partials, Room
from symloss.losses.kernels.job import Job, add_multiple
from symloss.losses.potentials import (
    SMALL,
    SMALL_Q,
    CEPotential,
    FocalPotential,
    GCEPotential,
    Potential,
    PowerPotential,
)
from symloss.losses.validation import can_look


@dataclass
class Everywhere:
    """The classes of a block, as a sum over all classes but the label reads them.

    ``logp`` and ``e`` are 0 at the label, and where classes are masked out.
    """

    logp: Tensor
    """log p of every class."""
    e: Tensor
    """exp(z - max z) of every class."""
    inverse: Tensor
    """``e * inverse`` is p."""
    y: Tensor
    """The labels."""
    zero: Tensor
    """Zeros of the shape of the labels."""
    scratch: Tensor
    """A tensor that each sum may overwrite."""
    others: Number
    """How many classes are present besides the label."""
    absent: Tensor | None
    """Which classes are masked out; None if none is."""
    _total_logp: Tensor | None = None

    @property
    def total_logp(self) -> Tensor:
        """The sum of ``logp``. It is computed on demand: not every potential reads it."""
        if self._total_logp is None:
            self._total_logp = self.logp.sum(1, keepdim=True)
        return self._total_logp

    def blank(self, x: Tensor) -> Tensor:
        """Write 0 to x at the label, and where classes are masked out."""
        x.scatter_(1, self.y, self.zero)
        return x if self.absent is None else x.masked_fill_(self.absent, 0.0)


class Swept(NamedTuple):
    """The sums of a potential phi over all classes but the label."""

    total: Tensor
    """The sum of phi."""
    fall: Number
    """-phi' of every class, 0 at the label; one number if all classes agree."""
    fall_total: Number
    """The sum of -phi'."""


@functools.singledispatch
def sweep(potential: Potential, at: Everywhere, fall: Tensor) -> Swept:
    """Sum phi over all classes but the label, exact to the rounding of a sum. -phi' may be written to ``fall``."""
    value = at.scratch
    # If two classes are left, the sum has one term, which may be as small as 1 - p.
    write = fill if at.absent is None else fill_by_formula
    write(potential, at.logp, torch.mul(at.e, at.inverse, out=fall), value)
    at.blank(value)
    at.blank(fall)
    return Swept(value.sum(1, keepdim=True), fall, fall.sum(1, keepdim=True))


sweep_by_filling = sweep.dispatch(Potential)


@sweep.register
def _sweep_ce(potential: CEPotential, at: Everywhere, fall: Tensor) -> Swept:
    return Swept(-at.total_logp, 1.0, at.others)


@sweep.register
def _sweep_gce(potential: GCEPotential, at: Everywhere, fall: Tensor) -> Swept:
    if potential.q < SMALL_Q or at.absent is not None:
        return sweep_by_filling(potential, at, fall)
    power = at.blank(torch.mul(at.logp, potential.q, out=fall).exp_())
    total = power.sum(1, keepdim=True)
    return Swept(torch.rsub(total, at.others).mul_(1 / potential.q), power, total)


@sweep.register
def _sweep_power(potential: PowerPotential, at: Everywhere, fall: Tensor) -> Swept:
    power = at.blank(torch.mul(at.logp, potential.q, out=fall).exp_())
    if potential.scale != 1:
        power.mul_(potential.scale)
    total = power.sum(1, keepdim=True)
    return Swept(total * (-1 / potential.q), power, total)


@sweep.register
def _sweep_room(potential: Room, at: Everywhere, fall: Tensor) -> Swept:
    if (
        potential.inner == CEPotential() and can_look(at.logp) and float(at.logp.min()) > -potential.bound
    ):  # nothing is cut
        return Swept(at.total_logp + at.others * potential.bound, -1.0, -at.others)
    return sweep_by_filling(potential, at, fall)


@functools.singledispatch
def fill(potential: Potential, logp: Tensor, fall: Tensor, value: Tensor) -> None:
    """Write phi of every entry to value, and -phi' to fall. At first fall holds p."""
    value.copy_(potential.phi(logp))
    torch.neg(potential.derivative(logp), out=fall)


fill_by_formula = fill.dispatch(Potential)


@fill.register
def _fill_ce(potential: CEPotential, logp: Tensor, fall: Tensor, value: Tensor) -> None:
    torch.neg(logp, out=value)
    fall.fill_(1.0)


@fill.register
def _fill_gce(potential: GCEPotential, logp: Tensor, fall: Tensor, value: Tensor) -> None:
    if potential.q < SMALL:
        fill_by_formula(potential, logp, fall, value)
        return
    torch.mul(logp, potential.q, out=fall).expm1_()
    torch.mul(fall, -1 / potential.q, out=value)
    fall.add_(1)


@fill.register
def _fill_focal(potential: FocalPotential, logp: Tensor, fall: Tensor, value: Tensor) -> None:
    # 1 - p is a multiple of eps / 2. It may be rounded to 0 where log p is not 0.
    miss = torch.sub(1, fall, out=value).clamp_min_(torch.finfo(value.dtype).eps / 2)
    fall.mul_(logp).div_(miss)
    factor = value.sqrt_() if potential.gamma == 0.5 else value.pow_(potential.gamma)
    torch.addcmul(factor, factor, fall, value=-potential.gamma, out=fall)
    factor.mul_(logp).neg_()


@fill.register
def _fill_room(potential: Room, logp: Tensor, fall: Tensor, value: Tensor) -> None:
    fill(potential.inner, logp, fall, value)
    value.neg_().add_(potential.bound).clamp_min_(0)
    fall.mul_(value.sign().neg_())


def falls_to_the_end(potential: Potential) -> bool:
    """Whether phi' is not 0 at p = 1, and goes to 0 with p. Then a class with p near 1 outweighs all others."""
    if isinstance(potential, Room):
        return falls_to_the_end(potential.inner)
    return not isinstance(potential, (CEPotential, FocalPotential))


class SumsKernel:
    """The kernel of a loss at labels that reads sums."""

    shows_masks: ClassVar = False
    squares: ClassVar = False
    adds: ClassVar = True

    def __init__(self, form: Form):
        self.partials = form.partials
        self.scratch = 2 + len(form.summed)  # log p, a tensor that all sums share, and -phi' of each sum
        self.sweeps: list[tuple[Potential, Callable[[Everywhere, Tensor], Swept]]]
        self.sweeps = [(p, functools.partial(sweep.dispatch(type(p)), p)) for p in form.summed]
        self.cancels = any(falls_to_the_end(potential) for potential in form.summed)

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, (for_logp, for_sums, *for_falls), scores, _, top = job
        t = torch.sub(z, z.amax(1, keepdim=True) if top is None else top, out=for_logp)
        behind = t.gather(1, y)
        zero = torch.zeros_like(behind)
        e = torch.exp(t, out=out).scatter_(1, y, zero)
        at = AtLabel(behind, e.sum(1, keepdim=True), z.shape[1], scores)
        if scores is None:
            logp, absent = t.sub_(at.log_total).scatter_(1, y, zero), None
        else:  # if two classes are left, the sum has one term, which must be exact however far its score leads
            absent = ~scores.present
            logp = t.copy_(scores.logp).scatter_(1, y, zero).masked_fill_(absent, 0.0)
        everywhere = Everywhere(logp, e, at.inverse, y, zero, for_sums, at.classes - 1, absent)
        swept = {
            potential: sweep_of(everywhere, fall)
            for (potential, sweep_of), fall in zip(self.sweeps, for_falls, strict=True)
        }
        at.rest = {potential: part.total for potential, part in swept.items()}
        loss = self.partials(at)
        value, linear = loss.value, loss.linear
        bends_only = not isinstance(linear, Tensor) and linear == 0
        total_logp = zero if bends_only else everywhere.total_logp
        slope = self._write_gradient(job, at, loss, swept, logp)
        if not bends_only:
            even = linear / at.classes
            add_multiple(e, even, share, out=e)
            slope = add_multiple(slope, even - linear, share)
            value = add_multiple(value, linear, (total_logp + at.logp) / at.classes - at.logp)
        e.scatter_(1, y, slope)
        if absent is not None:
            e.masked_fill_(absent, 0.0)
        return value

    def _write_gradient(
        self, job: Job, at: AtLabel, loss: Partials, swept: dict[Potential, Swept], spare: Tensor
    ) -> Tensor:
        """Write the gradient over the exponentials. Only the label's entry is not written, but returned."""
        share, e = job.share, job.out
        terms = [(share * b, swept[potential]) for potential, b in loss.sums.items()]
        falls = [weight * part.fall_total for weight, part in terms]
        fall, label = sum(falls[1:], falls[0]), at.slope(loss, share)
        per_e = (fall - label) * at.inverse
        label = (label * at.miss).addcmul_(at.p, fall)
        gradient = torch.mul(e, per_e, out=spare if self.cancels else e)
        for weight, part in terms:
            if isinstance(part.fall, Tensor):
                gradient.sub_(part.fall.mul_(weight))
            else:
                gradient.sub_(weight, alpha=part.fall)
        if self.cancels:
            gradient.scatter_(1, job.y, label)
            if at.scores is not None:
                gradient.masked_fill_(~at.scores.present, 0.0)
            # A gradient sums to 0. Rounding leaves a gap: at a class that leads the label by far the two terms
            # cancel. Every class gets back its share p of the gap, so nearly all of it goes to that class.
            gap = gradient.sum(1, keepdim=True).mul_(at.inverse).neg_()
            e.mul_(gap).add_(gradient)
        return label
