"""fastai: our losses train a Learner, and its predictions are probabilities."""

from __future__ import annotations

import missing_operators  # noqa: F401
import pytest

pytest.importorskip("fastai", reason="fastai is not installed: make frameworks")

import fastai.callback.progress  # noqa: F401 (it gives a Learner its no_bar)
import torch
from conftest import assert_close
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.metrics import accuracy
from torch import nn
from torch.utils.data import TensorDataset

import symloss

CLASSES = 4


def learner(loss):
    torch.manual_seed(0)
    centres = 3 * torch.randn(CLASSES, 6)
    labels = torch.arange(200) % CLASSES
    data = TensorDataset(centres[labels] + torch.randn(200, 6), labels)
    loaders = DataLoaders.from_dsets(data, data, bs=20, shuffle=False, num_workers=0, device="cpu")
    return Learner(loaders, nn.Linear(6, CLASSES), loss_func=loss, metrics=accuracy)


def trained(loss):
    learn = learner(loss)
    with learn.no_bar(), learn.no_logging():
        learn.fit(4, lr=0.1)
    return learn


@pytest.mark.parametrize("loss", [symloss.GCE(q=0.7), symloss.AlphaMAE(alpha=2.0)], ids=["gce", "alpha-mae"])
def test_predictions_are_probabilities(loss):
    learn = trained(loss)
    with learn.no_bar(), learn.no_logging():
        probabilities, labels = learn.get_preds(dl=learn.dls.valid)
        _, _, decoded = learn.get_preds(dl=learn.dls.valid, with_decoded=True)
    assert_close(probabilities.sum(1), torch.ones(200), 1e-5)
    scores = learn.model(learn.dls.valid_ds.tensors[0])
    assert_close(probabilities, loss.activation(scores).detach(), 1e-5)
    assert torch.equal(decoded, probabilities.argmax(1))
    assert (decoded == labels).float().mean() > 0.9


def test_the_loss_of_each_example():
    learn = trained(symloss.GCE(q=0.7))
    with learn.no_bar(), learn.no_logging():
        values = learn.get_preds(dl=learn.dls.valid, with_loss=True)[-1]
    inputs, labels = learn.dls.valid_ds.tensors
    assert_close(values, symloss.GCE(q=0.7, reduction="none")(learn.model(inputs), labels).detach(), 1e-6)
    assert learn.loss_func.reduction == "mean"


def test_cross_entropy_is_torch_s():
    theirs, ours, robust = (trained(loss) for loss in (nn.CrossEntropyLoss(), symloss.CE(), symloss.MAE()))
    assert_close(ours.model.weight, theirs.model.weight, 1e-4)
    assert (robust.model.weight - theirs.model.weight).abs().max() > 0.01
