"""Potentials: losses of the form phi(log p), where p is the label's probability.

``phi`` is written so that its value and its gradient keep their digits from p = 0 to p = 1. ``derivative`` is phi' in
closed form. Neither depends on the number of classes, on targets, reductions or devices.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, fields, is_dataclass

import torch
from torch import Tensor

from symloss.losses.algebra import FirstOrder, Loss
from symloss.losses.logits import Scores

SMALL_Q = 0.01
"""Below this q, p^q is so near to 1 that only 1 - p^q, computed by expm1, keeps its digits."""


def one_minus_exp(x: Tensor) -> Tensor:
    """1 - e^x for x <= 0. Near 0 expm1 is exact. Far below it would round its gradient to 0, and 1 - exp is exact."""
    # torch's compiler writes expm1 as exp - 1 for a CPU, which loses all digits near 0. Its sinh keeps them.
    near = -2 * (x / 2).sinh() * (x / 2).exp() if torch.compiler.is_compiling() else -x.expm1()
    return torch.where(x > -0.5, near, 1 - x.exp())


SMALL = 1e-6
"""Below this q, (1 - e^(q x)) / q needs another formula, because q x or 1 / q may not fit into float32."""


def bent(x: Tensor, q: float) -> Tensor:
    """(1 - e^(q x)) / q for x <= 0. It goes to -x as q goes to 0."""
    if torch.compiler.is_compiling() or q < SMALL:  # a comparison would cost the compiler a second graph
        return -x * _chord(q * x)
    return one_minus_exp(q * x) / q


def called(formula: Loss, ending: str) -> str:
    """Return a formula as a call of its loss in the catalogue: ``GCE(q=0.7)`` of ``GCEPotential(q=0.7)``."""
    names: list[str] = [each.name for each in fields(formula)] if is_dataclass(formula) else []
    arguments = ", ".join(f"{name}={getattr(formula, name)!r}" for name in names)
    return f"{type(formula).__name__.removesuffix(ending)}({arguments})"


class Potential(Loss):
    """A loss of the label's probability alone: phi(log p)."""

    def __repr__(self) -> str:
        return called(self, "Potential")

    @abstractmethod
    def phi(self, logp: Tensor) -> Tensor:
        """The loss of a label, from its log p. Any shape."""

    @abstractmethod
    def derivative(self, logp: Tensor) -> Tensor:
        """The derivative of ``phi`` in log p. Any shape."""

    @property
    def less_constant(self) -> Potential:
        """The same loss without its constant. The constant would cost the digits of improbable labels."""
        return self

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        return self.phi(s.select(s.logp, labels))

    def label_and_every(self, s: Scores, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        every = self.phi(s.logp)
        return (every if labels is None else self.phi(s.select(s.logp, labels, alone=False))), every

    def first_order(self, s: Scores) -> FirstOrder:
        logp = -s.count.log()
        return FirstOrder(self.phi(logp), -self.derivative(logp))


@dataclass(frozen=True, repr=False)
class CEPotential(Potential):
    """Cross-entropy: -log p."""

    @property
    def affine(self) -> bool:
        return True

    def phi(self, logp: Tensor) -> Tensor:
        return -logp

    def derivative(self, logp: Tensor) -> Tensor:
        return -torch.ones_like(logp)


@dataclass(frozen=True, repr=False)
class MAEPotential(Potential):
    """Mean absolute error: scale (1 - p)."""

    scale: float = 1.0

    def __repr__(self) -> str:
        return "MAE()" if self.scale == 1 else f"{self.scale!r} * MAE()"

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def less_constant(self) -> Potential:
        return PowerPotential(1.0, self.scale)

    def phi(self, logp: Tensor) -> Tensor:
        return self.scale * one_minus_exp(logp)

    def derivative(self, logp: Tensor) -> Tensor:
        return -self.scale * logp.exp()


@dataclass(frozen=True, repr=False)
class GCEPotential(Potential):
    """Generalised cross-entropy: (1 - p^q) / q."""

    q: float

    @property
    def symmetric(self) -> bool:
        return self.q == 1

    @property
    def less_constant(self) -> Potential:
        return self if self.q < SMALL_Q else PowerPotential(self.q)

    def phi(self, logp: Tensor) -> Tensor:
        return bent(logp, self.q)

    def derivative(self, logp: Tensor) -> Tensor:
        return -(self.q * logp).exp()


@dataclass(frozen=True, repr=False)
class PowerPotential(Potential):
    """GCE and MAE without their constant: -scale p^q / q."""

    q: float
    scale: float = 1.0

    @property
    def symmetric(self) -> bool:
        return self.q == 1

    def phi(self, logp: Tensor) -> Tensor:
        return (self.q * logp).exp() * (-self.scale / self.q)

    def derivative(self, logp: Tensor) -> Tensor:
        return -self.scale * (self.q * logp).exp()


@dataclass(frozen=True, repr=False)
class FocalPotential(Potential):
    """Focal loss: -(1 - p)^gamma log p."""

    gamma: float

    def phi(self, logp: Tensor) -> Tensor:
        if self.gamma >= 1:
            return -one_minus_exp(logp).pow(self.gamma) * logp
        # At p = 1 the slope of (1-p)^gamma is infinite, but that of the product is not. With l = log p the product is
        # ((1-p) / -l)^gamma (-l)^(1+gamma).
        near = logp > -1
        close, far = torch.where(near, logp, -1.0), torch.where(near, -1.0, logp)
        bent = _chord(close).pow(self.gamma) * (-close).pow(1 + self.gamma)
        return torch.where(near, bent, -one_minus_exp(far).pow(self.gamma) * far)

    def derivative(self, logp: Tensor) -> Tensor:
        return -one_minus_exp(logp).pow(self.gamma) * (1 + self.gamma * logp.exp() / _chord(logp))


def _chord(x: Tensor) -> Tensor:
    """(1 - e^x) / -x for x <= 0, by its series near 0."""
    away = x < -1e-4
    return torch.where(away, one_minus_exp(x) / torch.where(away, -x, 1.0), 1 + x / 2 * (1 + x / 3 * (1 + x / 4)))


@dataclass(frozen=True, repr=False)
class AGCEPotential(Potential):
    """Asymmetric generalised cross-entropy: ((a + 1)^q - (a + p)^q) / q."""

    a: float
    q: float

    @property
    def symmetric(self) -> bool:
        return self.q == 1

    def phi(self, logp: Tensor) -> Tensor:
        return math.pow(self.a + 1, self.q) * bent(self._log_share(logp), self.q)

    def derivative(self, logp: Tensor) -> Tensor:
        return -(logp + (self.q - 1) * self._log_base(logp)).exp()

    def _log_share(self, logp: Tensor) -> Tensor:
        """log((a + p) / (a + 1)). It is computed from 1 - p, which keeps its digits, unless both a and p are small."""
        near = logp > (-0.5 if self.a < 0.01 else -torch.inf)
        share = (one_minus_exp(torch.where(near, logp, 0.0)) / -(self.a + 1)).log1p()
        return torch.where(near, share, self._log_base(logp) - math.log1p(self.a))

    def _log_base(self, logp: Tensor) -> Tensor:
        """log(a + p), also where a and p themselves are too small for the type."""
        return torch.logaddexp(logp, torch.full_like(logp, math.log(self.a)))


@dataclass(frozen=True, repr=False)
class AULPotential(Potential):
    """Asymmetric unhinged loss: ((a - p)^q - (a - 1)^q) / q."""

    a: float
    q: float

    @property
    def symmetric(self) -> bool:
        return self.q == 1

    def phi(self, logp: Tensor) -> Tensor:
        miss = one_minus_exp(logp)
        # a - p is computed from a - 1 and 1 - p: both are exact when a and p are near 1.
        return (miss + (self.a - 1)).pow(self.q) * bent(-(miss / (self.a - 1)).log1p(), self.q)

    def derivative(self, logp: Tensor) -> Tensor:
        return -(one_minus_exp(logp) + (self.a - 1)).pow(self.q - 1) * logp.exp()


@dataclass(frozen=True, repr=False)
class AELPotential(Potential):
    """Asymmetric exponential loss: exp(-p / a)."""

    a: float

    def phi(self, logp: Tensor) -> Tensor:
        return (-logp.exp() / self.a).exp()

    def derivative(self, logp: Tensor) -> Tensor:
        share = logp.exp() / self.a
        return -share * (-share).exp()


@dataclass(frozen=True, repr=False)
class TaylorCEPotential(Potential):
    """The Taylor series of cross-entropy at p = 1, t terms: sum_{i=1..t} (1 - p)^i / i."""

    t: int

    @property
    def symmetric(self) -> bool:
        return self.t == 1

    def scaled_value(self, miss: Tensor) -> Tensor:
        """phi / (1 - p), as a function of 1 - p."""
        return _polynomial(miss, [1 / i for i in range(1, self.t + 1)])

    def scaled_derivative(self, miss: Tensor) -> Tensor:
        """-phi' / p, as a function of 1 - p."""
        return _polynomial(miss, [1.0] * self.t)

    def phi(self, logp: Tensor) -> Tensor:
        miss = one_minus_exp(logp)
        return miss * self.scaled_value(miss)

    def derivative(self, logp: Tensor) -> Tensor:
        return -logp.exp() * self.scaled_derivative(one_minus_exp(logp))


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
class JSPotential(Potential):
    """Jensen-Shannon divergence to the one-hot label, with weights pi and 1 - pi, scaled as by its authors.

    With m = pi + (1-pi) p it is 1 - p - (p log(m/p) + pi/(1-pi) log m) / -log(1-pi).
    """

    pi: float

    @property
    def scale(self) -> float:
        """-log(1 - pi), by which the divergence is divided."""
        return -math.log1p(-self.pi)

    def phi(self, logp: Tensor) -> Tensor:
        weight = self.pi / ((1 - self.pi) * self.scale)
        return one_minus_exp(logp) - self._scaled(logp) * self._log_ratio(logp) - weight * self._log_m(logp)

    def derivative(self, logp: Tensor) -> Tensor:
        # p log(1 + pi / ((1-pi) p)) is computed from logarithms. It may fit into the type where p does not.
        log_share = torch.nn.functional.logsigmoid(logp - (math.log(self.pi) + self.scale))
        return -(logp - math.log(self.scale) + (-log_share).log()).exp()

    def _scaled(self, logp: Tensor) -> Tensor:
        """p / -log(1-pi). For a small pi it may fit into the type where p does not."""
        return (logp - math.log(self.scale)).exp()

    def _log_ratio(self, logp: Tensor) -> Tensor:
        """log(m/p) = log(1 + pi (1-p) / p). For the smallest p it is log(1/p) plus a constant."""
        least = -0.9 * math.log(torch.finfo(logp.dtype).max)
        return (self.pi * (-logp.clamp_min(least)).expm1()).log1p() + (least - logp).clamp_min(0)

    def _log_m(self, logp: Tensor) -> Tensor:
        close = ((self.pi - 1) * one_minus_exp(logp.clamp_min(-0.5))).log1p()
        far = torch.logaddexp(logp - self.scale, torch.full_like(logp, math.log(self.pi)))
        return torch.where(logp > -0.5, close, far)
