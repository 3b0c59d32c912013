"""Accuracy as a map over two settings: a parameter of the loss, the temperature, the weight decay or the learning rate.

A map is drawn where the runs of a table fill a grid of three by three values or more, all else being the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from symloss.experiments.curves import parameters_of
from symloss.experiments.own_runs import TITLES
from symloss.experiments.report import ReportCell, ReportTable

FEWEST = 3
"""Values of each setting that a map must have."""
WIDE, HIGH, LEFT, TOP = 58, 30, 74, 44
"""Width and height of a cell, and the room for the names of rows and columns, in pixels."""

Point = tuple[tuple[str, float], ...]
"""Values of settings by name: parameters of the loss first."""
Kind = tuple[str, str, float]
"""The name of a loss, how its scores are changed, and the penalty: the same in all cells of a map."""


@dataclass(frozen=True)
class SensitivityMap:
    """The cells of a table over two settings, for one loss under one noise."""

    loss: str
    noise: str
    down: str
    """The setting of the rows."""
    across: str
    """The setting of the columns."""
    rest: str
    """The other settings, as a text."""
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
    """Every map that the rows of a table fill, in the order of losses and noises."""
    return [
        _map(table, loss, pair, dict(rest), lines, column)
        for loss, pair, rest, lines in _grids(table)
        for column in range(len(table.heads))
        if all(table.rows[line].cells[column].last for line in lines.values())
    ]


def rows_in_maps(table: ReportTable) -> set[int]:
    """The numbers of the rows whose every figure is on a map."""
    columns = range(len(table.heads))
    return {
        line
        for *_, lines in _grids(table)
        for line in lines.values()
        if all(table.rows[number].cells[column].last for number in lines.values() for column in columns)
    }


Grid = tuple[str, tuple[str, str], Point, dict[tuple[float, float], int]]
"""A loss, its two settings, the others, and the row of the table for each pair of values."""


def _grids(table: ReportTable) -> Iterator[Grid]:
    points = _points(table)
    for kind in dict.fromkeys(kind for kind, _ in points.values()):
        loss, *_ = kind
        of_loss = {line: dict(point) for line, (other, point) in points.items() if other == kind}
        names = list(dict.fromkeys(name for point in of_loss.values() for name in point))
        for pair in itertools.combinations(names, 2):
            yield from _full_grids(loss, pair, of_loss)


def _full_grids(loss: str, pair: tuple[str, str], points: dict[int, dict[str, float]]) -> Iterator[Grid]:
    """The grids over a pair of settings in which no combination is missing."""
    groups: dict[Point, dict[tuple[float, float], int]] = {}
    for line, point in points.items():
        if all(name in point for name in pair):
            rest = tuple((name, value) for name, value in point.items() if name not in pair)
            groups.setdefault(rest, {})[point[pair[0]], point[pair[1]]] = line
    for rest, lines in groups.items():
        down, across = ({values[axis] for values in lines} for axis in (0, 1))
        if min(len(down), len(across)) >= FEWEST and len(lines) == len(down) * len(across):
            yield loss, pair, rest, lines


def _points(table: ReportTable) -> dict[int, tuple[Kind, Point]]:
    """The kind of each row that was run, and its numbers: parameters of the loss first, then other settings."""
    parameters = parameters_of(table)
    points = {}
    for number, row in enumerate(table.rows):
        run = next((cell.runs[0] for cell in row.cells if cell.runs), None)
        if run is None:
            continue
        loss, values = parameters[row.loss]
        numbers = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        numbers |= {TITLES[name]: getattr(run.settings, name) for name in ("weight_decay", "lr")}
        points[number] = (loss, run.settings.scores, run.settings.penalty), tuple(numbers.items())
    return points


def _map(
    table: ReportTable,
    loss: str,
    pair: tuple[str, str],
    rest: dict[str, float],
    lines: dict[tuple[float, float], int],
    column: int,
) -> SensitivityMap:
    down, across = (tuple(sorted({values[axis] for values in lines})) for axis in (0, 1))
    cells = {values: table.rows[line].cells[column] for values, line in lines.items()}
    others = ", ".join(f"{name} {value:g}" for name, value in rest.items())
    return SensitivityMap(loss, table.heads[column].noise_text, *pair, others, down, across, cells)


def picture(shown: SensitivityMap) -> str:
    """The map as SVG. The shade goes from the least accuracy of the map to the largest."""
    width, height = LEFT + WIDE * len(shown.columns) + 2, TOP + HIGH * len(shown.rows) + 2
    parts = [
        f'<svg class="heat" viewBox="0 0 {width} {height}" style="max-width:{1.4 * width:.0f}px" role="img" '
        f'aria-label="{escape(shown.title)}: accuracy in %, from {shown.extent[0]:.1f} to {shown.extent[1]:.1f}">',
        f'<text x="{LEFT + WIDE * len(shown.columns) / 2:g}" y="12" class="mid axis">{escape(shown.across)}</text>',
        f'<text transform="translate(12 {TOP + HIGH * len(shown.rows) / 2:g}) rotate(-90)" class="mid axis">'
        f"{escape(shown.down)}</text>",
    ]
    for j, value in enumerate(shown.columns):
        parts.append(f'<text x="{LEFT + WIDE * (j + 0.5):g}" y="{TOP - 8}" class="mid">{value:g}</text>')
    for i, value in enumerate(shown.rows):
        parts.append(f'<text x="{LEFT - 8}" y="{TOP + HIGH * (i + 0.5) + 4:g}" class="end">{value:g}</text>')
        parts += [_square(shown, i, j) for j in range(len(shown.columns))]
    return "".join(parts) + "</svg>"


def _square(shown: SensitivityMap, i: int, j: int) -> str:
    figure = shown.cells[shown.rows[i], shown.columns[j]].last
    assert figure is not None
    low, high = shown.extent
    shade = (figure.mean - low) / (high - low) if high > low else 1.0
    x, y = LEFT + WIDE * j, TOP + HIGH * i
    square = f'x="{x + 1}" y="{y + 1}" width="{WIDE - 2}" height="{HIGH - 2}" rx="3"'
    tip = f"{shown.down} {shown.rows[i]:g}, {shown.across} {shown.columns[j]:g}: {figure.text}, n = {figure.n}"
    on = " on" if shade > 0.7 else ""
    return (
        f'<g><rect class="under" {square}/><rect {square} fill-opacity="{shade:.2f}"/>'
        f'<text x="{x + WIDE / 2:g}" y="{y + HIGH / 2 + 4:g}" class="mid{on}">{figure.mean:.1f}</text>'
        f"<title>{escape(tip)}</title></g>"
    )
