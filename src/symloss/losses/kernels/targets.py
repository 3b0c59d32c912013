"""Kernels of losses at targets, the value and its gradient in one pass over the scores; and the choice of a kernel.

At labels, with a = dG/dl_y, b_j = dG/dR_j (see ``forms``), T_j = sum_{k != y} phi_j'(l_k) and tau = a + sum_j b_j T_j,
the gradient is

    g_k = sum_j b_j phi_j'(l_k) - p_k tau   (k != y),        g_y = a (1 - p_y) - p_y sum_j b_j T_j.

1 - p_y is the sum of the other probabilities, and the label's term is never subtracted from a sum that contains it. So
confident and hopeless examples keep their digits. With r = sum_{k != y} exp(z_k - max z) the label's log p is
t_y - log1p(r + expm1(t_y)), where t = z - max z. That is exact for every t_y. ``LabelKernel`` serves losses that sum
nothing, ``SumsKernel`` the others.

``SoftKernel`` serves targets with a weight for each class: probabilities, smoothed labels, class weights.
With A_j = sum_k t_k phi_j(l_k), R_j, a_j = dG/dA_j and b_j = dG/dR_j as in ``forms`` the gradient in log p is
w_k = sum_j (t_k (a_j - b_j) + b_j) phi_j'(l_k), and in the scores it is g_k = w_k - p_k sum_i w_i. In rows where one
score leads, its log p and its gradient are collected from the other classes, since differences would lose digits.
"""

import functools
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.base import Loss, is_key
from symloss.losses.kernels.batch import Job, Kernel, class_mean, constant
from symloss.losses.kernels.forms import Form, Number, Partials, Reading, Room, add_multiple, form_of
from symloss.losses.kernels.linear import LinearKernel, Unit, UnitKernel, UnitLinearKernel
from symloss.losses.logits import Scores
from symloss.losses.potentials import SMALL, CEPotential, FocalPotential, Potential, Power, Probability
from symloss.losses.validation import can_look, looks_at


class AtLabel(Probability, Reading):
    """The quantities of each example that a loss reads: the label's p, 1 - p and log p, and sums over other classes."""

    mass: Number = 1.0
    log_total: Tensor  # log sum_k exp(z_k - max z), exact for every lead of the label

    def __init__(self, behind: Tensor, others: Tensor, classes: int, scores: Scores | None):
        """Read the label's score minus the largest one, and the sum of exp(z - max z) over the other classes.

        ``scores`` are given if classes may be masked out.
        """
        label = behind.exp()
        self.inverse = (label + others).reciprocal_()
        self.p, self.miss = label.mul_(self.inverse), others * self.inverse
        self.rest, self.scores = {}, scores
        self.classes = classes if scores is None else scores.count
        self.number = functools.partial(constant, behind.dtype)
        self._slopes: dict[Potential, Number] = {}
        self._behind, self._others = behind, others

    def __getattr__(self, name: str) -> Tensor:
        """Compute log p when it is read for the first time: many losses never read it."""
        if name not in ("log_total", "logp"):
            raise AttributeError(name)
        self.log_total = self._behind.expm1().add_(self._others).log1p_()
        self.logp = self._behind - self.log_total
        found: Tensor = vars(self)[name]
        return found

    def bent(self, x: Tensor, q: float, scale: float = 1.0) -> Tensor:
        if q < SMALL:
            return super().bent(x, q, scale)
        return (x * self.number(q)).expm1().mul_(self.number(-scale / q))

    def read(self, potential: Potential) -> Tensor:
        """Return phi at the label."""
        if type(potential) is CEPotential:
            self._slopes[potential] = -1.0
            return self.logp.neg()
        value, self._slopes[potential] = potential.both(self)
        return value

    def slope(self, loss: Partials, share: Tensor) -> Tensor:
        """Return the derivative of a loss in the label's log p, times the share of each example."""
        total: Number = 0.0
        for potential, factor in loss.own.items():
            slope = self._slopes[potential]
            part = slope if not isinstance(factor, Tensor) and factor == 1 else slope * factor
            total = part if not isinstance(total, Tensor) and total == 0 else total + part
        return total * share


class LabelKernel(Kernel):
    """The kernel of losses that read the label's probability, and terms linear in the scores."""

    def __init__(self, form: Form, classes: int):
        self.partials = form.partials
        one = torch.zeros(1, 1)
        loss = form.partials(AtLabel(one, one + (classes - 1.0), classes, None))
        self.shows_masks = self.adds = bool(loss.linear != 0)

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, _, scores, _, top = job
        t = torch.sub(z, z.amax(1, keepdim=True) if top is None else top, out=out)
        behind = t.gather(1, y)
        mean = class_mean(t, scores) if self.adds else None
        e = t.exp_().scatter_(1, y, 0.0)
        at = AtLabel(behind, e.sum(1, keepdim=True), z.shape[1], scores)
        loss = self.partials(at)
        slope = at.slope(loss, share)
        e.mul_(slope.mul(at.inverse).neg_())
        slope = slope * at.miss
        if mean is None:
            e.scatter_(1, y, slope)
            return loss.value
        even = loss.linear / at.classes
        add_multiple(e, even, share, out=e)
        if loss.remainder is None:
            slope = add_multiple(slope, even - loss.linear, share)
        else:  # the same, but over many classes slope and linear may be 10^5 times their difference
            slope = add_multiple(at.miss * loss.remainder, loss.linear, 1 / at.classes - at.p).mul_(share)
        e.scatter_(1, y, slope)
        if scores is not None:
            e.masked_fill_(~scores.present, 0.0)
        return add_multiple(loss.value, loss.linear, mean.sub_(behind))


@dataclass
class Everywhere:
    """The classes of a block. ``logp`` and ``e`` are 0 at the label, and where classes are masked out."""

    logp: Tensor  # log p of every class
    e: Tensor  # exp(z - max z) of every class
    inverse: Tensor  # ``e * inverse`` is p
    y: Tensor  # the labels
    zero: Tensor  # zeros of the shape of the labels
    scratch: Tensor  # a tensor that each sum may overwrite
    others: Number  # how many classes are present besides the label
    absent: Tensor | None  # which classes are masked out; None if none is

    @functools.cached_property
    def total_logp(self) -> Tensor:
        """The sum of ``logp``."""
        return self.logp.sum(1, keepdim=True)

    def blank(self, x: Tensor) -> Tensor:
        """Write 0 to x at the label, and where classes are masked out."""
        x.scatter_(1, self.y, self.zero)
        return x if self.absent is None else x.masked_fill_(self.absent, 0.0)


class Swept(NamedTuple):
    """The sums of a potential phi over all classes but the label."""

    total: Tensor  # the sum of phi
    fall: Number  # -phi' of every class, 0 at the label; one number if all classes agree
    fall_total: Number  # the sum of -phi'


def sweep(potential: Potential, power: Power | None, at: Everywhere, fall: Tensor) -> Swept:
    """Sum phi over all classes but the label, exact to the rounding of a sum. -phi' may be written to ``fall``."""
    if type(potential) is CEPotential:
        return Swept(-at.total_logp, 1.0, at.others)
    if isinstance(potential, Room) and potential.inner == CEPotential():
        if can_look(at.logp) and float(at.logp.min()) > -potential.bound:  # nothing is cut
            return Swept(at.total_logp + at.others * potential.bound, -1.0, -at.others)
    elif power is not None and (at.absent is None or power.constant == 0):
        # If two classes are left, the sum has one term, which may be as small as 1 - p.
        slope = at.blank(torch.mul(at.logp, power.q, out=fall).exp_())
        slope = slope if power.scale == 1 else slope.mul_(power.scale)
        total = slope.sum(1, keepdim=True)
        value = total * (-1 / power.q)
        return Swept(value if power.constant == 0 else value.add_(at.others * power.constant), slope, total)
    value = at.scratch
    write = fill if at.absent is None else fill_by_formula
    write(potential, at.logp, torch.mul(at.e, at.inverse, out=fall), value)
    at.blank(value)
    at.blank(fall)
    return Swept(value.sum(1, keepdim=True), fall, fall.sum(1, keepdim=True))


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


class SumsKernel(Kernel):
    """The kernel of a loss at labels that reads sums."""

    adds = True

    def __init__(self, form: Form):
        self.partials = form.partials
        self.scratch = 2 + len(form.summed)  # log p, a tensor that all sums share, and -phi' of each sum
        self.summed = [(phi, phi.power) for phi in form.summed]
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
        pairs = zip(self.summed, for_falls, strict=True)
        swept = {phi: sweep(phi, power, everywhere, fall) for (phi, power), fall in pairs}
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
        """Return the gradient in log p. Each of its terms is (factor * t + even) * fall."""
        t, share, (_, total, spare, *_) = job.y, job.share, job.scratch
        terms: list[tuple[Number, Number, Tensor | None]] = []
        for potential, (fall, gain) in slopes.items():
            own, rest = loss.own.get(potential, 0.0), loss.sums.get(potential, 0.0)
            terms.append(((rest - own) * gain, rest * -gain, fall))
        if isinstance(loss.linear, Tensor) or loss.linear != 0:
            terms.append((-loss.linear, loss.linear * mean, None))
        for number, (factor, even, fall) in enumerate(terms):
            part = torch.mul(t, share * factor, out=spare if number else total)
            if isinstance(even, Tensor) or even != 0:
                part.add_(share * even)
            if fall is not None:
                part.mul_(fall)
            if number:
                total.add_(part)
        return total


LABELS, PROBABILITIES, WEIGHTS = "labels", "probabilities", "weights"
"""Targets: class indices; weights of the classes that sum to 1; any weights of the classes."""


def kernel_for(loss: Loss, classes: int, unit: Unit | None = None, target: str = LABELS) -> Kernel | None:
    """Return the kernel of a loss for this number of classes; None if there is none. ``unit`` divides the scores."""
    try:
        return _cached_kernel(loss, classes, unit, target)
    except TypeError:  # to ask first would take longer than to find the kernel
        if is_key(loss):
            raise
        return None


@functools.lru_cache(maxsize=256)
def _cached_kernel(loss: Loss, classes: int, unit: Unit | None, target: str) -> Kernel | None:
    if not is_key(loss):
        raise TypeError("the loss holds tensors or modules, and the cache must not keep them alive")
    form = form_of(loss, classes)
    # With two classes the sum has one term, which may be as small as 1 - p. The plain formulas keep its digits.
    if form is None or (classes < 3 and form.summed):
        return None
    kernel: Kernel
    if target != LABELS:
        kernel = SoftKernel(form, target == PROBABILITIES)
    elif form.linear is not None:
        return LinearKernel(form.linear) if unit is None else UnitLinearKernel(form.linear, *unit.for_classes(classes))
    else:
        kernel = SumsKernel(form) if form.summed else LabelKernel(form, classes)
    return kernel if unit is None else UnitKernel(kernel, *unit.for_classes(classes))
