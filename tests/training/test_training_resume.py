"""Runs that are killed, run out of disk or diverge end as if nothing had happened; several processes follow one."""

import itertools
import json
import os
import signal
import socket
import time

import pytest
import torch
import training_helpers
from in_turn import in_turn
from refusals import refused
from training_helpers import assert_same, command, exit_code, killed_at, metrics, one_sentence, run, small, weights

from symloss.training import run as training_run
from symloss.training.loop import Diverged
from symloss.training.margins import read_margins

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
    training_helpers.cut_off(pytest.MonkeyPatch(), nth, "replace", "fsync")
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
    assert all(value.isfinite().all() for value in weights(tmp_path).values())


@in_turn("clip", [None, 5.0])
def test_a_learning_rate_that_is_far_too_large_names_the_step(tmp_path, clip):
    with refused(Diverged, " became ", "at step 2 of epoch 1", "a learning rate below 1e+30 may help"):
        run(small("ce", model="mlp:hidden=16,norm=none", lr=1e30, clip=clip), tmp_path)


def settings(**given):
    return small(model="mlp:hidden=32,norm=none", validation=0.0, **given)


def assert_follows(two, one):
    """To 1e-5, in weights and in what is measured."""
    first, second = weights(one), weights(two)
    assert first.keys() == second.keys()
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-5
    for ours, theirs in zip(metrics(two), metrics(one), strict=True):
        for name in ("loss", "train_accuracy", "clean_accuracy", "memorised", "test_accuracy"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-4)
    ours, theirs = (read_margins(folder) for folder in (two, one))
    assert ours.epochs == theirs.epochs
    for name in ("positions", "margin", "unit_margin"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-4)


def _spawn(chosen, folder):
    """As people have it: the two import everything, and what they are to do is pickled."""
    training_run.SEVERAL_PROCESSES = "ddp_spawn"
    run(chosen, folder, devices=2)


@pytest.mark.slow
def test_two_processes_follow_one(tmp_path):
    chosen = settings(batch=64, subset=448)
    run(chosen, tmp_path / "one")
    assert exit_code(_spawn, chosen, tmp_path / "two") == 0
    assert 3 * 448 / 64 > 20
    assert_follows(tmp_path / "two", tmp_path / "one")


def of_torchrun(rank, port):
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "GROUP_RANK": "0"}
    sizes = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "test"}
    return ranks | sizes | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def _torchrun(rank, port, chosen, folder):
    os.environ |= of_torchrun(rank, port)
    run(chosen, folder, devices=2)


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.mark.slow
def test_processes_of_torchrun_with_unequal_shares_and_an_empty_one(tmp_path):
    """Batches of 33 are shared as 17 and 16, and the last one has a lone example."""
    chosen = settings(batch=33, subset=7 * 33 + 1)
    run(chosen, tmp_path / "one")
    port = free_port()
    processes = [training_helpers.start(_torchrun, rank, port, chosen, tmp_path / "two") for rank in range(2)]
    assert [training_helpers.ended(process) for process in processes] == [0, 0]
    assert_follows(tmp_path / "two", tmp_path / "one")


@pytest.mark.slow
def test_two_processes_of_torchrun_print_one_document(tmp_path):
    words = ("train", "--epochs", "2", "--settings", "subset=400", "--accelerator", "cpu", "--devices", "2", "--json")
    port = free_port()
    both = [
        training_helpers.start_command(tmp_path, *words, name=str(rank), **of_torchrun(rank, port)) for rank in range(2)
    ]
    first, second = (training_helpers.finished(process, tmp_path, str(rank)) for rank, process in enumerate(both))
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert json.loads(first.stdout)["last"]["epoch"] == 2
    assert second.stdout == ""


@pytest.mark.slow
def test_what_goes_wrong_in_another_process_is_said_in_one_sentence(tmp_path):
    chosen = ["--model", "mlp:hidden=8,norm=none", "--settings", "subset=400", "--loss", "ce", "--lr", "1e30"]
    done = command(tmp_path, "train", *chosen, "--accelerator", "cpu", "--devices", "2")
    assert done.code == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("symloss: the ")
    assert "at step 2 of epoch 1" in last
