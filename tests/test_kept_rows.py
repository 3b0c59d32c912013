"""The tables of pages that are written by hand from kept rows say what the rows say."""

from __future__ import annotations

import re
import statistics

from documentation import ROOT

from symloss.runs.kept_results import read_kept
from symloss.training import resolve

ROW = re.compile(r"^\| (\S+) \| (none|sym:0\.4) \| (.+) \|$", re.M)


def test_learning_rate_times_steps():
    rows = read_kept(ROOT / "docs" / "results" / "lr-times-steps.jsonl").values()
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
