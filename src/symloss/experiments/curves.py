"""The curves of a report: a metric by epoch, and the accuracy by a parameter of the loss. Each has a band."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from symloss.experiments.layers import with_default_parameters
from symloss.experiments.own_runs import OF_A_ROW
from symloss.experiments.report import ReportTable
from symloss.experiments.sorting import loss_parts, noise_key
from symloss.training.reading import Run

METRICS = {
    "test_accuracy": "Test accuracy",
    "validation_accuracy": "Validation accuracy",
    "memorised": "Share of the wrong labels that is memorised",
}
UNSAID = {"scores": "loss", "penalty": 0.0}
"""Settings that are not written if they have these values."""
POINTS = 80
"""The most points of a line. More would not be visible, and would make the page large."""


@dataclass(frozen=True)
class Point:
    """A point of a curve: the mean over runs, and the smallest and largest value."""

    x: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """A line of a chart."""

    series: int
    """Lines with the same number have the same colour, and the same entry of the legend."""
    title: str
    points: tuple[Point, ...]


def learning_curve(runs: Iterable[Run], metric: str) -> tuple[Point, ...]:
    """A metric by epoch: mean, smallest and largest value over the runs, in per cent. At most ``POINTS`` epochs."""
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
    """At most this many of the values, evenly chosen, with the first and the last.

    >>> thinned([1, 2, 3, 4, 5, 6, 7], 4)
    [1, 3, 5, 7]
    """
    if len(values) <= most:
        return values
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def learning_curves(table: ReportTable, metric: str, lines: Iterable[int]) -> list[tuple[str, list[Curve]]]:
    """The curves of a metric for each column of a table: the noise, and a curve for each of these rows."""
    by_noise = []
    for column, head in enumerate(table.heads):
        curves = []
        for i in lines:
            points = learning_curve(table.rows[i].cells[column].runs, metric)
            if points:
                curves.append(Curve(i, table.rows[i].title, points))
        if curves:
            by_noise.append((head.noise_text, curves))
    return by_noise


@dataclass(frozen=True)
class Sensitivity:
    """The accuracy by a parameter of a loss. All other settings are the same."""

    loss: str
    parameter: str
    rest: str
    """The other settings, as a text."""
    curves: tuple[Curve, ...]


def sensitivities(table: ReportTable) -> list[Sensitivity]:
    """The accuracy by each parameter that has two values or more, with a curve for each noise.

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
            if isinstance(value, bool) or not isinstance(value, (int, float)):
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
    """The name and the parameters of every loss of a table.

    If two rows of a loss name different parameters, the defaults of the others are filled in.
    """
    parts = {row.loss: loss_parts(row.loss) for row in table.rows}
    named: dict[str, set[frozenset[str]]] = {}
    for name, values in parts.values():
        named.setdefault(name, set()).add(frozenset(values))
    return {
        loss: (
            name,
            with_default_parameters(name, values) if len(named[name]) > 1 and "preset" not in values else values,
        )
        for loss, (name, values) in parts.items()
    }
