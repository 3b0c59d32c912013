"""segmentation-models-pytorch: our losses of the scores of pixels, with a label that does not count."""

from __future__ import annotations

import missing_operators  # noqa: F401
import pytest

pytest.importorskip(
    "segmentation_models_pytorch", reason="segmentation-models-pytorch is not installed: make frameworks"
)

import segmentation_models_pytorch as smp
import torch
from conftest import assert_close
from torch import nn

import symloss

CLASSES = 4


def gradient(loss, mask):
    torch.manual_seed(0)
    unet = smp.Unet("resnet18", encoder_weights=None, encoder_depth=3, decoder_channels=(8, 8, 8), classes=CLASSES)
    images = torch.randn(2, 3, 32, 32)
    value = loss(unet(images), mask)
    value.backward()
    return value.detach(), unet.segmentation_head[0].weight.grad


def test_pixels_without_a_label_do_not_count():
    mask = torch.randint(CLASSES, (2, 32, 32))
    mask[:, :10] = 255
    theirs = gradient(nn.CrossEntropyLoss(ignore_index=255), mask)
    assert_close(gradient(symloss.create_loss("ce", ignore_index=255), mask), theirs, 1e-5)
    robust = gradient(symloss.create_loss("gce:q=0.7", ignore_index=255), mask)
    assert (robust[1] - theirs[1]).abs().max() > 1e-4
    with pytest.raises(IndexError, match="label 255"):
        gradient(symloss.create_loss("gce:q=0.7"), mask)
