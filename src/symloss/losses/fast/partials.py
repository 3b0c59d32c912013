"""The form in which kernels read a loss: its value at the label and its partial derivatives.

A loss made of potentials phi_j is a function of the label's log p and of sums over the other classes,
v = G(l_y, R_1, ...) with R_j = sum_{k != y} phi_j(l_k). ``fast_form`` returns G and its partial derivatives, for every
leaf and operator. A loss that reads anything else has no such form, and is computed by its plain formula.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.algebra import Loss, Sum
from symloss.losses.blending import Blend
from symloss.losses.fast.at_label import AtLabel
from symloss.losses.leaves import AEL, AGCE, AUL, CE, GCE, MAE, SMALL, Focal, PHuberCE, Potential, Power, Taylor, below
from symloss.losses.logits import Scores
from symloss.losses.operators import Complement, Dirichlet, Insensitive, Relative, Symmetrize, UnitSlope
from symloss.losses.operators import slope_at_equal_scores as equal_scores_slope

TINY = 1e-38
"""Added to a part and to the total, so that the share of a part is 1 where the total is 0."""


@functools.lru_cache(maxsize=256)
def constant(value: float, dtype: torch.dtype) -> Tensor:
    """A number as a tensor. For a small batch torch would need more time for a Python number than for the batch."""
    return torch.tensor(value, dtype=dtype)


def add_multiple(x: Tensor, factor: float | Tensor, y: Tensor, out: Tensor | None = None) -> Tensor:
    """x + factor * y. A factor that is a Python number saves an operation."""
    if isinstance(factor, Tensor):
        return torch.add(x, factor * y, out=out)
    return torch.add(x, y, alpha=factor, out=out)


@dataclass
class Partials:
    """A loss at the label, with its partial derivatives. Each tensor has one entry for each example."""

    value: Tensor
    """The value, without the multiple of the unhinged loss."""
    slope: Tensor
    """The derivative in the label's log p."""
    sums: dict[Potential, Tensor | float]
    """The derivatives in the sums over the other classes, by the potential that is summed."""
    linear: float | Tensor = 0.0
    """The kernel adds this multiple of the unhinged loss, which needs no log p."""
    remainder: float | None = None
    """slope - linear, if it is a number far smaller than both; None if a subtraction does."""

    def plus(self, factor: float, other: Partials) -> Partials:
        """The partials of this loss plus ``factor`` times another one."""
        sums = dict(self.sums)
        for potential, slope in other.sums.items():
            sums[potential] = sums[potential] + factor * slope if potential in sums else factor * slope
        value = torch.add(self.value, other.value, alpha=factor)
        slope = torch.add(self.slope, other.slope, alpha=factor)
        return Partials(value, slope, sums, self.linear + factor * other.linear)

    def __mul__(self, factor: float | Tensor) -> Partials:
        if not isinstance(factor, Tensor) and factor == 1:
            return self
        sums = {potential: factor * slope for potential, slope in self.sums.items()}
        remainder = None if self.remainder is None or isinstance(factor, Tensor) else factor * self.remainder
        return Partials(factor * self.value, factor * self.slope, sums, factor * self.linear, remainder)


class FastForm(NamedTuple):
    """A loss as kernels read it."""

    partials: Callable[[AtLabel], Partials]
    """Value and partial derivatives at the label."""
    summed: tuple[Potential, ...] = ()
    """The potentials whose sums over the other classes the loss reads."""
    linear: float | None = None
    """The factor, if the loss is a multiple of the unhinged loss and needs no softmax; else None."""


@functools.singledispatch
def fast_form(loss: Loss, classes: int) -> FastForm | None:
    """The form of a loss for this number of classes; None if no kernel can compute the loss."""
    return None


# Leaves


@fast_form.register
def potential_form(loss: Potential, classes: int) -> FastForm:
    """The form of any potential, by its own ``phi`` and ``derivative``."""
    return FastForm(lambda at: Partials(loss.phi(at.logp), loss.derivative(at.logp), {}))


@fast_form.register
def _ce(loss: CE, classes: int) -> FastForm:
    return FastForm(lambda at: Partials(at.logp.neg(), torch.full_like(at.logp, -1.0), {}))


@fast_form.register
def _mae(loss: MAE, classes: int) -> FastForm:
    return FastForm(lambda at: Partials(at.miss, -at.p, {}) * loss.scale)


@fast_form.register
def _gce(loss: GCE, classes: int) -> FastForm:
    def partials(at: AtLabel) -> Partials:
        power = at.logp * loss.q
        return Partials(power.expm1().mul_(-1 / loss.q), power.exp_().neg_(), {})

    return potential_form(loss, classes) if loss.q < SMALL else FastForm(partials)


@fast_form.register
def _power(loss: Power, classes: int) -> FastForm:
    def partials(at: AtLabel) -> Partials:
        power = (at.logp * loss.q).exp_()
        scaled = Partials(power * (-1 / loss.q), power.neg_(), {})
        return scaled if loss.scale == 1 else scaled * loss.scale

    return FastForm(lambda at: Partials(-at.p, -at.p, {}) * loss.scale) if loss.q == 1 else FastForm(partials)


@fast_form.register
def _focal(loss: Focal, classes: int) -> FastForm:
    def partials(at: AtLabel) -> Partials:
        factor, cost = at.miss.pow(loss.gamma), at.logp.neg()
        bent = (at.p * cost).div_(at.miss.clamp_min(1e-30)).mul_(-loss.gamma).sub_(1)
        return Partials(factor * cost, bent.mul_(factor), {})

    return FastForm(partials)


@fast_form.register
def _agce(loss: AGCE, classes: int) -> FastForm:
    def partials(at: AtLabel) -> Partials:
        return _power_of_base(at, constant(loss.a, at.p.dtype) + at.p, loss.q, loss.a + 1, -1)

    return potential_form(loss, classes) if loss.q < SMALL or loss.a < 0.01 else FastForm(partials)


@fast_form.register
def _aul(loss: AUL, classes: int) -> FastForm:
    def partials(at: AtLabel) -> Partials:
        return _power_of_base(at, constant(loss.a - 1, at.p.dtype) + at.miss, loss.q, loss.a - 1, 1)

    return potential_form(loss, classes) if loss.q < SMALL or loss.a < 1.01 else FastForm(partials)


def _power_of_base(at: AtLabel, base: Tensor, q: float, at_one: float, sign: int) -> Partials:
    """The partials of sign (base^q - at_one^q) / q, where base = at_one + sign (1 - p)."""
    kind = at.p.dtype
    power = (at.miss * constant(sign / at_one, kind)).log1p_().mul_(constant(q, kind)).expm1_()
    scale = constant(sign * math.pow(at_one, q) / q, kind)
    return Partials(power.mul_(scale), base.pow_(q - 1).mul_(at.p).neg_(), {})


@fast_form.register
def _ael(loss: AEL, classes: int) -> FastForm:
    def partials(at: AtLabel) -> Partials:
        share = at.p / -loss.a
        value = share.exp()
        return Partials(value, share * value, {})

    return FastForm(partials)


@fast_form.register
def _taylor(loss: Taylor, classes: int) -> FastForm:
    def partials(at: AtLabel) -> Partials:
        return Partials(at.miss * loss.scaled_value(at.miss), -at.p * loss.scaled_derivative(at.miss), {})

    return FastForm(partials)


@fast_form.register
def _phuber_ce(loss: PHuberCE, classes: int) -> FastForm:
    cut = math.log(loss.tau)

    def partials(at: AtLabel) -> Partials:
        line = below(at.logp, -cut).exp_()  # min(tau p, 1)
        return Partials(torch.where(line == 1, at.logp.neg(), 1 + cut - line), line.neg(), {})

    return FastForm(partials)


@dataclass(frozen=True)
class Room(Potential):
    """max(bound - phi, 0), the potential that the complement of a loss sums."""

    inner: Potential
    bound: float

    def phi(self, logp: Tensor) -> Tensor:
        return (self.bound - self.inner.phi(logp)).clamp_min(0)

    def derivative(self, logp: Tensor) -> Tensor:
        return torch.where(self.inner.phi(logp) < self.bound, -self.inner.derivative(logp), 0.0)


@fast_form.register
def _room(loss: Room, classes: int) -> FastForm:
    inside = _of_potential(loss.inner, classes)

    def partials(at: AtLabel) -> Partials:
        inner = inside(at)
        value = inner.value.neg().add_(loss.bound).clamp_min_(0)
        return Partials(value, (inner.slope * value.sign()).neg_(), {})

    return FastForm(partials)


def _of_potential(loss: Potential, classes: int) -> Callable[[AtLabel], Partials]:
    form = fast_form(loss, classes)
    assert form is not None  # every potential has one
    return form.partials


# Operators


@fast_form.register
def _sum(loss: Sum, classes: int) -> FastForm | None:
    forms = [(a, form) for a, term in loss.terms if (form := fast_form(term, classes)) is not None]
    if len(forms) < len(loss.terms):
        return None
    (factor, first), *others = forms

    def partials(at: AtLabel) -> Partials:
        total = first.partials(at) * factor
        for a, form in others:
            total = total.plus(a, form.partials(at))
        return total

    summed = tuple(dict.fromkeys(potential for _, form in forms for potential in form.summed))
    factors = [(a, form.linear) for a, form in forms]
    linear = sum(a * part for a, part in factors if part) if all(part is not None for _, part in factors) else None
    return FastForm(partials, summed, linear)


@fast_form.register
def _symmetrize(loss: Symmetrize, classes: int) -> FastForm | None:
    if loss.prior is not None:
        return None
    if loss.inner == CE():
        zero = torch.zeros_like
        return FastForm(lambda at: Partials(zero(at.miss), zero(at.miss), {}, linear=1.0), linear=1.0)
    bare = loss.bare
    if not isinstance(bare, Potential):
        return None
    inside = _of_potential(bare, classes)
    if bare.symmetric:  # its mean is constant, but the gradient of a computed sum would not be 0
        mean = _at_equal_scores(bare, classes)

        def label_alone(at: AtLabel) -> Partials:
            inner = inside(at)
            return Partials(inner.value - mean(at), inner.slope, {})

        return FastForm(label_alone)

    def partials(at: AtLabel) -> Partials:
        inner, share = inside(at), 1 / at.classes
        value = add_multiple(inner.value, -share, inner.value + at.rest[bare])
        return Partials(value, inner.slope * (1 - share), {bare: -share})

    return FastForm(partials, (bare,))


@fast_form.register
def _insensitive(loss: Insensitive, classes: int) -> FastForm | None:
    potential = loss.inner
    if loss.prior is not None or not isinstance(potential, Potential):
        return None
    inside = _of_potential(potential, classes)
    if potential == CE():  # its mean is the label's value minus the unhinged loss, and needs no sum
        return FastForm(lambda at: dataclasses.replace(inside(at), linear=-1.0))

    def partials(at: AtLabel) -> Partials:
        inner, share = inside(at), 1 / at.classes
        return Partials((inner.value + at.rest[potential]) * share, inner.slope * share, {potential: share})

    return FastForm(partials, (potential,))


@fast_form.register
def _relative(loss: Relative, classes: int) -> FastForm | None:
    potential = loss.inner
    if not isinstance(potential, Potential):
        return None
    inside = _of_potential(potential, classes)

    def partials(at: AtLabel) -> Partials:
        inner, rest = inside(at), at.rest[potential]
        part = inner.value + TINY
        total = part + rest
        slope = (inner.value / total).div_(total).neg_()
        return Partials(part.div_(total), (inner.slope / total).mul_(rest / total), {potential: slope})

    return FastForm(partials, (potential,))


@fast_form.register
def _complement(loss: Complement, classes: int) -> FastForm | None:
    if not isinstance(loss.inner, Potential):
        return None
    room = Room(loss.inner, loss.bound)
    inside = _of_potential(room, classes)

    def partials(at: AtLabel) -> Partials:
        inner, rest = inside(at), at.rest[room]
        total = inner.value + rest
        value = rest / total
        slope = inner.slope.div(total).neg_()
        return Partials(value, slope.mul_(value), {room: (inner.value / total).div_(total)})

    return FastForm(partials, (room,))


@fast_form.register
def _dirichlet(loss: Dirichlet, classes: int) -> FastForm | None:
    potential = loss.inner
    if isinstance(loss.alpha, Tensor) or not isinstance(potential, Potential):
        return None
    inside, excess = _of_potential(potential, classes), loss.alpha - 1

    def of_ce(at: AtLabel) -> Partials:
        total = excess * at.classes
        return dataclasses.replace(inside(at) * (1 + total), linear=-total, remainder=-1.0)

    def partials(at: AtLabel) -> Partials:
        inner = inside(at)
        value = inner.value * (1 + excess) + at.rest[potential] * excess
        return Partials(value, inner.slope * (1 + excess), {potential: excess})

    return FastForm(of_ce) if potential == CE() else FastForm(partials, (potential,))


@fast_form.register
def _unit_slope(loss: UnitSlope, classes: int) -> FastForm | None:
    form = fast_form(loss.inner, classes)
    if form is None:
        return None
    slope = _slope(loss.inner, classes, "scale='ce'")
    linear = None if form.linear is None else 1.0
    return FastForm(lambda at: form.partials(at) * (1 / slope(at)), form.summed, linear)


@fast_form.register
def _blend(loss: Blend, classes: int) -> FastForm | None:
    form = fast_form(loss.inner, classes)
    if form is None:
        return None
    slope = _slope(loss.inner, classes, "blend")

    def partials(at: AtLabel) -> Partials:
        bent = form.partials(at) * (loss.alpha / slope(at))
        return dataclasses.replace(bent, linear=bent.linear + 1 - loss.alpha)

    return FastForm(partials, form.summed)


def _slope(loss: Loss, classes: int, operator: str) -> Callable[[AtLabel], float | Tensor]:
    """The slope at equal scores: a number, or one for each example if classes may be masked out."""
    known = float(equal_scores_slope(loss, Scores(torch.zeros(classes, dtype=torch.float64)), operator))
    return lambda at: known if at.scores is None else equal_scores_slope(loss, at.scores, operator)


def _at_equal_scores(loss: Loss, classes: int) -> Callable[[AtLabel], float | Tensor]:
    """The value at equal scores: a number, or one for each example if classes may be masked out."""
    known = float(loss.first_order(Scores(torch.zeros(classes, dtype=torch.float64))).value)
    return lambda at: known if at.scores is None else loss.first_order(at.scores).value
