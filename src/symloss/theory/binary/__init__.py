"""The binary case: margin losses, their odd and even parts, and multi-label training (appendix B of the paper).

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
    MARGIN_FUNCTIONS,
    ExponentialMargin,
    HingeMargin,
    LogisticMargin,
    MarginFunction,
    ProbitMargin,
    RampMargin,
    SavageMargin,
    SigmoidMargin,
    UnhingedMargin,
    margin_function,
)
from symloss.theory.binary.surrogate import Surrogate, anchored, surrogate
from symloss.theory.binary.taylor import Polynomial, derivatives_at_zero, taylor_truncation

__all__ = [
    "MARGIN_FUNCTIONS",
    "ExponentialMargin",
    "HingeMargin",
    "LogisticMargin",
    "MarginConstants",
    "MarginCriterion",
    "MarginFunction",
    "OddEven",
    "Polynomial",
    "ProbitMargin",
    "RampMargin",
    "SavageMargin",
    "SigmoidMargin",
    "Surrogate",
    "UnhingedMargin",
    "anchored",
    "decompose_margin",
    "derivatives_at_zero",
    "margin_constants",
    "margin_function",
    "surrogate",
    "symmetrize_margin",
    "taylor_truncation",
]
