"""Means, standard deviations and differences, against numpy and against numbers worked out by hand."""

import itertools
import json
import math

import numpy as np
import pytest
from in_turn import in_turn
from report_helpers import write_run
from scipy import stats

from symloss.experiments import FORMATS, compose, read_runs
from symloss.experiments.charts import map_picture
from symloss.experiments.curves import learning_curve, rows_in_maps, sensitivity_maps, thinned
from symloss.experiments.difference import difference, rank_correlation, signed
from symloss.experiments.page import realised
from symloss.experiments.tables import Published
from symloss.training.reading import read_run
from symloss.training.results import in_percent
from symloss.training.settings import Settings


def test_mean_and_standard_deviation_are_those_of_numpy_and_one_run_has_none():
    shares = np.random.default_rng(0).uniform(size=5)
    found, mean, std = in_percent(shares.tolist()), 100 * shares.mean(), 100 * shares.std(ddof=1)
    assert (found.n, found.mean, found.std) == pytest.approx((5, mean, std), rel=1e-12)
    assert found.text == f"{mean:.2f}({std:.2f})"
    alone = in_percent([0.5])
    assert (alone.std, alone.text) == (None, "50.00")
    assert in_percent([None, None]) is None
    assert in_percent([None, 0.25]) == in_percent([0.25])


THREE = [0.87, 0.88, 0.89]  # mean 88, standard deviation 1


@in_turn(
    "ours, printed, spread, expected",
    [
        (THREE, "90.50(0.75)", "standard deviation", -2.5 / 1.25),  # 3-4-5
        (THREE, "90.50(0.75)", "standard error", -2.5 / math.sqrt(1 + 3 * 0.75**2)),  # of 3 runs
        ([0.9], "88.00(0.50)", "standard deviation", 4.0),  # one run of ours: the published spread alone
        (THREE, "86.00", "none", 2.0),  # no published spread: ours alone
        # printed as nothing: less than half of the last digit
        ([0.981], "98.0(0.0)", "standard deviation", 0.1 / 0.05),
        ([0.981], "98.00(0.00)", "standard deviation", 0.1 / 0.005),
        # neither
        ([0.9], "88.00", "none", None),
        ([0.9, 0.9], "88.00", "none", None),
    ],
)
def test_difference_is_in_standard_deviations_of_one_run_of_each(ours, printed, spread, expected):
    found, _ = difference(in_percent(ours), Published.parse(printed), spread, runs=3)
    assert found == (None if expected is None else pytest.approx(expected, rel=1e-9))


@in_turn("spread", ["standard deviation", "standard error"])
def test_welch_is_scipys(spread):
    for ours, printed, runs in ((THREE, "89.50(0.75)", 3), ([0.9, 0.91], "98.0(0.0)", 5)):
        published = Published.parse(printed)
        std = (published.spread or 0.05) * (math.sqrt(runs) if spread == "standard error" else 1)
        percent = 100 * np.array(ours)
        known = stats.ttest_ind_from_stats(
            percent.mean(), percent.std(ddof=1), len(ours), published.value, std, runs, equal_var=False
        )
        assert difference(in_percent(ours), published, spread, runs)[1] == pytest.approx(known.pvalue, rel=1e-9)
        for few, *lacking in ((1, published, spread, runs), (2, published, spread, 1)):
            assert difference(in_percent(ours[:few]), *lacking)[1] is None, "it needs two runs on both sides"
        assert difference(in_percent(ours), Published.parse("89.50"), "none", runs)[1] is None


def test_rank_correlation_is_scipys_also_with_ties_and_nothing_has_no_sign():
    rng = np.random.default_rng(0)
    for _ in range(5):
        ours, theirs = rng.integers(0, 6, size=(2, 9)).astype(float)
        pairs = list(zip(ours, theirs, strict=True))
        assert rank_correlation(pairs) == pytest.approx(stats.spearmanr(ours, theirs).statistic, abs=1e-12)
    written = [signed(x) for x in (-0.0499, 0.0, 0.0499, 0.051, -0.051, -10.0)]
    assert written == ["0.0", "0.0", "0.0", "+0.1", "-0.1", "-10.0"]


def test_curves_are_mean_least_and_largest_of_each_epoch(tmp_path):
    runs = [
        read_run(write_run(tmp_path / str(seed), Settings(epochs=7, seed=seed, validation=0.0), accuracy))
        for seed, accuracy in enumerate((0.8, 0.9, 0.7))
    ]
    values = 100 * np.array([[row.test_accuracy for row in run.epochs] for run in runs])
    points = learning_curve(runs, "test_accuracy")
    assert [point.x for point in points] == [1, 2, 3, 4, 5, 6, 7]
    expected = np.transpose([values.mean(0), values.min(0), values.max(0)])
    np.testing.assert_allclose([(point.mean, point.low, point.high) for point in points], expected)
    assert learning_curve(runs, "validation_accuracy") == ()
    metrics = runs[0].folder / "metrics.jsonl"
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    for row, value in zip(rows, (10**400, -1, 1e308, float("nan"), None), strict=False):
        row["test_accuracy"] = value
    metrics.write_text("".join(json.dumps(row) + "\n" for row in rows))
    damaged = learning_curve([read_run(runs[0].folder)], "test_accuracy")
    assert [point.x for point in damaged] == [6, 7], "what is no share has no place on a chart"
    # Long curves are thinned, but keep both ends.
    chosen = thinned(list(range(1, 401)), 80)
    assert (len(chosen), chosen[0], chosen[-1]) == (80, 1, 400)
    assert len(set(chosen)) == 80
    assert set(np.diff(chosen)) <= {5, 6}


def test_a_draw_of_the_noise_counts_once(tmp_path):
    """Two losses share the labels of a seed; two seeds do not."""
    runs = [
        read_run(write_run(tmp_path / f"{loss}{seed}", Settings(noise="sym:0.4", loss=loss, seed=seed), 0.5))
        for loss in ("ce", "gce")
        for seed in (0, 1)
    ]
    found = realised(runs)
    by_seed = [run.noise[1] for run in runs if run.settings.loss == "ce"]
    assert found.draws == 2
    np.testing.assert_array_equal(found.counts, by_seed[0] + by_seed[1])
    np.testing.assert_allclose(found.rates.sum(1), 1)
    assert found.rate == pytest.approx(0.4)
    true, label, rate = found.largest(1)[0]
    off = found.rates - np.diag(np.diag(found.rates))
    assert rate == off.max() == off[int(true), int(label)]


QS, DECAYS = (0.1, 0.5, 0.9), (0.001, 0.01, 0.1)


def accuracy(q, decay, noise):
    return round(0.5 + 0.3 * q - decay - (0.1 if noise == "asym:0.4" else 0), 4)


def write_grid(runs, left_out=(), scores=lambda q: "loss"):
    for number, (q, decay, noise) in enumerate(itertools.product(QS, DECAYS, ("sym:0.6", "asym:0.4"))):
        if (q, decay, noise) not in left_out:
            varied = {"loss": f"sgce:q={q}", "weight_decay": decay, "noise": noise, "scores": scores(q)}
            write_run(runs / str(number), Settings(**varied, validation=0.0, epochs=2), accuracy(q, decay, noise))
    for loss, share in (("ce", 0.4), ("mae", 0.3)):
        write_run(runs / loss, Settings(loss=loss, noise="sym:0.6", validation=0.0, epochs=2), share)
    report = compose(read_runs(runs))
    ((table,),) = (section.tables for section in report.sections)
    return report, table


def test_a_grid_becomes_a_map_for_each_noise_instead_of_rows_and_csv_has_all(tmp_path):
    report, table = write_grid(tmp_path)
    maps = {each.noise: each for each in sensitivity_maps(table)}
    assert set(maps) == {"sym:0.6", "asym:0.4"}
    for noise, each in maps.items():
        assert (each.rows, each.columns) == (QS, DECAYS)
        for q, decay in itertools.product(QS, DECAYS):
            assert each.cells[q, decay].last.mean == pytest.approx(100 * accuracy(q, decay, noise))
    assert [row.loss for row in table.without(rows_in_maps(table)).rows] == ["ce", "mae"]
    drawn = map_picture(sensitivity_maps(table)[0])
    assert drawn.count('fill-opacity="1.00"') == drawn.count('fill-opacity="0.00"') == 1, "the best is the darkest"
    markdown, page, lines = (FORMATS[name](report) for name in ("markdown", "html", "csv"))
    assert "### sgce: q by weight decay, sym:0.6 (lr 0.01)" in markdown
    assert "| 0.9 | **76.90** | 76.00 | 67.00 |" in markdown
    assert "| sgce:q=0.5 |" not in markdown
    assert "**40.00**" in markdown, "the best of the rows that are on no map"
    assert "Sensitivity to two settings" in page
    assert "q 0.5, weight decay 0.01: 64.00, n = 1" in page
    assert lines.count("sgce:q=0.5") == 12, "the loss and the title of six cells"


def test_a_noise_that_lacks_a_run_has_no_map_and_the_other_has(tmp_path):
    report, table = write_grid(tmp_path / "one", left_out=[(0.5, 0.01, "asym:0.4")])
    assert [each.noise for each in sensitivity_maps(table)] == ["sym:0.6"]
    assert not rows_in_maps(table), "the figures of the other noise are on no map"
    assert f"{100 * accuracy(0.9, 0.1, 'asym:0.4'):.2f}" in FORMATS["markdown"](report)
    _, neither = write_grid(tmp_path / "neither", left_out=[(0.5, 0.01, noise) for noise in ("sym:0.6", "asym:0.4")])
    assert not sensitivity_maps(neither)
    _, others = write_grid(tmp_path / "others", scores=lambda q: "l2" if q < 0.9 else "batch-norm")
    assert not sensitivity_maps(others), "runs with other scores are in no common map"
