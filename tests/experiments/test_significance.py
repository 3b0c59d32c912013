"""Which rows of a column are below its best: the test against SciPy's, and what each format shows of it."""

import csv
import io
import re

import numpy as np
import pytest
from in_turn import in_turn
from run_helpers import own, write_run
from scipy import stats

from symloss.experiments import FORMATS, compose, read_runs
from symloss.experiments.significance import holm, paired_p

SHOWN = {
    "markdown": ("\u2020", "\u2021"),
    "latex": (r"$^\dagger$", r"$^\ddagger$"),
    "html": ("\u2020</sup>", "\u2021</sup>"),
}
"""How each format marks a figure that cannot be told from the best, and one that was not compared with it."""
FAR, NEAR, ONCE, SHIFTED = "q=0.2", "q=0.3", "q=0.4", "q=0.5"
FIGURES = {
    "q=0.1": (0.90, 0.91, 0.92, 0.93),  # the best
    FAR: (0.50, 0.52, 0.53, 0.52),
    NEAR: (0.70, 0.95, 0.60, 0.94),
    ONCE: (0.3,),
    SHIFTED: (0.89, 0.90, 0.91, 0.92),  # a difference without a spread
}


def column(folder, figures):
    """Write a table of one noise: a row for each loss, a run for each figure that is not None."""
    for row, values in figures.items():
        for seed, accuracy in enumerate(values):
            if accuracy is not None:
                settings = own(loss=f"sgce:{row}", seed=seed, weight_decay=0.1)
                write_run(folder / settings.key, settings, accuracy)
    return folder


def written(runs, format):
    return FORMATS[format](compose(read_runs(runs)))


def p_values(runs):
    rows = csv.DictReader(io.StringIO(written(runs, "csv")))
    return {row["title"].removeprefix("sgce:"): float(row["p_best"]) if row["p_best"] else None for row in rows}


def test_the_paired_test_is_scipys_over_the_seeds_that_both_have():
    random = np.random.default_rng(0)
    for n in (2, 3, 7):
        one, other = random.normal(1, 1, n), random.normal(0, 1, n)
        best, worse = (one, other) if one.mean() > other.mean() else (other, one)
        pairs = dict(enumerate(best)) | {50: 1e9}, dict(enumerate(worse)) | {60: -1e9}
        assert paired_p(*pairs) == pytest.approx(stats.ttest_rel(best, worse).pvalue, rel=1e-9)


def test_a_difference_that_speaks_against_the_best_is_no_evidence_for_it():
    best, other = {0: 0.1, 1: 0.2, 2: 0.3, 3: 99.0}, {0: 50.1, 1: 50.2, 2: 50.31}
    assert stats.ttest_rel([0.1, 0.2, 0.3], [50.1, 50.2, 50.31]).pvalue < 1e-6
    assert paired_p(best, other) == 1.0


def test_holms_correction_is_the_least_level_at_which_his_procedure_rejects():
    def rejected(p_values, level):
        found = set()
        for step, place in enumerate(np.argsort(p_values)):
            if p_values[place] > level / (len(p_values) - step):
                break
            found.add(int(place))
        return found

    random = np.random.default_rng(1)
    for _ in range(20):
        p_values = random.uniform(0, 0.3, 5)
        for place, adjusted in enumerate(holm(p_values)):
            if adjusted < 1:
                assert place in rejected(p_values, adjusted + 1e-9)
            assert place not in rejected(p_values, adjusted - 1e-9)


def test_columns_without_a_difference_rarely_claim_one():
    """Ten equal rows: the best is picked by the same figures, and still few columns claim anything."""
    random, claims = np.random.default_rng(2), 0
    for _ in range(400):
        rows = random.normal(0, 1, (10, 5)) + random.normal(0, 1, 5)  # what a seed does to all rows alike
        best, *others = sorted(rows, key=np.mean, reverse=True)
        found = holm([paired_p(dict(enumerate(best)), dict(enumerate(other))) for other in others])
        claims += min(found) < 0.05
    assert claims < 0.2 * 400


def test_rows_are_compared_with_the_best_of_their_column(tmp_path):
    found = p_values(column(tmp_path, FIGURES))
    far, near = (stats.ttest_rel(FIGURES["q=0.1"], FIGURES[row]).pvalue for row in (FAR, NEAR))
    assert far < near < 2 * near < 1
    expected = {FAR: pytest.approx(2 * far, abs=1e-6), NEAR: pytest.approx(near, abs=1e-6)}
    assert found == {"q=0.1": None, ONCE: None, SHIFTED: None} | expected


@in_turn("format", SHOWN)
def test_marks_and_what_they_mean(tmp_path, format):
    content = written(column(tmp_path, FIGURES), format)
    alike, untested = SHOWN[format]
    table = {"markdown": r"(?m)^\|.*$", "latex": r"(?m)^.*\\\\.*$", "html": "<tr>.*?</tr>"}[format]
    rows = {row: next(line for line in re.findall(table, content) if row in line.replace("\\", "")) for row in FIGURES}
    assert {row for row, line in rows.items() if alike in line} == {NEAR}
    assert {row for row, line in rows.items() if untested in line} == {ONCE, SHIFTED}
    for said in ("two-sided paired t-test", "Holm-corrected", "fewer than two seeds in common"):
        assert said in content


@in_turn("format", SHOWN)
def test_single_runs_claim_nothing_and_say_so(tmp_path, format):
    content = written(column(tmp_path, {"q=0.1": (0.9,), "q=0.2": (0.1,)}), format)
    assert not any(mark in content for mark in SHOWN[format])
    assert "No row is claimed to be below the best of its column" in content


@in_turn("format", SHOWN)
def test_a_single_row_has_no_legend(tmp_path, format):
    content = written(column(tmp_path, {"q=0.1": (0.9, 0.8)}), format)
    assert "best of its column" not in content


def test_all_rows_far_below_the_best_have_no_mark_and_the_legend_says_what_that_means(tmp_path):
    figures = {"q=0.1": FIGURES["q=0.1"], FAR: FIGURES[FAR]}
    content = written(column(tmp_path, figures), "markdown")
    assert content.count("\u2020") == 1
    assert "Figures without a mark are below the best" in content


def test_figures_that_print_alike_are_all_the_best_and_have_no_mark(tmp_path):
    content = written(column(tmp_path, {"q=0.1": (0.9, 0.8), "q=0.2": (0.90001, 0.8)}), "markdown")
    assert len(re.findall(r"\*\*85\.00\(7\.07\)\*\* ?<br>", content)) == 2
