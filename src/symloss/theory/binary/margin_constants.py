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
"""Margins of the first grid. Finer grids around the best margin follow."""


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
    """z*, where phi_sym'' is beta_sym. If there are several, the one with the largest series."""
    even_series: float
    """sum over even k of phi^(k+2)(0) / k! z*^k, which is the even part of phi'' at z*."""
    curvature_at_zero: float
    """phi''(0), the value of the series at z* = 0."""

    @property
    def smoothness_bound(self) -> float:
        """beta - max(even_series, 0), the paper's upper bound on beta_sym."""
        return self.smoothness - max(self.even_series, 0.0)


def margin_constants(phi: AnyMarginFunction, radius: float) -> MarginConstants:
    """Lipschitz and smoothness constants of a margin loss and of its symmetrization, and the paper's bound (app. B).

    They come from a search in float64 over margins from -radius to radius. So they are lower bounds. For a loss
    without many bends they are right to many digits. Where the slope jumps, the smoothness is infinite.

    Args:
        phi: a name of ``MARGIN_FUNCTIONS``, a :class:`MarginFunction` or any function of a tensor of margins.
        radius: the largest margin.

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
    """The margin with the largest absolute value, and that value: a grid, then finer grids around the best margin."""
    low, high, count = -radius, radius, POINTS
    margin, best = 0.0, -math.inf
    for _ in range(8):
        grid = torch.linspace(low, high, count, dtype=torch.float64)
        values = function(grid).abs()
        top = int(values.argmax())
        if float(values[top]) > best:
            margin, best = float(grid[top]), float(values[top])
        step = (high - low) / (count - 1)
        low, high, count = max(-radius, margin - step), min(radius, margin + step), 101
    return margin, best


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
    """z* with phi_sym''(z*) = beta_sym, and the even part of phi'' there. Ties go to the largest even part.

    The paper's series over even k is the even part of phi'', which is (phi''(z) + phi''(-z)) / 2.
    """
    steepest = _largest(_bend(odd), radius)[0]
    ends = torch.tensor([steepest, -steepest])
    grid = torch.cat([torch.linspace(-radius, radius, POINTS, dtype=torch.float64), ends])
    bends, evens = _bend(odd)(grid), _bend(even)(grid)
    ties = bends >= bends.max() - 1e-12 * (1 + bends.abs().max())
    best = int(torch.where(ties, evens, -math.inf).argmax())
    return float(grid[best]), float(evens[best])
