"""Maps of the accuracy over two settings: drawn where runs fill a grid, and only there."""

from __future__ import annotations

import itertools

import pytest
from report_helpers import write_run

from symloss.experiments import FORMATS, compose, read_runs
from symloss.experiments.charts import map_picture
from symloss.experiments.curves import rows_in_maps, sensitivity_maps
from symloss.training.settings import Settings

QS, DECAYS = (0.1, 0.5, 0.9), (0.001, 0.01, 0.1)


def accuracy(q, decay, noise):
    return round(0.5 + 0.3 * q - decay - (0.1 if noise == "asym:0.4" else 0), 4)


def write_grid(runs, left_out=(), noises=("sym:0.6", "asym:0.4")):
    for number, (q, decay, noise) in enumerate(itertools.product(QS, DECAYS, noises)):
        if (q, decay, noise) not in left_out:
            settings = Settings(loss=f"sgce:q={q}", weight_decay=decay, noise=noise, validation=0.0, epochs=2)
            write_run(runs / str(number), settings, accuracy(q, decay, noise))
    for loss, share in (("ce", 0.4), ("mae", 0.3)):
        write_run(runs / loss, Settings(loss=loss, noise="sym:0.6", validation=0.0, epochs=2), share)


def the_table(runs):
    (section,) = compose(read_runs(runs)).sections
    (table,) = section.tables
    return table


def test_a_grid_becomes_a_map_for_each_noise(tmp_path):
    write_grid(tmp_path)
    table = the_table(tmp_path)
    maps = {each.noise: each for each in sensitivity_maps(table)}
    assert set(maps) == {"sym:0.6", "asym:0.4"}
    for noise, each in maps.items():
        assert (each.loss, each.down, each.across, each.rest) == ("sgce", "q", "weight decay", "lr 0.01")
        assert (each.rows, each.columns) == (QS, DECAYS)
        for q, decay in itertools.product(QS, DECAYS):
            assert each.cells[q, decay].last.mean == pytest.approx(100 * accuracy(q, decay, noise))
    assert [row.loss for row in table.without(rows_in_maps(table)).rows] == ["ce", "mae"]
    drawn = map_picture(sensitivity_maps(table)[0])
    assert drawn.count('fill-opacity="1.00"') == drawn.count('fill-opacity="0.00"') == 1, "the best is the darkest"


def test_a_noise_that_lacks_a_run_has_no_map_and_the_other_has(tmp_path):
    write_grid(tmp_path / "neither", left_out=[(0.5, 0.01, noise) for noise in ("sym:0.6", "asym:0.4")])
    assert not sensitivity_maps(the_table(tmp_path / "neither"))
    write_grid(tmp_path / "one", left_out=[(0.5, 0.01, "asym:0.4")])
    table = the_table(tmp_path / "one")
    assert [each.noise for each in sensitivity_maps(table)] == ["sym:0.6"]
    assert not rows_in_maps(table), "the figures of the other noise are on no map"
    assert f"{100 * accuracy(0.9, 0.1, 'asym:0.4'):.2f}" in FORMATS["markdown"](compose(read_runs(tmp_path / "one")))


def test_runs_with_other_scores_are_in_no_common_map(tmp_path):
    for number, (q, decay) in enumerate(itertools.product(QS, DECAYS)):
        scores = "l2" if q < 0.9 else "batch-norm"
        settings = Settings(loss=f"sgce:q={q}", weight_decay=decay, scores=scores, validation=0.0, epochs=2)
        write_run(tmp_path / str(number), settings, 0.5)
    assert not sensitivity_maps(the_table(tmp_path))


def test_page_and_markdown_show_maps_instead_of_rows_and_csv_has_all(tmp_path):
    write_grid(tmp_path)
    report = compose(read_runs(tmp_path))
    markdown, page, table = (FORMATS[name](report) for name in ("markdown", "html", "csv"))
    assert "### sgce: q by weight decay, sym:0.6 (lr 0.01)" in markdown
    assert "| 0.9 | **76.90** | 76.00 | 67.00 |" in markdown
    assert "| sgce:q=0.5 |" not in markdown
    assert "**40.00**" in markdown, "the best of the rows that are on no map"
    assert "Sensitivity to two settings" in page
    assert "q 0.5, weight decay 0.01: 64.00, n = 1" in page
    assert table.count("sgce:q=0.5") == 12, "the loss and the title of six cells"
