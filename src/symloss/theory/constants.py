"""The largest gradient and curvature of the losses of the catalogue: a fine search over groups of equal scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.base import Loss
from symloss.losses.kernels.forms import form_of
from symloss.losses.logits import Scores
from symloss.losses.potentials import Potential
from symloss.losses.score_formulas import BiTemperedFormula, MSEFormula
from symloss.theory.proofs import is_built_here, simplified
from symloss.theory.subject import derivative

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
    loss = simplified(loss)
    leaves = _leaves(loss)
    searched = all(isinstance(leaf, (Potential, MSEFormula, BiTemperedFormula)) for leaf in leaves)
    if not searched or not is_built_here(loss):
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
