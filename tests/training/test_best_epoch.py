"""The best epoch on one's own data: its noisy validation accuracy is smoothed, and its weights are kept."""

import contextlib
import dataclasses
import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from in_turn import in_turn
from lightning_fabric import Fabric
from refusals import refused
from training_helpers import cut_off, metrics, own_table, run, small

from symloss.experiments import resolve
from symloss.training.checkpoint import load_state
from symloss.training.loop import fit
from symloss.training.results import EpochRow, Result
from symloss.training.run_folder import RunFolder

CURVES = {
    "a lucky epoch": (0.3, 0.9, 0.3, 0.4, 0.6, 0.7, 0.6, 0.5, 0.2),
    "rising": (0.1, 0.2, 0.3, 0.4, 0.5),
    "falling": (0.5, 0.4, 0.3, 0.2, 0.1),
    "level": (0.5, 0.5, 0.5, 0.5),
    "a hill": (0.1, 0.3, 0.6, 0.3, 0.1),
    "one epoch": (0.3,),
    "two epochs": (0.3, 0.4),
    "jumping": tuple(np.random.default_rng(0).uniform(0.2, 0.8, 25).round(3).tolist()),
}


def reference(accuracies):
    """The first epoch with the largest mean over itself and as many neighbours on both sides, two at most."""
    reaches = [min(2, place, len(accuracies) - 1 - place) for place in range(len(accuracies))]
    means = [np.mean(accuracies[place - reach : place + reach + 1]) for place, reach in enumerate(reaches)]
    best = int(np.argmax(np.round(means, 12)))
    return best + 1, means[best]


class Scripted:
    """A trainer, on one's own data by default, whose validation goes as it is told."""

    def __init__(self, accuracies, data="mine.csv", validation="validation"):
        self.settings = dataclasses.replace(small(), data=data, epochs=len(accuracies))
        self.task = SimpleNamespace(validation=validation, test=None)
        self.fabric = Fabric(accelerator="cpu", devices=1)
        self.accuracies, self.epoch = accuracies, 0

    def train_epoch(self, epoch):
        self.epoch = epoch
        return EpochRow(epoch + 1, loss=1.0)

    def evaluate(self, part):
        assert part == "validation"
        return self.accuracies[self.epoch]

    def state(self):
        return {"model": {"epoch": torch.tensor(self.epoch + 1)}, "optimizer": {}}

    def load(self, state):
        pass


@in_turn("accuracies, best", [((0.1, 0.5, 0.5, 0.4), 2), ((0.3, 0.2), 1), ((0.1, 0.2, 0.3), 3)])
def test_on_published_data_it_is_the_first_with_the_largest_validation_accuracy(tmp_path, accuracies, best):
    found = fit(Scripted(accuracies, "digits"), RunFolder(tmp_path))
    assert (found.row.epoch, found.accuracy, kept(tmp_path)) == (best, accuracies[best - 1], best)
    (tmp_path / "none").mkdir()
    assert fit(Scripted(accuracies, validation=None), RunFolder(tmp_path / "none")).row.epoch == len(accuracies)
    assert not (tmp_path / "none" / "best.pt").exists()


def kept(folder):
    state = load_state(folder / "best.pt")
    assert state["epoch"] == int(state["model"]["epoch"])
    return state["epoch"]


@in_turn("curve", CURVES)
def test_the_best_epoch_has_the_best_smoothed_accuracy(tmp_path, curve):
    found = fit(Scripted(CURVES[curve]), RunFolder(tmp_path))
    epoch, accuracy = reference(CURVES[curve])
    assert (found.row.epoch, kept(tmp_path)) == (epoch, epoch)
    assert found.row.validation_accuracy == CURVES[curve][epoch - 1]
    assert found.accuracy == pytest.approx(accuracy)
    assert not list(tmp_path.glob("waiting*"))


@in_turn("curve", ["a hill", "falling"])
def test_a_run_that_is_interrupted_anywhere_keeps_the_same_epoch(tmp_path, monkeypatch, curve):
    (tmp_path / "whole").mkdir()
    whole = fit(Scripted(CURVES[curve]), RunFolder(tmp_path / "whole"))
    for nth in range(1, 100):
        folder = tmp_path / str(nth)
        folder.mkdir()
        with monkeypatch.context() as patch, contextlib.suppress(KeyboardInterrupt):  # the power is cut
            cut_off(patch, nth, "replace", error=KeyboardInterrupt())
            fit(Scripted(CURVES[curve]), RunFolder(folder))
            break
        found = fit(Scripted(CURVES[curve]), RunFolder(folder))
        assert (found.row.epoch, found.accuracy) == (whole.row.epoch, whole.accuracy)
        assert kept(folder) == whole.row.epoch
        assert sorted(os.listdir(folder)) == sorted(os.listdir(tmp_path / "whole"))
    assert nth > 3 * len(CURVES[curve])


@in_turn(
    "accuracies, epochs, then",
    [
        *((CURVES["a lucky epoch"], epochs, CURVES["a lucky epoch"]) for epochs in range(2, 9)),
        # With another number of threads the epoch after the checkpoint is another one, and epoch 3 wins this time.
        ((0.5, 0.4, 0.4, 0.4, 0.1, 0.0, 0.0), 5, (0.5, 0.4, 0.4, 0.4, 1.0, 0.0, 0.0)),
    ],
)
def test_a_damaged_checkpoint_does_not_lose_the_best_epoch(tmp_path, accuracies, epochs, then):
    with pytest.raises(ZeroDivisionError):
        fit(Scripted(accuracies), RunFolder(tmp_path), lambda row: 1 / (row.epoch - epochs))
    (tmp_path / "checkpoint.pt").write_bytes(b"torn")
    assert then == accuracies or kept(tmp_path) == 1
    with pytest.warns(UserWarning, match="the previous one"):
        found = fit(Scripted(then), RunFolder(tmp_path))
    assert found.row.epoch == kept(tmp_path) == reference(then)[0]


def test_weights_that_somebody_removed_are_missed(tmp_path):
    with refused(ValueError, "waiting-4.pt", "must hold the weights of epoch 4"):
        fit(
            Scripted(CURVES["a lucky epoch"]),
            RunFolder(tmp_path),
            lambda row: row.epoch == 4 and (tmp_path / "waiting-4.pt").unlink(),
        )


def test_a_result_on_ones_own_data_states_the_smoothed_accuracy(tmp_path):
    folder = tmp_path / "run"
    document = run(resolve(own_table(tmp_path), "ce", model="mlp:hidden=4", epochs=7, validation=0.2), folder)
    epoch, accuracy = reference([row["validation_accuracy"] for row in metrics(folder)])
    assert (document["best"]["epoch"], load_state(folder / "best.pt")["epoch"]) == (epoch, epoch)
    assert document["smoothed"] == pytest.approx(accuracy)
    own = RunFolder(folder).result()
    unsmoothed, unknown = dataclasses.replace(own, smoothed=None), dataclasses.replace(own, validation=0)
    published = dataclasses.replace(own, settings=small())  # there the last epoch counts
    assert [each.best_first for each in (own, unsmoothed, unknown, published)] == [True, True, False, False]
    judged = [each.judged for each in (own, unsmoothed, published)]
    assert judged == [document["smoothed"], own.best.validation_accuracy, own.last.validation_accuracy]
    for other, said in (({"smoothed": "high"}, "smoothed as a number or nothing; got 'high'"), ({}, "noise_rate as a")):
        incomplete = {name: value for name, value in document.items() if other or name != "noise_rate"}
        with refused(ValueError, f"must hold {said}"):
            Result.from_json(incomplete | other, tmp_path)
