"""The edges of a grid: whether the best point of a search sits on one, and the next value beyond it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from symloss.checks import Interval
from symloss.experiments.questions import Question
from symloss.experiments.search_grids import INTERVALS, Dimension
from symloss.experiments.spaces import Point, Space
from symloss.losses.spec import describe, parse

DIGITS = 4
"""The number of digits of a new value."""


def at_an_edge(dimension: Dimension, value: Any) -> bool:
    """Whether a value is the smallest or the largest of a grid of numbers.

    >>> q = Dimension("q", (0.2, 0.5, 0.8))
    >>> at_an_edge(q, 0.8), at_an_edge(q, 0.5)
    (True, False)
    """
    ends = dimension.between() if dimension.numeric and not _at_zero(dimension) else None
    return ends is not None and value in ends


def _at_zero(dimension: Dimension) -> bool:
    """A grid on a log scale that begins at 0 has no ratio to go on with."""
    return dimension.log and min(dimension.values) <= 0


def next_value(dimension: Dimension, edge: Any, interval: str | None) -> Any:
    """The value that comes after the edge, in the step or the ratio of the last two; None if the range ends there.

    Args:
        dimension: the grid.
        edge: its smallest or largest value.
        interval: the range of the parameter; None if it is not known.

    >>> q = Dimension("q", (0.2, 0.35, 0.5, 0.65, 0.8))
    >>> next_value(q, 0.8, "(0, 1]"), next_value(q, 0.2, "(0, 1]"), next_value(q, 0.8, "(0, 0.9]")
    (0.95, 0.05, 0.9)
    >>> next_value(Dimension("alpha", (0.25, 0.5, 1.0, 2.0, 4.0), log=True), 4.0, "(0, inf)")
    8.0
    """
    if interval is None:
        return None
    ordered = sorted(dimension.values, reverse=edge == min(dimension.values))
    before = ordered[-2]
    value = float(f"{edge * edge / before if dimension.log else 2 * edge - before:.{DIGITS}g}")
    if value not in Interval(interval):
        low, high = (float(end) for end in interval[1:-1].split(","))
        value = low if edge < before else high
    value = round(value) if dimension.whole else value
    return value if value in Interval(interval) and value not in dimension.values else None


def range_of(loss: str, name: str) -> str | None:
    """The range of a parameter of a loss, or of a setting of training; None for an option, such as a temperature.

    >>> range_of("sgce", "q"), range_of("sgce", "weight_decay"), range_of("sgce", "temperature")
    ('(0, 1]', '[0, inf)', None)
    """
    parameters = {parameter.name: parameter.interval for parameter in describe(parse(loss)[0]).parameters}
    return (INTERVALS | parameters).get(name)


def widened(question: Question, grid: Mapping[str, Dimension], best: Point) -> tuple[Question, Dimension] | None:
    """The points beyond the edge that the best point sits on, as a question, and the grid with the new value.

    Only parameters of the loss are widened, and no grid that the user gave.

    Args:
        question: the search that is over.
        grid: its dimensions by name, with the values that were added before.
        best: its best point.

    Returns:
        None if the best point sits on no edge, or the loss allows nothing beyond it.
    """
    for name, dimension in grid.items():
        if name in INTERVALS or dimension.source == "given" or not at_an_edge(dimension, best[name]):
            continue
        value = next_value(dimension, best[name], range_of(question.loss, name))
        if value is None:
            continue
        beyond = replace(dimension, values=(value,))
        space = Space(tuple(beyond if each == name else grid[each] for each in grid))
        return replace(question, space=space), replace(dimension, values=(*dimension.values, value))
    return None


def remarks(loss: str, grid: Mapping[str, Dimension], best: Point) -> list[str]:
    """A sentence for each value of the best point that sits on an edge of its grid and could go on."""
    found = []
    for name, dimension in grid.items():
        if at_an_edge(dimension, best[name]) and next_value(dimension, best[name], range_of(loss, name)) is not None:
            end = "largest" if best[name] == max(dimension.values) else "smallest"
            option = f"--{name.replace('_', '-')}s" if name in INTERVALS else f"--vary {parse(loss)[0]}:{name}="
            found.append(
                f"The best {name.replace('_', ' ')} of {loss}, {best[name]:g}, is the {end} that was tried: a better "
                f"one may lie beyond it ({option} tries others)."
            )
    return found
