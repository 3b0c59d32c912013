"""The form in which kernels read a loss: its value and its partial derivatives.

A loss made of potentials phi_j is a function of what the target reads and of sums over the other classes,

    v = G(A_1, ..., R_1, ...),    A_j = sum_k t_k phi_j(l_k),    R_j = sum_k phi_j(l_k) - A_j,

where t is the target: 1 at the label and 0 elsewhere, or any weight for each class. So A_j = phi_j(l_y) at a label.
``form_of`` returns G and its partial derivatives, for every potential and operator. A loss that reads anything else has
no such form, and is computed by its plain formula.
"""

from __future__ import annotations

import dataclasses
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses import operators as op
from symloss.losses.base import Loss, Sum
from symloss.losses.logits import Scores
from symloss.losses.potentials import CEPotential, OfProbability, Potential, Probability

Number = float | Tensor
TINY = 1e-38  # added to a part and to the total, so that the share of a part is 1 where the total is 0


class Reading(ABC):
    """What a kernel has read at a target. Each tensor has one entry for each example."""

    rest: dict[Potential, Tensor]  # R_j, by the potential that is summed
    mass: Number  # the sum of the target: 1 for labels and probabilities
    classes: Number  # the number of classes that are present
    scores: Scores | None  # the scores, if classes may be masked out

    @abstractmethod
    def read(self, potential: Potential) -> Tensor:
        """Return A_j."""


@dataclass
class Partials:
    """A loss at a target, with its partial derivatives."""

    value: Tensor  # the value, without the multiple of the unhinged loss
    own: dict[Potential, Number]  # the derivatives in A_j, by potential
    sums: dict[Potential, Number] = dataclasses.field(default_factory=dict)  # the derivatives in R_j, by potential
    linear: Number = 0.0  # the kernel adds this multiple of the unhinged loss, which needs no log p
    remainder: float | None = None
    """The derivative in log p at a label minus ``linear``, if it is far smaller than both; None if it is not."""

    def plus(self, factor: float, other: Partials) -> Partials:
        """Return the partials of this loss plus ``factor`` times another one."""
        value = torch.add(self.value, other.value, alpha=factor)
        own, sums = _added(self.own, factor, other.own), _added(self.sums, factor, other.sums)
        return Partials(value, own, sums, self.linear + factor * other.linear)

    def __mul__(self, factor: Number) -> Partials:
        if not isinstance(factor, Tensor) and factor == 1:
            return self
        own, sums = ({phi: factor * part for phi, part in parts.items()} for parts in (self.own, self.sums))
        remainder = None if self.remainder is None or isinstance(factor, Tensor) else factor * self.remainder
        return Partials(factor * self.value, own, sums, factor * self.linear, remainder)


def _added(one: dict[Potential, Number], factor: float, other: dict[Potential, Number]) -> dict[Potential, Number]:
    total = dict(one)
    for potential, part in other.items():
        total[potential] = total[potential] + factor * part if potential in total else factor * part
    return total


class Form(NamedTuple):
    """A loss as kernels read it."""

    partials: Callable[[Reading], Partials]  # value and partial derivatives
    own: tuple[Potential, ...]  # the potentials that the loss reads at the target
    summed: tuple[Potential, ...] = ()  # the potentials whose sums over the other classes the loss reads
    linear: float | None = None
    """The factor, if the loss is a multiple of the unhinged loss and needs no softmax; else None."""


@functools.singledispatch
def form_of(loss: Loss, classes: int) -> Form | None:
    """Return the form of a loss for this number of classes; None if no kernel can compute the loss."""
    return None


@form_of.register
def _potential(loss: Potential, classes: int) -> Form:
    return Form(lambda at: Partials(at.read(loss), {loss: 1.0}), (loss,))


@form_of.register
def _sum(loss: Sum, classes: int) -> Form | None:
    forms = [(a, form) for a, term in loss.terms if (form := form_of(term, classes)) is not None]
    if len(forms) < len(loss.terms):
        return None
    (factor, first), *others = forms

    def partials(at: Reading) -> Partials:
        total = first.partials(at) * factor
        for a, form in others:
            total = total.plus(a, form.partials(at))
        return total

    own = tuple(dict.fromkeys(potential for _, form in forms for potential in form.own))
    summed = tuple(dict.fromkeys(potential for _, form in forms for potential in form.summed))
    factors = [(a, form.linear) for a, form in forms]
    linear = sum(a * part for a, part in factors if part) if all(part is not None for _, part in factors) else None
    return Form(partials, own, summed, linear)


@form_of.register
def _symmetrize(loss: op.Symmetrize, classes: int) -> Form | None:
    if loss.prior is not None:
        return None
    if loss.inner == CEPotential():
        return Form(lambda at: Partials(torch.zeros(()), {}, linear=1.0), (), linear=1.0)
    bare = loss.bare
    if not isinstance(bare, Potential):
        return None
    if bare.symmetric:  # its mean is constant, but the gradient of a computed sum would not be 0
        mean = _at_equal_scores(lambda s: bare.first_order(s).value, classes)
        return Form(lambda at: Partials(at.read(bare) - at.mass * mean(at), {bare: 1.0}), (bare,))
    return _with_total(bare, 1.0, lambda at: -at.mass / at.classes)


def _with_total(potential: Potential, own: float, factor: Callable[[Reading], Number]) -> Form:
    """Return the form of own * L + factor * sum_k L_k."""

    def partials(at: Reading) -> Partials:
        inner, every = at.read(potential), factor(at)
        total = inner + at.rest[potential]
        value = add_multiple(inner, every, total) if own else total * every
        return Partials(value, {potential: own + every}, {potential: every})

    return Form(partials, (potential,), (potential,))


def add_multiple(x: Tensor, factor: Number, y: Tensor, out: Tensor | None = None) -> Tensor:
    """Return x + factor * y. A factor that is a Python number saves an operation."""
    if isinstance(factor, Tensor):
        return torch.add(x, factor * y, out=out)
    return torch.add(x, y, alpha=factor, out=out)


@form_of.register
def _insensitive(loss: op.Insensitive, classes: int) -> Form | None:
    potential = loss.inner
    if loss.prior is not None or not isinstance(potential, Potential):
        return None
    if potential == CEPotential():  # its mean is the value at the target minus the unhinged loss, and needs no sum
        return Form(lambda at: Partials(at.read(potential), {potential: 1.0}, linear=-1.0), (potential,))
    return _with_total(potential, 0.0, lambda at: at.mass / at.classes)


@form_of.register
def _relative(loss: op.Relative, classes: int) -> Form | None:
    potential = loss.inner
    if not isinstance(potential, Potential):
        return None

    def partials(at: Reading) -> Partials:
        inner, rest = at.read(potential), at.rest[potential]
        part = inner + TINY
        total = part + rest
        slope = (inner / total).div_(total).neg_()
        return Partials(part.div_(total), {potential: (rest / total).div_(total)}, {potential: slope})

    return Form(partials, (potential,), (potential,))


@dataclass(frozen=True)
class Room(OfProbability):
    """max(bound - phi, 0), the potential that the complement of a loss sums."""

    inner: Potential
    bound: float

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        value, slope = self.inner.both(at)
        room = (self.bound - value).clamp_min(0)
        return room, room.sign() * -slope


@form_of.register
def _complement(loss: op.Complement, classes: int) -> Form | None:
    if not isinstance(loss.inner, Potential):
        return None
    room = Room(loss.inner, loss.bound)

    def partials(at: Reading) -> Partials:
        inner, rest = at.read(room), at.rest[room]
        total = inner + rest
        share = rest / total
        value = share if not isinstance(at.mass, Tensor) and at.mass == 1 else at.mass - inner / total
        return Partials(value, {room: (share / total).neg_()}, {room: (inner / total).div_(total)})

    return Form(partials, (room,), (room,))


@form_of.register
def _dirichlet(loss: op.Dirichlet, classes: int) -> Form | None:
    potential = loss.inner
    if isinstance(loss.alpha, Tensor) or not isinstance(potential, Potential):
        return None
    excess = loss.alpha - 1
    if potential != CEPotential():
        return _with_total(potential, 1.0, lambda at: excess * at.mass)

    def partials(at: Reading) -> Partials:
        total = excess * at.classes
        return Partials(at.read(potential) * (1 + total), {potential: 1 + total}, {}, -total, remainder=-1.0)

    return Form(partials, (potential,))


@form_of.register
def _unit_slope(loss: op.UnitSlope, classes: int) -> Form | None:
    form = form_of(loss.inner, classes)
    if form is None:
        return None
    slope = _at_equal_scores(lambda s: op.slope_at_equal_scores(loss.inner, s, "scale='ce'"), classes)
    linear = None if form.linear is None else 1.0
    return form._replace(partials=lambda at: form.partials(at) * (1 / slope(at)), linear=linear)


@form_of.register
def _blend(loss: op.Blend, classes: int) -> Form | None:
    form = form_of(loss.inner, classes)
    if form is None:
        return None
    slope = _at_equal_scores(lambda s: op.slope_at_equal_scores(loss.inner, s, "blend"), classes)

    def partials(at: Reading) -> Partials:
        bent = form.partials(at) * (loss.alpha / slope(at))
        return dataclasses.replace(bent, linear=bent.linear + 1 - loss.alpha)

    return form._replace(partials=partials, linear=None)


def _at_equal_scores(find: Callable[[Scores], Tensor], classes: int) -> Callable[[Reading], Number]:
    """Return what is found at equal scores: a number, or one for each example if classes may be masked out."""
    known = float(find(Scores(torch.zeros(classes, dtype=torch.float64))))
    return lambda at: known if at.scores is None else find(at.scores)
