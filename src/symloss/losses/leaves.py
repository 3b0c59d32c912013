"""Potentials: losses that are one scalar function phi of log p, applied to the label's entry.

``phi`` is written so that both its value and its gradient keep their digits from p = 0 to p = 1; ``derivative`` is
phi' in closed form. Neither knows the number of classes, targets, reductions or devices.
"""

from __future__ import annotations

import functools
import math
from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from symloss.losses.algebra import FirstOrder, Loss
from symloss.losses.kernels import AtLabel, Everywhere, Partials, Swept, constant
from symloss.losses.scores import Scores

SMALL_Q = 0.01
"""Below, p^q is so near to 1 that only 1 - p^q, by expm1, keeps its digits."""


def one_minus_exp(x: Tensor) -> Tensor:
    """1 - e^x for x <= 0. expm1 is exact near 0 but rounds its own gradient to 0 far below; there 1 - exp is exact."""
    return torch.where(x > -0.5, -x.expm1(), 1 - x.exp())


SMALL = 1e-6
"""Below, an exponent q is too small for (1 - e^(q x)) / q as it stands: q x or 1 / q may be no number of float32."""


def bent(x: Tensor, q: float) -> Tensor:
    """(1 - e^(q x)) / q for x <= 0: -x as q goes to 0, from which it bends away."""
    if torch.compiler.is_compiling() or q < SMALL:  # a comparison would cost the compiler a second graph
        return -x * _chord(q * x)
    return one_minus_exp(q * x) / q


class Potential(Loss):
    """A loss of the label's probability alone."""

    @abstractmethod
    def phi(self, logp: Tensor) -> Tensor:
        """The loss of a label with this log p."""

    @abstractmethod
    def derivative(self, logp: Tensor) -> Tensor:
        """d phi / d log p."""

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        return ()

    @property
    def falls_to_the_end(self) -> bool:
        """Whether phi' is not 0 at p = 1, and fades as p does: of a class that is sure it outweighs all others."""
        return True

    @property
    def less_constant(self) -> Potential:
        """The same, or less a constant in which the differences between improbable labels would drown."""
        return self

    def partials(self, at: AtLabel) -> Partials:
        return Partials(self.phi(at.logp), self.derivative(at.logp), {})

    def sweep(self, at: Everywhere) -> Swept:
        """phi summed over the other classes, and -phi' of each: quick, and exact to the rounding of a sum."""
        value, fall = at.scratch.take(at.e), at.scratch.take(at.e)
        # Of two classes that are left the other alone is summed, and may be as small as 1 - p.
        fill = self.fill if at.absent is None else functools.partial(Potential.fill, self)
        fill(at.logp, torch.mul(at.e, at.inverse, out=fall), value)
        at.blank(value)
        at.blank(fall)
        return Swept(value.sum(1, keepdim=True), fall, fall.sum(1, keepdim=True))

    def fill(self, logp: Tensor, fall: Tensor, value: Tensor) -> None:
        """Write phi of every entry to value, and -phi' to fall, which holds p before."""
        value.copy_(self.phi(logp))
        torch.neg(self.derivative(logp), out=fall)

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        return self.phi(s.select(s.logp, labels))

    def first_order(self, s: Scores) -> FirstOrder:
        logp = -s.count.log()
        return FirstOrder(self.phi(logp), -self.derivative(logp))


@dataclass(frozen=True)
class Room(Potential):
    """max(bound - phi, 0), what the complement of a loss is made of."""

    inner: Potential
    bound: float

    @property
    def falls_to_the_end(self) -> bool:
        return self.inner.falls_to_the_end

    def phi(self, logp: Tensor) -> Tensor:
        return (self.bound - self.inner.phi(logp)).clamp_min(0)

    def derivative(self, logp: Tensor) -> Tensor:
        return torch.where(self.inner.phi(logp) < self.bound, -self.inner.derivative(logp), 0.0)

    def partials(self, at: AtLabel) -> Partials:
        inner = self.inner.partials(at)
        value = inner.value.neg().add_(self.bound).clamp_min_(0)
        return Partials(value, (inner.own * value.sign()).neg_(), {})

    def sweep(self, at: Everywhere) -> Swept:
        if self.inner.affine and float(at.logp.min()) > -self.bound:  # cross-entropy, and nothing is cut
            return Swept(at.total_logp + at.others * self.bound, -1.0, -at.others)
        return super().sweep(at)

    def fill(self, logp: Tensor, fall: Tensor, value: Tensor) -> None:
        self.inner.fill(logp, fall, value)
        value.neg_().add_(self.bound).clamp_min_(0)
        fall.mul_(value.sign().neg_())


@dataclass(frozen=True)
class CE(Potential):
    @property
    def affine(self) -> bool:
        return True

    @property
    def falls_to_the_end(self) -> bool:
        return False

    def phi(self, logp: Tensor) -> Tensor:
        return -logp

    def derivative(self, logp: Tensor) -> Tensor:
        return -torch.ones_like(logp)

    def partials(self, at: AtLabel) -> Partials:
        return Partials(at.logp.neg(), torch.full_like(at.logp, -1.0), {})

    def sweep(self, at: Everywhere) -> Swept:
        return Swept(-at.total_logp, 1.0, at.others)

    def fill(self, logp: Tensor, fall: Tensor, value: Tensor) -> None:
        torch.neg(logp, out=value)
        fall.fill_(1.0)


@dataclass(frozen=True)
class MAE(Potential):
    scale: float = 1.0

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def less_constant(self) -> Potential:
        return Power(1.0, self.scale)

    def phi(self, logp: Tensor) -> Tensor:
        return self.scale * one_minus_exp(logp)

    def derivative(self, logp: Tensor) -> Tensor:
        return -self.scale * logp.exp()

    def partials(self, at: AtLabel) -> Partials:
        return Partials(at.miss, -at.p, {}) * self.scale


@dataclass(frozen=True)
class GCE(Potential):
    q: float

    @property
    def symmetric(self) -> bool:
        return self.q == 1

    @property
    def less_constant(self) -> Potential:
        return self if self.q < SMALL_Q else Power(self.q)

    def phi(self, logp: Tensor) -> Tensor:
        return bent(logp, self.q)

    def derivative(self, logp: Tensor) -> Tensor:
        return -(self.q * logp).exp()

    def partials(self, at: AtLabel) -> Partials:
        if self.q < SMALL:
            return super().partials(at)
        power = at.logp * self.q
        return Partials(power.expm1().mul_(-1 / self.q), power.exp_().neg_(), {})

    def sweep(self, at: Everywhere) -> Swept:
        if self.q < SMALL_Q or at.absent is not None:
            return super().sweep(at)
        power = at.blank(torch.mul(at.logp, self.q, out=at.scratch.take(at.e)).exp_())
        total = power.sum(1, keepdim=True)
        return Swept(torch.rsub(total, at.others).mul_(1 / self.q), power, total)

    def fill(self, logp: Tensor, fall: Tensor, value: Tensor) -> None:
        if self.q < SMALL:
            super().fill(logp, fall, value)
            return
        torch.mul(logp, self.q, out=fall).expm1_()
        torch.mul(fall, -1 / self.q, out=value)
        fall.add_(1)


@dataclass(frozen=True)
class Power(Potential):
    """-scale p^q / q: GCE and MAE less their constant."""

    q: float
    scale: float = 1.0

    def phi(self, logp: Tensor) -> Tensor:
        return (self.q * logp).exp() * (-self.scale / self.q)

    def derivative(self, logp: Tensor) -> Tensor:
        return -self.scale * (self.q * logp).exp()

    def partials(self, at: AtLabel) -> Partials:
        power = (at.logp * self.q).exp_()
        return Partials(power * (-1 / self.q), power.neg_(), {}) * self.scale

    def sweep(self, at: Everywhere) -> Swept:
        power = at.blank(torch.mul(at.logp, self.q, out=at.scratch.take(at.e)).exp_())
        if self.scale != 1:
            power.mul_(self.scale)
        total = power.sum(1, keepdim=True)
        return Swept(total * (-1 / self.q), power, total)


@dataclass(frozen=True)
class Focal(Potential):
    gamma: float

    @property
    def falls_to_the_end(self) -> bool:
        return False

    def phi(self, logp: Tensor) -> Tensor:
        if self.gamma >= 1:
            return -one_minus_exp(logp).pow(self.gamma) * logp
        # (1-p)^gamma has an infinite slope at p = 1, where the product has none: ((1-p) / -l)^gamma (-l)^(1+gamma).
        return _chord(logp).pow(self.gamma) * (-logp).pow(1 + self.gamma)

    def derivative(self, logp: Tensor) -> Tensor:
        return -one_minus_exp(logp).pow(self.gamma) * (1 + self.gamma * logp.exp() / _chord(logp))

    def partials(self, at: AtLabel) -> Partials:
        factor, cost = at.miss.pow(self.gamma), at.logp.neg()
        bent = (at.p * cost).div_(at.miss.clamp_min(1e-30)).mul_(-self.gamma).sub_(1)
        return Partials(factor * cost, bent.mul_(factor), {})

    def fill(self, logp: Tensor, fall: Tensor, value: Tensor) -> None:
        # 1 - p is a multiple of half an eps; where it vanishes log p need not.
        miss = torch.sub(1, fall, out=value).clamp_min_(torch.finfo(value.dtype).eps / 2)
        fall.mul_(logp).div_(miss)
        factor = value.sqrt_() if self.gamma == 0.5 else value.pow_(self.gamma)
        torch.addcmul(factor, factor, fall, value=-self.gamma, out=fall)
        factor.mul_(logp).neg_()


def _chord(x: Tensor) -> Tensor:
    """(1 - e^x) / -x for x <= 0, by its series near 0."""
    away = x < -1e-4
    return torch.where(away, one_minus_exp(x) / torch.where(away, -x, 1.0), 1 + x / 2 * (1 + x / 3 * (1 + x / 4)))


@dataclass(frozen=True)
class AGCE(Potential):
    a: float
    q: float

    @property
    def symmetric(self) -> bool:
        return self.q == 1

    def phi(self, logp: Tensor) -> Tensor:
        return math.pow(self.a + 1, self.q) * bent(self._log_share(logp), self.q)

    def derivative(self, logp: Tensor) -> Tensor:
        return -(logp + (self.q - 1) * self._log_base(logp)).exp()

    def partials(self, at: AtLabel) -> Partials:
        if self.q < SMALL or self.a < 0.01:
            return super().partials(at)
        return _power(at, constant(self.a, at.p.dtype) + at.p, self.q, self.a + 1, -1)

    def _log_share(self, logp: Tensor) -> Tensor:
        """log((a + p) / (a + 1)), from 1 - p: so it keeps its digits, unless both a and p are small."""
        near = logp > (-0.5 if self.a < 0.01 else -torch.inf)
        share = (one_minus_exp(torch.where(near, logp, 0.0)) / -(self.a + 1)).log1p()
        return torch.where(near, share, self._log_base(logp) - math.log1p(self.a))

    def _log_base(self, logp: Tensor) -> Tensor:
        """log(a + p), for p and a of which only the logarithm is a number of the type."""
        return torch.logaddexp(logp, torch.full_like(logp, math.log(self.a)))


def _power(at: AtLabel, base: Tensor, q: float, at_one: float, sign: int) -> Partials:
    """sign (base^q - at_one^q) / q with base = at_one + sign (1 - p)."""
    kind = at.p.dtype
    power = (at.miss * constant(sign / at_one, kind)).log1p_().mul_(constant(q, kind)).expm1_()
    scale = constant(sign * math.pow(at_one, q) / q, kind)
    return Partials(power.mul_(scale), base.pow_(q - 1).mul_(at.p).neg_(), {})


@dataclass(frozen=True)
class AUL(Potential):
    a: float
    q: float

    @property
    def symmetric(self) -> bool:
        return self.q == 1

    def phi(self, logp: Tensor) -> Tensor:
        miss = one_minus_exp(logp)
        # a - p from a - 1 and 1 - p, both of which are exact where a and p are near 1.
        return (miss + (self.a - 1)).pow(self.q) * bent(-(miss / (self.a - 1)).log1p(), self.q)

    def derivative(self, logp: Tensor) -> Tensor:
        return -(one_minus_exp(logp) + (self.a - 1)).pow(self.q - 1) * logp.exp()

    def partials(self, at: AtLabel) -> Partials:
        if self.q < SMALL or self.a < 1.01:
            return super().partials(at)
        return _power(at, constant(self.a - 1, at.p.dtype) + at.miss, self.q, self.a - 1, 1)


@dataclass(frozen=True)
class AEL(Potential):
    a: float

    def phi(self, logp: Tensor) -> Tensor:
        return (-logp.exp() / self.a).exp()

    def derivative(self, logp: Tensor) -> Tensor:
        share = logp.exp() / self.a
        return -share * (-share).exp()

    def partials(self, at: AtLabel) -> Partials:
        share = at.p / -self.a
        value = share.exp()
        return Partials(value, share * value, {})


@dataclass(frozen=True)
class Taylor(Potential):
    t: int

    @property
    def symmetric(self) -> bool:
        return self.t == 1

    def _series(self, q: Tensor, coefficients: list[float]) -> Tensor:
        total = torch.full_like(q, coefficients[-1])
        for coefficient in reversed(coefficients[:-1]):
            total = total * q + coefficient
        return total

    def phi(self, logp: Tensor) -> Tensor:
        q = one_minus_exp(logp)
        return q * self._series(q, [1 / i for i in range(1, self.t + 1)])

    def derivative(self, logp: Tensor) -> Tensor:
        return -logp.exp() * self._series(one_minus_exp(logp), [1.0] * self.t)

    def partials(self, at: AtLabel) -> Partials:
        value = at.miss * self._series(at.miss, [1 / i for i in range(1, self.t + 1)])
        return Partials(value, -at.p * self._series(at.miss, [1.0] * self.t), {})


@dataclass(frozen=True)
class PHuberCE(Potential):
    """Cross-entropy whose slope in p is cut at -tau: linear where p < 1/tau."""

    tau: float

    def phi(self, logp: Tensor) -> Tensor:
        cut = math.log(self.tau)
        return torch.where(logp > -cut, -logp, cut + one_minus_exp(_below(logp, -cut)))

    def derivative(self, logp: Tensor) -> Tensor:
        return -_below(logp, -math.log(self.tau)).exp()

    def partials(self, at: AtLabel) -> Partials:
        cut = math.log(self.tau)
        line = _below(at.logp, -cut).exp_()  # tau p, or 1 where the slope is not cut
        return Partials(torch.where(line == 1, at.logp.neg(), 1 + cut - line), line.neg(), {})


def _below(logp: Tensor, edge: float) -> Tensor:
    """How far log p lies below the edge, at most 0: e^this is p / edge without a number too large on the way."""
    return (logp - edge).clamp_max(0)


@dataclass(frozen=True)
class PHuberGCE(Potential):
    """GCE whose slope in p is cut at -tau: linear where p < tau^(-1 / (1-q))."""

    q: float
    tau: float

    @property
    def edge(self) -> float:
        """log p where the slope is tau. p itself may be too small for a number."""
        return -math.log(self.tau) / (1 - self.q)

    def phi(self, logp: Tensor) -> Tensor:
        edge, power = self.edge, self.q * self.edge
        at_edge = -math.expm1(power) / self.q if power < -1e-18 else -edge
        linear = at_edge + math.exp(power) * one_minus_exp(_below(logp, edge))
        return torch.where(logp > edge, GCE(self.q).phi(logp), linear)

    def derivative(self, logp: Tensor) -> Tensor:
        return -(self.q * logp.clamp_min(self.edge) + _below(logp, self.edge)).exp()


@dataclass(frozen=True)
class JS(Potential):
    """Jensen-Shannon divergence to the one-hot label, weights pi and 1 - pi, scaled as by its authors.

    With m = pi + (1-pi) p it is 1 - p - (p log(m/p) + pi/(1-pi) log m) / -log(1-pi).
    """

    pi: float

    @property
    def scale(self) -> float:
        return -math.log1p(-self.pi)

    def phi(self, logp: Tensor) -> Tensor:
        weight = self.pi / ((1 - self.pi) * self.scale)
        return one_minus_exp(logp) - self._scaled(logp) * self._log_ratio(logp) - weight * self._log_m(logp)

    def derivative(self, logp: Tensor) -> Tensor:
        # p log(1 + pi / ((1-pi) p)) from logarithms: a p that is no number may have a slope that is one.
        log_share = torch.nn.functional.logsigmoid(logp - (math.log(self.pi) + self.scale))
        return -(logp - math.log(self.scale) + (-log_share).log()).exp()

    def _scaled(self, logp: Tensor) -> Tensor:
        """p / -log(1-pi): for a small pi p may be too small for a number where this is not."""
        return (logp - math.log(self.scale)).exp()

    def _log_ratio(self, logp: Tensor) -> Tensor:
        """log(m/p) = log(1 + pi (1-p) / p), which for the smallest p is log(1/p) and a constant."""
        least = -0.9 * math.log(torch.finfo(logp.dtype).max)
        return (self.pi * (-logp.clamp_min(least)).expm1()).log1p() + (least - logp).clamp_min(0)

    def _log_m(self, logp: Tensor) -> Tensor:
        close = ((self.pi - 1) * one_minus_exp(logp.clamp_min(-0.5))).log1p()
        far = torch.logaddexp(logp - self.scale, torch.full_like(logp, math.log(self.pi)))
        return torch.where(logp > -0.5, close, far)
