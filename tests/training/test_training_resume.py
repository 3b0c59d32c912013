"""Runs that are killed, run out of disk, or diverge: what was good is kept, and they end as if nothing had happened."""

import itertools
import signal
import time

import pytest
import torch
import training_helpers
from in_turn import in_turn
from refusals import refused
from training_helpers import assert_same, command, cut_off, exit_code, killed_at, metrics, one_sentence, run, small

from symloss.training.loop import Diverged

KILLED = -signal.SIGKILL
MOMENTS = {
    "with nothing written": ("settings.json", 1),
    "after the settings": ("noise.json", 1),
    "before the first epoch": ("metrics.jsonl", 1),
    "before the first best weights": ("best.pt", 1),
    "before the first checkpoint": ("checkpoint.pt", 1),
    "between the metrics and the checkpoint": ("checkpoint.pt.new", 2),
    "before the last checkpoint is put aside": ("checkpoint-previous.pt", 1),
    "between the two replacements": ("checkpoint.pt", 2),
    "between the two replacements of the last epoch": ("checkpoint.pt", 3),
    "before the margins": ("margins.npz", 1),
    "before the result": ("result.json", 1),
}


@in_turn("moment", MOMENTS)
def test_a_run_that_is_killed_ends_as_if_nothing_had_happened(tmp_path, whole, moment):
    assert exit_code(killed_at, *MOMENTS[moment], small(), tmp_path) == KILLED
    assert not (tmp_path / "result.json").exists()
    run(small(), tmp_path)
    assert_same(tmp_path, whole)


def killed_at_call(nth, settings, folder):
    """The nth time that anything is written to the disk for good."""
    cut_off(pytest.MonkeyPatch(), nth, "replace", "fsync")
    run(settings, folder)


@pytest.mark.slow
def test_a_run_may_be_killed_at_any_moment(tmp_path):
    """Two epochs: whatever is written later was written before, to files that were there."""
    settings = small(epochs=2)
    run(settings, tmp_path / "whole")
    for nth in itertools.count(1):
        folder = tmp_path / str(nth)
        if (code := exit_code(killed_at_call, nth, settings, folder)) == 0:
            break
        assert code == KILLED
        run(settings, folder)
        assert_same(folder, tmp_path / "whole")
    assert nth > 20


def test_a_run_that_is_killed_again_and_again_ends_all_the_same(tmp_path, whole):
    codes = []
    while len(codes) < 9 and 0 not in codes:
        codes.append(exit_code(killed_at_call, 18, small(), tmp_path))
    assert len(codes) > 2
    assert codes == [KILLED] * (len(codes) - 1) + [0]
    assert_same(tmp_path, whole)


def options(settings):
    """As arguments of ``symloss train``."""
    names = ("noise", "loss", "model", "epochs", "batch", "lr", "weight_decay")
    given = [text for name in names for text in (f"--{name.replace('_', '-')}", str(getattr(settings, name)))]
    return [*given, "--settings", f"subset={settings.subset}"]


def wait_for_lines(path, count, process):
    deadline = time.monotonic() + 120
    while not path.exists() or len(path.read_text().splitlines()) < count:
        assert process.is_alive()
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.slow
def test_a_command_that_is_killed_from_outside_is_simply_started_again(tmp_path):
    settings = small(model="training_helpers:holds", epochs=5)
    arguments = ["train", *options(settings), "--out", str(tmp_path / "run")]
    for lines in (1, 3):
        process = training_helpers.start_command(tmp_path, *arguments, HOLD=str(lines * training_helpers.STEPS + 3))
        try:
            wait_for_lines(tmp_path / "run" / "metrics.jsonl", lines, process)
        finally:
            process.kill()
        assert training_helpers.ended(process) == KILLED
        assert not (tmp_path / "run" / "result.json").exists()
    assert command(tmp_path, *arguments).code == 0
    run(settings, tmp_path / "whole")
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_a_full_disk_is_one_sentence_and_the_last_checkpoint_survives(tmp_path, whole):
    folder = tmp_path / "run"
    assert exit_code(killed_at, "checkpoint.pt.new", 3, small(), folder) == KILLED
    before = (folder / "checkpoint.pt").read_bytes()
    arguments = ["train", *options(small()), "--out", str(folder)]
    done = command(tmp_path, *arguments, limit=len(before) // 2)
    one_sentence(done, "checkpoint.pt.new cannot be written (File too large); what was there", "is kept", started=True)
    assert (folder / "checkpoint.pt").read_bytes() == before
    assert command(tmp_path, *arguments).code == 0
    assert_same(folder, whole)


@in_turn("limit", [100, 1500])
def test_a_disk_that_is_full_from_the_start_is_one_sentence(tmp_path, limit):
    done = command(tmp_path, "train", *options(small()), "--out", "run", limit=limit)
    one_sentence(done, "symloss: run", "cannot be written (File too large)")


def test_a_loss_that_becomes_nan_stops_at_once_and_keeps_the_last_checkpoint(tmp_path):
    kept = []
    # A ratio of losses or a direction could hide them.
    for loss in ("alpha-mae", "nce", "nfl+mae", "cosine", "unhinged"):
        folder = tmp_path / loss
        with refused(Diverged, "the loss became nan at step 5 of epoch 3", "last checkpoint is kept", "below 0.05"):
            run(
                small(loss, model="training_helpers:breaks"),
                folder,
                on_epoch=lambda row, file=folder / "checkpoint.pt": kept.append(file.read_bytes()),
            )
        assert (folder / "checkpoint.pt").read_bytes() == kept[-1]
        assert not (folder / "result.json").exists()
        assert [row["epoch"] for row in metrics(folder)] == [1, 2]


def test_weights_that_become_nan_at_the_last_step_are_not_saved(tmp_path):
    with refused(Diverged, "the weights became infinite or nan at the end of epoch 3"):
        run(small(model="training_helpers:breaks_late"), tmp_path)
    assert torch.load(tmp_path / "checkpoint.pt", weights_only=True)["epoch"] == 2
    assert all(value.isfinite().all() for value in training_helpers.weights(tmp_path).values())


@in_turn("clip", [None, 5.0])
def test_a_learning_rate_that_is_far_too_large_names_the_step(tmp_path, clip):
    with refused(Diverged, " became ", "at step 2 of epoch 1", "a learning rate below 1e+30 may help"):
        run(small("ce", model="mlp:hidden=16,norm=none", lr=1e30, clip=clip), tmp_path)
