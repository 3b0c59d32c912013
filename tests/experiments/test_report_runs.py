"""Reports from the command line: folders are read as they are, damaged ones refused in one sentence."""

import json
import shutil
import sys

import pytest
from in_turn import in_turn
from refusals import all_refused, refused
from report_helpers import own, result, write_run

from symloss.cli import main
from symloss.experiments import read_runs, resolve
from symloss.training import train


def test_real_run_is_read_whole(tmp_path):
    plan = resolve("digits", "sgce", noise="sym:0.4", epochs=2, subset=300)
    train(plan, tmp_path / "deep" / "er" / "run", accelerator="cpu")
    (run,) = read_runs(tmp_path).finished
    assert (run.name, run.settings, run.result.measure) == ("deep/er/run", plan, "test_accuracy")
    assert [row.epoch for row in run.epochs] == [1, 2]
    assert run.class_names == tuple("0123456789")
    assert run.noise[1].shape == (10, 10)
    assert run.result.last.test_accuracy == result(run.folder)["last"]["test_accuracy"]
    assert [each.name for each in read_runs(run.folder).finished] == ["run"], "a run itself is a folder of runs"


def test_unfinished_and_failed_runs_are_kept_and_named_and_equal_settings_count_once(tmp_path):
    write_run(tmp_path / "cut", own(seed=1), 0.5, finished=False)
    write_run(tmp_path / "failed", own(seed=2), 0.5, finished=False)
    write_run(tmp_path / "done", own(seed=3), 0.5)
    for name, reason in (("failed", "the loss became nan"), ("done", "killed before it was done")):
        (tmp_path / name / "failure.json").write_text(json.dumps({"error": reason}))
    write_run(tmp_path / "begun", own(seed=3), 0.5, finished=False)
    shutil.copytree(tmp_path / "done", tmp_path / "later")
    runs = read_runs(tmp_path)
    assert [run.name for run in runs.finished] == ["done"]
    expected = {"cut": "unfinished: 2 of 3 epochs", "failed": "failed: the loss became nan"}
    assert {run.name: run.progress for run in runs.unfinished} == expected
    assert sorted((run.name, other.name) for run, other in runs.repeated) == [("begun", "done"), ("later", "done")]


def test_a_place_without_runs_is_refused(tmp_path):
    nothing = tmp_path / "nothing"
    all_refused(
        (FileNotFoundError, f"RUNS ... {nothing}", lambda: read_runs(nothing)),
        (FileNotFoundError, f"RUNS ... {tmp_path} ... without any run", lambda: read_runs(tmp_path)),
    )


@in_turn(
    "file, content, ingredient",
    [
        ("settings.json", {"format": 99}, "newer version"),
        ("settings.json", {"format": "one"}, "settings"),
        ("settings.json", {"format": 1, "epochs": 0}, "epochs"),
        ("settings.json", {"format": 1, "data": 5}, "data must be a text"),
        ("settings.json", {"format": 1, "test": ["x"]}, "test must be"),
        ("settings.json", {"format": 1, "schedule": 5}, "schedule must be a text"),
        ("settings.json", {"format": 1, "augment": "yes"}, "augment must be one of"),
        ("settings.json", [1], "JSON object"),
        ("result.json", [1], "JSON object"),
        ("result.json", {"best": None}, "must hold best as an object; got None"),
        ("result.json", {"last": {"test_accuracy": 1.5}}, "must hold test_accuracy as a number from 0 to 1"),
        ("result.json", {"last": {"test_accuracy": float("nan")}}, "test_accuracy"),
        ("result.json", {"last": {"test_accuracy": "high"}}, "test_accuracy"),
        ("result.json", {"seconds": "long"}, "seconds"),
        ("result.json", {"versions": 3}, "versions"),
        ("failure.json", "reason", "JSON object"),
        *((file, broken, "JSON") for file in ("settings.json", "result.json") for broken in (b"", b'{"l', b"\xff\xfe")),
    ],
)
def test_damaged_folders_are_refused(tmp_path, file, content, ingredient):
    folder = write_run(tmp_path / "run", own(), 0.5)
    if file == "result.json" and isinstance(content, dict):
        content = json.loads((folder / file).read_text()) | content
    (folder / file).write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
    with refused(ValueError, folder, ingredient):
        read_runs(tmp_path)


def test_damaged_noise_classes_metrics_and_evaluations_are_refused_when_they_are_read(tmp_path):
    folder = write_run(tmp_path / "run", own(), 0.5)
    evaluation = folder / "evaluation-other.json"
    (run,) = read_runs(tmp_path).finished
    assert run.accuracy("other") is None
    evaluation.write_text(json.dumps({"accuracy": 0.25, "examples": 4}))
    assert run.accuracy("other") == 0.25
    square = {"transitions": [[1, 2]], "noisy_sha256": ""}
    for file, content, name, said in (
        ("noise.json", "{}", "noise", "transitions"),
        ("noise.json", json.dumps(square), "noise", "transitions"),
        ("noise.json", json.dumps(square | {"transitions": [[-1]]}), "noise", "transitions"),
        ("data.json", '{"class_names": 10}', "class_names", "class_names as a list of texts or nothing; got 10"),
        ("metrics.jsonl", '{"epoch": 1}\nzzz\n{"epoch": 3}\n', "epochs", "is damaged: line 2 must hold the metrics"),
    ):
        (folder / file).write_text(content)
        (run,) = read_runs(tmp_path).finished
        with refused(ValueError, folder / file, said):
            getattr(run, name)
    evaluation.write_text(json.dumps({"examples": 4}))
    with refused(ValueError, "evaluation-other.json", "accuracy"):
        run.accuracy("other")


BEGINNINGS = {"report.md": "## digits", "report.tex": "% Needs", "report.csv": "table,profile", "report.html": "<!doc"}


@pytest.fixture
def runs(tmp_path):
    """With the folder of a fit beside the runs, as `symloss fit` leaves it."""
    write_run(tmp_path / "runs" / "one", own(), 0.5)
    write_run(tmp_path / "runs" / "two", own(seed=1), 0.6, finished=False)
    (tmp_path / "runs" / "fit-mine").mkdir()
    for name in ("fit.json", "model.json", "data.json", "noise.json", "result.json"):
        (tmp_path / "runs" / "fit-mine" / name).write_text("{}")
    return tmp_path / "runs"


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs it; returns its exit code, what it printed and what it said on the side."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["symloss", "report", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return ended.value.code, *capsys.readouterr()

    return run


def test_markdown_is_printed_the_suffix_or_the_format_decides_and_a_folder_gets_every_format(command, runs, tmp_path):
    code, printed, aside = command(runs)
    assert (code, aside) == (0, "without a figure: two (unfinished: 2 of 3 epochs)\n")
    assert printed.startswith("## digits\n")
    assert f"`symloss report {runs}`" in printed
    for name, beginning in BEGINNINGS.items():
        file = tmp_path / name / "folder" / name.upper()
        code, printed, aside = command(runs, "--out", file)
        assert (code, printed) == (0, "")
        assert f"written to {file}" in aside
        assert file.read_text().startswith(beginning)
        assert [path.name for path in file.parent.iterdir()] == [file.name]
    command(runs, "-o", tmp_path / "all")
    found = {path.name: path.read_text() for path in (tmp_path / "all").iterdir()}
    assert found.keys() == BEGINNINGS.keys()
    assert all(found[name].startswith(beginning) for name, beginning in BEGINNINGS.items())
    for format, name in (("latex", "report.tex"), ("html", "report.html")):
        code, printed, _ = command(runs, "--format", format)
        assert code == 0
        assert printed.startswith(BEGINNINGS[name])
        command(runs, "--format", format, "--out", tmp_path / format)
        assert [path.name for path in (tmp_path / format).iterdir()] == [name]
        command(runs, "--format", format, "--out", tmp_path / "odd.txt")
        assert (tmp_path / "odd.txt").read_text().startswith(BEGINNINGS[name])


def test_what_cannot_be_is_refused_in_one_sentence(command, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    (tmp_path / "newer").mkdir()
    (tmp_path / "newer" / "settings.json").write_text('{"format": 2}')
    for arguments, *ingredients in (
        ([runs, "--format", "pdf"], "--format", "'pdf'", "markdown"),
        ([runs, "--out", "a.txt"], "--out", "a.txt", ".html"),
        ([runs, "--out", "a.html", "--format", "csv"], "--out", "a.html", "csv"),
        ([runs, "--table", "tabel1"], "tabel1", "did you mean 'table1'"),
        ([runs, "--table", "table1"], "table1", "none"),
        ([runs, "--out", "file/a.html"], "cannot be written"),
        (["nowhere"], "RUNS must be a folder of runs"),
        (["newer"], "newer version"),
    ):
        code, printed, aside = command(*arguments)
        assert (code, printed) == (2, "")
        assert aside.startswith("symloss: ")
        assert aside.count("\n") == 1
        assert all(ingredient in aside for ingredient in ingredients), aside
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "newer", "runs"]
    assert (tmp_path / "file").read_text() == "mine"


def test_names_that_are_no_unicode_do_not_stop_it(command, tmp_path):
    write_run(tmp_path / "run", own(data="half \ud800 a character"), 0.5, classes=[*"012345678", "\udfff"])
    assert command(tmp_path, "--out", tmp_path / "out")[0] == 0
    assert "half ? a character" in (tmp_path / "out" / "report.html").read_text()
    assert "half ? a character" in command(tmp_path)[1]
