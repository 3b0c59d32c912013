"""The tables of README and pages that are written by hand from kept rows say what the rows say."""

from __future__ import annotations

import functools
import json
import math
import re
import statistics
import subprocess
import sys

import pytest
from documentation import ROOT

from symloss.experiments import resolve
from symloss.experiments.cells import find_cell
from symloss.training.reading import read_kept
from symloss.training.results import Spread

RESULTS = ROOT / "docs" / "results"
PAGES = ("README.md", "docs/training.md", "docs/laboratory.md")
README, TRAINING, LABORATORY = ((ROOT / page).read_text() for page in PAGES)
SAID = " ".join(LABORATORY.split())
"""The page, without its line breaks."""
ROW = re.compile(r"^\| (\S+) \| (none|sym:0\.4) \| (.+) \|$", re.M)
CELL = r"\**([\d.]+)\(([\d.]+)\)\**"
"""A mean with its standard deviation, bold or not."""


@functools.cache
def kept(table):
    """The rows of a file, which is read once."""
    return list(read_kept(RESULTS / f"{table}.jsonl").values())


def of_loss(data, loss):
    rows = [row for row in kept("lr-times-steps") if row.settings.data == data]
    return [row for row in rows if row.settings.loss.partition(":")[0] == loss.lower()]


def test_learning_rate_times_steps():
    shown = ROW.findall(TRAINING[TRAINING.index("### Fewer steps") :])
    assert len(shown) == 12
    for loss, noise, cells in shown:
        usual = resolve("digits", loss.lower()).lr
        for factor, cell in zip((1, 2, 4), cells.split(" | "), strict=True):
            values = [
                100 * row.last.test_accuracy
                for row in of_loss("digits", loss)
                if (row.settings.noise.replace("clean", "none"), row.settings.lr) == (noise, usual * factor)
            ]
            assert_says(cell, values, digits=1)
    for loss in ("CE", "SGCE"):
        last = [row.last for row in sorted(of_loss("mnist", loss), key=lambda row: row.settings.lr)]
        accuracies = [100 * epoch.test_accuracy for epoch in last]
        learnt = [f"({100 * epoch.memorised:.0f} %)" for epoch in last]
        cells = re.search(rf"^\| {loss} \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", TRAINING, re.M).groups()
        assert [float(cell.split()[0].strip("*")) for cell in cells] == pytest.approx(accuracies, abs=0.0501)
        assert [cell.partition(" ")[2] for cell in cells] == learnt


def percent(table, cell, profile="full", what="test_accuracy"):
    """The figures of a cell, by seed."""
    settings = find_cell(cell, profile=profile).settings
    same = [row for row in kept(table) if (row.settings.loss, row.settings.noise) == (settings.loss, settings.noise)]
    same = [row for row in same if row.settings.clip == settings.clip]
    return [100 * getattr(row.last, what) for row in sorted(same, key=lambda row: row.settings.seed)]


def means(table, losses, cells, profile="full", what="test_accuracy"):
    """The means of the losses that were measured, the greatest first."""
    every = {loss: percent(table, f"{cells[0]}/{loss}/{cells[1]}", profile, what) for loss in losses}
    found = {loss: statistics.fmean(values) for loss, values in every.items() if values}
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


TABLE1 = ("ce", "mae", "gce", "sce", "nce+rce", "nce+agce", "anl-ce", "unhinged", "sgce", "alpha-mae")
NAMES = {"CE (clip 0.1)": "ce-clipped"}


def assert_says(text, seeds, digits=2):
    """A mean and a standard deviation of the page are those of three seeds."""
    assert len(seeds) == 3
    half = 0.501 * 10**-digits
    assert float(re.fullmatch(CELL, text)[1]) == pytest.approx(statistics.fmean(seeds), abs=half)
    assert float(re.fullmatch(CELL, text)[2]) == pytest.approx(statistics.stdev(seeds), abs=half)


def test_mnist_against_published_figures_and_with_the_losses_of_the_paper():
    rows = re.findall(r"^\| ([^|]+), (clean|sym:0\.\d) \| (\S+) \| (\S+) \| (\S+) \|", LABORATORY, re.M)
    report = (RESULTS / "mnist-lenet5.md").read_text()
    assert len(rows) == 5
    for name, noise, text, published, p in rows:
        assert_says(text, percent("mnist-lenet5", f"mnist-lenet5/mnist/{NAMES.get(name, name.lower())}/{noise}"))
        assert re.search(rf"{re.escape(text)}\u2020?<br>{published}\([\d.]+\)<br>[-+\d.]+ sd, p {p} ", report)
    # With the losses of the paper.
    table = LABORATORY[LABORATORY.index("| loss | clean | sym:0.2 |") :].splitlines()[2:6]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [name for name, *_ in rows] == ["CE", "unhinged", "SGCE", "alpha-MAE"]
    for name, *cells in rows:
        for noise, text in zip(("clean", "sym:0.2", "sym:0.4", "sym:0.6"), cells, strict=True):
            assert_says(text, percent("mnist-lenet5", f"mnist-lenet5/mnist/{name.lower()}/{noise}"))


def test_no_loss_memorises_on_mnist():
    losses = ("ce", "ce-clipped", "mae", "gce", "phuber-ce", "phuber-gce", "unhinged", "sgce", "alpha-mae")
    learnt = means("mnist-lenet5", losses, ("mnist-lenet5/mnist", "sym:0.6"), what="memorised")
    (most, *_, least), values = learnt, list(learnt.values())
    assert (least, most) == ("ce", "unhinged")
    assert f"learnt {values[-1]:.1f} % (cross-entropy) to {values[0]:.1f} % (unhinged) of the wrong labels" in SAID


def test_the_scale_model():
    """SGCE and ANL-CE lead; four losses behind have learnt as many wrong labels as chance would."""
    cells, profile = ("table1/cifar10", "sym:0.6"), "scale16"
    order = list(means(profile, TABLE1, cells, profile))
    learnt = means(profile, TABLE1, cells, profile, "memorised")
    assert (order[:2], order[-2:]) == (["anl-ce", "sgce"], ["unhinged", "sce"])
    spread = {
        loss: Spread.of(percent(profile, f"table1/cifar10/{loss}/sym:0.6", profile)) for loss in (*order[:2], "ce")
    }
    assert [spread[loss].n for loss in order[:2]] == [3, 3]
    assert f"SGCE has {spread['sgce'].rounded(1)} and ANL-CE {spread['anl-ce'].rounded(1)}" in SAID
    assert f"above cross-entropy ({spread['ce'].rounded(1)})" in SAID
    behind = [learnt[loss] for loss in ("sce", "unhinged", "nce+agce", "alpha-mae")]
    assert 8 < min(behind) < max(behind) < 10
    assert round(learnt["ce"]) == 26
    accuracy = means(profile, TABLE1, ("table1/cifar10", "asym:0.4"), profile)
    order = list(accuracy)
    assert (order[0], order[-1], len(order)) == ("sgce", "nce+agce", 8)
    assert f"NCE+AGCE leads, which is last here ({accuracy['nce+agce']:.1f})" in SAID
    assert f"SGCE leads with {accuracy['sgce']:.1f}, and cross-entropy has {accuracy['ce']:.1f}" in SAID


def test_the_ranks_of_the_papers_losses_on_digits():
    *symmetric, asymmetric = (
        means("digits", TABLE1, ("digits/digits", noise)) for noise in ("sym:0.4", "sym:0.6", "sym:0.8", "asym:0.4")
    )
    orders = [list(each) for each in symmetric]
    assert [1 + min(map(order.index, ("unhinged", "sgce", "alpha-mae"))) for order in orders] == [4, 5, 6]
    assert "the best of the paper's three losses is fourth, fifth and sixth of ten at 40, 60 and 80 %" in SAID
    assert [order[0] for order in orders] == ["nce+agce", "mae", "mae"]
    assert list(asymmetric)[:2] == ["sce", "sgce"]
    ends = min(asymmetric.values()), max(asymmetric.values())
    assert f"between {ends[0]:.0f} and {math.ceil(ends[1])} %" in (ROOT / "docs" / "what-now.md").read_text()


# README

ROWS = [json.loads(path.read_text()) for path in sorted((RESULTS / "fit").rglob("*.json"))]
CELLS = {  # in the order of the README's table: data, noise, the best rival that is not cleanlab
    ("digits", "clean"): "svc",
    ("digits", "sym:0.6"): "svc",
    ("digits", "asym:0.4"): "svc",
    ("table", "pair:0.3"): "forest",
    ("mnist", "asym:0.4"): "gce",
    ("cifar10n", "human:worst"): "gce",
}


def values(cell, method, column):
    return [row[column] for row in ROWS if (row["data"], row["noise"], row["method"]) == (*cell, method)]


def accuracy(cell, method):
    found = [100 * value for value in values(cell, method, "accuracy")]
    return f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}"


def precision(cell, method):
    return f"{statistics.mean(values(cell, method, 'average_precision')):.3f}".lstrip("0")


def test_the_readme_is_short_and_its_table_is_what_was_measured():
    assert len(README.splitlines()) < 120
    lines = README[README.index("| data, rows | noise |") :].splitlines()[2 : 2 + len(CELLS)]
    for line, (cell, rival) in zip(lines, CELLS.items(), strict=True):
        shown = [text.strip().replace("**", "") for text in line.strip("|").split("|")][2:]
        assert shown[:2] == [accuracy(cell, "symloss"), accuracy(cell, "cleanlab")], line
        assert shown[2].startswith(accuracy(cell, rival)), line
        others = {row["method"] for row in ROWS if row["data"] == cell[0]} - {"symloss", "cleanlab"}
        assert max(others, key=lambda method: statistics.mean(values(cell, method, "accuracy"))) == rival
        if cell[1] != "clean":
            assert shown[3:] == [precision(cell, "symloss"), precision(cell, "cleanlab")], line


def test_the_picture_of_the_readme_is_current(tmp_path):
    pytest.importorskip("matplotlib")
    script = ROOT / "docs" / "figures" / "readme_picture.py"
    subprocess.run([sys.executable, script, tmp_path], check=True, capture_output=True)
    (made,) = tmp_path.iterdir()
    assert f"docs/images/{made.name}" in README
    assert made.read_text() == (ROOT / "docs" / "images" / made.name).read_text(), f"run {script.name} again"
