"""How steep a margin loss is and how much it bends, before and after symmetrization (app. B)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from symloss import checks
from symloss.theory.binary.decomposition import decompose_margin
from symloss.theory.binary.margin_functions import AnyMarginFunction, MarginFunction
from symloss.theory.certificates.search import derivative

POINTS = 4001
"""Margins that are looked at before the best is looked at more closely."""


@dataclass(frozen=True)
class MarginConstants:
    """Constants of phi and of its symmetrization for |z| <= radius: the largest values found."""

    radius: float
    lipschitz: float
    """sup |phi'|."""
    smoothness: float
    """beta = sup |phi''|; infinite where phi' jumps."""
    lipschitz_sym: float
    """sup |phi_sym'|, never above ``lipschitz``."""
    smoothness_sym: float
    """beta_sym = sup |phi_sym''|, never above ``smoothness_bound``."""
    at: float
    """z*, where phi_sym'' is beta_sym; of several the one where the series is largest."""
    even_series: float
    """sum over even k of phi^(k+2)(0) / k! z*^k, which is the even part of phi'' at z*."""
    curvature_at_zero: float
    """phi''(0): what the series is at z* = 0."""

    @property
    def smoothness_bound(self) -> float:
        """beta - max(even_series, 0), the paper's upper bound on beta_sym."""
        return self.smoothness - max(self.even_series, 0.0)


def margin_constants(phi: AnyMarginFunction, radius: float) -> MarginConstants:
    """Lipschitz and smoothness constants of a margin loss and of its symmetrization, and the paper's bound.

    Found by a search in float64 over margins from -radius to radius, so they are lower bounds, to many digits for a
    loss that does not wiggle. Where the slope jumps, the smoothness is infinite.

    >>> constants = margin_constants("logistic", radius=5.0)
    >>> round(constants.smoothness, 9), round(constants.smoothness_sym, 9), round(constants.smoothness_bound, 9)
    (0.25, 0.0, 0.0)
    """
    radius = checks.number("radius", radius, "(0, inf)")
    odd, even = decompose_margin(phi)
    inner = odd.inner
    lipschitz, lipschitz_sym = (_largest(_slope(part), radius)[1] for part in (inner, odd))
    smoothness, smoothness_sym = (_smoothness(part, radius) for part in (inner, odd))
    at, series = _star(odd, even, radius)
    return MarginConstants(
        radius, lipschitz, smoothness, lipschitz_sym, smoothness_sym, at, series, float(_bend(inner)(torch.zeros(1)))
    )


def _slope(phi: MarginFunction) -> Callable[[Tensor], Tensor]:
    def at(z: Tensor) -> Tensor:
        z = z.detach().double().requires_grad_()
        found = derivative(phi.phi(z).sum(), z, create_graph=False)
        if not bool(found.isfinite().all()):
            raise ValueError(f"the slope of phi must be finite; got {float(found[~found.isfinite()][0])} within radius")
        return found

    return at


def _bend(phi: MarginFunction) -> Callable[[Tensor], Tensor]:
    def at(z: Tensor) -> Tensor:
        z = z.detach().double().requires_grad_()
        slope = derivative(phi.phi(z).sum(), z, create_graph=True)
        return derivative(slope.sum(), z, create_graph=False)

    return at


def _largest(function: Callable[[Tensor], Tensor], radius: float) -> tuple[float, float]:
    """Where the absolute value is largest, and how large: a grid, then finer grids around the best."""
    low, high, count = -radius, radius, POINTS
    place, best = 0.0, -math.inf
    for _ in range(8):
        grid = torch.linspace(low, high, count, dtype=torch.float64)
        values = function(grid).abs()
        top = int(values.argmax())
        if float(values[top]) > best:
            place, best = float(grid[top]), float(values[top])
        step = (high - low) / (count - 1)
        low, high, count = max(-radius, place - step), min(radius, place + step), 101
    return place, best


def _smoothness(phi: MarginFunction, radius: float) -> float:
    if _jump(_slope(phi), radius) > 1e-5 * _largest(_slope(phi), radius)[1]:
        return math.inf
    return _largest(_bend(phi), radius)[1]


def _jump(slope: Callable[[Tensor], Tensor], radius: float) -> float:
    """The largest change of the slope within a distance of radius * 1e-12, by bisection from the sharpest bends."""
    grid = torch.linspace(-radius, radius, POINTS, dtype=torch.float64)
    values = slope(grid)
    change = (values[2:] - 2 * values[1:-1] + values[:-2]).abs()
    cells = change.topk(32).indices
    low, high = grid[cells], grid[cells + 2]
    for _ in range(30):
        middle = (low + high) / 2
        at_low, at_middle, at_high = slope(low), slope(middle), slope(high)
        left = (at_middle - at_low).abs() >= (at_high - at_middle).abs()
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
    return float((slope(high) - slope(low)).abs().max())


def _star(odd: MarginFunction, even: MarginFunction, radius: float) -> tuple[float, float]:
    """z* with phi_sym''(z*) = beta_sym, and the even part of phi'' there; ties go to the largest such part.

    The series of the paper needs no series: its even part sums to (phi''(z) + phi''(-z)) / 2.
    """
    place = _largest(_bend(odd), radius)[0]
    grid = torch.cat([torch.linspace(-radius, radius, POINTS, dtype=torch.float64), torch.tensor([place, -place])])
    bends, evens = _bend(odd)(grid), _bend(even)(grid)
    ties = bends >= bends.max() - 1e-12 * (1 + bends.abs().max())
    best = int(torch.where(ties, evens, -math.inf).argmax())
    return float(grid[best]), float(evens[best])
