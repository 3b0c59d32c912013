"""The best epoch of a plain loop: the same as of a run, with its weights, also when the loop is resumed."""

from __future__ import annotations

import math

import pytest
import torch
from in_turn import in_turn
from refusals import all_refused, refused
from torch import nn
from training_helpers import CURVES, reference

import symloss


def after(accuracies, best=None, start=1):
    """A model whose weight is the number of the epoch, and the best epoch."""
    model, best = nn.Linear(1, 1), best or symloss.BestEpoch()
    for epoch, accuracy in enumerate(accuracies, start):
        nn.init.constant_(model.weight, epoch)
        best.add(accuracy, model)
    return model, best


@in_turn("curve", CURVES)
def test_the_epoch_is_that_of_a_run_after_any_number_of_epochs(curve):
    """Which knows before how many epochs there will be."""
    for epochs in range(1, len(CURVES[curve]) + 1):
        given = CURVES[curve][:epochs]
        model, best = after(given)
        epoch, accuracy = reference(given)
        assert best.epoch == epoch
        assert best.accuracy == pytest.approx(accuracy)
        assert best.load_into(model).weight.item() == epoch
        assert len(best.state_dict()["weights"]) <= 3


@in_turn("stop", range(1, 7))
def test_a_resumed_loop_finds_the_same_epoch(stop, tmp_path):
    curve = (0.2, 0.5, 0.4, 0.8, 0.6, 0.5, 0.3)
    _, whole = after(curve)
    _, first = after(curve[:stop])
    torch.save(first.state_dict(), tmp_path / "best.pt")
    second = symloss.BestEpoch()
    second.load_state_dict(torch.load(tmp_path / "best.pt", weights_only=True))
    model, second = after(curve[stop:], second, stop + 1)
    assert (second.epoch, second.accuracies) == (whole.epoch, whole.accuracies)
    assert second.load_into(model).weight.item() == whole.epoch


def test_weights_are_copies_and_accuracies_may_be_tensors():
    model, best = nn.BatchNorm1d(2), symloss.BestEpoch()
    best.add(torch.tensor([True, False, True, True]).float().mean(), model)
    with torch.no_grad():
        model.weight.fill_(7)
        model(torch.randn(4, 2))
    assert best.accuracies == {1: 0.75}
    assert best.load_into(model) is model
    assert (model.weight.tolist(), model.running_mean.tolist(), int(model.num_batches_tracked)) == ([1, 1], [0, 0], 0)


def test_what_is_refused():
    def add(accuracy):
        return lambda: symloss.BestEpoch().add(accuracy, nn.Linear(1, 1))

    all_refused(
        (ValueError, "accuracy must be a number in [0, 1]; got 92.5", add(92.5)),
        (ValueError, "accuracy must be a number in [0, 1]; got nan", add(math.nan)),
        (TypeError, "accuracy must be a number in [0, 1] ... tensor([0.5", add(torch.tensor([0.5, 0.5]))),
        (ValueError, "No epoch to choose from. Call add", lambda: symloss.BestEpoch().load_into(nn.Linear(1, 1))),
    )
    with refused(ValueError, "accuracy must be"):  # and nothing of it is kept
        after([0.3, 2.0])
