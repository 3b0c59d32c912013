"""The curves and maps of a report: a metric by epoch, and the accuracy by one setting or two.

A map is drawn where the runs of a table fill a grid of three by three values or more, all else being the same.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

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

Values = tuple[tuple[str, float], ...]  # values of settings by name: parameters of the loss first
Kind = tuple[str, str, float]
"""The name of a loss, how its scores are changed, and the penalty: the same in all cells of a map."""


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
    parameters = parameters_of(table)
    accuracies: dict[tuple[str, str, str], dict[str, dict[float, list[float]]]] = {}
    for row, head, cell in table.cells():
        if cell.last is None:
            continue
        settings = cell.runs[0].settings
        name, values = parameters[row.loss]
        others = {key: getattr(settings, key) for key in OF_A_ROW[1:] if getattr(settings, key) != UNSAID.get(key)}
        for parameter, value in values.items():
            if type(value) not in (int, float):
                continue
            fixed = {key: other for key, other in values.items() if key != parameter} | others
            chart = name, parameter, ", ".join(f"{key.replace('_', ' ')} {other}" for key, other in fixed.items())
            curve = accuracies.setdefault(chart, {}).setdefault(head.noise_text, {})
            curve.setdefault(float(value), []).extend(cell.last.values)
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


def parameters_of(table: ReportTable) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return the name and the parameters of every loss of a table.

    If two rows of a loss name different parameters, the defaults of the others are filled in.
    """
    parts = {row.loss: loss_parts(row.loss) for row in table.rows}
    named: dict[str, set[frozenset[str]]] = {}
    for name, values in parts.values():
        named.setdefault(name, set()).add(frozenset(values))
    for loss, (name, values) in parts.items():
        if len(named[name]) > 1 and "preset" not in values:
            parts[loss] = name, with_default_parameters(name, values)
    return parts


@dataclass(frozen=True)
class SensitivityMap:
    """The cells of a table over two settings, for one loss under one noise: one down, one across, and the rest."""

    loss: str
    noise: str
    down: str
    across: str
    rest: str
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
    for loss, pair, rest, lines in _grids(table):
        down, across = (tuple(sorted({values[axis] for values in lines})) for axis in (0, 1))
        others = ", ".join(f"{name} {value:g}" for name, value in rest)
        for column, head in enumerate(table.heads):
            cells = {values: table.rows[line].cells[column] for values, line in lines.items()}
            if all(cell.last for cell in cells.values()):
                maps.append(SensitivityMap(loss, head.noise_text, *pair, others, down, across, cells))
    return maps


def rows_in_maps(table: ReportTable) -> set[int]:
    """Return the numbers of the rows whose every figure is on a map."""
    columns = range(len(table.heads))
    return {
        line
        for *_, lines in _grids(table)
        for line in lines.values()
        if all(table.rows[number].cells[column].last for number in lines.values() for column in columns)
    }


Grid = tuple[str, tuple[str, str], Values, dict[tuple[float, float], int]]
"""A loss, its two settings, the others, and the row of the table for each pair of values."""


def _grids(table: ReportTable) -> Iterator[Grid]:
    points = _points(table)
    for kind in dict.fromkeys(kind for kind, _ in points.values()):
        of_loss = {line: point for line, (other, point) in points.items() if other == kind}
        names = list(dict.fromkeys(name for point in of_loss.values() for name in point))
        for pair in itertools.combinations(names, 2):
            yield from _full_grids(kind[0], pair, of_loss)


def _full_grids(loss: str, pair: tuple[str, str], points: dict[int, dict[str, float]]) -> Iterator[Grid]:
    """Yield the grids over a pair of settings in which no combination is missing."""
    groups: dict[Values, dict[tuple[float, float], int]] = {}
    for line, point in points.items():
        if all(name in point for name in pair):
            rest = tuple((name, value) for name, value in point.items() if name not in pair)
            groups.setdefault(rest, {})[point[pair[0]], point[pair[1]]] = line
    for rest, lines in groups.items():
        down, across = ({values[axis] for values in lines} for axis in (0, 1))
        if min(len(down), len(across)) >= FEWEST and len(lines) == len(down) * len(across):
            yield loss, pair, rest, lines


def _points(table: ReportTable) -> dict[int, tuple[Kind, dict[str, float]]]:
    """Return the kind of each row that was run, and its numbers: parameters of the loss first, then other settings."""
    parameters = parameters_of(table)
    points = {}
    for number, row in enumerate(table.rows):
        run = next((cell.runs[0] for cell in row.cells if cell.runs), None)
        if run is None:
            continue
        loss, values = parameters[row.loss]
        numbers = {name: float(value) for name, value in values.items() if type(value) in (int, float)}
        numbers |= {TITLES[name]: getattr(run.settings, name) for name in ("weight_decay", "lr")}
        points[number] = (loss, run.settings.scores, run.settings.penalty), numbers
    return points
