"""Search for the worst case of a loss: gradient ascent over scores, a fine search over groups of classes, chords."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.base import Loss, Sum
from symloss.losses.kernels.forms import form_of
from symloss.losses.logits import Scores
from symloss.losses.operators import Symmetrize
from symloss.losses.potentials import MAEPotential, Potential
from symloss.losses.score_formulas import BiTemperedFormula, MSEFormula

Objective = Callable[[Tensor, Tensor], Tensor]
"""A function of scores (P, C) and labels (P,) with values (P,), which the search makes large."""

ROUNDING = 1e-9  # violations below this, relative to the size of the values, are rounding
REACH = 40.0  # the largest score at which derivatives are measured; beyond it softmax is flat in float64
SHORTEST_STEP = 1e-6  # where ascent stops: a shorter step changes no digit that is reported
FLAT = 1e-13  # a slope below this, relative to the value, is rounding: there is nothing to climb


@dataclass(frozen=True)
class Subject:
    """The loss that is measured: its value at every label, in float64."""

    per_class: Callable[[Tensor], Tensor]
    num_classes: int

    def value(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the losses (P,) of scores (P, C) at labels (P,)."""
        return self.per_class(z).gather(1, y[:, None]).squeeze(1)

    def gradient(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the gradients (P, C) in the scores. They can be differentiated again if z requires a gradient."""
        keep = z.requires_grad
        z = z if keep else z.detach().requires_grad_()
        return derivative(self.value(z, y).sum(), z, keep)

    def hessian(self, z: Tensor, y: Tensor) -> Tensor:
        """Return the second derivatives (P, C, C) in the scores."""
        z = z.detach().requires_grad_()
        g = self.gradient(z, y)
        rows = [derivative(g[:, k].sum(), z, False, retain=True) for k in range(self.num_classes)]
        return torch.stack(rows, 1)


def derivative(value: Tensor, z: Tensor, create_graph: bool, retain: bool = False) -> Tensor:
    """Return the derivative of ``value`` by z; zeros if it does not depend on z, like the slope of a linear loss."""
    if not value.requires_grad:
        return torch.zeros_like(z)
    (found,) = torch.autograd.grad(
        value, z, create_graph=create_graph, retain_graph=create_graph or retain, allow_unused=True
    )
    return torch.zeros_like(z) if found is None else found


def bends(subject: Subject, z: Tensor, y: Tensor) -> bool:
    """Return whether the loss can be differentiated twice. Some losses of torch cannot."""
    try:
        subject.hessian(z[:1], y[:1])
    except RuntimeError:
        return False
    return True


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


def climb(objective: Objective, z: Tensor, y: Tensor, keep: int = 8, steps: int = 30) -> tuple[Tensor, Tensor, Tensor]:
    """Improve the best ``keep`` points by gradient ascent. Returns scores, labels and values, best first."""
    z, y, value = ascend(objective, *best_points(objective, z, y, keep), steps)
    order = value.argsort(descending=True)
    return z[order], y[order], value[order]


def best_points(objective: Objective, z: Tensor, y: Tensor, keep: int) -> tuple[Tensor, Tensor]:
    """Return the ``keep`` points of largest value, and their labels."""
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
    """Return the objective's values (P,) and its slopes (P, C)."""
    at = z.clone().requires_grad_()
    value = objective(at, y)
    return value.detach(), derivative(value.sum(), at, False)


def grows(size_at: Callable[[float], Tensor]) -> bool:
    """Return whether a quantity, at most size_at(radius), grows without bound with the radius.

    It is measured at 1e2, 1e4 and 1e6. In the second step a bounded quantity gains less than in the first, a logarithm
    as much, and a power more.
    """
    near, far, farther = (float(size_at(radius)) for radius in (1e2, 1e4, 1e6))
    first, second = far - near, farther - far
    return second > 1e-6 * (1 + abs(near)) and second > 0.6 * first


def directions(z: Tensor) -> Tensor:
    """Return the points scaled so that their largest absolute score is 1, for searches far from 0."""
    return z / z.abs().amax(1, keepdim=True).clamp_min(1e-9)


def largest_rise(subject: Subject, z: Tensor, y: Tensor, rays: int = 32) -> tuple[Tensor, Tensor, Tensor]:
    """Return two points that differ in the label's score alone, between which the loss rises most; and the label.

    The rays pass through starting points. Their grid is fine near 0 and extends to ``REACH``.
    """
    chosen = torch.linspace(0, len(z) - 1, min(rays, len(z))).long()
    z, y = z[chosen], y[chosen]
    grid = torch.linspace(-1, 1, 161, dtype=z.dtype)
    grid = grid.sign() * (grid.abs() * math.log1p(REACH)).expm1()
    own = torch.nn.functional.one_hot(y, subject.num_classes).bool()
    points = torch.where(own[:, None, :], grid[None, :, None], z[:, None, :])
    with torch.no_grad():
        flat = subject.value(points.flatten(0, 1), y.repeat_interleave(len(grid)))
    values = flat.reshape(points.shape[:2])
    lowest = values.cummin(1)
    rise = values - lowest.values
    ray, end = divmod(int(rise.nan_to_num(0.0).argmax()), len(grid))
    return points[ray, lowest.indices[ray, end]], points[ray, end], y[ray]


def sharpest_jump(subject: Subject, z: Tensor, y: Tensor) -> float:
    """Find the largest change of the gradient within a distance of 1e-9, along lines that move one score, by bisection.

    Without a kink the gradient changes by the curvature times 1e-9.
    """
    lines, labels = z[:24], y[:24]
    moving = torch.where(torch.arange(len(lines)) % 2 == 0, labels, lines.argmax(1))
    axis = torch.nn.functional.one_hot(moving, subject.num_classes).to(z)
    grid = torch.linspace(-REACH, REACH, 241, dtype=z.dtype)
    points = lines[:, None, :] + grid[None, :, None] * axis[:, None, :]
    flat = subject.gradient(points.flatten(0, 1), labels.repeat_interleave(len(grid)))
    gradients = flat.reshape(points.shape)
    # A kink stands out in second differences, where steep but smooth places do not.
    change = (gradients[:, 2:] - 2 * gradients[:, 1:-1] + gradients[:, :-2]).norm(dim=-1)
    line, cell = (index.flatten() for index in torch.unravel_index(change.flatten().topk(48).indices, change.shape))
    low, high, label = points[line, cell], points[line, cell + 2], labels[line]
    return largest_jump(lambda at: subject.gradient(at, label), low, high, halvings=38)


def largest_jump(gradient: Callable[[Tensor], Tensor], low: Tensor, high: Tensor, halvings: int) -> float:
    """Return the largest change of a gradient between points (P, C), after halving each distance around its change."""
    at_low, at_high = gradient(low), gradient(high)
    for _ in range(halvings):
        middle = (low + high) / 2
        at_middle = gradient(middle)
        left = ((at_middle - at_low).norm(dim=1) >= (at_high - at_middle).norm(dim=1))[:, None]
        low, high = torch.where(left, low, middle), torch.where(left, middle, high)
        at_low, at_high = torch.where(left, at_low, at_middle), torch.where(left, at_middle, at_high)
    return float((at_high - at_low).norm(dim=1).max())


LEVELS = (0.0, 0.3, 0.7, 1.0, 1.5, 2.0, 2.5, 3.2, 4.0, 5.5, 7.0, 9.0, 12.0, 14.5, 17.0, 22.0, 30.0)
FAR = (60.0, 120.0, 240.0, 480.0, 700.0)
"""How far the label's score may be below the others. NCE is steepest at a distance of about 500."""
GONE = -800.0  # a score at which a class has no probability left


class Grouped(Scores):
    """Scores (P, groups) of groups of classes with equal scores, and their sizes. The first column is the label."""

    def __init__(self, z: Tensor, sizes: Tensor):
        super().__init__(z)
        self.sizes = sizes
        leader = z.argmax(1, keepdim=True)
        others = torch.where(self.index != leader, sizes * self.behind.exp(), sizes - 1)
        self.__dict__["logp"] = self.behind - others.sum(1, keepdim=True).log1p()
        self.__dict__["count"] = sizes.sum(1, keepdim=True)

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all classes, (P, 1)."""
        return (self.sizes * values).sum(1, keepdim=True)


class GroupedPoints(NamedTuple):
    """Score vectors of groups of classes."""

    z: Tensor  # (P, groups)
    sizes: Tensor  # (P, groups), how many classes each column stands for
    grid: tuple[int, ...] = ()  # the shape of the grid, if the P points form one

    def best(self, values: Tensor, keep: int) -> GroupedPoints:
        """Return the ``keep`` points of largest value, and the best ``keep`` local maxima of the grid."""
        around = torch.nn.functional.max_pool3d(values.reshape(1, *self.grid), 3, 1, 1).flatten()
        peaks = torch.where(values >= around, values, -torch.inf)
        chosen = torch.cat([rank.topk(min(keep, len(values))).indices for rank in (values, peaks)])
        return GroupedPoints(self.z[chosen], self.sizes[chosen])


class Derivatives(NamedTuple):
    """The largest gradient and curvature that the search met, and whether none can be larger."""

    lipschitz: float
    smoothness: float
    exact: bool


def largest_derivatives(loss: Loss, num_classes: int) -> Derivatives | None:
    """Return the largest gradient and curvature; None unless the loss is built of the potentials this search knows.

    Such a loss does not know the names of the classes. So its derivatives are sought where the classes beside the label
    form few groups of equal scores: four columns stand for all C classes. The search misses nothing with at most four
    classes, and for ``phi(log p_y) + k unhinged`` with any number:

    - The gradient is phi' (e_y - p) plus a constant vector k (1/C - e_y). For a given p_y its norm grows with the sum
      of the other p_k^2, and is largest with all the rest on one class.
    - The curvature along v is phi'' (v_y - m)^2 - phi' (s - m^2) with m = sum_k p_k v_k and s = sum_k p_k v_k^2. For a
      given p_y and v it depends on two linear functions of the other p_k. Among p with the same m and s the corners of
      the simplex hold at most two classes beside the label, so it is largest (and smallest) with the rest on two.

    For other losses the value is a lower bound: one that the loss takes.
    """
    loss = _simplified(loss)
    leaves = _leaves(loss)
    if not loss.any_classes or not all(isinstance(leaf, (Potential, MSEFormula, BiTemperedFormula)) for leaf in leaves):
        return None
    form = form_of(loss, num_classes)
    label_alone = form is not None and not form.summed
    starts = _two_rivals(num_classes) if label_alone else _grid(num_classes)
    # The tails of BiTempered are heavy: its suprema may lie where no score of the search does.
    complete = num_classes <= 4 and not any(isinstance(leaf, BiTemperedFormula) for leaf in leaves)
    return Derivatives(
        _search(lambda at: _gradient_norm(loss, at), starts),
        _search(lambda at: _curvature(loss, at), starts),
        label_alone or complete,
    )


def _simplified(loss: Loss) -> Loss:
    """Drop the symmetrization of a symmetric loss, which changes a constant; replace that of MSE by twice MAE."""
    if isinstance(loss, Sum):
        return Sum(tuple((factor, _simplified(term)) for factor, term in loss.terms))
    if isinstance(loss, Symmetrize) and loss.prior is None:
        if isinstance(loss.inner, MSEFormula):
            return MAEPotential(scale=2.0)
        return loss.inner if loss.inner.symmetric else loss
    return loss


def _leaves(loss: Loss) -> list[Loss]:
    return [leaf for child in loss.children for leaf in _leaves(child)] if loss.children else [loss]


def _two_rivals(num_classes: int) -> list[GroupedPoints]:
    """Return the label at all margins that matter in double precision, and all other probability on two classes."""
    # Finer around 0: SCE's largest curvature exceeds a plateau by half a per cent, on an interval of 0.3.
    margins = [k / 2 for k in range(-1480, 80) if abs(k) >= 40] + [k / 10 for k in range(-199, 200)]
    second = [-level for level in LEVELS[::4]] if num_classes > 2 else [0.0]
    return [_points([sorted(margins), second, [GONE]], [1.0, 1.0, 1.0, num_classes - 3.0][:num_classes])]


def _grid(num_classes: int) -> list[GroupedPoints]:
    """Return scores of the label, one class at 0, a group and the rest, at all levels and for groups of all sizes."""
    positive = LEVELS if num_classes <= 4 else LEVELS[::2]
    levels = [*(-level for level in reversed(positive[1:])), *positive]
    label = [*(-level for level in reversed(FAR)), *levels]
    if num_classes <= 4:
        return [_points([label, *([levels] * (num_classes - 2)), *([[0.0]] * (4 - num_classes))], [1.0] * num_classes)]
    groups = {1, 2, 3, num_classes // 8, num_classes // 4, num_classes // 2, 3 * num_classes // 4, num_classes - 3}
    sizes = [[1.0, 1.0, group, num_classes - 2.0 - group] for group in sorted(groups) if 1 <= group <= num_classes - 3]
    return [_points([label, levels, levels], size) for size in sizes]


def _points(axes: list[list[float]], sizes: list[float]) -> GroupedPoints:
    """Combine the axes: scores of the label, of the second and the third group. The first class is at 0."""
    label, second, third = torch.cartesian_prod(*(torch.tensor(axis, dtype=torch.float64) for axis in axes)).T
    size = torch.tensor([size for size in sizes if size > 0], dtype=torch.float64)
    z = torch.stack([label, torch.zeros_like(label), second, third], 1)[:, : len(size)]
    return GroupedPoints(z, size.expand_as(z), tuple(map(len, axes)))


def _search(objective: Callable[[GroupedPoints], Tensor], starts: list[GroupedPoints]) -> float:
    """Return the largest value: move to better neighbours, and come closer where no neighbour is better.

    No slope is used, since the function may jump.
    """
    best = [points.best(objective(points), 12 // len(starts) + 2) for points in starts]
    z, sizes = torch.cat([points.z for points in best]), torch.cat([points.sizes for points in best])
    moves = [torch.tensor([0.0, -1.0, 1.0], dtype=torch.float64)] * z.shape[1]
    moves[1] = moves[0][:1]  # only differences of scores count
    around = torch.cartesian_prod(*moves)
    step, rows, largest = torch.ones(len(z), 1, 1, dtype=torch.float64), torch.arange(len(z)), 0.0
    for _ in range(60):
        near = z[:, None, :] + step * around
        values = objective(GroupedPoints(near.flatten(0, 1), sizes.repeat_interleave(len(around), 0)))
        top = values.reshape(len(z), -1).max(1)
        z, largest = near[rows, top.indices], max(largest, float(top.values.max()))
        step = torch.where(top.indices[:, None, None] == 0, step / 3, step * 2)
        if float(step.max()) < 1e-6:
            break
    return largest


def _slopes(loss: Loss, at: GroupedPoints, create_graph: bool) -> tuple[Tensor, Tensor]:
    """Return scores, and the derivatives of the label's loss by the scores of the groups."""
    z = at.z.detach().requires_grad_()
    label = torch.zeros(len(z), 1, dtype=torch.long)
    values = loss.values(Grouped(z, at.sizes), label)
    return z, derivative(values.sum(), z, create_graph)


def _gradient_norm(loss: Loss, at: GroupedPoints) -> Tensor:
    """Return the norm of the gradient. Each of n classes in a group has 1/n of its derivative. NaN counts as 0."""
    _, slopes = _slopes(loss, at, False)
    norms = (slopes.square() / at.sizes).sum(1).sqrt()
    return torch.where(norms.isfinite(), norms, 0.0)


def _curvature(loss: Loss, at: GroupedPoints) -> Tensor:
    """Return the largest absolute eigenvalue of the second derivatives, for directions that move groups as a whole."""
    z, slopes = _slopes(loss, at, True)
    rows = [derivative(slopes[:, k].sum(), z, False, retain=True) for k in range(z.shape[1] - 1)]
    rows.append(-torch.stack(rows).sum(0))  # the loss stays the same where all scores grow alike
    unit = at.sizes.sqrt()
    matrix = torch.stack(rows, 1) / (unit[:, :, None] * unit[:, None, :])
    finite = matrix.isfinite().all((1, 2))
    values = torch.linalg.eigvalsh(torch.where(finite[:, None, None], matrix, 0.0)).abs().amax(1)
    return torch.where(finite, values, 0.0)


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
