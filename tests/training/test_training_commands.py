"""``symloss train`` and ``compare``, each in a process of its own; progress as one live line or as plain lines."""

import dataclasses
import io
import json
import os
import re
import signal

import numpy as np
import pytest
from in_turn import in_turn
from rich.console import Console
from rich.progress import Progress
from training_helpers import command, finished, metrics, one_sentence, own_table, printed, start_command, wait_until
from typer.testing import CliRunner

from symloss.cli import app
from symloss.cli.output import LiveProgress, show_progress
from symloss.cli.training import _print_table
from symloss.data import opening
from symloss.experiments import resolve
from symloss.fit import RobustClassifier
from symloss.training.progress import ProgressLines, shown_by
from symloss.training.results import EpochRow, Result

QUICK = ("--epochs", "2", "--settings", "subset=400", "--accelerator", "cpu")


def runs(folder):
    return sorted(path for path in (folder / "runs").iterdir() if path.is_dir())


def test_train_prints_a_table_that_says_how_it_was_measured(tmp_path):
    told = printed(tmp_path, "train", *QUICK, "--noise", "sym:0.4", "--out", "here", "--weight-decay", "0.125")
    assert (tmp_path / "here" / "result.json").exists()
    for text in ("clean test set", "noisy validation labels", "0.125", "2 epochs", "360 training examples", "here"):
        assert text in " ".join(told.split())


def test_options_reach_the_settings_and_the_result_is_json(tmp_path):
    given = {
        "counts": "floor", "subset": 300, "validation": 0.2, "seed": 3, "model": "mlp:hidden=8", "epochs": 1,
        "batch": 50, "optimizer": "nesterov", "lr": 0.02, "weight_decay": 0.01, "schedule": "constant",
        "scores": "none", "noise": "pair:0.3", "momentum": 0.5, "penalty": 1e-6,
    }  # fmt: skip
    options = ("seed", "model", "epochs", "batch", "lr", "weight_decay", "noise")
    arguments = [text for name in options for text in (f"--{name.replace('_', '-')}", str(given[name]))]
    arguments += [text for name in given if name not in options for text in ("--settings", f"{name}={given[name]}")]
    for text in ("clip=0", "augment=none", "clean_validation=true"):
        arguments += ["--settings", text]
    result = json.loads(printed(tmp_path, "train", *arguments, "--json"))
    given |= {"clip": None, "augment": False, "clean_validation": True}
    assert {name: result["settings"][name] for name in given} == given
    assert result["settings"]["loss"].startswith("alpha-mae")
    folder = tmp_path / result["folder"]
    assert folder == runs(tmp_path)[0]
    assert result["last"] == metrics(folder)[-1]
    assert json.loads((folder / "result.json").read_text()) | {"folder": result["folder"]} == result


def test_compare_prints_a_table_and_the_second_time_trains_nothing(tmp_path):
    arguments = ("compare", *QUICK, "--losses", "ce,sgce:q=0.5", "--seeds", "2")
    first = printed(tmp_path, *arguments)
    assert len(runs(tmp_path)) == 4
    lines = [line.split() for line in first.splitlines()]
    assert ["weight", "last", "best", "noise", "s", "a"] in lines
    assert "mean(standard deviation) of 2 runs" in " ".join(first.split())
    for loss in ("ce", "sgce:q=0.5"):
        (row,) = (line for line in lines if line[:1] == [loss])
        assert all(re.fullmatch(r"(100|\d{1,2})\.\d\d\(\d{1,2}\.\d\d\)", cell) for cell in row[3:6]), row
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*")}
    assert printed(tmp_path, *arguments) == first
    assert {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*")} == written
    found = json.loads(printed(tmp_path, *arguments, "--json"))
    assert [row["loss"] for row in found["rows"]] == ["ce", "sgce:q=0.5"]
    assert [[run["settings"]["seed"] for run in some] for some in found["runs"]] == [[0, 1], [0, 1]]
    mean = sum(run["last"]["test_accuracy"] for run in found["runs"][0]) / 2
    assert found["rows"][0]["last"]["mean"] == pytest.approx(mean)


@in_turn("width", [80, 100, 160])
def test_figures_are_never_cut_however_narrow_the_terminal(width, monkeypatch):
    settings = resolve("digits", "nce+agce:alpha=1,beta=4,a=6,q=1.5", noise="sym:0.6")
    low, middle, high = (EpochRow(1, test_accuracy=accuracy, memorised=0.1234) for accuracy in (0.1, 0.8, 0.9))
    result = Result(settings, 1293, 144, "noisy", 360, 0.6, last=middle, best=high, seconds=123.4)
    other = dataclasses.replace(result, last=low, best=middle)
    screen = Console(width=width, record=True, file=io.StringIO())
    monkeypatch.setattr("symloss.cli.output.console", lambda: screen)
    _print_table([[result, other]], settings)
    shown = screen.export_text()
    assert all(figure in shown for figure in ("45.00(49.50)", "85.00(7.07)", "12.34(0.00)", "123.4"))
    assert "…" not in shown
    lines = shown.splitlines()
    headings = next(number for number, line in enumerate(lines) if line.startswith("loss "))
    assert "".join(line.split(" ")[0] for line in lines[headings + 1 :]).startswith(settings.loss)


STOPPED = "stopped; rerun the same command to resume after the last finished epoch\n"


def stderr_after_ctrl_c(folder, *options, several="ddp_fork"):
    """Of a training that has had its first checkpoint."""
    process = start_command(folder, "train", "--epochs", "5000", "--out", "here", *options, several=several)
    wait_until((folder / "here" / "checkpoint.pt").exists, process)
    os.kill(process.pid, signal.SIGINT)
    stopped = finished(process, folder)
    assert stopped.code == 130
    return stopped.stderr


def test_ctrl_c_says_how_to_go_on(tmp_path):
    assert stderr_after_ctrl_c(tmp_path).endswith(STOPPED)


@pytest.mark.slow
def test_ctrl_c_for_the_first_process_alone_stops_them_all(tmp_path):
    (tmp_path / "tells.py").write_text(
        "import os, pathlib\nfrom symloss.training.models import create_model\ndef net(input_shape, num_classes):\n"
        "    pathlib.Path(f'pid-{os.getpid()}').touch()\n"
        "    return create_model('mlp:hidden=8', input_shape=input_shape, num_classes=num_classes)\n"
    )
    several = ["--model", "tells:net", "--devices", "2", "--accelerator", "cpu"]
    told = stderr_after_ctrl_c(tmp_path, *several, several="ddp_spawn")
    assert STOPPED in told
    assert "Traceback" not in told
    started = [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]
    assert len(started) == 2
    for number in started:
        with pytest.raises(ProcessLookupError):
            os.kill(number, 0)


def test_a_matrix_that_changed_is_another_run(tmp_path):
    def rate(flip):
        np.save(tmp_path / "m.npy", (1 - flip) * np.eye(10) + flip / 10)
        return json.loads(printed(tmp_path, "train", *QUICK, "--noise", "matrix:m.npy", "--json"))["noise_rate"]

    assert [rate(0.0), rate(0.5), rate(0.0)] == [0.0, pytest.approx(0.45, abs=0.03), 0.0]
    assert len(runs(tmp_path)) == 2


def test_labels_that_nobody_vouches_for_are_not_called_clean(tmp_path):
    own_table(tmp_path)
    own = ("train", "--data", "mine.csv", "--epochs", "1", "--model", "mlp:hidden=4", "--settings")
    done = command(tmp_path, *own, "clean_validation=true")
    one_sentence(done, "clean_validation must be left out for mine.csv", "unknown")
    nothing = " ".join(printed(tmp_path, *own, "validation=0", "--noise", "CLEAN").split())
    assert "accuracy in % on no data, since nothing was held out" in nothing
    assert "noise as given (label noise unknown)" in nothing
    assert {folder.name.rpartition("-")[0] for folder in runs(tmp_path)} == {"mine-as-given-alpha-mae-seed0"}
    tested = " ".join(printed(tmp_path, *own, "validation=0", "--test", "mine.csv").split())
    assert "accuracy in % on the test data" in tested
    assert "clean" not in tested


def test_compare_adds_noise_to_a_known_data_set_and_none_to_ones_own(tmp_path):
    quick = ("--epochs", "1", "--model", "mlp:hidden=8", "--losses", "mae", "--seeds", "1", "--json")
    data = (own_table(tmp_path), "digits")
    own, digits = (json.loads(printed(tmp_path, "compare", "--data", each, *quick))["runs"][0][0] for each in data)
    assert (own["settings"]["noise"], digits["settings"]["noise"]) == ("clean", "sym:0.6")
    assert own["noise_rate"] is None, "nobody knows which of one's own labels are wrong"


@pytest.mark.slow
def test_event_files_for_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    printed(tmp_path, "train", *QUICK, "--out", "here", "--settings", "log=tensorboard")
    events = (tmp_path / "here" / "tensorboard").glob("events.out.tfevents.*")
    assert b"validation_accuracy" in b"".join(event.read_bytes() for event in events)


@in_turn(
    "arguments, ingredients",
    [
        (["--model", "no_module:net"], ["no_module:net"]),
        (["--settings", "schedule=linear"], ["schedule must be", "got 'linear'"]),
        (["--settings", "log=wandb"], ["`log` must be tensorboard", "got 'wandb'"]),
        (["--data", "columns.csv"], ["columns.csv", "'label'", "a, b, kind"]),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path, arguments, ingredients):
    (tmp_path / "columns.csv").write_text("a,b,kind\n1,2,x\n3,4,y\n")
    one_sentence(command(tmp_path, "train", "--epochs", "1", *arguments), *ingredients)
    assert not (tmp_path / "runs").exists()


@in_turn(
    "words", ["train --loss ce", "compare --losses ce,mae --seeds 2", "tune --losses ce --vary lr=0.1,0.2 --seeds 1"]
)
def test_a_command_opens_the_users_data_once(tmp_path, monkeypatch, words):
    own_table(tmp_path)
    times, open_own = [], opening._open_own
    monkeypatch.setattr(opening, "_open_own", lambda *arguments: times.append(arguments) or open_own(*arguments))
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, [*words.split(), "--data", "mine.csv", "--epochs", "1"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert len(times) == 1


TERMINAL = {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": "160"}


@pytest.fixture
def stderr_of(monkeypatch, capsys):
    """What a block of steps writes to stderr, in an environment that rich looks at."""

    def written(environment, *, quiet=False):
        for name in ("NO_COLOR", "FORCE_COLOR", "TERM"):
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        with show_progress(quiet=quiet) as progress:
            progress.phase("looking at the rows")
            for done in (1, 2, 3):
                progress.step("trying learners", done, 3, f"svc\x1b[2J leads with {done}0 %")
        shown = capsys.readouterr()
        assert shown.out == ""
        return type(progress), shown.err

    return written


@pytest.mark.parametrize("quiet", [False, True])
def test_a_terminal_has_one_live_line_which_disappears(stderr_of, quiet):
    kind, shown = stderr_of(TERMINAL, quiet=quiet)
    assert kind is LiveProgress
    assert all(part in shown for part in ("trying learners", "3/3", "leads with 30 %", "0:00:00"))  # the last is left
    assert "[symloss]" not in shown
    assert "\x1b[2J leads" not in shown  # a name cannot steer the terminal
    assert shown.endswith("\x1b[2K")  # nothing is left of the line


@pytest.mark.parametrize("environment", [{}, TERMINAL | {"NO_COLOR": "1"}, TERMINAL | {"TERM": "dumb"}])
def test_files_and_terminals_without_colours_get_plain_lines(stderr_of, environment):
    kind, shown = stderr_of(environment)
    assert kind is ProgressLines
    assert [line.partition(": ")[0] for line in shown.splitlines()] == [
        "[symloss] looking at the rows",
        "[symloss] trying learners 1/3",  # the second is too recent
        "[symloss] trying learners 3/3",
    ]
    assert stderr_of(environment, quiet=True) == (ProgressLines, "")


def test_a_bar_moves_inside_a_step_and_starts_again_with_other_steps():
    progress = Progress(disable=True)
    live = LiveProgress(progress)
    seen = []
    for epoch in (0, 1):
        live.step("epoch", epoch, 3)
        for step in (1, 4):
            live.last = 0.0
            live.inside(step, 4)
            live.inside(2, 4)  # too soon to be shown
            seen.append(progress.tasks[0].completed)
    assert seen == [0.25, 0.999, 1.25, 1.999]
    live.step("other steps", 1, 7)
    assert (progress.tasks[0].completed, progress.tasks[0].total) == (1, 7)


def test_a_fit_tells_the_one_who_shows_it(capsys):
    """The best of all that was tried, and every phase; by lines of its own if it is verbose, and nobody else shows."""
    labels = np.arange(60) % 2
    features = 3 * labels[:, None] + np.random.default_rng(0).normal(size=(60, 2))
    phases, steps, listener = [], [], ProgressLines()
    listener.phase = phases.append
    listener.step = lambda what, done, total, status="": steps.append((what, done, total, status))
    model = RobustClassifier(learners=["closed-form", "network"], losses=["ce"], budget=1)
    with shown_by(listener):
        model.fit(features, labels)
    assert phases[0] == "fitting 60 rows takes up to about 1 s of one core"
    assert phases[-1] == "fitting the model to all rows"
    assert {what for what, *_ in steps} >= {"trying learners", "trying 2 networks, epoch", "fitting the leaders again"}
    assert all(0 < done <= total for _, done, total, _ in steps)
    scores = [float(status.split(" leads with ")[1].split()[0]) for *_, status in steps if status]
    assert scores == sorted(scores)
    assert capsys.readouterr().err == ""
    model.set_params(verbose=1).fit(features, labels)
    lines = capsys.readouterr().err.splitlines()
    assert "leads with" in lines[1]
    assert len(set(lines)) == len(lines)
