"""The search for the worst case: starting points, gradient ascent, and the detection of kinks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Objective = Callable[[Tensor, Tensor], Tensor]
"""A function of scores (P, C) and labels (P,) with values (P,), which the search makes large."""

REACH = 40.0
"""The largest score at which derivatives are measured. Beyond it softmax is flat in double precision."""

SHORTEST_STEP = 1e-6
"""Where ascent stops: a shorter step changes no digit that is reported."""

FLAT = 1e-13
"""A slope below this, relative to the value, is rounding: there is nothing to climb."""


@dataclass(frozen=True)
class Subject:
    """The loss that is measured: its value at every label, in float64."""

    per_class: Callable[[Tensor], Tensor]
    classes: int

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """The losses (P,) of scores (P, C) at labels (P,)."""
        return self.per_class(z).gather(1, y[:, None]).squeeze(1)

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """The gradients (P, C) in the scores. They can be differentiated again if z requires a gradient."""
        keep = z.requires_grad
        z = z if keep else z.detach().requires_grad_()
        return derivative(self.value(z, y).sum(), z, keep)

    def hessian(self, z: Tensor, y: Tensor) -> Tensor:
        """The second derivatives (P, C, C) in the scores."""
        z = z.detach().requires_grad_()
        g = self.gradient(z, y)
        rows = [derivative(g[:, k].sum(), z, False, retain=True) for k in range(self.classes)]
        return torch.stack(rows, 1)


def derivative(value: Tensor, z: Tensor, create_graph: bool, retain: bool = False) -> Tensor:
    """The derivative of ``value`` by z; zeros if the value does not depend on z, as the slope of a linear loss."""
    if not value.requires_grad:
        return torch.zeros_like(z)
    (found,) = torch.autograd.grad(
        value, z, create_graph=create_graph, retain_graph=create_graph or retain, allow_unused=True
    )
    return torch.zeros_like(z) if found is None else found


def bends(subject: Subject, z: Tensor, y: Tensor) -> bool:
    """Whether the loss can be differentiated twice. Some losses of torch cannot."""
    try:
        subject.hessian(z[:1], y[:1])
    except RuntimeError:
        return False
    return True


def starting_points(classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Scores (P, C) and labels (P,) to start from.

    In some the label and a few rivals lead or trail the rest. The others are normal draws of all sizes.
    """
    half = [0.3, 1.0, 2.0, 4.0, 7.0, 12.0, 20.0, 35.0]
    steps = [*(-step for step in reversed(half)), 0.0, *half]
    # (label, rivals, rest): every pair with a rest at 0, and every margin with a rest of no probability.
    levels = [(label, rival, 0.0) for label in steps for rival in steps] + [(label, 0.0, -REACH) for label in steps]
    shapes = [(*level, rivals) for level in levels for rivals in sorted({1, 2, classes // 2}) if rivals < classes]
    points = torch.empty(len(shapes), classes, dtype=torch.float64)
    order = torch.rand(points.shape, generator=generator).argsort(1)
    for point, (label, rival, rest, rivals), place in zip(points, shapes, order, strict=True):
        point[:] = rest
        point[place[: 1 + rivals]] = rival
        point[place[0]] = label
    draws = torch.randn(160, classes, dtype=torch.float64, generator=generator)
    sizes = torch.tensor([1e-2, 0.3, 1.0, 3.0, 10.0], dtype=torch.float64).repeat(32)
    labels = torch.cat([order[:, 0], torch.randint(classes, (160,), generator=generator)])
    return torch.cat([points, draws * sizes[:, None]]).clamp(-REACH, REACH), labels


def climb(objective: Objective, z: Tensor, y: Tensor, keep: int = 8, steps: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    """Improve the best ``keep`` points by gradient ascent. Returns scores, labels and values, best first."""
    z, y, value = ascend(objective, *best_points(objective, z, y, keep), steps)
    order = value.argsort(descending=True)
    return z[order], y[order], value[order]


def best_points(objective: Objective, z: Tensor, y: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """The ``keep`` points of largest value, and their labels."""
    value = objective(z, y).detach()
    best = value.nan_to_num(-torch.inf).topk(min(keep, len(value))).indices
    return z[best].detach(), y[best]


def ascend(objective: Objective, z: Tensor, y: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Improve every point by gradient ascent. Returns scores, labels and values, in the same order."""
    try:
        value, slope = _with_slope(objective, z, y)
    except RuntimeError:  # no second derivative: the points stay
        return z, y, objective(z, y).detach()
    step = torch.full_like(value, 0.5)
    for _ in range(steps):
        length = slope.norm(dim=1, keepdim=True)
        if float(step.max()) < SHORTEST_STEP or not bool((length > FLAT * (1 + value.abs()[:, None])).any()):
            break
        trial = (z + step[:, None] * slope / length.clamp_min(1e-300)).clamp(-REACH, REACH)
        found, found_slope = _with_slope(objective, trial, y)
        better = found > value
        z, slope = torch.where(better[:, None], trial, z), torch.where(better[:, None], found_slope, slope)
        value = torch.where(better, found, value)
        step = torch.where(better, 2.0 * step, 0.3 * step)
    return z, y, value


def _with_slope(objective: Objective, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The objective's values (P,) and its slopes (P, C)."""
    at = z.clone().requires_grad_()
    value = objective(at, y)
    return value.detach(), derivative(value.sum(), at, False)


def grows(size_at: Callable[[float], Tensor]) -> bool:
    """Whether a quantity, at most size_at(radius), grows without bound with the radius.

    It is measured at 1e2, 1e4 and 1e6. In the second step a bounded quantity gains less than in the first, a logarithm
    as much, and a power more.
    """
    near, far, farther = (float(size_at(radius)) for radius in (1e2, 1e4, 1e6))
    first, second = far - near, farther - far
    return second > 1e-6 * (1 + abs(near)) and second > 0.6 * first


def directions(z: Tensor) -> Tensor:
    """The points scaled so that their largest absolute score is 1, for searches far from 0."""
    return z / z.abs().amax(1, keepdim=True).clamp_min(1e-9)


def largest_rise(subject: Subject, z: Tensor, y: Tensor, rays: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    """Two points that differ in the label's score alone, between which the loss rises most; and the label.

    The rays pass through starting points. Their grid is fine near 0 and extends to ``REACH``.
    """
    chosen = torch.linspace(0, len(z) - 1, min(rays, len(z))).long()
    z, y = z[chosen], y[chosen]
    grid = torch.linspace(-1, 1, 161, dtype=z.dtype)
    grid = grid.sign() * (grid.abs() * math.log1p(REACH)).expm1()
    own = torch.nn.functional.one_hot(y, subject.classes).bool()
    points = torch.where(own[:, None, :], grid[None, :, None], z[:, None, :])
    with torch.no_grad():
        values = torch.stack(
            [subject.value(ray, label.expand(len(grid))) for ray, label in zip(points, y, strict=True)]
        )
    lowest = values.cummin(1)
    rise = values - lowest.values
    ray, end = divmod(int(rise.nan_to_num(0.0).argmax()), len(grid))
    return points[ray, lowest.indices[ray, end]], points[ray, end], y[ray]


def sharpest_jump(subject: Subject, z: Tensor, y: Tensor) -> float:
    """The largest change of the gradient within a distance of 1e-9, along lines that move one score, by bisection.

    Without a kink the gradient changes by the curvature times 1e-9.
    """
    lines, labels = z[:24], y[:24]
    moving = torch.where(torch.arange(len(lines)) % 2 == 0, labels, lines.argmax(1))
    axis = torch.nn.functional.one_hot(moving, subject.classes).to(z)
    grid = torch.linspace(-REACH, REACH, 241, dtype=z.dtype)
    points = lines[:, None, :] + grid[None, :, None] * axis[:, None, :]
    flat = subject.gradient(points.flatten(0, 1), labels.repeat_interleave(len(grid)))
    gradients = flat.reshape(points.shape)
    # A kink stands out in second differences, where steep but smooth places do not.
    change = (gradients[:, 2:] - 2 * gradients[:, 1:-1] + gradients[:, :-2]).norm(dim=-1)
    line, cell = (index.flatten() for index in torch.unravel_index(change.flatten().topk(48).indices, change.shape))
    low, high, label = points[line, cell], points[line, cell + 2], labels[line]
    at_low, at_high = (subject.gradient(end, label) for end in (low, high))
    for _ in range(38):
        middle = (low + high) / 2
        at_middle = subject.gradient(middle, label)
        left = ((at_middle - at_low).norm(dim=1) >= (at_high - at_middle).norm(dim=1))[:, None]
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
        at_low, at_high = torch.where(left, at_low, at_middle), torch.where(left, at_middle, at_high)
    return float((at_high - at_low).norm(dim=1).max())
