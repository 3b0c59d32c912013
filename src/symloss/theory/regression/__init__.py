"""The theory of symmetric losses for regression, where the target is a number and some of them are corrupted (app. F).

>>> import torch
>>> from symloss.theory.regression import symmetrize_regression
>>> loss = symmetrize_regression(torch.nn.HuberLoss(), torch.distributions.Normal(0.0, 3.0))
>>> round(loss(torch.tensor([0.0]), torch.tensor([0.0])).item(), 4)  # less the mean loss of corrupted targets
-1.9377
"""

from __future__ import annotations

from symloss.theory.regression.certificate import RegressionCertificate, certify_regression
from symloss.theory.regression.estimators import LinearFamilyRegressor, UnhingedRegressor
from symloss.theory.regression.losses import (
    BoundedOutput,
    LinearRegressionLoss,
    SymmetrizedRegression,
    UnhingedRegressionLoss,
    symmetrize_regression,
    weight_decay,
)

__all__ = [
    "BoundedOutput",
    "LinearFamilyRegressor",
    "LinearRegressionLoss",
    "RegressionCertificate",
    "SymmetrizedRegression",
    "UnhingedRegressionLoss",
    "UnhingedRegressor",
    "certify_regression",
    "symmetrize_regression",
    "weight_decay",
]
