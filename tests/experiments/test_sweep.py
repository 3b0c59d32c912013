"""Sweeps on one machine: whatever happens to one cell, the others are trained, and nothing is lost."""

import contextlib
import json
import multiprocessing
import os
import pickle
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from forked_processes import forked_processes
from refusals import refused
from run_helpers import kinds, results, small, small_cifar10, work
from training.training_helpers import command as forked_command, ended, start
from typer.testing import CliRunner

from symloss.cli import app
from symloss.experiments import find_cell, plan, run as processes
from symloss.experiments.cost import expected_seconds
from symloss.experiments.run import Event, Work, run_in_processes, survey, with_fingerprints
from symloss.training import train
from symloss.training.results import EpochRow, Result
from symloss.training.run_folder import RunFolder, run_path
from symloss.training.task import prepare
from symloss.writing import clear_write_errors, disk_is_full

PART = ("reproduce", "digits", "--profile", "mini", "--noise", "clean,sym:0.6", "--losses", "ce,mae", "--seeds", "1")


@pytest.fixture(autouse=True, scope="module")
def _quick_processes():
    """The sweeps of this process fork their workers. Those of other processes spawn them, as people have it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(processes, "SPAWN", forked_processes())
        yield


def sweep_here(*words):
    """The command in this process: its output, and what it said beside that."""
    done = CliRunner().invoke(app, [*map(str, words)])
    assert done.exit_code == 0, done.output
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A sweep that nobody disturbed: the folder of its runs, what it printed and what it said."""
    runs = tmp_path_factory.mktemp("whole")
    return runs, *sweep_here(*PART, "--runs", runs)


@pytest.mark.slow
def test_a_cell_that_fails_or_dies_leaves_the_others_alone(tmp_path):
    """They find what one process finds."""
    fatal = {"ce": "fatal_model:killed", "gce": "nowhere:nothing"}
    works = [work(tmp_path / "several", loss, model=model) for loss, model in fatal.items()]
    works += [work(tmp_path / "several", loss) for loss in ("mae", "sgce")]
    events = list(run_in_processes(works, jobs=2))
    assert [kinds(events)[each.name] for each in works] == ["failed", "failed", "finished", "finished"]
    assert sum(event.kind == "epoch" for event in events) == 2 * 2
    reasons = {event.work.name: event.reason for event in events if event.kind == "failed"}
    assert "killed by SIGKILL" in reasons["ce seed 0"]
    assert "nowhere" in reasons["gce seed 0"]
    written = [RunFolder(each.folder).read("failure.json") for each in works[1:]]
    assert written == [{"error": reasons["gce seed 0"]}, None, None]
    for loss in ("mae", "sgce"):
        train(small(loss), tmp_path / "one" / small(loss).key)
    assert results(tmp_path / "several") == results(tmp_path / "one")


@pytest.mark.slow
def test_a_run_that_another_process_trains_is_waited_for_unless_it_stands_still(tmp_path):
    other, mine = work(tmp_path, "mae"), work(tmp_path, "ce")
    folder, seen = RunFolder(other.folder), []
    folder.start(other.settings)
    with contextlib.ExitStack() as stack:
        stack.enter_context(folder.alone())
        events = list(run_in_processes([mine, other], jobs=1, patience=0.3))
        assert kinds(events) == {"ce seed 0": "finished", "mae seed 0": "elsewhere"}
        assert other.result() is None
        for event in run_in_processes([other, mine], jobs=1):
            seen.append((event.work.name, event.kind))
            if event.kind == "finished":  # ours; now the other process dies
                stack.close()
    told = [each for each in seen if each[1] not in ("started", "epoch")]
    assert told == [("mae seed 0", "waiting"), ("ce seed 0", "finished"), ("mae seed 0", "finished")]
    assert other.result() is not None


@pytest.mark.slow
def test_processes_of_a_cell_end_with_the_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    where = {"devices": 2, "accelerator": "cpu"}
    one = replace(work(tmp_path, "ce", model="fatal_model:stands"), where=where)
    events = run_in_processes([one], jobs=1)
    assert any(event.kind == "epoch" for event in events)
    events.close()
    started = [int(path.name.removeprefix("pid-")) for path in Path.cwd().glob("pid-*")]
    assert len(started) == 2
    deadline = time.monotonic() + 20
    while any(map(_lives, started)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _lives(number):
    """A process that ended, and nobody asked how, lives no more."""
    status = Path(f"/proc/{number}/stat")
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return status.read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def test_a_run_that_is_left_to_another_process_is_missing_and_the_code_is_1(tmp_path, monkeypatch):
    def left(works, jobs):
        return (Event("elsewhere", each, reason="it is being trained by another process") for each in works)

    monkeypatch.setattr("symloss.experiments.run.run_in_processes", left)
    done = CliRunner().invoke(app, [*map(str, PART), "--runs", str(tmp_path)])
    assert done.exit_code == 1
    missing = [line for line in done.stderr.splitlines() if line.startswith("missing: ")]
    assert len(missing) == 4
    assert missing[0] == "missing: digits/digits/ce/clean seed 0: it is being trained by another process"


@pytest.mark.slow
def test_a_full_disk_ends_the_sweep_with_one_sentence(tmp_path):
    done = forked_command(tmp_path, *PART, "--runs", "runs", limit=1000)  # no checkpoint fits
    assert done.code == 1, done
    (failure,) = (line for line in done.stderr.splitlines() if line.startswith("failed: "))
    assert "cannot be written (File too large)" in failure


def test_which_errors_mean_a_full_disk():
    for number, expected in ((28, True), (13, False)):
        with pytest.raises(OSError, match="cannot be written") as raised, clear_write_errors(Path("runs")):
            raise OSError(number, os.strerror(number))
        assert disk_is_full(raised.value) == expected
        assert disk_is_full(pickle.loads(pickle.dumps(raised.value))) == expected, "also from another process"


@pytest.mark.slow
def test_a_worker_that_is_killed_between_two_cells_is_replaced(tmp_path):
    events = run_in_processes([work(tmp_path, loss) for loss in ("ce", "mae", "gce")], jobs=1)
    seen = []
    for event in events:
        seen.append(event)
        if event.kind == "finished" and len(kinds(seen)) == 1:
            (child,) = multiprocessing.active_children()
            child.kill()
            child.join()
    assert kinds(seen) == dict.fromkeys(("ce seed 0", "mae seed 0", "gce seed 0"), "finished")


@pytest.mark.slow
def test_a_model_is_tested_on_other_data_where_the_cell_says_so(tmp_path):
    found = work(tmp_path, "gce", evaluate=("digits",))
    RunFolder(found.folder).start(found.settings)
    RunFolder(found.folder).write("failure.json", {"error": "the disk was full"})
    assert found.result() is None
    result = found.carry_out()
    assert RunFolder(found.folder).read("failure.json") is None, "forgotten once the run succeeds"
    evaluation = RunFolder(found.folder).read("evaluation-digits.json")
    assert evaluation == {"data": "digits", "accuracy": result.last.test_accuracy, "examples": result.test}
    assert found.result() == result
    (found.folder / "evaluation-digits.json").unlink()
    assert found.result() is None, "a run without its test is not done"
    assert found.carry_out() == result
    assert RunFolder(found.folder).read("evaluation-digits.json") == evaluation


def a_result(settings, seconds):
    row = EpochRow(1, test_accuracy=0.5)
    return Result(settings, 360, 0, "none", 360, 0.0, row, row, seconds)


def test_a_survey_tells_what_is_done_begun_and_missing(tmp_path):
    cells = plan("digits", profile="mini", losses=["ce", "mae"], noise=["clean"], seeds=1)
    found = survey(cells, tmp_path, None)
    assert (len(found.done), len(found.todo), found.begun, found.missing) == (0, 2, 0, {})
    folder = RunFolder(run_path(tmp_path, cells[0].settings))
    folder.start(cells[0].settings)
    folder.append_metrics(EpochRow(1))
    assert survey(cells, tmp_path, None).begun == 1
    folder.write("result.json", a_result(cells[0].settings, 1.0).to_json())
    found = survey(cells, tmp_path, None)
    assert (len(found.done), len(found.todo), found.begun) == (1, 1, 0)
    (folder.path / "settings.json").write_text(json.dumps({"format": 99}))
    with refused(ValueError, folder.path, "written by a newer version of symloss"):
        survey(cells, tmp_path, None)


def test_cells_without_data_say_what_to_fetch(tmp_path):
    fetch = {"table1": "symloss data get cifar10", "table3": "unpack them into", "table2": "cifar100"}
    for table, said in fetch.items():
        found = survey(plan(table, seeds=1), tmp_path / "runs", tmp_path)
        assert not found.todo
        assert any(said in sentence for sentence in found.missing), table
        assert all("\n" not in sentence for sentence in found.missing)
        evaluate = {work.evaluate for works in found.missing.values() for work in works}
        assert evaluate == {("webvision-mini-imagenet",) if table == "table3" else ()}, "two columns, one run"


def test_cells_on_files_that_are_not_the_publishers_are_other_runs(tmp_path):
    cells = plan("table1", datasets=["cifar10"], losses=["ce"], noise=["clean"], seeds=1)
    assert with_fingerprints(cells, tmp_path) == cells, "no files, nothing to say"
    small_cifar10(tmp_path, images=20)
    (found,) = with_fingerprints(cells, tmp_path)
    assert found.settings.fingerprint is not None
    assert run_path(tmp_path, found.settings) != run_path(tmp_path, cells[0].settings)
    survey([found], tmp_path / "runs", tmp_path)
    assert prepare(found.settings, tmp_path).data.name == "cifar10"


def test_the_cost_grows_with_the_work_and_is_taken_from_alike_runs(tmp_path):
    short, long = work(tmp_path, "ce"), work(tmp_path, "mae", epochs=2000, seed=1)
    found = expected_seconds([short, long], threads=1, root=None)
    assert 0 < found[short.name] < found[long.name]
    folder = RunFolder(long.folder)
    folder.start(long.settings)
    folder.write("result.json", a_result(long.settings, 77.0).to_json())
    alike = work(tmp_path, "gce", epochs=2000, seed=5)
    assert expected_seconds([short, long, alike], threads=1, root=None)[alike.name] == 77.0


@pytest.mark.slow
def test_a_sweep_that_is_killed_is_finished_by_the_same_command(tmp_path, whole):
    """SIGKILL to the sweep and, as a crash of the machine would, to its processes, while they train."""
    process = start(_sweep_elsewhere, tmp_path, *PART, "--jobs", "2", "--runs", str(tmp_path))
    deadline = time.monotonic() + 120
    while not any(path.read_text() for path in tmp_path.glob("*/metrics.jsonl")):
        assert time.monotonic() < deadline
        time.sleep(0.002)
    found = results(tmp_path)
    os.killpg(process.pid, signal.SIGKILL)
    process.join()
    assert found.items() <= results(tmp_path).items()
    assert len(results(tmp_path)) < 4, "it was cut off"
    sweep_here(*PART, "--jobs", 2, "--runs", tmp_path)
    assert results(tmp_path) == results(whole[0])
    assert len(results(tmp_path)) == 4


def _sweep_elsewhere(folder, *words):
    """The command in a group of processes of its own, which are all forked from its first one."""
    os.setsid()
    os.chdir(folder)
    processes.SPAWN = multiprocessing.get_context("fork")
    app(words)


@pytest.mark.slow
def test_two_sweeps_at_once_share_the_work(tmp_path, whole):
    other = start(_sweep_elsewhere, tmp_path, *PART, "--runs", str(tmp_path))
    sweep_here(*PART, "--runs", tmp_path)
    assert ended(other) == 0
    assert results(tmp_path) == results(whole[0])
    for metrics in tmp_path.glob("*/metrics.jsonl"):
        epochs = [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()]
        assert epochs == sorted(set(epochs)), "nothing is trained twice"


@pytest.mark.slow
def test_what_is_done_is_not_done_again_and_every_output_says_mini(whole):
    runs, out, err = whole
    assert "digits, mini (reduced: not the published protocol): 0 runs done, 4 to do" in err
    assert "about " in err
    assert "digits, digits, mini (reduced: not the published protocol): accuracy" in out
    stamps = {path: path.stat().st_mtime_ns for path in runs.rglob("*.pt")}
    out, err = sweep_here(*PART, "--runs", runs, "--json")
    assert "4 runs done, 0 to do" in err
    rows = json.loads(out)
    assert [row["profile"] for row in rows] == ["mini"] * 4
    cell = find_cell("digits/digits/mae/sym:0.6", profile="mini")
    result = json.loads((run_path(runs, cell.settings) / "result.json").read_text())
    assert result["settings"]["profile"] == "mini"
    assert {"commit", "torch", "threads", "processor"} <= set(result["versions"])
    row = next(row for row in rows if row["cell"] == cell.name)
    assert row["mean"] == result["last"]["test_accuracy"]
    assert {path: path.stat().st_mtime_ns for path in runs.rglob("*.pt")} == stamps != {}


def test_work_is_the_same_for_processes_that_stand_elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cell = find_cell("digits/digits/ce/clean")
    found = Work.of([cell], Path("runs"), Path("data"), {})
    assert found.folder == tmp_path / "runs" / run_path(Path("runs"), cell.settings).name
    assert found.root == tmp_path / "data"
