"""The tables of pages that are written by hand from kept rows say what the rows say."""

from __future__ import annotations

import functools
import math
import re
import statistics

import pytest
from documentation import ROOT

from symloss.experiments import resolve
from symloss.experiments.cells import find_cell
from symloss.training.reading import read_kept
from symloss.training.results import Spread

RESULTS = ROOT / "docs" / "results"
TRAINING, LABORATORY = ((ROOT / "docs" / page).read_text() for page in ("training.md", "laboratory.md"))
SAID = " ".join(LABORATORY.split())
"""The page, without its line breaks."""
ROW = re.compile(r"^\| (\S+) \| (none|sym:0\.4) \| (.+) \|$", re.M)
CELL = r"\**([\d.]+)\(([\d.]+)\)\**"
"""A mean with its standard deviation, bold or not."""


@functools.cache
def kept(table):
    """The rows of a file, which is read once."""
    return list(read_kept(RESULTS / f"{table}.jsonl").values())


def test_learning_rate_times_steps():
    rows = [row for row in kept("lr-times-steps") if row.settings.data == "digits"]
    shown = ROW.findall(TRAINING[TRAINING.index("### Fewer steps") :])
    assert len(shown) == 12
    for loss, noise, cells in shown:
        usual = resolve("digits", loss.lower()).lr
        for factor, cell in zip((1, 2, 4), cells.split(" | "), strict=True):
            values = [
                100 * row.last.test_accuracy
                for row in rows
                if row.settings.loss.partition(":")[0] == loss.lower()
                and row.settings.noise == {"none": "clean"}.get(noise, noise)
                and row.settings.lr == usual * factor
            ]
            assert_says(cell, values, digits=1)


def test_learning_rate_times_steps_on_mnist():
    rows = [row for row in kept("lr-times-steps") if row.settings.data == "mnist"]
    for loss in ("CE", "SGCE"):
        of_loss = [row for row in rows if row.settings.loss.partition(":")[0] == loss.lower()]
        last = [row.last for row in sorted(of_loss, key=lambda row: row.settings.lr)]
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


TABLE1 = ("ce", "mae", "gce", "sce", "nce+rce", "nce+agce", "anl-ce", "unhinged", "sgce", "alpha-mae")
NAMES = {"CE (clip 0.1)": "ce-clipped"}


def assert_says(text, seeds, digits=2):
    """A mean and a standard deviation of the page are those of three seeds."""
    assert len(seeds) == 3
    half = 0.501 * 10**-digits
    assert float(re.fullmatch(CELL, text)[1]) == pytest.approx(statistics.fmean(seeds), abs=half)
    assert float(re.fullmatch(CELL, text)[2]) == pytest.approx(statistics.stdev(seeds), abs=half)


def test_mnist_against_published_figures():
    rows = re.findall(r"^\| ([^|]+), (clean|sym:0\.\d) \| (\S+) \| (\S+) \| (\S+) \|", LABORATORY, re.M)
    report = (RESULTS / "mnist-lenet5.md").read_text()
    assert len(rows) == 5
    for name, noise, text, published, p in rows:
        assert_says(text, percent("mnist-lenet5", f"mnist-lenet5/mnist/{NAMES.get(name, name.lower())}/{noise}"))
        assert re.search(rf"{re.escape(text)}<br>{published}\([\d.]+\)<br>[-+\d.]+ sd, p {p} ", report)


def test_mnist_with_the_losses_of_the_paper():
    table = LABORATORY[LABORATORY.index("| loss | clean | sym:0.2 |") :].splitlines()[2:6]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [name for name, *_ in rows] == ["CE", "unhinged", "SGCE", "alpha-MAE"]
    for name, *cells in rows:
        for noise, text in zip(("clean", "sym:0.2", "sym:0.4", "sym:0.6"), cells, strict=True):
            assert_says(text, percent("mnist-lenet5", f"mnist-lenet5/mnist/{name.lower()}/{noise}"))


def test_no_loss_memorises_on_mnist():
    losses = ["ce", "ce-clipped", "mae", "gce", "phuber-ce", "phuber-gce", "unhinged", "sgce", "alpha-mae"]
    learnt = {
        loss: statistics.fmean(percent("mnist-lenet5", f"mnist-lenet5/mnist/{loss}/sym:0.6", what="memorised"))
        for loss in losses
    }
    ends = [min(learnt, key=learnt.__getitem__), max(learnt, key=learnt.__getitem__)]
    assert ends == ["ce", "unhinged"]
    said = f"learnt {learnt['ce']:.1f} % (cross-entropy) to {learnt['unhinged']:.1f} % (unhinged) of the wrong labels"
    assert said in SAID


def scale_model(loss, noise, what="test_accuracy"):
    return percent("scale16", f"table1/cifar10/{loss}/{noise}", "scale16", what)


def test_the_scale_model():
    """SGCE and ANL-CE lead; four losses behind have learnt as many wrong labels as chance would."""
    accuracy = {loss: Spread.of(scale_model(loss, "sym:0.6")) for loss in TABLE1}
    learnt = {loss: statistics.fmean(scale_model(loss, "sym:0.6", "memorised")) for loss in TABLE1}
    order = sorted(TABLE1, key=lambda loss: accuracy[loss].mean)
    assert order[-2:] == ["sgce", "anl-ce"]
    assert [accuracy[loss].n for loss in order[-2:]] == [3, 3]
    assert f"SGCE has {accuracy['sgce'].rounded(1)} and ANL-CE {accuracy['anl-ce'].rounded(1)}" in SAID
    assert f"above cross-entropy ({accuracy['ce'].rounded(1)})" in SAID
    assert order[:2] == ["sce", "unhinged"]
    behind = [learnt[loss] for loss in ("sce", "unhinged", "nce+agce", "alpha-mae")]
    assert 8 < min(behind) < max(behind) < 10
    assert round(learnt["ce"]) == 26


def test_the_scale_model_with_asymmetric_noise():
    accuracy = {loss: values[0] for loss in TABLE1 if (values := scale_model(loss, "asym:0.4"))}
    order = sorted(accuracy, key=accuracy.__getitem__, reverse=True)
    assert (order[0], order[-1], len(order)) == ("sgce", "nce+agce", 8)
    assert f"NCE+AGCE leads, which is last here ({accuracy['nce+agce']:.1f})" in SAID
    assert f"SGCE leads with {accuracy['sgce']:.1f}, and cross-entropy has {accuracy['ce']:.1f}" in SAID


def test_the_ranks_of_the_papers_losses_on_digits():
    means = {
        noise: {loss: statistics.fmean(percent("digits", f"digits/digits/{loss}/{noise}")) for loss in TABLE1}
        for noise in ("sym:0.4", "sym:0.6", "sym:0.8", "asym:0.4")
    }
    order = {noise: sorted(of_noise, key=of_noise.__getitem__, reverse=True) for noise, of_noise in means.items()}
    ours = ("unhinged", "sgce", "alpha-mae")
    ranks = [1 + min(order[noise].index(loss) for loss in ours) for noise in ("sym:0.4", "sym:0.6", "sym:0.8")]
    assert ranks == [4, 5, 6]
    assert "the best of the paper's three losses is fourth, fifth and sixth of ten at 40, 60 and 80 %" in SAID
    assert [order[noise][0] for noise in ("sym:0.4", "sym:0.6", "sym:0.8")] == ["nce+agce", "mae", "mae"]
    assert order["asym:0.4"][:2] == ["sce", "sgce"]
    ends = min(means["asym:0.4"].values()), max(means["asym:0.4"].values())
    assert f"between {ends[0]:.0f} and {math.ceil(ends[1])} %" in (ROOT / "docs" / "what-now.md").read_text()
