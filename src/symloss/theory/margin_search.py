"""Search over margins from -radius to radius: finer where values, slopes and second derivatives disagree."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.theory.findings import Finding, finding
from symloss.theory.subject import derivative

Phi = Callable[[Tensor], Tensor]

HALF = 2001  # margins of the first grid on either side of 0
ROUNDS, CELLS = 34, 64  # how often, and how many cells are halved at a time
NARROW = 1e-9  # relative to the radius: a change within such a cell is a jump
PRECISE, SINGLE = (1e-12, 1e-14), (1e-5, 1e-7)
"""Rounding in float64, and of values that were computed in float32: relative to what is compared, at its margin, and
relative to what intermediate results may be as large as."""


class Jets(NamedTuple):
    """Values and the first two derivatives at margins (P,)."""

    value: Tensor
    slope: Tensor
    bend: Tensor

    def part(self, mirrored: Jets, sign: int) -> Jets:
        """Return those of (phi(z) + sign phi(-z)) / 2, from those at z and at -z."""
        signs = (sign, -sign, sign)
        return Jets(*((own + s * other) / 2 for own, other, s in zip(self, mirrored, signs, strict=True)))


def jets(phi: Phi, z: Tensor) -> Jets:
    """Return the values and derivatives of phi, in float64. One that is infinite or NaN is refused with its margin."""
    z = z.detach().double().requires_grad_()
    value = phi(z).double()
    slope = derivative(value.sum(), z, create_graph=True)
    found = Jets(value.detach(), slope.detach(), derivative(slope.sum(), z, create_graph=False))
    for name, numbers in zip(("phi", "the slope of phi", "the second derivative of phi"), found, strict=True):
        off = ~numbers.isfinite()
        if bool(off.any()):
            raise ValueError(
                f"{name} must be finite; got {float(numbers[off][0])} at z = {float(z.detach()[off][0]):g}"
            )
    return found


class Trace(NamedTuple):
    """Margins in ascending order, each with its mirror image; phi there, and what rounding may change a value by."""

    z: Tensor
    jets: Jets
    slack: Tensor
    slope_slack: Tensor
    radius: float

    def part(self, sign: int) -> Jets:
        """Return the derivatives of the odd part of phi for the sign -1, of the even part for 1."""
        return self.jets.part(Jets(*(each.flip(0) for each in self.jets)), sign)


def trace(phi: Phi, radius: float) -> Trace:
    """Evaluate phi at margins up to the radius, and halve the cells where a straight line or a parabola fits worst."""
    near = radius * torch.logspace(-12, -3, 19, dtype=torch.float64)
    half = torch.cat([torch.linspace(0, radius, HALF, dtype=torch.float64), near])
    z = torch.unique(torch.cat([-half, half]))
    found = jets(phi, z)
    _refuse_unsteady(phi, z, found.value)
    for _ in range(ROUNDS):
        width = z.diff()
        misfit = torch.stack([_misfit(found.value, found.slope, width), _misfit(found.slope, found.bend, width)])
        misfit = torch.where(width > 1e-12 * radius, misfit, 0.0)
        cells = torch.unique(misfit.topk(CELLS, dim=1).indices)
        cells = cells[misfit[:, cells].amax(0) > 0]
        middle = (z[cells] + z[cells + 1]) / 2
        new = torch.unique(torch.cat([middle, -middle]))
        new = new[~torch.isin(new, z)]
        if not len(new):
            break
        order = torch.cat([z, new]).argsort()
        z = torch.cat([z, new])[order]
        found = Jets(*(torch.cat(pair)[order] for pair in zip(found, jets(phi, new), strict=True)))
    value, slope, _ = found
    relative, floor = SINGLE if bool((value.float().double() == value).all()) else PRECISE
    slack = relative * (value.abs() + (slope * z).abs()) + floor * float(value.abs().median())
    slope_slack = relative * slope.abs() + floor * (value.abs() + float(slope.abs().median() + slope.abs().max() / 100))
    return Trace(z, found, slack, slope_slack, radius)


def _misfit(value: Tensor, slope: Tensor, width: Tensor) -> Tensor:
    """Return how far values change otherwise than their slopes say, relative to both."""
    change, said = value.diff(), width * (slope[1:] + slope[:-1]) / 2
    size = value.abs()[1:] + value.abs()[:-1] + width * (slope.abs()[1:] + slope.abs()[:-1])
    return (change - said).abs() / size.clamp_min(1e-300)


def _refuse_unsteady(phi: Phi, z: Tensor, value: Tensor) -> None:
    """Refuse a phi that is random, or in which one margin depends on the others."""
    some = torch.linspace(0, len(z) - 1, 5).long()
    with torch.no_grad():
        again, alone = phi(z).double(), torch.cat([phi(z[i : i + 1]) for i in some]).double()
    for other, first, where, how in (
        (again, value, z, "in a second call"),
        (alone, value[some], z[some], "without the other margins"),
    ):
        off = (other - first).abs() > 1e-5 * (other.abs() + first.abs())
        if bool(off.any()):
            got = f"{float(first[off][0]):g} at z = {float(where[off][0]):g}, and {float(other[off][0]):g} {how}"
            raise ValueError(f"phi must depend on the margin alone; got {got}")


def jumps(found: Trace, value: Tensor, slope: Tensor, slack: Tensor) -> bool:
    """Return whether values jump: within a narrow cell they change by more than rounding and their slopes explain."""
    width = found.z.diff()
    explained = 10 * width * (slope.abs()[1:] + slope.abs()[:-1]) + 1e3 * (slack[1:] + slack[:-1])
    return bool(((width <= NARROW * found.radius) & (value.diff().abs() > explained)).any())


def largest(function: Phi, z: Tensor, values: Tensor) -> tuple[float, float]:
    """Return the margin with the largest absolute value, and that value, from ever finer grids around the best."""
    best = values.abs().topk(8).indices
    low, high = z[(best - 1).clamp_min(0)], z[(best + 1).clamp_max(len(z) - 1)]
    margin, most = float(z[best[0]]), float(values[best[0]].abs())
    for _ in range(8):
        grid = low[:, None] + (high - low)[:, None] * torch.linspace(0, 1, 41, dtype=torch.float64)
        found = function(grid.flatten()).abs().reshape(grid.shape)
        top = found.argmax(1, keepdim=True)
        row = int(found.amax(1).argmax())
        if float(found[row, top[row]]) > most:
            margin, most = float(grid[row, top[row]]), float(found[row, top[row]])
        low, high = (grid.gather(1, (top + step).clamp(0, 40)).squeeze(1) for step in (-1, 1))
    return margin, most


def measured_symmetric(found: Trace) -> Finding:
    """Return whether phi(z) + phi(-z) is constant."""
    total, slack = found.jets.value + found.jets.value.flip(0), found.slack + found.slack.flip(0)
    high, low = int((total - slack).argmax()), int((total + slack).argmin())
    seen = f"phi(z) + phi(-z) is {float(total[high]):.6g} at a and {float(total[low]):.6g} at b"
    holds = bool(total[high] - slack[high] <= total[low] + slack[low])
    return finding(holds, float(total.max() - total.min()), seen, a=found.z[high], b=found.z[low])


def measured_non_increasing(found: Trace) -> Finding:
    """Return whether phi never rises."""
    value = found.jets.value
    lowest, since = value.cummin(0)
    excess = value - lowest - found.slack - found.slack[since]
    end = int(excess.argmax())
    start = int(since[end])
    seen = f"a rise from {float(value[start]):.6g} at a to {float(value[end]):.6g} at b"
    rise = float((value - lowest).max())
    return finding(float(excess[end]) <= 0, rise, seen, a=found.z[start], b=found.z[end])


def measured_convex(phi: Phi, found: Trace) -> Finding:
    """Return whether phi is convex: chords of many lengths on an even grid, and slopes, which must not fall."""
    z, slope = found.z, found.jets.slope
    grid = torch.linspace(-found.radius, found.radius, HALF, dtype=torch.float64)
    value, slack = jets(phi, grid).value, found.slack[torch.searchsorted(z, grid).clamp_max(len(z) - 1)]
    worst, seen, places = 0.0, "", {}
    for step in sorted({HALF // 2, *(2**k for k in range((HALF // 2).bit_length()))}):
        left, middle, right = slice(None, -2 * step), slice(step, -step), slice(2 * step, None)
        excess = value[middle] - (value[left] + value[right]) / 2
        beyond = excess > slack[middle] + slack[left] + slack[right]
        top = int(torch.where(beyond, excess, 0.0).argmax())
        if bool(beyond[top]) and float(excess[top]) > worst:
            worst, places = float(excess[top]), {"a": grid[left][top], "b": grid[middle][top], "c": grid[right][top]}
            seen = f"phi is {float(value[middle][top]):.6g} at b, {worst:.3g} above the chord from a to c"
    if worst > 0:
        return finding(False, worst, seen, **places)
    highest, since = slope.cummax(0)
    fall = highest - slope - found.slope_slack - found.slope_slack[since]
    end = int(fall.argmax())
    seen = f"the slope falls from {float(highest[end]):.6g} at a to {float(slope[end]):.6g} at b"
    return finding(float(fall[end]) <= 0, float((highest - slope).max()), seen, a=z[since[end]], b=z[end])
