"""The symmetrization of a convex margin loss as a surrogate that bounds the 0-1 loss (app. B)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from symloss import checks
from symloss.theory.binary.chords import worst_chord
from symloss.theory.binary.decomposition import Odd
from symloss.theory.binary.margin_functions import AnyMarginFunction, MarginFunction, margin_function

POINTS = 2001
ROUNDING = 1e-9
"""Violations below this, relative to phi(-R), are rounding."""


@dataclass(frozen=True)
class Surrogate(MarginFunction):
    """2 / phi(-R) phi_sym(z) + 1, which is at least the 0-1 loss for |z| <= R. :func:`surrogate` returns it."""

    inner: MarginFunction
    """phi."""
    radius: float
    """R."""
    factor: float
    """2 / phi(-R), at most 1. Lipschitz and smoothness constants are those of phi_sym times this."""

    @property
    def symmetric(self) -> bool:
        return True

    def phi(self, margin: Tensor) -> Tensor:
        return self.factor * Odd(self.inner).phi(margin) + 1


@dataclass(frozen=True)
class Anchored(MarginFunction):
    """(phi(z) - phi(R)) / (phi(0) - phi(R)), which is 1 at 0 and 0 at R. :func:`anchored` returns it."""

    inner: MarginFunction
    radius: float
    floor: float
    height: float

    def phi(self, margin: Tensor) -> Tensor:
        return (self.inner.phi(margin) - self.floor) / self.height


def anchored(phi: AnyMarginFunction, radius: float) -> Anchored:
    """Shift and scale phi so that it is 1 at 0 and 0 at the radius, as :func:`surrogate` needs it.

    Args:
        phi: a name of ``MARGIN_FUNCTIONS``, a :class:`MarginFunction` or any function of a tensor of margins.
        radius: the largest margin R.

    >>> anchored("exponential", radius=4.0)(torch.tensor([0.0, 4.0]).double()).tolist()
    [1.0, 0.0]
    """
    radius = checks.number("radius", radius, "(0, inf)")
    inner = margin_function(phi)
    at_zero, floor = (float(value) for value in inner.phi(torch.tensor([0.0, radius], dtype=torch.float64)))
    if not at_zero > floor:
        raise ValueError(f"phi(0) must be above phi(radius); got {at_zero:g} and {floor:g}")
    return Anchored(inner, radius, floor, at_zero - floor)


def surrogate(phi: AnyMarginFunction, radius: float) -> Surrogate:
    """The symmetric surrogate 2 / phi(-R) phi_sym(z) + 1, which bounds the 0-1 loss for |z| <= R (app. B).

    phi must be convex and non-increasing, with phi(R) = 0 and phi(0) >= 1. This is checked on a grid of margins.
    :func:`anchored` turns any convex, decreasing phi into one with the last two properties.

    Args:
        phi: as in :func:`anchored`.
        radius: the largest margin R.

    >>> loss = surrogate(lambda z: (1 - z / 3) ** 2, radius=3.0)
    >>> loss(torch.tensor([-3.0, 0.0, 3.0]))
    tensor([2., 1., 0.])
    """
    radius = checks.number("radius", radius, "(0, inf)")
    inner = margin_function(phi)
    grid = torch.linspace(-radius, radius, POINTS, dtype=torch.float64)
    with torch.no_grad():
        values = inner.phi(grid)
    if not bool(values.isfinite().all()):
        raise ValueError(f"phi must be finite for |z| <= {radius:g}; got {float(values[~values.isfinite()][0])}")
    at_left, at_zero, at_right = (float(values[i]) for i in (0, POINTS // 2, -1))
    slack = ROUNDING * (1 + values.abs().max())
    if abs(at_right) > slack:
        raise ValueError(f"phi(R) must be 0; got {at_right:g} at R = {radius:g}")
    if at_zero < 1 - slack:
        raise ValueError(f"phi(0) must be at least 1; got {at_zero:g}")
    _refuse_rise(grid, values, float(slack))
    _refuse_hollow(grid, values, float(slack))
    return Surrogate(inner, radius, 2 / at_left)


def _refuse_rise(grid: Tensor, values: Tensor, slack: float) -> None:
    rise = values.diff()
    worst = int(rise.argmax())
    if float(rise[worst]) > slack:
        raise ValueError(
            f"phi must be non-increasing; got a rise from {float(values[worst]):g} at {float(grid[worst]):g} "
            f"to {float(values[worst + 1]):g} at {float(grid[worst + 1]):g}"
        )


def _refuse_hollow(grid: Tensor, values: Tensor, slack: float) -> None:
    chord = worst_chord(values)
    if chord.excess > slack:
        raise ValueError(
            f"phi must be convex; got {float(values[chord.middle]):g} midway between {float(grid[chord.start]):g} and "
            f"{float(grid[chord.end]):g}, which is {chord.excess:.3g} above the chord"
        )
