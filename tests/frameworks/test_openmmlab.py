"""OpenMMLab: MMPretrain's heads call our loss as they call their own."""

from __future__ import annotations

import doctest

import missing_operators  # noqa: F401
import pytest

pytest.importorskip("mmengine", reason="mmengine is not installed: make frameworks")

import torch
from conftest import assert_close
from refusals import refused

import symloss
from symloss.adapters import openmmlab
from symloss.adapters.openmmlab import SymLoss

ROWS, CLASSES = 6, 4


@pytest.fixture(scope="module")
def mmpretrain():
    return pytest.importorskip("mmpretrain.models", reason="mmpretrain is not installed: make frameworks")


def head_loss(loss, soft=False):
    """The loss of a head of MMPretrain, and its gradient."""
    from mmpretrain.registry import MODELS  # noqa: PLC0415
    from mmpretrain.structures import DataSample  # noqa: PLC0415

    torch.manual_seed(0)
    head = MODELS.build({"type": "LinearClsHead", "num_classes": CLASSES, "in_channels": 8, "loss": loss})
    samples = [DataSample().set_gt_label(k % CLASSES) for k in range(ROWS)]
    if soft:
        samples = [DataSample().set_gt_score(torch.rand(CLASSES).softmax(0)) for _ in range(ROWS)]
    value = head.loss((torch.randn(ROWS, 8),), samples)["loss"]
    value.backward()
    return value.detach(), head.fc.weight.grad


@pytest.mark.parametrize("soft", [False, True], ids=["labels", "scores"])
def test_cross_entropy_is_theirs(mmpretrain, soft):
    theirs = head_loss({"type": "CrossEntropyLoss", "use_soft": soft, "loss_weight": 0.5}, soft)
    assert_close(head_loss({"type": "SymLoss", "loss": "ce", "loss_weight": 0.5}, soft), theirs, 1e-6)
    robust = head_loss({"type": "SymLoss", "loss": "gce:q=0.7", "loss_weight": 0.5}, soft)
    assert (robust[1] - theirs[1]).abs().max() > 1e-3


def test_weights_and_the_number_to_divide_by(mmpretrain):
    scores, labels = torch.randn(ROWS, CLASSES), torch.arange(ROWS) % CLASSES
    weight, classes = torch.rand(ROWS), [1.0, 2.0, 3.0, 4.0]
    theirs = mmpretrain.CrossEntropyLoss(class_weight=classes)
    ours = SymLoss(symloss.CE(weight=torch.tensor(classes)))
    for options in ({}, {"avg_factor": 4}, {"weight": weight}, {"weight": weight, "avg_factor": 4}):
        assert_close(ours(scores, labels, **options), theirs(scores, labels, **options), 1e-6)


def test_the_loss_that_is_passed_stays_as_it_is_and_what_is_refused():
    loss = symloss.GCE(q=0.7)
    SymLoss(loss)
    assert loss.reduction == "mean"
    with refused(ValueError, "loss must have reduction='mean'", "got reduction='sum'"):
        SymLoss("gce:reduction=sum")
    with refused(ValueError, "loss_weight must be a number in [0, inf)", "-1"):
        SymLoss("gce", loss_weight=-1)


def test_docstrings_run():
    ran = doctest.testmod(openmmlab)
    assert (ran.attempted, ran.failed) == (3, 0)
