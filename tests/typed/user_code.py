"""What a user writes, right and wrong, for mypy alone: an error that it no longer finds is an unused ignore."""

from typing import assert_type

import torch
from torch import Tensor, nn

import symloss
from symloss import functional
from symloss.theory.bounds import GapBound
from symloss.theory.linearize import LinearFormula, LinearizedRegression


def right(scores: Tensor, labels: Tensor) -> None:
    assert_type(symloss.AlphaMAE(alpha=2.0), symloss.AlphaMAE)
    assert_type(functional.alpha_mae(scores, labels, kappa=2.0), Tensor)
    assert_type(symloss.of_logp("gce", q=0.5)(scores), Tensor)
    assert_type(symloss.SGCE(0.8, reduction="sum", normalize=None).forward(scores, labels), Tensor)
    assert_type(symloss.create_loss("sgce", q=0.8), symloss.Criterion)
    assert_type(symloss.create_loss("symmetrize(focal:gamma=2)"), symloss.Criterion)
    assert_type(functional.agce(scores, labels, a=6.0, q=1.5, ignore_index=0), Tensor)
    assert_type(symloss.functional.sgce(scores, labels, 0.8, weight=torch.ones(4)), Tensor)
    assert_type(symloss.certify("mae", num_classes=3).num_classes, int)
    criterion: nn.CrossEntropyLoss = symloss.GCE(q=0.7)
    theory = symloss.theory
    modules = (theory.binary, theory.bounds, theory.certificates, theory.linearize, theory.priors, theory.regression)
    print(criterion, modules)
    symloss.LinearLoss("unhinged", in_features=16, num_classes=1000)
    assert_type(symloss.linearize("mae", at=(1.0, 0.0, 0.0)), LinearFormula)
    assert_type(symloss.linearize(nn.HuberLoss()), LinearizedRegression)
    assert_type(symloss.gap_bound(nn.Linear(4, 3, bias=False), criterion, scores), GapBound)


def wrong(scores: Tensor, labels: Tensor) -> None:
    symloss.AlphaMAE(alhpa=2.0)  # type: ignore[call-arg]
    symloss.SGCE(q="high")  # type: ignore[arg-type]
    symloss.AlphaMAE(kappa="high")  # type: ignore[arg-type]
    symloss.of_logp(0.5)  # type: ignore[arg-type]
    symloss.SGCE(reduction=3)  # type: ignore[arg-type]
    symloss.NoSuchLoss()  # type: ignore[attr-defined]
    symloss.create_loss(0.8)  # type: ignore[call-overload]
    functional.sgce(scores, labels, quatsch=3)  # type: ignore[call-arg]
    functional.no_such_loss(scores, labels)  # type: ignore[attr-defined]
