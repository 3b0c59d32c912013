"""timm: its classification task takes our losses, also with the soft labels of Mixup; we train its networks."""

from __future__ import annotations

import missing_operators  # noqa: F401
import pytest

pytest.importorskip("timm", reason="timm is not installed: make frameworks")

import timm
import torch
from conftest import assert_close
from timm.data import Mixup
from timm.task import ClassificationTask
from torch import nn

import symloss
from symloss.training.models import create_model

CLASSES = 5


def batch():
    return torch.randn(8, 3, 32, 32), torch.randint(CLASSES, (8,))


def gradient(criterion, images, target):
    torch.manual_seed(0)
    model = timm.create_model("test_resnet", num_classes=CLASSES)
    loss = ClassificationTask(model, criterion=criterion, verbose=False)(images, target)["loss"]
    loss.backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("soft", [False, True], ids=["labels", "mixup"])
def test_the_task_takes_our_losses(soft):
    images, target = batch()
    if soft:
        images, target = Mixup(mixup_alpha=1.0, num_classes=CLASSES)(images, target)
        assert target.shape == (8, CLASSES)
    theirs, same, robust = (
        gradient(criterion, images, target)
        for criterion in (nn.CrossEntropyLoss(), symloss.CE(), symloss.AlphaMAE(alpha=2.0))
    )
    assert_close(same, theirs, 1e-5)
    assert (robust - theirs).abs().max() > 0.01


def test_our_training_builds_its_networks():
    model = create_model("timm:test_resnet", input_shape=(3, 32, 32), num_classes=CLASSES, seed=1)
    assert model(batch()[0]).shape == (8, CLASSES)
    with pytest.raises(ValueError, match="did you mean 'test_resnet'"):
        create_model("timm:test_resnett", input_shape=(3, 32, 32), num_classes=CLASSES, seed=1)
