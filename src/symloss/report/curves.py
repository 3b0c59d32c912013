"""What happens epoch by epoch, and what depends on a parameter: lines to draw, each with a band."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from symloss.report.document import Block
from symloss.report.own_runs import OF_A_ROW
from symloss.report.runs import Run
from symloss.report.sorting import loss_parts, noise_key

METRICS = {
    "test_accuracy": "Test accuracy",
    "validation_accuracy": "Validation accuracy",
    "memorised": "Share of the wrong labels that is memorised",
}
UNSAID = {"scores": "loss", "penalty": 0.0}
"""Settings that need no words where they are as usual."""
POINTS = 80
"""A line has no more of them: an eye sees no more, and a page stays small."""


@dataclass(frozen=True)
class Point:
    x: float
    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    series: int
    """Lines with the same number have the same colour, and the same entry of the legend."""
    title: str
    points: tuple[Point, ...]


def learning_curve(runs: Iterable[Run], metric: str) -> tuple[Point, ...]:
    """Mean, least and largest value over the runs, in per cent, at every epoch; thinned to so many points."""
    values: dict[int, list[float]] = {}
    for run in runs:
        for row in run.epochs:
            value = row.get(metric)
            if isinstance(value, (int, float)) and 0 <= value <= 1:
                values.setdefault(row["epoch"], []).append(100 * value)
    epochs = thinned(sorted(values), POINTS)
    return tuple(_point(epoch, values[epoch]) for epoch in epochs)


def _point(x: float, values: list[float]) -> Point:
    return Point(x, math.fsum(values) / len(values), min(values), max(values))


def thinned(values: list[Any], most: int) -> list[Any]:
    """Evenly chosen, with the first and the last.

    >>> thinned([1, 2, 3, 4, 5, 6, 7], 4)
    [1, 3, 5, 7]
    """
    if len(values) <= most:
        return values
    return [values[round(i * (len(values) - 1) / (most - 1))] for i in range(most)]


def learning_curves(block: Block, metric: str, lines: Iterable[int]) -> list[tuple[str, list[Curve]]]:
    """For each column its curves, one a row."""
    found = []
    for column, head in enumerate(block.heads):
        curves = []
        for i in lines:
            points = learning_curve(block.lines[i].entries[column].runs, metric)
            if points:
                curves.append(Curve(i, block.lines[i].title, points))
        if curves:
            found.append((head.said, curves))
    return found


@dataclass(frozen=True)
class Sensitivity:
    """Accuracy against a parameter of a loss, all other settings being the same."""

    loss: str
    parameter: str
    rest: str
    curves: tuple[Curve, ...]


def sensitivities(block: Block) -> list[Sensitivity]:
    """Of every parameter that has two values at least, those with the most values first; a curve for each noise."""
    found: dict[tuple[str, str, str], dict[str, dict[float, list[float]]]] = {}
    for line, head, entry in block.cells():
        if entry.last is None:
            continue
        settings = entry.runs[0].settings
        name, parameters = loss_parts(line.loss)
        others = {key: getattr(settings, key) for key in OF_A_ROW[1:] if getattr(settings, key) != UNSAID.get(key)}
        for parameter, value in parameters.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                continue
            fixed = {key: other for key, other in parameters.items() if key != parameter} | others
            place = name, parameter, ", ".join(f"{key.replace('_', ' ')} {other}" for key, other in fixed.items())
            values = found.setdefault(place, {}).setdefault(head.said, {})
            values.setdefault(float(value), []).extend(entry.last.values)
    noises = list(dict.fromkeys(head.said for head in sorted(block.heads, key=lambda head: noise_key(head.noise))))
    charts = []
    for (name, parameter, rest), by_noise in found.items():
        curves = tuple(
            Curve(noises.index(noise), noise, tuple(_point(x, by_noise[noise][x]) for x in sorted(by_noise[noise])))
            for noise in sorted(by_noise, key=noises.index)
            if len(by_noise[noise]) > 1
        )
        if curves:
            charts.append(Sensitivity(name, parameter, rest, curves))
    return sorted(charts, key=lambda chart: -max(len(curve.points) for curve in chart.curves))
