"""Several processes follow one."""

import json
import os
import socket

import pytest
from training_helpers import command, ended, exit_code, finished, metrics, run, small, start, start_command, weights

from symloss.training import run as training_run
from symloss.training.margins import read_margins

pytestmark = pytest.mark.slow


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


def test_processes_of_torchrun_with_unequal_shares_and_an_empty_one(tmp_path):
    """Batches of 33 are shared as 17 and 16, and the last one has a lone example."""
    chosen = settings(batch=33, subset=7 * 33 + 1)
    run(chosen, tmp_path / "one")
    port = free_port()
    processes = [start(_torchrun, rank, port, chosen, tmp_path / "two") for rank in range(2)]
    assert [ended(process) for process in processes] == [0, 0]
    assert_follows(tmp_path / "two", tmp_path / "one")


def test_two_processes_of_torchrun_print_one_document(tmp_path):
    words = ("train", "--epochs", "2", "--settings", "subset=400", "--accelerator", "cpu", "--devices", "2", "--json")
    port = free_port()
    both = [start_command(tmp_path, *words, name=str(rank), **of_torchrun(rank, port)) for rank in range(2)]
    first, second = (finished(process, tmp_path, str(rank)) for rank, process in enumerate(both))
    assert (first.code, second.code) == (0, 0), first.stderr + second.stderr
    assert json.loads(first.stdout)["last"]["epoch"] == 2
    assert second.stdout == ""


def test_what_goes_wrong_in_another_process_is_said_in_one_sentence(tmp_path):
    chosen = ["--model", "mlp:hidden=8,norm=none", "--settings", "subset=400", "--loss", "ce", "--lr", "1e30"]
    done = command(tmp_path, "train", *chosen, "--accelerator", "cpu", "--devices", "2")
    assert done.code == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("symloss: the ")
    assert "at step 2 of epoch 1" in last
