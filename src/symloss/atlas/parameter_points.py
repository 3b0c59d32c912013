"""The positions of the sliders: which values of its parameters a loss is shown at."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from symloss.checks import Interval
from symloss.losses.record import Parameter, Record

POINTS: dict[str, tuple[float, ...]] = {
    "q": (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.5, 2, 3),
    "alpha": (0, 0.1, 0.5, 1, 1.5, 2, 3, 5, 10),
    "beta": (0, 0.1, 0.5, 1, 2, 5, 10),
    "kappa": (0, 1, 2, 5, 10, 20, 50),
    "gamma": (0, 0.25, 0.5, 1, 2, 3, 5),
    "a": (0.1, 0.3, 0.6, 1, 1.5, 2.5, 4, 6, 10, 30, 100),
    "t": (1, 2, 3, 4, 6, 10, 20),
    "tau": (1.5, 2, 5, 10, 20, 50, 100),
    "pi": (0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99),
    "t1": (0, 0.2, 0.4, 0.6, 0.8, 0.9, 1),
    "t2": (1, 1.1, 1.2, 1.5, 2, 3, 4),
    "lam": (0.1, 0.2, 0.5, 1, 2, 5, 10),
    "margin": (0, 0.1, 0.5, 1, 2, 5),
    "r": (-4, -2, -1, -0.5, -0.2, 0, 0.1, 0.2, 0.4, 0.6, 0.8, 1),
}
"""Values by the name of a parameter. Those outside the interval of a loss are left out."""
SYMMETRIC_DIRICHLET = (0.1, 0.25, 0.5, 2 / 3, 0.8, 0.9, 0.99, 1, 1.5, 2)
"""The Dirichlet prior makes cross-entropy symmetric at 1 - 1/C, so these are among its values."""
FACTORS = (1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8)
"""Times the default: the values of a parameter whose name is not listed above."""
TOGETHER = 7
"""The most values of a parameter that moves together with another one."""

Position = float | None


@dataclass(frozen=True)
class Slider:
    """A parameter and the values that its slider stops at. None stands for "not used"."""

    parameter: Parameter
    points: tuple[Position, ...]

    @property
    def default(self) -> int:
        """The index of the default."""
        return self.points.index(self.parameter.default)


def sliders(record: Record) -> tuple[Slider, ...]:
    """The sliders of a loss."""
    every = tuple(Slider(p, _points(record, p)) for p in record.parameters)
    several = len(every) > 1 and moves_together(record)
    return tuple(Slider(each.parameter, _thinned(each)) for each in every) if several else every


def moves_together(record: Record) -> bool:
    """Whether every combination of values is shown.

    Else one parameter moves at a time, and the others are at their defaults.
    """
    return len(record.parameters) <= 2 and all(p.instead_of is None for p in record.parameters)


def positions(record: Record) -> list[tuple[int, ...]]:
    """Every combination of values that is shown, as one index for each slider."""
    own = sliders(record)
    if moves_together(record):
        return list(itertools.product(*(range(len(each.points)) for each in own)))
    rest = tuple(each.default for each in own)
    moved = [(*rest[:k], i, *rest[k + 1 :]) for k, each in enumerate(own) for i in range(len(each.points))]
    return list(dict.fromkeys([rest, *moved]))


def values_at(record: Record, position: Sequence[int]) -> dict[str, Position]:
    """The parameters at a position. One that replaces another leaves None there."""
    values = {each.parameter.name: each.points[i] for each, i in zip(sliders(record), position, strict=True)}
    for p in record.parameters:
        if p.instead_of is not None and values[p.name] is not None:
            values[p.instead_of] = None
    return values


def _points(record: Record, p: Parameter) -> tuple[Position, ...]:
    listed = SYMMETRIC_DIRICHLET if (record.name, p.name) == ("dirichlet-ce", "alpha") else POINTS.get(p.name)
    base = p.default if p.default is not None else 1.0
    candidates = {*(listed or (base * factor for factor in FACTORS)), base if p.default is not None else None}
    candidates |= {preset.values[p.name] for preset in record.presets.values() if p.name in preset.values}
    interval = Interval(p.interval)
    numbers = sorted({float(each) for each in candidates if isinstance(each, int | float) and each in interval})
    whole = [int(each) if p.whole else each for each in numbers if not p.whole or each == int(each)]
    return (None, *whole) if p.default is None else tuple(whole)


def _thinned(slider: Slider) -> tuple[Position, ...]:
    """At most ``TOGETHER`` values, evenly taken from all of them, with the ends, the default and 1."""
    points = slider.points
    if len(points) <= TOGETHER:
        return points
    last = len(points) - 1
    kept = {0, last, slider.default, *(i for i, each in enumerate(points) if each == 1)}
    even = [round(i * last / (TOGETHER - 1)) for i in range(TOGETHER)]
    far_first = sorted(set(even) - kept, key=lambda i: -min(abs(i - k) for k in kept))
    return tuple(points[i] for i in sorted([*kept, *far_first[: TOGETHER - len(kept)]]))
