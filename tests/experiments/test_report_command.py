"""``symloss report``: where it writes, in which format, and what it refuses."""

from __future__ import annotations

import sys

import pytest
from report_helpers import write_run

from symloss.cli import main
from symloss.training.settings import Settings

BEGINNINGS = {"report.md": "## digits", "report.tex": "% Needs", "report.csv": "table,profile", "report.html": "<!doc"}


@pytest.fixture
def runs(tmp_path):
    """With the folder of a fit beside the runs, as `symloss fit` leaves it."""
    write_run(tmp_path / "runs" / "one", Settings(epochs=3, noise="sym:0.4"), 0.5)
    write_run(tmp_path / "runs" / "two", Settings(epochs=3, noise="sym:0.4", seed=1), 0.6, finished=False)
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


def test_markdown_is_printed(command, runs):
    code, printed, aside = command(runs)
    assert code == 0
    assert printed.startswith("## digits\n")
    assert f"`symloss report {runs}`" in printed
    assert aside == "without a figure: two (unfinished: 2 of 3 epochs)\n"


def test_the_suffix_decides_and_a_folder_gets_every_format(command, runs, tmp_path):
    for name, beginning in BEGINNINGS.items():
        file = tmp_path / name / "folder" / name.upper()
        code, printed, aside = command(runs, "--out", file)
        assert (code, printed) == (0, "")
        assert f"written to {file}" in aside
        assert file.read_text().startswith(beginning)
        assert [path.name for path in file.parent.iterdir()] == [file.name]
    command(runs, "-o", tmp_path / "all")
    assert {path.name: path.read_text()[:5] for path in (tmp_path / "all").iterdir()} == {
        name: beginning[:5] for name, beginning in BEGINNINGS.items()
    }


def test_format_without_a_file_is_printed_and_with_a_folder_written(command, runs, tmp_path):
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
    for arguments, *ingredients in (
        (["--format", "pdf"], "--format", "'pdf'", "markdown"),
        (["--out", "a.txt"], "--out", "a.txt", ".html"),
        (["--out", "a.html", "--format", "csv"], "--out", "a.html", "csv"),
        (["--table", "tabel1"], "tabel1", "did you mean 'table1'"),
        (["--table", "table1"], "table1", "none"),
        (["--out", "file/a.html"], "cannot be written"),
    ):
        code, printed, aside = command(runs, *arguments)
        assert (code, printed) == (2, "")
        assert aside.startswith("symloss: ")
        assert aside.count("\n") == 1
        assert all(ingredient in aside for ingredient in ingredients), aside
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "runs"]
    assert (tmp_path / "file").read_text() == "mine"


def test_newer_folders_and_missing_ones_are_refused(command, runs, tmp_path):
    code, _, aside = command(tmp_path / "nowhere")
    assert code == 2
    assert "RUNS must be a folder of runs" in aside
    (runs / "one" / "settings.json").write_text('{"format": 2}')
    code, printed, aside = command(runs)
    assert (code, printed) == (2, "")
    assert "newer version" in aside
    assert aside.count("\n") == 1


def test_names_that_are_no_unicode_do_not_stop_it(command, tmp_path):
    settings = Settings(epochs=3, noise="sym:0.4", data="half \ud800 a character")
    write_run(tmp_path / "run", settings, 0.5, classes=[*"012345678", "\udfff"])
    assert command(tmp_path, "--out", tmp_path / "out")[0] == 0
    assert "half ? a character" in (tmp_path / "out" / "report.html").read_text()
    assert "half ? a character" in command(tmp_path)[1]
