"""The kernel of every loss at targets with a weight for each class: probabilities, smoothed labels, class weights.

With A_j = sum_k t_k phi_j(l_k), R_j, a_j = dG/dA_j and b_j = dG/dR_j as in ``forms`` the gradient in log p is
w_k = sum_j (t_k (a_j - b_j) + b_j) phi_j'(l_k), and in the scores it is g_k = w_k - p_k sum_i w_i. In rows where one
score leads, its log p and its gradient are collected from the other classes, since differences would lose digits.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.kernels.batch import Job, Kernel
from symloss.losses.kernels.forms import Form, Number, Partials, Reading
from symloss.losses.kernels.labels import fill, fill_by_formula
from symloss.losses.logits import Scores
from symloss.losses.potentials import CEPotential, Potential
from symloss.losses.validation import looks_at

LEADS = 1.1  # below this sum of exp(z - max z) the largest score leads, with p above 0.9


class Leaders(NamedTuple):
    """The rows of a block in which one score leads."""

    rows: Tensor | slice
    leader: Tensor

    def collect(self, block: Tensor) -> Tensor:
        """Return the sums over all classes but the leader."""
        rows = block.clone() if isinstance(self.rows, slice) else block[self.rows]
        return rows.scatter_(1, self.leader, 0.0).sum(1, keepdim=True)


def leaders(e: Tensor, total: Tensor) -> Leaders | None:
    """Find the rows in which one score leads; None if there is none. Where looking would wait, it is every row."""
    if e.dim() > 2 or not looks_at(e):
        return Leaders(slice(None), e.argmax(1, keepdim=True))
    if float(total.amin()) >= LEADS:
        return None
    rows = (total.squeeze(1) < LEADS).nonzero().squeeze(1)
    return Leaders(rows, e[rows].argmax(1, keepdim=True))


@dataclass
class AtTarget(Reading):
    """What a loss reads at targets: sums over classes, weighted by the target and not."""

    t: Tensor  # the weight of each class
    logp: Tensor  # log p of every class, and 0 where classes are masked out
    p: Tensor  # the probabilities
    work: Tensor  # a tensor that each potential may overwrite
    mass: Number
    classes: Number
    scores: Scores | None
    leads: bool  # whether a score leads somewhere, or may, so that only the formula of a potential keeps its digits
    values: dict[Potential, Tensor] = field(default_factory=dict)  # sum_k t_k phi(l_k), by potential
    rest: dict[Potential, Tensor] = field(default_factory=dict)

    def read(self, potential: Potential) -> Tensor:
        """Return sum_k t_k phi(l_k)."""
        return self.values[potential]

    def weighed(self, x: Tensor) -> Tensor:
        """Return sum_k t_k x_k."""
        return torch.mul(self.t, x, out=self.work).sum(1, keepdim=True)

    def add(self, potential: Potential, summed: bool, fall: Tensor) -> tuple[Tensor | None, float]:
        """Read a potential. Return -phi' of every class as a tensor times a number; None stands for ones."""
        slope: Tensor | None
        if isinstance(potential, CEPotential):
            slope, gain, value = None, 1.0, self.weighed(self.logp).neg_()
            total = self.logp.sum(1, keepdim=True).neg_() if summed else value
        elif (power := potential.power) is not None:
            q, gain, constant = power
            slope = self.p if q == 1 else self._present(torch.mul(self.logp, q, out=fall).exp_())
            value = self.weighed(slope).mul_(-gain / q).add_(self.mass * constant)
            total = slope.sum(1, keepdim=True).mul_(-gain / q).add_(self.classes * constant) if summed else value
        else:
            write = fill_by_formula if self.leads else fill
            every, slope, gain = torch.empty_like(fall), fall.copy_(self.p), 1.0
            write(potential, self.logp, slope, every)
            self._present(slope)
            value = self.weighed(self._present(every))
            total = every.sum(1, keepdim=True) if summed else value
        self.values[potential] = value
        if summed:
            self.rest[potential] = total - value
        return slope, gain

    def _present(self, x: Tensor) -> Tensor:
        return x if self.scores is None else x.masked_fill_(~self.scores.present, 0.0)


class SoftKernel(Kernel):
    """The kernel of a loss at weights of classes, which may be negative and need not sum to 1."""

    adds = True

    def __init__(self, form: Form, sums_to_one: bool):
        self.partials, self.summed, self.sums_to_one = form.partials, form.summed, sums_to_one
        self.potentials = tuple(dict.fromkeys((*form.own, *form.summed)))
        self.scratch = 3 + len(self.potentials)  # log p, two that all potentials share, and -phi' of each

    def __call__(self, job: Job) -> Tensor:
        z, t, _, out, (logp, work, _, *falls), scores, _, top = job
        torch.sub(z, z.amax(1, keepdim=True) if top is None else top, out=logp)
        e = torch.exp(logp, out=out)
        total = e.sum(1, keepdim=True)
        log_total, leading = total.log(), leaders(e, total)
        if leading is not None:
            log_total[leading.rows] = leading.collect(e).log1p_()
        logp.sub_(log_total)
        if scores is not None:
            logp.masked_fill_(~scores.present, 0.0)
        mass: Number = 1.0 if self.sums_to_one else t.sum(1, keepdim=True)
        classes: Number = z.shape[1] if scores is None else scores.count
        leads = leading is not None or scores is not None
        at = AtTarget(t, logp, e.mul_(total.reciprocal_()), work, mass, classes, scores, leads)
        slopes = {phi: at.add(phi, phi in self.summed, fall) for phi, fall in zip(self.potentials, falls, strict=True)}
        loss = self.partials(at)
        value = loss.value
        if isinstance(loss.linear, Tensor) or loss.linear != 0:
            value = value + loss.linear * (logp.sum(1, keepdim=True) * (mass / classes) - at.weighed(logp))
        of_logp = self._in_logp(job, loss, slopes, mass / classes)
        if scores is not None:
            of_logp.masked_fill_(~scores.present, 0.0)
        torch.addcmul(of_logp, at.p, of_logp.sum(1, keepdim=True), value=-1, out=out)
        if leading is not None:
            rows = out[leading.rows].scatter_(1, leading.leader, 0.0)
            out[leading.rows] = rows.scatter_(1, leading.leader, -rows.sum(1, keepdim=True))
        return value

    def _in_logp(
        self, job: Job, loss: Partials, slopes: dict[Potential, tuple[Tensor | None, float]], mean: Number
    ) -> Tensor:
        """Return the gradient in log p. Each of its terms is (factor * t + constant) * fall."""
        t, share, (_, total, spare, *_) = job.y, job.share, job.scratch
        terms: list[tuple[Number, Number, Tensor | None]] = []
        for potential, (fall, gain) in slopes.items():
            own, rest = loss.own.get(potential, 0.0), loss.sums.get(potential, 0.0)
            terms.append(((rest - own) * gain, rest * -gain, fall))
        if isinstance(loss.linear, Tensor) or loss.linear != 0:
            terms.append((-loss.linear, loss.linear * mean, None))
        for number, (factor, constant, fall) in enumerate(terms):
            part = torch.mul(t, share * factor, out=spare if number else total)
            if isinstance(constant, Tensor) or constant != 0:
                part.add_(share * constant)
            if fall is not None:
                part.mul_(fall)
            if number:
                total.add_(part)
        return total
