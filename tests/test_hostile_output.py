"""Whatever names hold, what is printed steers no terminal, and no spreadsheet computes it."""

from __future__ import annotations

import csv
import io
import json
import sys
import warnings

import pytest
from rich.table import Table

from symloss import cli
from symloss.cli.output import console, print_data, print_json, say, visible
from symloss.training import prediction
from symloss.training.run_folder import RunFolder
from symloss.training.settings import Settings
from symloss.writing import without_formula

CLEAR = "\x1b[2J"
EVIL = f"{CLEAR}\x07\x9b31m\x7f\u202e\r\udcff"
SHOWN = r"\x1b[2J\x07\x9b31m\x7f\u202e\r\udcff"


def harmless(text: str) -> bool:
    return all(char.isprintable() or char in "\n\t" for char in text)


@pytest.fixture
def command(monkeypatch, capsys):
    """Run a command in this process: exit code, output, and what was said beside it."""

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["symloss", *map(str, arguments)])
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            with pytest.raises(SystemExit) as left:
                cli.main()
        return int(left.value.code or 0), *capsys.readouterr()

    return run


def test_control_characters_are_shown_as_escapes():
    assert visible(EVIL) == SHOWN
    assert visible("a\nb\tc") == r"a\nb\tc"
    assert visible("a\nb\tc", keep="\n\t") == "a\nb\tc"
    words = "Zoë 中文 ١ 👩‍👩‍👧 naïve"  # noqa: RUF001
    assert visible(words) == words


def test_every_way_of_printing_is_harmless(capsys):
    say(f"one {EVIL}")
    say(f"two {EVIL}", err=True)
    console().print(EVIL, markup=False)
    table = Table(f"head {CLEAR}", title=CLEAR, caption=CLEAR)
    table.add_row(f"cell {CLEAR}")
    console().print(table)
    print_json({EVIL: [EVIL]})
    out, err = capsys.readouterr()
    assert r"cell \x1b[2J" in out
    assert harmless(out + err)
    assert out.count(SHOWN) == 2
    assert json.loads(out[out.index("{") :]) == {EVIL: [EVIL]}


def test_documents_are_whole_for_programs_and_harmless_in_a_terminal(capsys, monkeypatch):
    print_data(f"a,{CLEAR}\n")
    assert capsys.readouterr().out == f"a,{CLEAR}\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_data(f"a,{CLEAR}\n")
    assert capsys.readouterr().out == "a,\\x1b[2J\n"


def test_names_of_classes_are_shown_as_they_are(command, tmp_path):
    table = tmp_path / "x.csv"
    table.write_text(f'a,label\n1,"{CLEAR}x\ny"\n2,b\n')
    code, out, _ = command("data", "show", "--data", table)
    assert (code, harmless(out)) == (0, True)
    assert "\\x1b[2Jx\\ny  1 " in out


def test_names_of_files_are_one_line_in_errors_and_warnings(command, tmp_path):
    for name in ("cat", "dog"):
        folder = tmp_path / "photos" / name
        folder.mkdir(parents=True)
        (folder / f"{CLEAR}\nsymloss: all is well.png").write_text("no image")
    code, out, said = command("data", "show", "--data", tmp_path / "photos")
    assert (code, out, said.count("\n"), harmless(said)) == (2, "", 1, True)
    assert r"\x1b[2J\nsymloss: all is well.png must be an image" in said
    code, _, said = command("data", "show", "--data", tmp_path / "photos", "--skip-bad")
    assert (code, said.count("\n"), harmless(said)) == (2, 3, True)


def test_what_a_server_says_is_shown_as_it_is(command, monkeypatch, tmp_path):
    def answer(*_: object, **__: object) -> None:
        raise ConnectionError(f"Could not download http://x/: HTTP 404 {EVIL}")

    monkeypatch.setattr("symloss.data.download._fetch", answer)
    code, _, said = command("data", "get", "mnist", "--data-dir", tmp_path)
    assert code == 2
    assert said.endswith(f"404 {SHOWN}\n")


def test_runs_without_a_figure_are_one_line_each(command, tmp_path):
    RunFolder(tmp_path / "runs" / f"{CLEAR}\nevil").start(Settings())
    code, _, said = command("report", tmp_path / "runs")
    assert (code, harmless(said)) == (0, True)
    assert r"without a figure: \x1b[2J\nevil" in said


@pytest.mark.parametrize("to_file", [True, False])
def test_no_prediction_is_a_formula(command, monkeypatch, tmp_path, to_file):
    formulas = ["=1+1", "+cmd|' /C calc'!A0", "-x", "@SUM(A1)", "\t=1", " =1", "\uff1d1"]
    names = [*formulas, "-1", "+2.5e3", "photo.png", "\udcff"]
    guarded = [*(f"'{name}" for name in formulas), "-1", "+2.5e3", "photo.png", r"\udcff"]

    def predict(*_: object, **__: object):
        """Each example is predicted to be of the class with its own name."""
        rows = ((name, [float(other == name) for other in names]) for name in names)
        return prediction.Predictions(tuple(names), True, rows)

    monkeypatch.setattr(prediction, "predict", predict)
    monkeypatch.setattr("symloss.cli.training.holds_fit", lambda run: False)
    monkeypatch.setattr("symloss.cli.training.check_source", lambda source, labelled: None)
    out = tmp_path / "p.csv"
    code, printed, _ = command("predict", tmp_path, "--data", "data", *(["--out", out] if to_file else []))
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(out.read_bytes().decode() if to_file else printed)))
    assert [row["example"] for row in rows] == [row["prediction"] for row in rows] == guarded
    numbers = {"-1": "-1", "+1": "+1", "-.5": "-.5", "1e-3": "1e-3", "-1+2": "'-1+2", "--1": "'--1", "-": "'-"}
    assert {text: without_formula(text) for text in numbers} == numbers
