"""A loss along a line: the label's probability goes from 0 to 1 and the other classes share the rest equally."""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.algebra import Loss

CLASSES = (2, 3, 5, 10, 100)
MARGINS = (-8.0, 12.0)
PROBABILITIES = (0.002, 0.998)


class LossCurves(NamedTuple):
    """A loss along the line, in float64."""

    value: Tensor
    """L_y."""
    weight: Tensor
    """The gradient weight: -dL_y/dz_y, by autograd."""
    sum: Tensor
    """The sum of L over all labels."""


@functools.cache
def margins(classes: int) -> Tensor:
    """Where curves are sampled: the label's score less that of the others.

    The points are dense enough for a chart against the margin, and for one against the label's probability.
    """
    angles = torch.linspace(0, math.pi / 2, 29, dtype=torch.float64)
    low, high = PROBABILITIES
    p = low + (high - low) * angles.sin() ** 2
    even = torch.linspace(*MARGINS, 41, dtype=torch.float64)
    return torch.cat([even, torch.logit(p) + math.log(classes - 1)]).sort().values


def probabilities(classes: int) -> Tensor:
    """The label's probability at each of the margins."""
    return torch.sigmoid(margins(classes) - math.log(classes - 1))


def scores(classes: int) -> Tensor:
    """The scores at each of the margins, (points, C). The label is class 0. The scores are log p."""
    raw = torch.zeros(len(margins(classes)), classes, dtype=torch.float64)
    raw[:, 0] = margins(classes)
    return raw.log_softmax(-1)


def loss_curves(loss: Loss, classes: int) -> LossCurves:
    """Value, gradient weight and sum over labels along the line."""
    z = scores(classes).requires_grad_()
    values = loss.per_class(z)
    (gradient,) = torch.autograd.grad(values[:, 0].sum(), z)
    return LossCurves(values[:, 0].detach(), -gradient[:, 0], values.detach().sum(-1))
