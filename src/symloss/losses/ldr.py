"""The label-distributionally robust loss, a loss of the whole score vector."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from symloss.losses.algebra import Germ, Loss
from symloss.losses.potentials import one_minus_exp
from symloss.losses.scores import Scores


@dataclass(frozen=True)
class LDRKL(Loss):
    """lam log mean_k exp((margin [k != y] + z_k - z_y) / lam).

    With q = softmax(z / lam) it is lam log(1 + e^(margin / lam) (1 / q_y - 1)) - lam log C.
    """

    lam: float
    margin: float

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        logq = s.select(self._log_softmax(s), labels)
        # Near q = 1 both 1 / q - 1 and its gradient keep their digits; far below, 1 / q may be no number.
        near = logq > -1
        lift = self.margin / self.lam
        close = (math.exp(lift) * (-torch.where(near, logq, -1.0)).expm1()).log1p()
        distant = torch.where(near, -1.0, logq)
        far = lift - distant + one_minus_exp(distant).log()
        cost = torch.where(near, close, torch.logaddexp(far, torch.zeros_like(far)))
        return self.lam * (cost - s.count.log())

    def _log_softmax(self, s: Scores) -> Tensor:
        """log softmax(z / lam), with the digits of ``Scores.logp``."""
        behind = s.behind / self.lam
        leader = s.z.argmax(s.dim, keepdim=True)
        return behind - s.sum_others(behind.exp(), leader).log1p()

    def germ(self, s: Scores) -> Germ:
        lift = math.exp(self.margin / self.lam)
        total = 1 + lift * (s.count - 1)
        return Germ(self.lam * (total / s.count).log(), lift * s.count / total)
