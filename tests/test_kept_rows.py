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


@pytest.mark.parametrize(
    ("cell", "said"),
    [
        ("gce/sym:0.2", "GCE at 20 % (98.63"),
        ("gce/sym:0.4", "at 40 % (98.34"),
        ("phuber-gce/clean", "PHuber-GCE on clean labels (98.82"),
        ("phuber-gce/sym:0.2", "at 20 % (98.64"),
    ],
)
def test_mean_of_three_seeds_on_mnist(cell, said):
    seeds = percent("mnist-lenet5", f"mnist-lenet5/mnist/{cell}")
    assert len(seeds) == 3
    assert said in " ".join((ROOT / "docs" / "laboratory.md").read_text().split())
    assert statistics.fmean(seeds) == pytest.approx(float(said.rpartition("(")[2]), abs=0.00501)


def test_the_seeds_of_clipped_cross_entropy():
    seeds = percent("mnist-lenet5", "mnist-lenet5/mnist/ce-clipped/sym:0.6")
    assert (
        f"({', '.join(f'{value:.1f}' for value in seeds)}; published 94.7)"
        in (ROOT / "docs" / "laboratory.md").read_text()
    )


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
