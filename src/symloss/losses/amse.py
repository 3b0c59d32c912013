"""The asymmetric mean squared error, a loss of the whole score vector."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from symloss.losses.algebra import Germ, Loss
from symloss.losses.potentials import one_minus_exp
from symloss.losses.scores import Scores


@dataclass(frozen=True)
class AMSE(Loss):
    """|a e_y - p|^2 / C = ((a - p_y)^2 + sum_{k != y} p_k^2) / C, that is (MSE + 2 (a - 1) MAE + (a - 1)^2) / C."""

    a: float

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        miss = one_minus_exp(s.select(s.logp, labels))
        return ((self.a - 1 + miss).square() + s.sum_others(s.p.square(), labels)) / s.count

    def germ(self, s: Scores) -> Germ:
        value = (self.a - 1) ** 2 + (2 * self.a - 1) * (1 - 1 / s.count)
        return Germ(value / s.count, 2 * self.a / s.count.square())
