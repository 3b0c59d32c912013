"""Losses that read the whole score vector. They are no functions of the label's probability alone."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from symloss.losses.base import FirstOrder, Loss, NoSlopeError
from symloss.losses.logits import Scores, log_softmax, unit
from symloss.losses.potentials import PowerPotential, one_minus_exp
from symloss.losses.validation import can_look


@dataclass(frozen=True, repr=False)
class MSEFormula(Loss):
    """Squared distance of p to the one-hot label: |e_y - p|^2 = 1 - 2 p_y + sum_k p_k^2."""

    @property
    def less_constant(self) -> Loss:
        return PowerPotential(1.0, scale=2.0)

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        miss = one_minus_exp(s.select(s.logp, labels))
        return miss.square() + s.sum_others(s.p.square(), labels)

    def first_order(self, s: Scores) -> FirstOrder:
        return FirstOrder(1 - 1 / s.count, 2 / s.count)


@dataclass(frozen=True, repr=False)
class CosineFormula(Loss):
    """Cosine distance of the raw scores to the one-hot label: 1 - z_y / |z|."""

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        direction = torch.where(s.present, unit(s.z, s.dim), 0.0)
        return 1 - s.select(direction, labels)

    def first_order(self, s: Scores) -> FirstOrder:
        raise NoSlopeError("the cosine loss has no slope at equal scores: it depends on their size")


@dataclass(frozen=True, repr=False)
class BiTemperedFormula(Loss):
    """The bi-tempered logistic loss: -log_t1(p_y) - (1 - sum_k p_k^(2-t1)) / (2-t1).

    Here p = exp_t2(z - lambda) with lambda such that p sums to 1, and log_t, exp_t are the tempered functions.
    """

    t1: float
    t2: float

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        logp = s.logp if self.t2 == 1 else tempered_log_softmax(s, self.t2)
        chosen, r = s.select(logp, labels), 1 - self.t1
        if r == 0:
            return -chosen
        return s.sum_others(((1 + r) * logp).exp(), labels) / (1 + r) + _label_part(chosen, r)

    def first_order(self, s: Scores) -> FirstOrder:
        r, log_n = 1 - self.t1, s.count.log()
        miss = log_n if r == 0 else one_minus_exp(-r * log_n) / r
        return FirstOrder(miss - one_minus_exp(-r * log_n) / (1 + r), (-(self.t2 - self.t1) * log_n).exp())


def _label_part(x: Tensor, r: float) -> Tensor:
    """(1 - e^(r x)) / r - (1 - e^((1+r) x)) / (1+r) for x <= 0. Near 0 it is of second order: there by its series."""
    near = torch.where(x > -0.05, x, 0.0)
    series, power = torch.zeros_like(x), near
    for n in range(1, 10):
        power = power * near / (n + 1)
        series = series + ((1 + r) ** n - r**n) * power
    away = one_minus_exp(r * x) / r - one_minus_exp((1 + r) * x) / (1 + r)
    return torch.where(x > -0.05, series, away)


def tempered_log_softmax(s: Scores, t: float) -> Tensor:
    """log exp_t(z - lambda) with lambda such that the tempered exponentials sum to 1, for t > 1.

    With x = lambda - z the entries are (1 + (t-1) x)^(-1/(t-1)). Their sum to the power 1-t is concave in lambda.
    So Newton's method climbs to the root from the largest score. The last two steps are part of the graph. A Newton
    step squares the error, so these two carry exact first and second derivatives.
    """
    gap = -s.behind

    def log_entries(shift: Tensor) -> Tensor:
        return -((t - 1) * (shift + gap)).log1p() / (t - 1)

    def newton_step(shift: Tensor) -> Tensor:
        entries = log_entries(shift)
        total, slope = s.sum(entries.exp()), s.sum((t * entries).exp())
        return shift + total * ((t - 1) * total.log()).expm1() / ((t - 1) * slope)

    with torch.no_grad():
        shift = torch.zeros_like(s.count)
        for _ in range(12):
            shift = newton_step(shift)
    return log_entries(newton_step(newton_step(shift)))


@dataclass(frozen=True, repr=False)
class AMSEFormula(Loss):
    """|a e_y - p|^2 / C = ((a - p_y)^2 + sum_{k != y} p_k^2) / C, that is (MSE + 2 (a - 1) MAE + (a - 1)^2) / C."""

    a: float

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        miss = one_minus_exp(s.select(s.logp, labels))
        return ((self.a - 1 + miss).square() + s.sum_others(s.p.square(), labels)) / s.count

    def first_order(self, s: Scores) -> FirstOrder:
        value = (self.a - 1) ** 2 + (2 * self.a - 1) * (1 - 1 / s.count)
        return FirstOrder(value / s.count, 2 * self.a / s.count.square())


@dataclass(frozen=True, repr=False)
class LDRKLFormula(Loss):
    """lam log mean_k exp((margin [k != y] + z_k - z_y) / lam).

    With q = softmax(z / lam) it is lam log(1 + e^(margin / lam) (1 / q_y - 1)) - lam log C.
    """

    lam: float
    margin: float

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        # Large scores that nearly agree would lose the digits of their difference in a division.
        behind = torch.where(s.present, s.z - s.z.detach().amax(s.dim, keepdim=True), -torch.inf) / self.lam
        logq = s.select(log_softmax(behind, s.dim), labels)
        # Near q = 1 both 1 / q - 1 and its gradient keep their digits. For a small q, 1 / q may overflow.
        near = logq > -1
        lift = self.margin / self.lam
        close = (math.exp(lift) * (-torch.where(near, logq, -1.0)).expm1()).log1p()
        distant = torch.where(near, -1.0, logq)
        far = lift - distant + one_minus_exp(distant).log()
        cost = torch.where(near, close, torch.logaddexp(far, torch.zeros_like(far))) - s.count.log()
        # Where scores / lam nearly agree, log C cancels. There 1 / (q C) is 1 and a sum of small terms.
        agree = torch.where(s.present, behind.detach(), 0.0).amin(s.dim, keepdim=True) > -1
        if can_look(s.z) and not bool(agree.any()):
            return self.lam * cost
        step = torch.where(agree & s.present, behind, 0.0)
        excess = (s.mean(step.expm1()).log1p() - s.select(step, labels)).expm1()
        even = (excess + math.expm1(lift) * (excess + (1 - 1 / s.count))).log1p()
        return self.lam * torch.where(agree, even, cost)

    def first_order(self, s: Scores) -> FirstOrder:
        lift = math.exp(self.margin / self.lam)
        total = 1 + lift * (s.count - 1)
        return FirstOrder(self.lam * (total / s.count).log(), lift * s.count / total)
