"""Tables with ids, gaps and categories on the command line."""

from __future__ import annotations

import csv
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from symloss.cli import app
from symloss.cli.data import column_rows, say_columns
from symloss.data.table_encoder import Column

SMALL = ("--model", "mlp:hidden=4", "--epochs", "1", "--losses", "mae", "--seeds", "1")
LEFT_OUT = "left out: 'id' (whole numbers, all different: looks like an id); "
LEFT_OUT += "--settings keep=COLUMN uses one that looks like an id"


@pytest.fixture
def table(tmp_path):
    """The colour says the class, and every fifth size is missing."""
    rows = ["id;size;colour;code;label"]
    for row, size in enumerate(np.random.default_rng(0).normal(size=60)):
        shown = f"{size:.3f}".replace(".", ",") if row % 5 else ""
        rows.append(f"{row};{shown};{'red' if row % 2 else 'blue'};{row % 3};{'odd' if row % 2 else 'even'}")
    (tmp_path / "people.csv").write_text("\n".join(rows))
    return tmp_path / "people.csv"


def shown_lines(*words):
    done = CliRunner().invoke(app, ["data", "show", "--data", *map(str, words)], catch_exceptions=False)
    return done.stdout.splitlines()


def test_show_says_what_becomes_of_each_column(table, tmp_path):
    shown = shown_lines(table, "--settings", "categorical=code")
    assert [re.split("  +", line.strip()) for line in shown[:6]] == [
        ["people: inputs 7, in memory"],
        ["column", "becomes", "why"],
        ["id", "left out", "whole numbers, all different: looks like an id"],
        ["size", "number", "numbers, 20 % missing: the median, and a column that marks them"],
        ["colour", "category", "text with 2 values"],
        ["code", "category", "a category as asked, 3 values"],
    ]
    kept = shown_lines(table, "--settings", "keep=id", "--drop", "code,size")
    assert kept[0] == "people: inputs 3, in memory"
    texts = [f"{k / 7},my bin was not emptied {'abcdefgh'[k // 8]}{'abcdefgh'[k % 8]},{'xy'[k % 2]}" for k in range(40)]
    (tmp_path / "x.csv").write_text("\n".join(["size,message,label", *texts]))
    free = "message  left out  looks like free text, 40 different values in 40 rows"
    assert any(free in line for line in shown_lines(tmp_path / "x.csv"))


@pytest.mark.slow
def test_a_run_keeps_what_it_learnt_and_predicts_with_it(run_command, table, tmp_path):
    run = tmp_path / "run"
    how = ("--data", str(table), "--settings", "categorical=code", "--out", str(run))
    words = ("train", *how, "--loss", "ce", "--model", "mlp:hidden=8", "--epochs", "40")
    trained = run_command(*words)
    assert trained.returncode == 0, trained.stderr
    assert LEFT_OUT in trained.stderr.splitlines()
    kept = {entry["name"]: entry for entry in json.loads((run / "columns.json").read_text())["columns"]}
    assert kept["colour"]["values"] == ["blue", "red"]
    assert json.loads((run / "settings.json").read_text())["categorical"] == "code"
    new = tmp_path / "new.csv"
    new.write_text("code,colour,size\n1.0,red,0.5\n,blue,NA\n7,green,1\n")
    predicted = run_command("predict", str(run), "--data", str(new))
    rows = list(csv.DictReader(predicted.stdout.splitlines()))
    assert [row["prediction"] for row in rows[:2]] == ["odd", "even"]
    assert len(rows) == 3
    new.write_text("code,size\n1,0.5\n")
    refusal = run_command("predict", str(run), "--data", str(new))
    said = f"symloss: {new} must have the feature column 'colour'; got the columns code, size\n"
    assert (refusal.returncode, refusal.stderr) == (2, said)
    # The same command again finds the run as it was.
    assert run_command(*words).returncode == 0


@pytest.mark.slow
def test_compare_and_tune_take_the_same_options(run_command, table, tmp_path):
    runs = ("--runs", str(tmp_path / "runs"))
    found = run_command("compare", "--data", str(table), *SMALL, "--settings", "drop=id,code", *runs, "--json")
    assert found.returncode == 0, found.stderr
    assert "left out" not in found.stderr
    (settings,) = [run[0]["settings"] for run in json.loads(found.stdout)["runs"]]
    assert settings["drop"] == "id,code"
    one = ("--vary", "weight_decay=0", "--settings", "keep=id")
    tuned = run_command("tune", "--data", str(table), *SMALL, *one, *runs)
    assert tuned.returncode == 0, tuned.stderr
    assert "--settings keep=id" in tuned.stdout


def test_plain_numbers_of_a_wide_table_share_a_line():
    columns = [*(Column(f"c{k}", "number", "numbers") for k in range(99)), Column("\x1b[2J", "category", "text")]
    rows = [list(row.values()) for row in column_rows(columns)]
    assert rows == [["99 columns", "number", "numbers"], ["\\x1b[2J", "category", "text"]]


def test_the_hint_to_keep_is_for_ids_only(capsys):
    text, number = Column("t", "left out", "looks like free text, 9 ...", True), Column("i", "left out", "an id", True)
    say_columns([text, number])
    ids, texts = capsys.readouterr().err.splitlines()
    assert ids == "left out: 'i' (an id); --settings keep=COLUMN uses one that looks like an id"
    assert texts.startswith("left out: 't' (looks like free text, 9 ...); text columns are not supported directly yet")
    assert "docs/text.md" in texts
    assert "keep=" not in texts
