"""Reports: the runs that they read, the figures that they compute, and the command that writes them."""

import itertools
import json
import math
import shutil
import sys

import numpy as np
import pytest
from in_turn import in_turn
from refusals import refused
from run_helpers import own, result, write_run
from scipy import stats

from symloss.cli import main
from symloss.experiments import FORMATS, compose, read_runs, resolve
from symloss.experiments.charts import map_picture
from symloss.experiments.curves import learning_curve, rows_in_maps, sensitivity_maps, thinned
from symloss.experiments.difference import difference, rank_correlation, signed
from symloss.experiments.page import realised
from symloss.experiments.tables import Published
from symloss.training import train
from symloss.training.reading import read_run
from symloss.training.results import in_percent
from symloss.training.settings import Settings


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
    (tmp_path / "empty").mkdir()
    for arguments, *ingredients in (
        ([runs, "--format", "pdf"], "--format", "'pdf'", "markdown"),
        ([runs, "--out", "a.txt"], "--out", "a.txt", ".html"),
        ([runs, "--out", "a.html", "--format", "csv"], "--out", "a.html", "csv"),
        ([runs, "--table", "tabel1"], "tabel1", "did you mean 'table1'"),
        ([runs, "--table", "table1"], "table1", "none"),
        ([runs, "--out", "file/a.html"], "cannot be written"),
        (["nowhere"], "RUNS must be a folder of runs"),
        (["empty"], "RUNS must hold a run; got 'empty'"),
    ):
        code, printed, aside = command(*arguments)
        assert (code, printed) == (2, "")
        assert aside.startswith("symloss: ")
        assert aside.count("\n") == 1
        assert all(ingredient in aside for ingredient in ingredients), aside
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "file", "runs"]
    assert (tmp_path / "file").read_text() == "mine"


def test_names_that_are_no_unicode_do_not_stop_it(command, tmp_path):
    write_run(tmp_path / "run", own(data="half \ud800 a character"), 0.5, classes=[*"012345678", "\udfff"])
    assert command(tmp_path, "--out", tmp_path / "out")[0] == 0
    assert "half ? a character" in (tmp_path / "out" / "report.html").read_text()
    assert "half ? a character" in command(tmp_path)[1]


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
