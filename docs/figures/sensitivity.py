"""Heat maps of the accuracy of SGCE and alpha-MAE over two settings, from kept results of the table "sensitivity"."""

from __future__ import annotations

from pathlib import Path

import matplotlib
from drawing import canvas, save
from matplotlib.axes import Axes

from symloss.experiments import compose, read_runs
from symloss.experiments.curves import SensitivityMap, sensitivity_maps

KEPT = Path(__file__).parents[1] / "results" / "sensitivity.jsonl"


def draw(folder: Path) -> None:
    """Write a figure for each loss: rows are noises, columns are weight decay and temperature."""
    (table,) = compose(read_runs(KEPT), ["sensitivity"]).sections[0].tables
    maps = sensitivity_maps(table)
    for loss in dict.fromkeys(each.loss for each in maps):
        shown = [each for each in maps if each.loss == loss]
        across = list(dict.fromkeys(each.across for each in shown))
        noises = list(dict.fromkeys(each.noise for each in shown))
        figure = canvas(9, 6.4)
        axes = figure.subplots(len(noises), len(across), squeeze=False)
        for each in shown:
            _map(axes[noises.index(each.noise)][across.index(each.across)], each)
        runs = min(len(cell.runs) for each in shown for cell in each.cells.values())
        figure.suptitle(f"{loss}: accuracy in % on clean digits, mean of {runs} seeds")
        save(figure, folder / f"sensitivity-{loss}.svg")


def _map(axes: Axes, shown: SensitivityMap) -> None:
    means = [[shown.cells[row, column].last.mean for column in shown.columns] for row in shown.rows]
    low, high = shown.extent
    axes.imshow(means, cmap=matplotlib.colormaps["cividis"], aspect="auto", vmin=low, vmax=high)
    for i, line in enumerate(means):
        for j, mean in enumerate(line):
            colour = "black" if mean > low + 0.6 * (high - low) else "white"
            axes.text(j, i, f"{mean:.1f}", ha="center", va="center", color=colour)
    axes.set_xticks(range(len(shown.columns)), [f"{value:g}" for value in shown.columns])
    axes.set_yticks(range(len(shown.rows)), [f"{value:g}" for value in shown.rows])
    axes.set(xlabel=shown.across, ylabel=shown.down, title=f"{shown.noise}, {shown.rest}")
    axes.grid(visible=False)
