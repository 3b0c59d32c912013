"""The binary case: margin losses, their odd and even parts, and multi-label training (app. B).

>>> import torch
>>> from symloss.theory.binary import MarginCriterion, symmetrize_margin
>>> loss = MarginCriterion(symmetrize_margin("savage"))
>>> loss(torch.zeros(8, 5), torch.ones(8, 5))
tensor(0.)
"""

from __future__ import annotations

from symloss.theory.binary.decomposition import OddEven, decompose_margin, symmetrize_margin
from symloss.theory.binary.margin_constants import MarginConstants, margin_constants
from symloss.theory.binary.margin_criterion import MarginCriterion
from symloss.theory.binary.margin_functions import (
    POTENTIALS,
    Exponential,
    Hinge,
    Logistic,
    Potential,
    Probit,
    Ramp,
    Savage,
    Sigmoid,
    Unhinged,
    potential,
)
from symloss.theory.binary.surrogate import Surrogate, anchored, surrogate
from symloss.theory.binary.taylor import Polynomial, derivatives_at_zero, taylor_truncation

__all__ = [
    "POTENTIALS",
    "Exponential",
    "Hinge",
    "Logistic",
    "MarginConstants",
    "MarginCriterion",
    "OddEven",
    "Polynomial",
    "Potential",
    "Probit",
    "Ramp",
    "Savage",
    "Sigmoid",
    "Surrogate",
    "Unhinged",
    "anchored",
    "decompose_margin",
    "derivatives_at_zero",
    "margin_constants",
    "potential",
    "surrogate",
    "symmetrize_margin",
    "taylor_truncation",
]
