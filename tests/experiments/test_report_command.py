"""``symloss report``: where it writes, in which format, and what it refuses."""

import sys

import pytest
from report_helpers import own, write_run

from symloss.cli import main

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
