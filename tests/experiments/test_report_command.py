"""``symloss report``: where it writes, in which format, and what it refuses."""

from __future__ import annotations

import sys

import pytest
from report_helpers import write_run

from symloss.cli import main
from symloss.training.settings import Settings

BEGINNINGS = {
    "report.md": "## digits",
    "report.tex": "% Needs",
    "report.csv": "table,profile",
    "report.html": "<!doctype",
}


@pytest.fixture
def runs(tmp_path):
    write_run(tmp_path / "runs" / "one", Settings(epochs=3, noise="sym:0.4"), 0.5)
    write_run(tmp_path / "runs" / "two", Settings(epochs=3, noise="sym:0.4", seed=1), 0.6, finished=False)
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


@pytest.mark.parametrize("name", BEGINNINGS)
def test_the_suffix_decides(command, runs, tmp_path, name):
    file = tmp_path / "new" / "folder" / name.upper()
    code, printed, aside = command(runs, "--out", file)
    assert (code, printed) == (0, "")
    assert f"written to {file}" in aside
    assert file.read_text().startswith(BEGINNINGS[name])
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(("format", "name"), [("latex", "report.tex"), ("html", "report.html")])
def test_format_without_a_file_is_printed_and_with_a_folder_written(command, runs, tmp_path, format, name):
    code, printed, _ = command(runs, "--format", format)
    assert code == 0
    assert printed.startswith(BEGINNINGS[name])
    code, _, _ = command(runs, "--format", format, "--out", tmp_path / "folder")
    assert code == 0
    assert [path.name for path in (tmp_path / "folder").iterdir()] == [name]
    command(runs, "--format", format, "--out", tmp_path / "odd.txt")
    assert (tmp_path / "odd.txt").read_text().startswith(BEGINNINGS[name])


def test_a_folder_gets_every_format(command, runs, tmp_path):
    code, *_ = command(runs, "-o", tmp_path)
    assert code == 0
    for name, beginning in BEGINNINGS.items():
        assert (tmp_path / name).read_text().startswith(beginning)


@pytest.mark.parametrize(
    ("arguments", "ingredients"),
    [
        (["--format", "pdf"], ["--format", "'pdf'", "markdown"]),
        (["--out", "a.txt"], ["--out", "a.txt", ".html"]),
        (["--out", "a.html", "--format", "csv"], ["--out", "a.html", "csv"]),
        (["--table", "tabel1"], ["tabel1", "did you mean 'table1'"]),
        (["--table", "table1"], ["table1", "none"]),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(command, runs, tmp_path, monkeypatch, arguments, ingredients):
    monkeypatch.chdir(tmp_path)
    code, printed, aside = command(runs, *arguments)
    assert (code, printed) == (2, "")
    assert aside.startswith("symloss: ")
    assert aside.count("\n") == 1
    assert all(ingredient in aside for ingredient in ingredients), aside
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs"]


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
    code, *_ = command(tmp_path, "--out", tmp_path / "out")
    assert code == 0
    assert "half ? a character" in (tmp_path / "out" / "report.html").read_text()
    code, printed, _ = command(tmp_path)
    assert code == 0
    assert "half ? a character" in printed


def test_a_file_in_the_way_is_one_sentence_and_stays(command, runs, tmp_path):
    (tmp_path / "file").write_text("mine")
    code, _, aside = command(runs, "--out", tmp_path / "file" / "a.html")
    assert code == 2
    assert "cannot be written" in aside
    assert (tmp_path / "file").read_text() == "mine"
