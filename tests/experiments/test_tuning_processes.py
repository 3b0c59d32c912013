"""Processes that share a search, and one of them that is killed."""

import collections
import contextlib
import json
import time

import optuna
import pytest
from in_turn import in_turn
from training.training_helpers import ended, metrics as metrics_of, same_weights, start_command, without_time

from symloss.experiments.storage import sqlite_url
from symloss.training import Settings, train

pytestmark = pytest.mark.slow

STEPS = 6
"""Batches of an epoch: 360 training examples by 64."""
SEARCH = (
    "tune", "--losses", "sgce", "--vary", "sgce:q=0.2,0.8", "--vary", "weight_decay=0.001,0.01", "--vary", "lr=0.1",
    "--model", "fatal_model:logged", "--epochs", "2", "-s", "subset=400", "--batch", "64", "--accelerator", "cpu",
)  # fmt: skip
POINTS = 4


def search(folder, name, *more, hold_run=0):
    """The search in a process of its own; the run of this number stands still in its second epoch."""
    held = {"HOLD_RUN": str(hold_run), "HOLD_STEP": str(STEPS + 1)}
    return start_command(folder, *SEARCH, *more, name=name, **held)


def wait_for(path, text=""):
    until = time.monotonic() + 120
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.05)


def states(folder):
    storage = sqlite_url(folder / "runs" / "tune" / "tune.db")
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    return collections.Counter(trial.state.name for trial in trials)


def runs(folder):
    return sorted(path.parent for path in (folder / "runs" / "tune").glob("*/settings.json"))


def built(folder):
    return collections.Counter((folder / "built").read_text().split())


def assert_whole(folder):
    """Every point is one trial and one run, and each epoch was written down once."""
    assert states(folder) == {"COMPLETE": POINTS}
    assert len(runs(folder)) == POINTS
    for run in runs(folder):
        assert [row["epoch"] for row in metrics_of(run)] == [1, 2]


def assert_as_in_one_go(run, folder):
    settings = {k: v for k, v in json.loads((run / "settings.json").read_text()).items() if k != "format"}
    with contextlib.chdir(folder):
        train(Settings.from_dict(settings), folder / "one-go", accelerator="cpu")
    assert same_weights(run, folder / "one-go")
    assert without_time(metrics_of(run)) == without_time(metrics_of(folder / "one-go"))


def held_run(folder):
    (run,) = (run for run in runs(folder) if not (run / "result.json").exists())
    return run


def test_processes_share_a_search_and_finish_what_a_killed_one_left(tmp_path):
    """The first is held in the middle of its second run; the others do the rest, wait for it, and it is killed."""
    first = search(tmp_path, "first", hold_run=2)
    wait_for(tmp_path / "held")
    others = [search(tmp_path, name) for name in ("second", "third")]
    for name in ("second", "third"):
        wait_for(tmp_path / f".{name}stderr", "waiting for the trials of other processes")
    assert states(tmp_path) == {"COMPLETE": POINTS - 1, "RUNNING": 1}
    assert all(process.is_alive() for process in others)
    cut_off = held_run(tmp_path)
    assert len(metrics_of(cut_off)) == 1
    first.kill()
    assert [ended(process) for process in (first, *others)] == [-9, 0, 0]
    assert_whole(tmp_path)
    # One model for each point, and one more for the run that was gone on with.
    assert built(tmp_path).total() == POINTS + 1
    second, third = ((tmp_path / f".{name}stdout").read_text() for name in ("second", "third"))
    assert second == third != ""
    assert_as_in_one_go(cut_off, tmp_path)


def test_the_same_command_after_a_kill_finishes_the_rest_and_repeats_nothing(tmp_path):
    first = search(tmp_path, "first", hold_run=3)
    wait_for(tmp_path / "held")
    first.kill()
    assert ended(first) == -9
    cut_off = held_run(tmp_path)
    written = {path: path.stat().st_mtime_ns for run in runs(tmp_path) if run != cut_off for path in run.iterdir()}
    assert ended(search(tmp_path, "again")) == 0
    assert_whole(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in written} == written != {}
    assert built(tmp_path).total() == POINTS + 1
    assert_as_in_one_go(cut_off, tmp_path)


@in_turn("sampler", [(), ("--sampler", "random", "--trials", str(POINTS))])
def test_processes_that_start_at_once_do_not_stumble(tmp_path, sampler):
    """Nothing is there yet: no database, no study, no folder."""
    names = "one", "two", "three"
    processes = [search(tmp_path, name, *sampler) for name in names]
    assert [ended(process) for process in processes] == [0, 0, 0]
    assert_whole(tmp_path)
    assert built(tmp_path).total() == POINTS
    assert len({(tmp_path / f".{name}stdout").read_text() for name in names}) == 1
    assert all("Traceback" not in (tmp_path / f".{name}stderr").read_text() for name in names)
