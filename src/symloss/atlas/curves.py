"""What the atlas draws: a loss along a line, on the triangle of three classes, and on a noisy threshold problem."""

from __future__ import annotations

import functools
import math

import torch
from torch import Tensor

from symloss.losses.base import Loss
from symloss.noise.transition import symmetric

CLASSES = (2, 3, 5, 10, 100)
MARGINS = (-8.0, 12.0)
PROBABILITIES = (0.002, 0.998)


@functools.cache
def margins(classes: int) -> Tensor:
    """Return the margins of the curves, dense enough for a chart against them and one against the probability."""
    angles = torch.linspace(0, math.pi / 2, 29, dtype=torch.float64)
    low, high = PROBABILITIES
    p = low + (high - low) * angles.sin() ** 2
    even = torch.linspace(*MARGINS, 41, dtype=torch.float64)
    return torch.cat([even, torch.logit(p) + math.log(classes - 1)]).sort().values


def probabilities(classes: int) -> Tensor:
    """Return the label's probability at each of the margins."""
    return torch.sigmoid(margins(classes) - math.log(classes - 1))


def scores(classes: int) -> Tensor:
    """Return the scores at each of the margins, (points, C). The label is class 0. The scores are log p."""
    raw = torch.zeros(len(margins(classes)), classes, dtype=torch.float64)
    raw[:, 0] = margins(classes)
    return raw.log_softmax(-1)


def loss_curves(loss: Loss, classes: int) -> dict[str, Tensor]:
    """Return the value L_y, the gradient weight -dL_y/dz_y by autograd, and the sum over labels along the line."""
    z = scores(classes).requires_grad_()
    values = loss.per_class(z)
    (gradient,) = torch.autograd.grad(values[:, 0].sum(), z)
    return {"value": values[:, 0].detach(), "weight": -gradient[:, 0], "sum": values.detach().sum(-1)}


STEPS = 21  # the parts that each side of the triangle is divided into: a multiple of 3, so that its centre is a point
EDGE = 0.004  # the least probability, because some losses are infinite at 0


@functools.cache
def simplex_points() -> Tensor:
    """Return the points of the triangle, (points, 3), row by row: p of the first class falls from row to row."""
    counts = [(STEPS - row, row - k, k) for row in range(STEPS + 1) for k in range(row + 1)]
    return EDGE + (1 - 3 * EDGE) * torch.tensor(counts, dtype=torch.float64) / STEPS


def simplex_map(loss: Loss) -> dict[str, Tensor]:
    """Return the value for the first class, and the sum over labels, at each point. The scores are log p."""
    values = loss.per_class(simplex_points().log())
    return {"value": values[:, 0], "sum": values.sum(-1)}


# A problem with one unknown, a threshold, to see what label noise does to the risk and to its minimum. There are ten
# classes. The examples lie on a line and belong to two of them: A on the left, B on the right, each a Gaussian. A is
# three times as frequent. The model knows everything but the threshold theta between them:
#
#     z_A = HEIGHT tanh(theta - x),   z_B = HEIGHT tanh(x - theta),   z_k = -HEIGHT for the other eight.
#
# Under symmetric noise a label becomes each of the nine other classes equally often.
THRESHOLD_CLASSES = 10
HEIGHT = 3.0
CENTRES = (-1.5, 1.5)
DEVIATION = 0.6
SHARES = torch.tensor([0.75, 0.25], dtype=torch.float64)
NOISE = tuple(round(0.05 * i, 2) for i in range(17))  # the rates of noise at which the minimum is sought
STEP = 0.05
THETAS = torch.arange(-60, 61, dtype=torch.float64) * STEP
DIFFERENCES = torch.arange(-164, 165, dtype=torch.float64) * STEP
"""Values of x - theta. The scores depend on nothing else, so each loss is evaluated at these alone."""


def threshold_scores(difference: Tensor) -> Tensor:
    """Return the scores (..., C) where x - theta is ``difference``."""
    z = torch.full((*difference.shape, THRESHOLD_CLASSES), -HEIGHT, dtype=torch.float64)
    z[..., 0], z[..., 1] = -HEIGHT * difference.tanh(), HEIGHT * difference.tanh()
    return z


def noisy_risk(loss: Loss) -> dict[str, Tensor]:
    """Return the expected loss at each theta: over x by quadrature, over labels by the transition matrix.

    It is linear in the rate of noise, so the first and last rate tell all of them; and the minima at each rate.
    """
    values = loss.per_class(threshold_scores(DIFFERENCES))
    expected = torch.einsum("jk,rck->cjr", values, _transitions())  # of an example of A and of one of B
    risks = torch.einsum("cij,cjr->ri", _weights(), expected)
    return {"clean": risks[0], "noisy": risks[-1], "minima": torch.stack([_argmin(risk) for risk in risks])}


@functools.cache
def _transitions() -> Tensor:
    """Return what becomes of the labels of A and B, at each rate: (rates, 2, C)."""
    return torch.stack([torch.from_numpy(symmetric(THRESHOLD_CLASSES, rate))[:2] for rate in NOISE])


@functools.cache
def _weights() -> Tensor:
    """Return the share of the examples of each class at each difference, for each theta: (2, thetas, differences)."""
    density = _bell(THETAS[:, None] + DIFFERENCES)
    return SHARES.reshape(2, 1, 1) * density / density.sum(-1, keepdim=True)


def _argmin(risk: Tensor) -> Tensor:
    """Return the theta with the least risk: the bottom of the parabola around the lowest point of the grid."""
    lowest = int(risk.argmin())
    if lowest in (0, len(risk) - 1):
        return THETAS[lowest]
    before, here, after = risk[lowest - 1 : lowest + 2]
    bottom: Tensor = THETAS[lowest] + 0.5 * STEP * (before - after) / (before - 2 * here + after)
    return bottom


def accuracy() -> Tensor:
    """Return the share of examples on the right side of each theta, by their true classes."""
    left, right = ((THETAS - centre) / DEVIATION for centre in CENTRES)
    right_side: Tensor = torch.special.ndtr(torch.stack([left, -right]))
    return SHARES @ right_side


def densities() -> Tensor:
    """Return how frequent the examples of A and of B are at each x of ``THETAS``, (2, thetas)."""
    return SHARES[:, None] * _bell(THETAS)


def _bell(x: Tensor) -> Tensor:
    """Return the unscaled densities of A and B at x, (2, ...)."""
    return torch.stack([(-0.5 * ((x - centre) / DEVIATION) ** 2).exp() for centre in CENTRES])
