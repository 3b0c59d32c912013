"""The tables of pages that are written by hand from kept rows say what the rows say."""

from __future__ import annotations

import re
import statistics

import pytest
from documentation import ROOT

from symloss.recipes.cells import find_cell
from symloss.runs.kept_results import read_kept
from symloss.training import resolve

RESULTS = ROOT / "docs" / "results"
ROW = re.compile(r"^\| (\S+) \| (none|sym:0\.4) \| (.+) \|$", re.M)


def test_learning_rate_times_steps():
    rows = read_kept(RESULTS / "lr-times-steps.jsonl").values()
    page = (ROOT / "docs" / "training.md").read_text()
    shown = ROW.findall(page[page.index("### Fewer steps") :])
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
            assert len(values) == 3
            mean, spread = re.fullmatch(r"\**([\d.]+)\(([\d.]+)\)\**", cell).groups()
            assert abs(float(mean) - statistics.fmean(values)) < 0.0501
            assert abs(float(spread) - statistics.stdev(values)) < 0.0501


def percent(table, cell, profile="full", what="test_accuracy"):
    """The figures of a cell, by seed."""
    settings = find_cell(cell, profile=profile).settings
    rows = read_kept(RESULTS / f"{table}.jsonl").values()
    same = [row for row in rows if (row.settings.loss, row.settings.noise) == (settings.loss, settings.noise)]
    same = [row for row in same if row.settings.clip == settings.clip]
    return [100 * getattr(row.last, what) for row in sorted(same, key=lambda row: row.settings.seed)]


NAMES = {"CE (clip 0.1)": "ce-clipped"}
CELL = r"\**([\d.]+)\(([\d.]+)\)\**"
"""A mean with its standard deviation, bold or not."""


def assert_says(text, cell):
    """A mean and a standard deviation of the page are those of three seeds."""
    mean, deviation = map(float, re.fullmatch(CELL, text).groups())
    seeds = percent("mnist-lenet5", f"mnist-lenet5/mnist/{cell}")
    assert len(seeds) == 3
    assert mean == pytest.approx(statistics.fmean(seeds), abs=0.00501)
    assert deviation == pytest.approx(statistics.stdev(seeds), abs=0.00501)


def test_mnist_against_published_figures():
    page = (ROOT / "docs" / "laboratory.md").read_text()
    rows = re.findall(r"^\| ([^|]+), (clean|sym:0\.\d) \| (\S+) \|", page, re.M)
    assert len(rows) == 5
    for name, noise, text in rows:
        assert_says(text, f"{NAMES.get(name, name.lower())}/{noise}")


def test_mnist_with_the_losses_of_the_paper():
    page = (ROOT / "docs" / "laboratory.md").read_text()
    table = page[page.index("| loss | clean | sym:0.2 |") :].splitlines()[2:6]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert [name for name, *_ in rows] == ["CE", "unhinged", "SGCE", "alpha-MAE"]
    for name, *cells in rows:
        for noise, text in zip(("clean", "sym:0.2", "sym:0.4", "sym:0.6"), cells, strict=True):
            assert_says(text, f"{name.lower()}/{noise}")
    for loss, said in (("ce", 0.3), ("sgce", 1.2)):
        learnt = percent("mnist-lenet5", f"mnist-lenet5/mnist/{loss}/sym:0.6", what="memorised")
        assert statistics.fmean(learnt) == pytest.approx(said, abs=0.0501)
        assert f"{said} %" in page


def test_the_scale_model():
    """SGCE and ANL-CE lead; five losses have learnt as many wrong labels as chance would."""
    page = " ".join((ROOT / "docs" / "laboratory.md").read_text().split())
    accuracy, learnt = (
        {
            loss: percent("scale16", f"table1/cifar10/{loss}/sym:0.6", "scale16", what)[0]
            for loss in ["ce", "mae", "gce", "sce", "nce+rce", "nce+agce", "anl-ce", "unhinged", "sgce", "alpha-mae"]
        }
        for what in ("test_accuracy", "memorised")
    )
    assert sorted(accuracy, key=accuracy.__getitem__)[-2:] == ["anl-ce", "sgce"]
    assert f"SGCE ({accuracy['sgce']:.1f}) and ANL-CE ({accuracy['anl-ce']:.1f}) lead" in page
    assert sorted(accuracy, key=accuracy.__getitem__)[:2] == ["sce", "unhinged"]
    behind = [learnt[loss] for loss in ("sce", "unhinged", "nce+agce", "alpha-mae", "nce+rce")]
    assert 8 < min(behind) < max(behind) < 10
    assert round(learnt["ce"]) == 26


def test_the_ranks_of_the_papers_losses_on_digits():
    """The best of unhinged, SGCE and alpha-MAE is fourth, fifth and sixth of ten; SGCE is second at asym:0.4."""
    losses = ["ce", "mae", "gce", "sce", "nce+rce", "nce+agce", "anl-ce", "unhinged", "sgce", "alpha-mae"]

    def order(noise):
        means = {loss: statistics.fmean(percent("digits", f"digits/digits/{loss}/{noise}")) for loss in losses}
        return sorted(means, key=means.__getitem__, reverse=True)

    ours = {"unhinged", "sgce", "alpha-mae"}
    ranks = [1 + min(order(noise).index(loss) for loss in ours) for noise in ("sym:0.4", "sym:0.6", "sym:0.8")]
    assert ranks == [4, 5, 6]
    assert [order(noise)[0] for noise in ("sym:0.4", "sym:0.6", "sym:0.8")] == ["nce+agce", "mae", "mae"]
    assert order("asym:0.4")[:2] == ["sce", "sgce"]
