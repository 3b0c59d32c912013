"""What a loss reads at a label: the label's probability, and the value and slope of each potential there.

``value_and_slope`` has formulas that reuse p and 1 - p where that is quicker than ``phi`` and ``derivative``.
"""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from symloss.losses.kernels.forms import Number, Partials, Room
from symloss.losses.kernels.job import constant
from symloss.losses.logits import Scores
from symloss.losses.potentials import (
    SMALL,
    AELPotential,
    AGCEPotential,
    AULPotential,
    CEPotential,
    FocalPotential,
    GCEPotential,
    MAEPotential,
    PHuberCEPotential,
    Potential,
    PowerPotential,
    TaylorCEPotential,
    below,
)


class AtLabel:
    """The quantities of each example that a loss reads: the label's p, 1 - p and log p, and sums over other classes."""

    mass: Number = 1.0

    def __init__(self, behind: Tensor, others: Tensor, classes: int, scores: Scores | None = None):
        """Args:
        behind: the label's score minus the largest one, shape (N, 1, ...).
        others: the sum of exp(z - max z) over the other classes, in the same shape.
        classes: the number of classes.
        scores: the scores, if classes may be masked out. Then each example has its number of classes.
        """
        label = behind.exp()
        self.behind, self.others = behind, others
        self.inverse = (label + others).reciprocal_()
        self.p, self.miss = label.mul_(self.inverse), others * self.inverse
        self.rest: dict[Potential, Tensor] = {}
        self.classes: Number = classes if scores is None else scores.count
        self.scores = scores
        self._slopes: dict[Potential, Number] = {}
        self._logp: Tensor | None = None
        self._log_total: Tensor | None = None

    @property
    def logp(self) -> Tensor:
        """The label's log p. It is computed on demand: not every loss reads it."""
        if self._logp is None:
            total = self._log_total
            self._logp = self.behind - (self.log_total if total is None else total)
        return self._logp

    @property
    def log_total(self) -> Tensor:
        """log sum_k exp(z_k - max z), exact for every lead of the label."""
        if self._log_total is None:
            self._log_total = self.behind.expm1().add_(self.others).log1p_()
        return self._log_total

    @property
    def zero(self) -> Tensor:
        """A zero for each example."""
        return torch.zeros_like(self.miss)

    def read(self, potential: Potential) -> Tensor:
        """Return phi at the label."""
        value: Tensor
        value, self._slopes[potential] = _READERS.get(type(potential), value_and_slope)(potential, self)
        return value

    def slope(self, loss: Partials, share: Tensor) -> Tensor:
        """Return the derivative of a loss in the label's log p, times the share of each example."""
        total: Number = 0.0
        for potential, factor in loss.own.items():
            slope = self._slopes[potential]
            part = slope if not isinstance(factor, Tensor) and factor == 1 else slope * factor
            total = part if not isinstance(total, Tensor) and total == 0 else total + part
        return total * share


@functools.singledispatch
def value_and_slope(potential: Potential, at: AtLabel) -> tuple[Tensor, Number]:
    """Return phi and phi' at the label."""
    return potential.phi(at.logp), potential.derivative(at.logp)


by_formula = value_and_slope.dispatch(Potential)


@value_and_slope.register
def _ce(potential: CEPotential, at: AtLabel) -> tuple[Tensor, Number]:
    return at.logp.neg(), -1.0


@value_and_slope.register
def _mae(potential: MAEPotential, at: AtLabel) -> tuple[Tensor, Number]:
    if potential.scale == 1:
        return at.miss, -at.p
    return at.miss * potential.scale, at.p * -potential.scale


@value_and_slope.register
def _gce(potential: GCEPotential, at: AtLabel) -> tuple[Tensor, Number]:
    if potential.q < SMALL:
        return by_formula(potential, at)
    power = at.logp * potential.q
    return power.expm1().mul_(-1 / potential.q), power.exp_().neg_()


@value_and_slope.register
def _power(potential: PowerPotential, at: AtLabel) -> tuple[Tensor, Number]:
    if potential.q == 1:
        value = at.p * -potential.scale
        return value, value
    slope = (at.logp * potential.q).exp_().mul_(-potential.scale)
    return slope * (1 / potential.q), slope


@value_and_slope.register
def _focal(potential: FocalPotential, at: AtLabel) -> tuple[Tensor, Number]:
    factor, cost = at.miss.pow(potential.gamma), at.logp.neg()
    bent = (at.p * cost).div_(at.miss.clamp_min(1e-30)).mul_(-potential.gamma).sub_(1)
    return factor * cost, bent.mul_(factor)


@value_and_slope.register
def _agce(potential: AGCEPotential, at: AtLabel) -> tuple[Tensor, Number]:
    if potential.q < SMALL or potential.a < 0.01:
        return by_formula(potential, at)
    return _power_of_base(at, constant(potential.a, at.p.dtype) + at.p, potential.q, potential.a + 1, -1)


@value_and_slope.register
def _aul(potential: AULPotential, at: AtLabel) -> tuple[Tensor, Number]:
    if potential.q < SMALL or potential.a < 1.01:
        return by_formula(potential, at)
    return _power_of_base(at, constant(potential.a - 1, at.p.dtype) + at.miss, potential.q, potential.a - 1, 1)


def _power_of_base(at: AtLabel, base: Tensor, q: float, at_one: float, sign: int) -> tuple[Tensor, Tensor]:
    """Return sign (base^q - at_one^q) / q and its slope, where base = at_one + sign (1 - p)."""
    kind = at.p.dtype
    power = (at.miss * constant(sign / at_one, kind)).log1p_().mul_(constant(q, kind)).expm1_()
    scale = constant(sign * math.pow(at_one, q) / q, kind)
    return power.mul_(scale), base.pow_(q - 1).mul_(at.p).neg_()


@value_and_slope.register
def _ael(potential: AELPotential, at: AtLabel) -> tuple[Tensor, Number]:
    share = at.p / -potential.a
    value = share.exp()
    return value, share * value


@value_and_slope.register
def _taylor(potential: TaylorCEPotential, at: AtLabel) -> tuple[Tensor, Number]:
    return at.miss * potential.scaled_value(at.miss), -at.p * potential.scaled_derivative(at.miss)


@value_and_slope.register
def _phuber_ce(potential: PHuberCEPotential, at: AtLabel) -> tuple[Tensor, Number]:
    cut = math.log(potential.tau)
    line = below(at.logp, -cut).exp_()  # min(tau p, 1)
    return torch.where(line == 1, at.logp.neg(), 1 + cut - line), line.neg()


@value_and_slope.register
def _room(potential: Room, at: AtLabel) -> tuple[Tensor, Number]:
    value, slope = value_and_slope(potential.inner, at)
    room = value.neg().add_(potential.bound).clamp_min_(0)
    return room, room.sign().mul_(slope).neg_()


_READERS = dict(value_and_slope.registry)
"""The formulas by the type of the potential: to find one here is quicker than a dispatch."""
