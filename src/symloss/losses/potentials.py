"""Potentials: losses of the form phi(log p), where p is the label's probability.

``phi`` is written so that its value and its gradient keep their digits from p = 0 to p = 1. ``derivative`` is phi' in
closed form. Neither depends on the number of classes, on targets, reductions or devices. Kernels know p and 1 - p too,
and read both functions at once, through ``both``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.base import FirstOrder, Loss
from symloss.losses.logits import Scores

SMALL_Q = 0.01  # below this q, p^q is so near to 1 that only 1 - p^q, computed by expm1, keeps its digits
SMALL = 1e-6  # below this q, (1 - e^(q x)) / q needs another formula, because q x or 1 / q may not fit into float32


def one_minus_exp(x: Tensor) -> Tensor:
    """1 - e^x for x <= 0. Near 0 expm1 is exact. Far below it would round its gradient to 0, and 1 - exp is exact."""
    # torch's compiler writes expm1 as exp - 1 for a CPU, which loses all digits near 0. Its sinh keeps them.
    near = -2 * (x / 2).sinh() * (x / 2).exp() if torch.compiler.is_compiling() else -x.expm1()
    return torch.where(x > -0.5, near, 1 - x.exp())


def bent(x: Tensor, q: float, scale: float = 1.0) -> Tensor:
    """scale (1 - e^(q x)) / q for x <= 0. As q goes to 0 it goes to -scale x."""
    if torch.compiler.is_compiling() or q < SMALL:  # a comparison would cost the compiler a second graph
        return -scale * x * _chord(q * x)
    return one_minus_exp(q * x) * (scale / q)


def _chord(x: Tensor) -> Tensor:
    """(1 - e^x) / -x for x <= 0, by its series near 0."""
    away = x < -1e-4
    return torch.where(away, one_minus_exp(x) / torch.where(away, -x, 1.0), 1 + x / 2 * (1 + x / 3 * (1 + x / 4)))


class Probability:
    """The probability of a label: log p, p and 1 - p. Each keeps its digits from p = 0 to p = 1."""

    number: Callable[[float], float | Tensor]  # returns a number in the form that torch multiplies quickest

    def __init__(self, logp: Tensor):
        self.logp, self.p, self.miss, self.number = logp, logp.exp(), one_minus_exp(logp), float

    def bent(self, x: Tensor, q: float, scale: float = 1.0) -> Tensor:
        """Return what :func:`bent` does."""
        return bent(x, q, scale)


class Power(NamedTuple):
    """A potential of the form constant - scale p^q / q, whose sums over classes need no more than p^q."""

    q: float
    scale: float
    constant: float


class Potential(Loss):
    """A loss of the label's probability alone: phi(log p)."""

    @abstractmethod
    def phi(self, logp: Tensor) -> Tensor:
        """Return the loss of a label, from its log p. Any shape."""

    @abstractmethod
    def derivative(self, logp: Tensor) -> Tensor:
        """Return the derivative of ``phi`` in log p. Any shape."""

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        """Return ``phi`` and ``derivative``, where p and 1 - p are known too."""
        return self.phi(at.logp), self.derivative(at.logp)

    @property
    def power(self) -> Power | None:
        """The potential as a power of p and a constant; None if it is none, or if p^q would lose its digits."""
        return None

    @property
    def less_constant(self) -> Potential:
        """The same loss without its constant. The constant would cost the digits of improbable labels."""
        power = self.power
        return self if power is None else PowerPotential(power.q, power.scale)

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        return self.phi(s.select(s.logp, labels))

    def label_and_every(self, s: Scores, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        every = self.phi(s.logp)
        return (every if labels is None else self.phi(s.select(s.logp, labels, alone=False))), every

    def first_order(self, s: Scores) -> FirstOrder:
        logp = -s.count.log()
        return FirstOrder(self.phi(logp), -self.derivative(logp))


class OfProbability(Potential):
    """A potential whose formula reads p or 1 - p. Its subclasses define ``both`` alone."""

    @abstractmethod
    def both(self, at: Probability) -> tuple[Tensor, Tensor]: ...

    def phi(self, logp: Tensor) -> Tensor:
        return self.both(Probability(logp))[0]

    def derivative(self, logp: Tensor) -> Tensor:
        return self.both(Probability(logp))[1]


@dataclass(frozen=True, repr=False)
class CEPotential(Potential):
    """Cross-entropy: -log p."""

    affine = True

    def phi(self, logp: Tensor) -> Tensor:
        return -logp

    def derivative(self, logp: Tensor) -> Tensor:
        return -torch.ones_like(logp)


@dataclass(frozen=True, repr=False)
class MAEPotential(OfProbability):
    """Mean absolute error: scale (1 - p)."""

    scale: float = 1.0
    symmetric = True

    def __repr__(self) -> str:
        return "MAE()" if self.scale == 1 else f"{self.scale!r} * MAE()"

    @property
    def power(self) -> Power:
        return Power(1.0, self.scale, self.scale)

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        return (at.miss, -at.p) if self.scale == 1 else (at.miss * self.scale, at.p * -self.scale)


class _Exponent(Potential):
    """A potential that is a multiple of MAE and a constant at q = 1, so that it is symmetric there."""

    q: float

    @property
    def symmetric(self) -> bool:
        return self.q == 1


@dataclass(frozen=True, repr=False)
class GCEPotential(_Exponent):
    """Generalised cross-entropy: (1 - p^q) / q."""

    q: float

    @property
    def power(self) -> Power | None:
        return None if self.q < SMALL_Q else Power(self.q, 1.0, 1 / self.q)

    def phi(self, logp: Tensor) -> Tensor:
        return bent(logp, self.q)

    def derivative(self, logp: Tensor) -> Tensor:
        return -(self.q * logp).exp()

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        return at.bent(at.logp, self.q), (at.logp * at.number(self.q)).exp().neg()


@dataclass(frozen=True, repr=False)
class PowerPotential(OfProbability, _Exponent):
    """GCE and MAE without their constant: -scale p^q / q."""

    q: float
    scale: float = 1.0

    @property
    def power(self) -> Power:
        return Power(self.q, self.scale, 0.0)

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        slope = (at.p if self.q == 1 else (at.logp * at.number(self.q)).exp()) * at.number(-self.scale)
        return slope if self.q == 1 else slope * at.number(1 / self.q), slope


@dataclass(frozen=True, repr=False)
class FocalPotential(OfProbability):
    """Focal loss: -(1 - p)^gamma log p."""

    gamma: float

    def phi(self, logp: Tensor) -> Tensor:
        # At p = 1 and with gamma below 1 the slope of (1-p)^gamma is infinite, but that of the product is not.
        logp = logp.clamp_max(-torch.finfo(logp.dtype).tiny) if 0 < self.gamma < 1 else logp
        return one_minus_exp(logp).pow(self.gamma) * -logp

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        factor = at.miss.pow(self.gamma)
        slope = factor * ((at.p * at.logp / at.miss.clamp_min(1e-30)) * at.number(self.gamma) - 1)
        return factor * -at.logp, slope


@dataclass(frozen=True, repr=False)
class AGCEPotential(OfProbability, _Exponent):
    """Asymmetric generalised cross-entropy: ((a + 1)^q - (a + p)^q) / q."""

    a: float
    q: float

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        # log((a + p) / (a + 1)) is computed from 1 - p, which keeps its digits, unless both a and p are small.
        near = None if self.a >= 0.01 else at.logp > -0.5
        miss = at.miss if near is None else torch.where(near, at.miss, 0.0)
        share = (miss * at.number(-1 / (self.a + 1))).log1p()
        if near is None:
            slope = (share * at.number(self.q - 1)).exp() * (at.p * at.number(-math.pow(self.a + 1, self.q - 1)))
        else:
            log_base = torch.logaddexp(at.logp, torch.full_like(at.logp, math.log(self.a)))
            share = torch.where(near, share, log_base - math.log1p(self.a))
            slope = -(at.logp + (self.q - 1) * log_base).exp()
        return at.bent(share, self.q, math.pow(self.a + 1, self.q)), slope


@dataclass(frozen=True, repr=False)
class AULPotential(OfProbability, _Exponent):
    """Asymmetric unhinged loss: ((a - p)^q - (a - 1)^q) / q."""

    a: float
    q: float

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        # a - p is computed from a - 1 and 1 - p: both are exact when a and p are near 1.
        base, growth = at.miss + at.number(self.a - 1), (at.miss * at.number(1 / (self.a - 1))).log1p()
        slope = base.pow(self.q - 1) * -at.p
        if self.a >= 1.01 and self.q >= SMALL:  # else the power may overflow, or vanish
            return (growth * at.number(self.q)).expm1() * at.number(math.pow(self.a - 1, self.q) / self.q), slope
        return base.pow(self.q) * bent(-growth, self.q), slope


@dataclass(frozen=True, repr=False)
class AELPotential(OfProbability):
    """Asymmetric exponential loss: exp(-p / a)."""

    a: float

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        share = at.p / -self.a
        value = share.exp()
        return value, share * value


@dataclass(frozen=True, repr=False)
class TaylorCEPotential(OfProbability):
    """The Taylor series of cross-entropy at p = 1, t terms: sum_{i=1..t} (1 - p)^i / i."""

    t: int

    @property
    def symmetric(self) -> bool:
        return self.t == 1

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        value = at.miss * _polynomial(at.miss, [1 / i for i in range(1, self.t + 1)])
        return value, -at.p * _polynomial(at.miss, [1.0] * self.t)


def _polynomial(x: Tensor, coefficients: list[float]) -> Tensor:
    """sum_i coefficients[i] x^i, by Horner's rule."""
    total = torch.full_like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        total = total * x + coefficient
    return total


@dataclass(frozen=True, repr=False)
class PHuberCEPotential(Potential):
    """Partially Huberised cross-entropy: -log p if p > 1/tau, else its tangent there, log tau + 1 - tau p."""

    tau: float

    def phi(self, logp: Tensor) -> Tensor:
        cut = math.log(self.tau)
        return torch.where(logp > -cut, -logp, cut + one_minus_exp(below(logp, -cut)))

    def derivative(self, logp: Tensor) -> Tensor:
        return -below(logp, -math.log(self.tau)).exp()

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        cut = math.log(self.tau)
        line = below(at.logp, -cut).exp_()  # min(tau p, 1)
        return torch.where(line == 1, -at.logp, 1 + cut - line), line.neg()


def below(logp: Tensor, edge: float) -> Tensor:
    """min(log p - edge, 0). Its exponential is p / exp(edge), computed without an overflow."""
    return (logp - edge).clamp_max(0)


@dataclass(frozen=True, repr=False)
class PHuberGCEPotential(Potential):
    """Partially Huberised GCE: (1 - p^q) / q if p > tau^(-1 / (1-q)), else its tangent there, of slope -tau in p."""

    q: float
    tau: float

    @property
    def edge(self) -> float:
        """log p where the slope is tau. p itself may be too small for the type."""
        return -math.log(self.tau) / (1 - self.q)

    def phi(self, logp: Tensor) -> Tensor:
        edge, power = self.edge, self.q * self.edge
        at_edge = -math.expm1(power) / self.q if power < -1e-18 else -edge
        linear = at_edge + math.exp(power) * one_minus_exp(below(logp, edge))
        return torch.where(logp > edge, GCEPotential(self.q).phi(logp), linear)

    def derivative(self, logp: Tensor) -> Tensor:
        return -(self.q * logp.clamp_min(self.edge) + below(logp, self.edge)).exp()


@dataclass(frozen=True, repr=False)
class JSPotential(OfProbability):
    """Jensen-Shannon divergence to the one-hot label, with weights pi and 1 - pi, scaled as by its authors.

    With m = pi + (1-pi) p it is 1 - p - (p log(m/p) + pi/(1-pi) log m) / -log(1-pi).
    """

    pi: float

    @property
    def scale(self) -> float:
        """-log(1 - pi), by which the divergence is divided."""
        return -math.log1p(-self.pi)

    def both(self, at: Probability) -> tuple[Tensor, Tensor]:
        weight, logp = self.pi / ((1 - self.pi) * self.scale), at.logp
        share = (logp - math.log(self.scale)).exp()  # p / -log(1-pi), which may fit into the type where p does not
        value = at.miss - share * self._log_ratio(logp) - weight * self._log_m(logp)
        # p log(1 + pi / ((1-pi) p)) is computed from logarithms. It may fit into the type where p does not.
        log_share = torch.nn.functional.logsigmoid(logp - (math.log(self.pi) + self.scale))
        return value, -(logp - math.log(self.scale) + (-log_share).log()).exp()

    def _log_ratio(self, logp: Tensor) -> Tensor:
        """log(m/p) = log(1 + pi (1-p) / p). For the smallest p it is log(1/p) plus a constant."""
        least = -0.9 * math.log(torch.finfo(logp.dtype).max)
        return (self.pi * (-logp.clamp_min(least)).expm1()).log1p() + (least - logp).clamp_min(0)

    def _log_m(self, logp: Tensor) -> Tensor:
        close = ((self.pi - 1) * one_minus_exp(logp.clamp_min(-0.5))).log1p()
        far = torch.logaddexp(logp - self.scale, torch.full_like(logp, math.log(self.pi)))
        return torch.where(logp > -0.5, close, far)
