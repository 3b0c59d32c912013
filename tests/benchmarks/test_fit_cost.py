"""fit_cost.py: it measures every kind of candidate and resumes. What it times is never judged here."""

import sys

import fit_cost
from fit_cost import Cost, expected, measured, shapes

from symloss.fit.learners import Candidate, Shape

LDA = Candidate("lda", (), "standard")


def test_every_learner_is_measured_once_and_shown(tmp_path, monkeypatch, capsys):
    path = tmp_path / "rows.jsonl"
    sizes = ["--rows", "60", "--features", "3", "--classes", "2", "--most", "1e6"]
    monkeypatch.setattr(fit_cost, "SHORT", 0.0)
    monkeypatch.setattr(sys, "argv", ["fit_cost.py", *sizes, "--rows-file", str(path)])
    fit_cost.main()
    first, shown = path.read_text(), capsys.readouterr().out
    every = [candidate.name.removesuffix(" (standard)") for candidate in fit_cost.candidates(fit_cost.SETTINGS)]
    assert len(first.splitlines()) == len(every)
    assert all(f"| {name} | 3 | " in shown for name in every)
    fit_cost.main()
    assert path.read_text() == first


def test_what_takes_too_long_is_ended_or_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(fit_cost, "fit_and_predict", lambda *_: sum(iter(lambda: 1, 0)))  # never ends
    assert measured(LDA, Shape(20, 4, 2), most=0.1).more
    slow = Cost(LDA, Shape(100, 10, 2), 50.0)
    assert expected(LDA, Shape(200, 10, 2), [slow]) == 50
    assert expected(LDA, Shape(50, 10, 2), [slow]) < 1
    path = tmp_path / "rows.jsonl"
    fit_cost.keep(path, slow)
    monkeypatch.setattr(fit_cost, "measured", lambda candidate, shape, most: Cost(candidate, shape, 1.0))
    fit_cost.measure_all(path, [LDA], shapes((50, 200), (10,), (2,)), most=40, budget=1000)
    assert [cost.shape.rows for cost in fit_cost.costs(path)] == [50, 100]


def test_a_fit_that_was_ended_is_right_unless_the_formula_says_less():
    for seconds, more, right in ((1e-9, False, False), (1e-9, True, True), (1e9, True, False)):
        assert fit_cost.is_right(Cost(LDA, Shape(1000, 10, 2), seconds, more)) == right
