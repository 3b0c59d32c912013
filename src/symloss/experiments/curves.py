"""The curves and maps of a report: a metric by epoch, and the accuracy by one setting or two.

A map is drawn where the runs of a table fill a grid of three by three values or more, all else being the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from symloss.experiments.layers import with_default_parameters
from symloss.experiments.report import ReportCell, ReportTable
from symloss.experiments.sections import OF_A_ROW, TITLES, loss_parts, noise_key
from symloss.training.reading import Run

METRICS = {
    "test_accuracy": "Test accuracy",
    "validation_accuracy": "Validation accuracy",
    "memorised": "Share of the wrong labels that is memorised",
}
UNSAID = {"scores": "loss", "penalty": 0.0}  # settings that are not written if they have these values
POINTS = 80  # the most points of a line. More would not be visible, and would make the page large.
FEWEST = 3  # values of each setting that a map must have


class RowSettings(NamedTuple):
    """The settings of a row that was run. ``fixed`` are those that never vary on a chart, as texts."""

    loss: str
    parameters: dict[str, float]
    others: dict[str, float]
    fixed: tuple[str, ...]

    def rest(self, *varied: str) -> str:
        """Return all settings but the varied ones, as a text."""
        numbers = (self.parameters | self.others).items()
        # With all digits that count: rows stand together if these texts are the same.
        return ", ".join((*(f"{name} {value:.12g}" for name, value in numbers if name not in varied), *self.fixed))


@dataclass(frozen=True)
class Point:
    """A point of a curve: the mean over runs, and the smallest and largest value."""

    x: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A line of a chart. Lines of one series have the same colour, and the same entry of the legend."""

    series: int
    title: str
    points: tuple[Point, ...]


def learning_curve(runs: Iterable[Run], metric: str) -> tuple[Point, ...]:
    """Return mean, smallest and largest value of a metric over runs by epoch, in percent; at most ``POINTS`` epochs."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for row in run.epochs:
            value = getattr(row, metric)
            if value is not None and 0 <= value <= 1:
                values.setdefault(row.epoch, []).append(100 * value)
    epochs = thinned(sorted(values), POINTS)
    return tuple(_point(epoch, values[epoch]) for epoch in epochs)


def _point(x: float, values: list[float]) -> Point:
    return Point(x, math.fsum(values) / len(values), min(values), max(values))


def thinned(values: list[Any], most: int) -> list[Any]:
    """Return at most this many of the values, evenly chosen, with the first and the last."""
    if len(values) <= most:
        return values
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def learning_curves(table: ReportTable, metric: str, lines: Iterable[int]) -> list[tuple[str, list[Curve]]]:
    """Return the curves of a metric for each column of a table: the noise, and a curve for each of these rows."""
    by_noise = []
    for column, head in enumerate(table.heads):
        points = {i: learning_curve(table.rows[i].cells[column].runs, metric) for i in lines}
        curves = [Curve(i, table.rows[i].title, each) for i, each in points.items() if each]
        by_noise += [(head.noise_text, curves)] if curves else []
    return by_noise


@dataclass(frozen=True)
class Sensitivity:
    """The accuracy by a parameter of a loss. All other settings, ``rest``, are the same."""

    loss: str
    parameter: str
    rest: str
    curves: tuple[Curve, ...]


def sensitivities(table: ReportTable) -> list[Sensitivity]:
    """Return the accuracy by each parameter that has two values or more, with a curve for each noise.

    The parameters with the most values come first.
    """
    accuracies: dict[tuple[str, str, str], dict[str, dict[float, list[float]]]] = {}
    for line, row in _settings(table).items():
        figures = [
            (head.noise_text, cell.last)
            for head, cell in zip(table.heads, table.rows[line].cells, strict=True)
            if cell.last
        ]
        for (parameter, value), (noise, figure) in itertools.product(row.parameters.items(), figures):
            curve = accuracies.setdefault((row.loss, parameter, row.rest(parameter)), {}).setdefault(noise, {})
            curve.setdefault(value, []).extend(figure.values)
    heads = sorted(table.heads, key=lambda head: noise_key(head.noise))
    noises = list(dict.fromkeys(head.noise_text for head in heads))
    charts = []
    for (name, parameter, rest), by_noise in accuracies.items():
        curves = tuple(
            Curve(noises.index(noise), noise, tuple(_point(x, by_noise[noise][x]) for x in sorted(by_noise[noise])))
            for noise in sorted(by_noise, key=noises.index)
            if len(by_noise[noise]) > 1
        )
        if curves:
            charts.append(Sensitivity(name, parameter, rest, curves))
    return sorted(charts, key=lambda chart: -max(len(curve.points) for curve in chart.curves))


@dataclass(frozen=True)
class SensitivityMap:
    """The cells of a table over two settings, for one loss under one noise: one down, one across, and the rest."""

    loss: str
    down: str
    across: str
    rest: str
    noise: str
    rows: tuple[float, ...]
    columns: tuple[float, ...]
    cells: dict[tuple[float, float], ReportCell]

    @property
    def title(self) -> str:
        """What the map is of, in words."""
        return f"{self.loss}: {self.down} by {self.across}, {self.noise}" + (f" ({self.rest})" if self.rest else "")

    @property
    def extent(self) -> tuple[float, float]:
        """The smallest and the largest mean of the map."""
        means = [cell.last.mean for cell in self.cells.values() if cell.last]
        return min(means), max(means)


def sensitivity_maps(table: ReportTable) -> list[SensitivityMap]:
    """Return every map that the rows of a table fill, in the order of losses and noises."""
    maps = []
    for about, lines in _grids(table).items():
        down, across = (tuple(sorted({values[axis] for values in lines})) for axis in (0, 1))
        for column, head in enumerate(table.heads):
            cells = {values: table.rows[line].cells[column] for values, line in lines.items()}
            if all(cell.last for cell in cells.values()):
                maps.append(SensitivityMap(*about, head.noise_text, down, across, cells))
    return maps


def rows_in_maps(table: ReportTable) -> set[int]:
    """Return the numbers of the rows whose every figure is on a map."""
    return {
        line
        for lines in _grids(table).values()
        for line in lines.values()
        if all(cell.last for number in lines.values() for cell in table.rows[number].cells)
    }


Grid = dict[tuple[float, float], int]
"""The row of a table for each pair of values of two settings."""


def _grids(table: ReportTable) -> dict[tuple[str, str, str, str], Grid]:
    """Return the grids in which no combination is missing, by the loss, its two settings, and the others in words."""
    groups: dict[tuple[str, str, str, str], Grid] = {}
    for line, row in _settings(table).items():
        for (down, low), (across, high) in itertools.combinations((row.parameters | row.others).items(), 2):
            groups.setdefault((row.loss, down, across, row.rest(down, across)), {})[low, high] = line
    return {about: lines for about, lines in groups.items() if _is_full(lines)}


def _is_full(lines: Grid) -> bool:
    down, across = ({values[axis] for values in lines} for axis in (0, 1))
    return min(len(down), len(across)) >= FEWEST and len(lines) == len(down) * len(across)


def _settings(table: ReportTable) -> dict[int, RowSettings]:
    """Return the settings of each row that was run, by its number.

    If two rows of a loss name different parameters, the defaults of the others are filled in.
    """
    parts = {row.loss: loss_parts(row.loss) for row in table.rows}
    found = {}
    for line, row in enumerate(table.rows):
        run = next((cell.runs[0] for cell in row.cells if cell.runs), None)
        if run is None:
            continue
        loss, values = parts[row.loss]
        if "preset" not in values and any(
            name == loss and other.keys() != values.keys() for name, other in parts.values()
        ):
            values = with_default_parameters(loss, values)
        numbers = {name: float(value) for name, value in values.items() if type(value) in (int, float)}
        settings = {name: getattr(run.settings, name) for name in OF_A_ROW[1:]}
        others = {TITLES[name]: settings.pop(name) for name in ("weight_decay", "lr")}
        texts = {name: value for name, value in values.items() if name not in numbers}
        texts |= {TITLES[name]: value for name, value in settings.items() if value != UNSAID[name]}
        found[line] = RowSettings(loss, numbers, others, tuple(f"{name} {value}" for name, value in texts.items()))
    return found
