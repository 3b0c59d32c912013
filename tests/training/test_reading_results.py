"""Results in one file: read back as they were, added to, refused if damaged, and enough for a table and a report."""

import json

import pytest
from forked_processes import forked_processes
from in_turn import in_turn
from refusals import refused
from training_helpers import command, one_sentence

from symloss.experiments import FORMATS, compose, plan, read_runs
from symloss.experiments.run import outcome, survey
from symloss.training.reading import keep, read_kept
from symloss.training.results import EpochRow, Result

CELLS = plan("digits", losses=["ce", "mae"], noise=["sym:0.6"], seeds=2)


def a_result(cell, accuracy):
    row = EpochRow(60, test_accuracy=accuracy, seconds=1.5)
    return Result(cell.settings, 1437, 0, "none", 360, 0.6, row, row, 1.5, {"processor": "A processor"})


RESULTS = [a_result(cell, accuracy) for cell, accuracy in zip(CELLS, (0.5, 0.9, 0.6, 0.8), strict=True)]


@pytest.fixture
def kept(tmp_path):
    """A file with three of four results: both seeds of CE, one of MAE."""
    keep(tmp_path / "kept" / "rows.jsonl", RESULTS[:3])
    return tmp_path / "kept" / "rows.jsonl"


def test_results_come_back_as_they_were_and_are_not_replaced(kept):
    assert read_kept(kept) == {result.settings.key: result for result in RESULTS[:3]}
    before = kept.read_text()
    keep(kept, [a_result(CELLS[0], 0.1)])
    assert kept.read_text() == before, "the first result of a run counts"
    keep(kept, RESULTS[3:])
    after = kept.read_text().splitlines()
    assert len(after) == 4
    assert set(before.splitlines()) < set(after), "a new result is one new line, and the others stay as they are"
    assert read_kept(kept.parent / "none.jsonl") == {}


def test_a_table_goes_on_from_what_was_kept_and_a_report_reads_it_in_every_format(kept, tmp_path):
    found = read_kept(kept)
    surveyed = survey(CELLS, tmp_path / "runs", None, kept=found)
    assert (surveyed.kept, len(surveyed.done)) == (3, 0)
    assert [work.name for work in surveyed.todo] == ["digits/digits/mae/sym:0.6 seed 1"]
    rows = {row["loss"]: row for row in outcome(CELLS, tmp_path / "runs", found)}
    assert (rows["CE"]["mean"], rows["CE"]["runs"], rows["MAE"]["runs"]) == (pytest.approx(0.55), 2, 1)
    report = compose(read_runs(kept))
    (section,) = report.sections
    assert (section.name, len(report.runs.finished)) == ("digits", 3)
    for name, render in FORMATS.items():
        assert "55.0" in render(report), name


@in_turn(
    "line, said",
    [
        ("{", "line 4, must hold JSON"),
        ("[1]", "line 4, must hold a JSON object; got [1]"),
        ({"last": 1}, "line 4, must hold last as an object; got 1"),
        ({"settings": [1]}, "line 4, must hold settings as an object; got [1]"),
        ({"seconds": 10**400}, "line 4, must hold seconds as a number"),
        ({"validation_labels": [1]}, "line 4, must hold validation_labels as a text; got [1]"),
        ({"settings": {"lr": 10**400}}, "line 4, holds no settings of a run; lr must be a number in (0, inf)"),
    ],
)
def test_a_damaged_line_is_named(kept, line, said):
    lines = kept.read_text().splitlines()[:3]
    text = line if isinstance(line, str) else json.dumps(json.loads(lines[0]) | line)
    kept.write_text("\n".join([*lines, text, ""]))
    with refused(ValueError, "rows.jsonl", said):
        read_kept(kept)


def test_other_files_are_refused(kept, tmp_path):
    first = json.loads(kept.read_text().splitlines()[0])
    kept.write_text(json.dumps(first | {"settings": {"loss": "(("}}) + "\n")
    with refused(ValueError, kept, "holds a result whose loss cannot be read"):
        read_runs(kept)
    for name, content, kind, said in (
        ("bytes.jsonl", b"\xff\xfe", ValueError, "must hold results as JSON, a line each"),
        ("rows.json", b"{}", FileNotFoundError, "must be a folder of runs, or a file of results that ends in .jsonl"),
        ("empty.jsonl", b"", FileNotFoundError, "without any run in it"),
    ):
        (tmp_path / name).write_bytes(content)
        with refused(kind, said):
            read_runs(tmp_path / name)


def test_two_processes_may_add_at_once(tmp_path):
    path = tmp_path / "rows.jsonl"
    workers = [forked_processes().Process(target=keep, args=(path, [result])) for result in RESULTS]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(read_kept(path)) == 4


@pytest.mark.slow
def test_the_command_adds_what_it_trains_and_trains_nothing_twice(tmp_path):
    part = ["--profile", "mini", "--losses", "ce", "--noise", "clean", "--seeds", "1"]
    words = ["reproduce", "digits", *part, "--results", "rows.jsonl", "--runs"]
    assert "0 runs done, 1 to do" in command(tmp_path, *words, "one").stderr
    (row,) = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert json.loads(row)["settings"]["profile"] == "mini"
    done = command(tmp_path, *words, "another")
    assert (done.code, "1 runs done, 0 to do" in done.stderr) == (0, True), done
    assert not (tmp_path / "another").exists()
    done = command(tmp_path, *words, "one", "--results", "rows.txt")
    one_sentence(done, "`--results` must be a writable file that ends in .jsonl; got 'rows.txt'")
