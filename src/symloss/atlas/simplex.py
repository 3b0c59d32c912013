"""A loss of three classes at every p: on a triangle whose corners are the classes."""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.algebra import Loss

STEPS = 21
"""The parts that each side of the triangle is divided into. A multiple of 3, so that its centre is a point."""
EDGE = 0.004
"""The least probability, because some losses are infinite at 0."""


class SimplexMap(NamedTuple):
    """A loss on the triangle, in float64."""

    value: Tensor
    """L of the first class."""
    sum: Tensor
    """The sum of L over the three labels."""


@functools.cache
def simplex_points() -> Tensor:
    """The points of the triangle, (points, 3), row by row: p of the first class falls from row to row."""
    counts = [(STEPS - row, row - k, k) for row in range(STEPS + 1) for k in range(row + 1)]
    return EDGE + (1 - 3 * EDGE) * torch.tensor(counts, dtype=torch.float64) / STEPS


def simplex_map(loss: Loss) -> SimplexMap:
    """The value for the first class, and the sum over labels. The scores are log p."""
    values = loss.per_class(simplex_points().log())
    return SimplexMap(values[:, 0], values.sum(-1))
