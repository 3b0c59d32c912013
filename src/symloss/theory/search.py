"""Search for the worst case of a loss: where to look, gradient ascent over scores, rays, jumps, chords."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.theory.findings import CounterExample
from symloss.theory.subject import Objective, Subject, derivative

ROUNDING = 1e-9  # violations below this, relative to the size of the values, are rounding
REACH = 40.0  # the largest score at which derivatives are searched; beyond it softmax is flat in float64
REACHES = (1.0, 10.0, REACH, 1e2, 1e4, 1e6)  # how far values are searched, where they are finite
RADII = tuple(10.0 ** (k / 2) for k in range(4, 13))  # 1e2 to 1e6, where growth is measured
SHORTEST_STEP = 1e-6  # where ascent stops: a shorter step changes no digit that is reported
FLAT = 1e-13  # a slope below this, relative to the value, is rounding: there is nothing to climb
RAYS, PER_RAY, VALUES = 24, 2048, 4_000_000
"""Rays, points of each, and the most values that are computed on all of them."""
JUMPS, HALVINGS, LABELS = 64, 40, 400


def bends(subject: Subject, z: Tensor, y: Tensor) -> bool:
    """Return whether the loss can be differentiated twice. Some losses of torch cannot."""
    try:
        subject.hessian(z[:1], y[:1])
    except RuntimeError:
        return False
    return subject.differentiable


def starting_points(num_classes: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return scores (P, C) and labels (P,) to start from.

    In some the label and a few rivals lead or trail the rest. The others are normal draws of all sizes.
    """
    half = [0.3, 1.0, 2.0, 4.0, 7.0, 12.0, 20.0, 35.0]
    steps = [*(-step for step in reversed(half)), 0.0, *half]
    # (label, rivals, rest): every pair with a rest at 0, and every margin with a rest of no probability.
    levels = [(label, rival, 0.0) for label in steps for rival in steps] + [(label, 0.0, -REACH) for label in steps]
    counts = [count for count in sorted({1, 2, num_classes // 2}) if count < num_classes]
    shapes = [(*level, rivals) for level in levels for rivals in counts]
    points = torch.empty(len(shapes), num_classes, dtype=torch.float64)
    order = torch.rand(points.shape, generator=generator).argsort(1)
    for point, (label, rival, rest, rivals), place in zip(points, shapes, order, strict=True):
        point[:] = rest
        point[place[: 1 + rivals]] = rival
        point[place[0]] = label
    draws = torch.randn(160, num_classes, dtype=torch.float64, generator=generator)
    sizes = torch.tensor([1e-2, 0.3, 1.0, 3.0, 10.0], dtype=torch.float64).repeat(32)
    labels = torch.cat([order[:, 0], torch.randint(num_classes, (160,), generator=generator)])
    return torch.cat([points, draws * sizes[:, None]]).clamp(-REACH, REACH), labels


class Rays(NamedTuple):
    """Points on lines through the scores: base + t axis, (R, T, C), with one label a line.

    On the first ``own`` lines only the label's score changes.
    """

    base: Tensor
    axis: Tensor
    labels: Tensor
    t: Tensor
    own: int

    def at(self, t: Tensor) -> Tensor:
        """Return the points (R, T, C) at places (R, T)."""
        return self.base[:, None] + t[..., None] * self.axis[:, None]

    @property
    def z(self) -> Tensor:
        """All points, (R T, C)."""
        return self.at(self.t).flatten(0, 1)

    @property
    def y(self) -> Tensor:
        """Their labels, (R T,)."""
        return self.labels.repeat_interleave(self.t.shape[1])


def rays(num_classes: int, reach: float, generator: torch.Generator) -> Rays:
    """Return lines with even grids, each shifted by another share of its step: half of them move the label's score.

    A quarter moves a rival's score, and a quarter has random directions.
    """
    per_ray = max(64, min(PER_RAY, VALUES // (RAYS * num_classes)))
    sizes = torch.tensor([0.1, 1.0, 3.0, 10.0], dtype=torch.float64).repeat(RAYS // 4)[:, None]
    base = sizes * torch.randn(RAYS, num_classes, dtype=torch.float64, generator=generator)
    labels = torch.arange(RAYS) % num_classes
    own, rivals = RAYS // 2, RAYS // 4
    axis = torch.rand(RAYS, num_classes, dtype=torch.float64, generator=generator) * 2 - 1
    axis /= axis.abs().amax(1, keepdim=True)
    axis[:own] = one_hot(labels[:own], axis)
    axis[own : own + rivals] = one_hot((labels[own : own + rivals] + 1) % num_classes, axis)
    base = torch.where(axis.abs() == 1, 0.0, base).clamp(-reach, reach)
    base[own + rivals :: 2] = 0.0
    grid = torch.linspace(-1, 1, per_ray, dtype=torch.float64)
    shift = torch.rand(RAYS, 1, dtype=torch.float64, generator=generator) * (grid[1] - grid[0])
    return Rays(base, axis, labels, min(reach, REACH) * (grid + shift), own)


def one_hot(index: Tensor, like: Tensor) -> Tensor:
    """Return the unit vectors of some classes, in the type and with the number of classes of another tensor."""
    return torch.nn.functional.one_hot(index, like.shape[1]).to(like)


@dataclass
class Places:
    """Where a loss is searched: points near and far, and rays; and its values there.

    Args:
        subject: the loss.
        seed: the seed of the random points.
    """

    subject: Subject
    seed: int = 0

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.seed)
        subject, classes = self.subject, self.subject.num_classes
        z, y = starting_points(classes, generator)
        spread = torch.linspace(0, len(z) - 1, 96).long()
        shapes, labels = directions(z[spread]), y[spread]
        own = one_hot(labels, shapes)
        shapes = torch.cat([shapes, own, -own, own + 1e-3 * shapes])  # the last ones: the others are small beside it
        labels = labels.repeat(4)
        far, self.reach, self.overflow = [], 0.0, None
        for radius in REACHES:
            values = subject.value(radius * shapes, labels).detach()
            if radius <= REACH:
                subject.refuse_nan(radius * shapes, labels, values)
            lost = (~values.isfinite()).nonzero().flatten()
            if len(lost):
                self.overflow = radius * shapes[lost[0]], labels[lost[0]], float(values[lost[0]])
                break
            self.reach = radius
            if radius > REACH:
                far.append(radius * shapes)
        values = subject.value(z, y).detach()
        subject.refuse_nan(z, y, values)
        kept = values.isfinite() & (z.abs().amax(1) <= self.reach)
        if not bool(kept.any()) or self.reach == 0:
            raise ValueError("certify needs a loss that is finite at small scores; it is infinite even within |z| <= 1")
        if self.overflow is None and not bool(values.isfinite().all()):
            first = int((~values.isfinite()).nonzero()[0])
            self.overflow = z[first], y[first], float(values[first])
        self.z, self.y = z[kept], y[kept]
        self.far_z = torch.cat(far) if far else z[:0]
        self.far_y = labels.repeat(len(far))
        self.rays = rays(classes, self.reach, generator)
        self.witnesses: list[tuple[Tensor, int]] = []

    @cached_property
    def far_lines(self) -> tuple[Tensor, Tensor]:
        """Points (L, T, C) on geometric grids of the label's score out to the reach, and labels (L,): far ones first.

        The first lines have fine grids, each shifted by another share of its step. Then each label has one, up to 400.
        """
        lines, classes = self.rays, self.subject.num_classes
        if self.reach <= REACH:
            return self.z[:0, None].expand(-1, 2, -1), self.y[:0]
        most = 2 * max(6, min(200, VALUES // (2 * lines.own * classes**2)))
        each = torch.arange(classes)[:: -(-classes // LABELS)]
        share = torch.arange(lines.own, dtype=torch.float64)[:, None] / lines.own
        decades = math.log10(self.reach / 10)
        far = 10 * 10 ** ((torch.arange(most) + share) * (decades / most))
        grid = torch.cat([-far.flip(1), far], 1)
        some = lines.base[: lines.own, None] + grid[..., None] * lines.axis[: lines.own, None]
        near = torch.linspace(-REACH, REACH, most, dtype=torch.float64)
        beyond = torch.logspace(math.log10(REACH), math.log10(self.reach), most // 2 + 1, dtype=torch.float64)[1:]
        steps = torch.cat([-beyond.flip(0), near, beyond])[: 2 * most]
        every = steps[:, None] * one_hot(each, some[0])[:, None]
        return torch.cat([some, every]), torch.cat([lines.labels[: lines.own], each])

    def remember(self, example: CounterExample | None) -> None:
        """Search later properties on the lines of the label's score through a counter-example of an earlier one."""
        if example is not None and example.label is not None:
            point = torch.tensor(example.scores["a"], dtype=torch.float64)
            self.witnesses.append((point, example.label))

    @property
    def own_lines(self) -> tuple[Tensor, Tensor]:
        """Points (L, T, C) on lines of the label's score, and labels (L,): far ones, and those through witnesses."""
        points, labels = self.far_lines
        if not self.witnesses or not len(points):
            return points, labels
        base = torch.stack([point for point, _ in self.witnesses])
        label = torch.tensor([label for _, label in self.witnesses])
        size = max(REACH, float(base.abs().max()))
        grid = torch.linspace(-2 * size, 2 * size, points.shape[1], dtype=torch.float64)
        through = base[:, None] + grid[:, None] * one_hot(label, base)[:, None]
        return torch.cat([points, through]), torch.cat([labels, label])

    @cached_property
    def few(self) -> tuple[Tensor, Tensor]:
        """Points near 0 and their labels, few enough to call a function of one label C times for each."""
        return self.thinned(self.z, 10), self.thinned(self.y, 10)

    def thinned(self, points: Tensor, budgets: int = 1) -> Tensor:
        """Return an even sample of points, few enough to evaluate at every label within some budgets of ``VALUES``."""
        return points[:: max(1, -(-len(points) * self.subject.num_classes**2 // (budgets * VALUES)))]

    @property
    def limit(self) -> float:
        """How far ascent may go."""
        return min(REACH, self.reach)

    @property
    def count(self) -> int:
        """How many points are searched, without those of the ascent."""
        return len(self.z) + len(self.far_z) + self.rays.t.numel()

    @cached_property
    def every(self) -> tuple[Tensor, Tensor]:
        """All points and labels."""
        return torch.cat([self.z, self.far_z, self.rays.z]), torch.cat([self.y, self.far_y, self.rays.y])

    @cached_property
    def values(self) -> Tensor:
        """The values at all points."""
        z, y = torch.cat([self.z, self.far_z]), torch.cat([self.y, self.far_y])
        return torch.cat([self.subject.value(z, y).detach(), self.along.flatten()])

    @cached_property
    def along(self) -> Tensor:
        """The values (R, T) on the rays."""
        values = self.subject.value(self.rays.z, self.rays.y).detach()
        self.subject.refuse_nan(self.rays.z, self.rays.y, values)
        return values.reshape(self.rays.t.shape)

    @cached_property
    def gradients(self) -> Tensor:
        """The gradients (R, T, C) on the rays; zeros if the loss has none."""
        return self._autograd.nan_to_num(0.0, torch.inf, -torch.inf).reshape(*self.rays.t.shape, -1)

    @cached_property
    def _autograd(self) -> Tensor:
        return self.subject.gradient(self.rays.z, self.rays.y)

    @cached_property
    def undefined(self) -> CounterExample | None:
        """Where the gradient is NaN although the loss is a number. The search leaves such points out."""
        zero = torch.zeros_like(self.z[:1])
        near, labels = torch.cat([zero, self.z]), torch.cat([self.y[:1], self.y])
        z, y = torch.cat([near, self.rays.z]), torch.cat([labels, self.rays.y])
        gradients = torch.cat([self.subject.gradient(near, labels), self._autograd])
        lost = gradients.isnan().any(1).nonzero().flatten()
        if not len(lost):
            return None
        at = int(lost[0])
        seen = f"the gradient is nan at {len(lost):,} of {len(z):,} points, which were left out; one is a"
        return CounterExample(seen, int(y[at]), {"a": z[at].tolist()})

    @cached_property
    def jumps(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The cells of rays in which values disagree most with their slopes, bisected.

        The ray of each cell (J,), the two ends of what is left of it (J,), and how much the value changes there more
        than its slopes say (J,).
        """
        rays, t = self.rays, self.rays.t
        values, slopes = self.along, (self.gradients * rays.axis[:, None]).sum(-1)
        off = _disagreement(t[:, :-1], t[:, 1:], values[:, :-1], values[:, 1:], slopes[:, :-1], slopes[:, 1:])
        off = off / (values[:, 1:].abs() + values[:, :-1].abs() + self.subject.unit)
        flat = off.flatten().topk(min(JUMPS, off.numel())).indices
        ray, cell = flat // off.shape[1], flat % off.shape[1]
        axis, base, y = rays.axis[ray], rays.base[ray], rays.labels[ray]
        ends = [[part[ray, cell + k] for part in (t, values, slopes)] for k in (0, 1)]
        for _ in range(HALVINGS):
            place = (ends[0][0] + ends[1][0]) / 2
            at = base + place[:, None] * axis
            with torch.no_grad():
                value = self.subject.value(at, y)
            middle = [place, value, (self.subject.gradient(at, y) * axis).sum(1)]
            left, right = _between(ends[0], middle), _between(middle, ends[1])
            ends = [
                [torch.where(left >= right, *parts) for parts in zip(ends[0], middle, strict=True)],
                [torch.where(left >= right, *parts) for parts in zip(middle, ends[1], strict=True)],
            ]
        return ray, ends[0][0], ends[1][0], _between(*ends)

    def sharp_turns(self, most: int) -> tuple[Tensor, Tensor]:
        """Return the points (K, C) of the rays beside which the gradient changes most, and their rays (K,)."""
        change = (self.gradients[:, 1:] - self.gradients[:, :-1]).norm(dim=-1)
        flat = change.flatten().topk(min(most, change.numel())).indices
        ray, cell = flat // change.shape[1], flat % change.shape[1]
        return self.rays.base[ray] + self.rays.t[ray, cell, None] * self.rays.axis[ray], ray

    def sharpest_kink(self) -> float:
        """Return the largest change of the gradient within 1e-9, along the rays: of a kink, or of a jump."""
        g = self.gradients
        change = (g[:, 2:] - 2 * g[:, 1:-1] + g[:, :-2]).norm(dim=-1)
        flat = change.flatten().topk(min(48, change.numel())).indices
        ray, cell = flat // change.shape[1], flat % change.shape[1]
        points = self.rays.z.reshape(*self.rays.t.shape, -1)
        y = self.rays.labels[ray]
        ends = points[ray, cell], points[ray, cell + 2]
        return float(narrow(lambda at: self.subject.gradient(at, y), *ends, HALVINGS)[2].nan_to_num(0.0).max())


def _disagreement(t0: Tensor, t1: Tensor, v0: Tensor, v1: Tensor, s0: Tensor, s1: Tensor) -> Tensor:
    """Return how much values change from t0 to t1 more than their slopes say."""
    return (v1 - v0 - (t1 - t0) * (s0 + s1) / 2).abs()


def _between(low: list[Tensor], high: list[Tensor]) -> Tensor:
    return _disagreement(*(part for pair in zip(low, high, strict=True) for part in pair)).nan_to_num(0.0)


def climb(
    objective: Objective, z: Tensor, y: Tensor, keep: int = 8, steps: int = 30, limit: float = REACH
) -> tuple[Tensor, Tensor, Tensor]:
    """Improve the best ``keep`` points by gradient ascent. Returns scores, labels and values, best first."""
    z, y, value = ascend(objective, *best_points(objective, z, y, keep), steps, limit)
    order = value.argsort(descending=True)
    return z[order], y[order], value[order]


def best_points(objective: Objective, z: Tensor, y: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """Return the ``keep`` points of largest value, and their labels."""
    value = objective(z, y).detach()
    best = value.nan_to_num(-torch.inf).topk(min(keep, len(value))).indices
    return z[best].detach(), y[best]


def ascend(
    objective: Objective, z: Tensor, y: Tensor, steps: int, limit: float = REACH
) -> tuple[Tensor, Tensor, Tensor]:
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
        trial = (z + step[:, None] * slope / length.clamp_min(1e-300)).clamp(-limit, limit)
        found, found_slope = _with_slope(objective, trial, y)
        better = found > value
        z, slope = torch.where(better[:, None], trial, z), torch.where(better[:, None], found_slope, slope)
        value = torch.where(better, found, value)
        step = torch.where(better, 2.0 * step, 0.3 * step)
    return z, y, value


def _with_slope(objective: Objective, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Return the objective's values (P,) and its slopes (P, C)."""
    at = z.clone().requires_grad_()
    value = objective(at, y)
    return value.detach(), derivative(value.sum(), at, False).nan_to_num(0.0, 0.0, 0.0)


def grows(size_at: Callable[[float], Tensor], least: float = 1e-6, unit: float = 1.0) -> bool:
    """Return whether a quantity, at most size_at(radius), still grows with the radius at 1e6.

    It is measured from 1e2 to 1e6. In the last two decades a bounded quantity gains less than in the two before, a
    logarithm as much, and a power more; and it gains in each of the last two half decades.

    Args:
        size_at: a function of the radius.
        least: the least gain, relative to the unit and the first value.
        unit: the size of an ordinary change.
    """
    sizes = [float(size_at(radius)) for radius in RADII]
    middle = len(RADII) // 2
    first, second = sizes[middle] - sizes[0], sizes[-1] - sizes[middle]
    last = min(sizes[-1] - sizes[-2], sizes[-2] - sizes[-3])
    return last > least * (unit + abs(sizes[0])) and second > 0.6 * first


def directions(z: Tensor) -> Tensor:
    """Return the points scaled so that their largest absolute score is 1, for searches far from 0."""
    return z / z.abs().amax(1, keepdim=True).clamp_min(1e-9)


def narrow(
    function: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, halvings: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Halve the distances between points (P, n), each time around the larger change of a function (P, m).

    Returns:
        The points on both sides, and how much the function still changes between them, (P,).
    """
    at_low, at_high = function(low), function(high)
    for _ in range(halvings):
        middle = (low + high) / 2
        at_middle = function(middle)
        left = ((at_middle - at_low).norm(dim=1) >= (at_high - at_middle).norm(dim=1))[:, None]
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
        at_low, at_high = torch.where(left, at_low, at_middle), torch.where(left, at_middle, at_high)
    return low, high, (at_high - at_low).norm(dim=1)


class Chord(NamedTuple):
    """The chord from grid point ``start`` to ``end``. The value at ``middle`` lies ``excess`` above it."""

    excess: float
    start: int
    middle: int
    end: int


def worst_chord(values: Tensor, either_side: bool = False) -> Chord:
    """Find the chord, among chords of many lengths, that the value at its middle exceeds most (or differs from most).

    ``values`` has one row for each point of an even grid. Each column is another function.
    """
    rows = values.reshape(len(values), -1)
    longest = (len(rows) - 1) // 2
    found = []
    for step in sorted({longest, *(2**k for k in range(longest.bit_length()))}):
        excess = rows[step:-step] - (rows[: -2 * step] + rows[2 * step :]) / 2
        height = (excess.abs() if either_side else excess).amax(1)
        top = int(height.argmax())
        found.append(Chord(float(height[top]), top, top + step, top + 2 * step))
    return max(found)
