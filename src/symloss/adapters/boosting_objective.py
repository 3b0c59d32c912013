"""Any loss of the catalogue as an objective of gradient boosting: its gradient, and a Hessian above zero."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from symloss.adapters.criterion_of import AnyCriterion, criterion_of_raw_scores
from symloss.losses.criterion import Criterion

Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]

FLOOR = 1e-16
"""The smallest Hessian. XGBoost's own objectives have the same."""


def criterion_of_trees(loss: AnyCriterion) -> Criterion:
    """The criterion that adds up the losses of all examples.

    Args:
        loss: what the user has passed. A text means raw scores, also where the loss divides scores by their norm
            elsewhere.

    >>> criterion_of_trees("sgce").normalize is None
    True
    """
    criterion = copy.copy(criterion_of_raw_scores(loss, "trees start at scores of 0, where a norm has no direction"))
    criterion.reduction, criterion.overwrite = "sum", False
    return criterion


def gradient_and_hessian(
    criterion: Criterion, scores: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The gradient of a loss in the scores, and a positive stand-in for the diagonal of its Hessian.

    Near the scores, a loss acts as cross-entropy with a weight for each example: w = -g_y / (1 - p_y), where g is the
    gradient, p the softmax and y the label. The diagonal is that of the weighted cross-entropy, w p (1 - p). It is
    exact for cross-entropy itself. Where w is not positive, it is cut at ``FLOOR``.

    Args:
        criterion: of raw scores, the sum over all examples.
        scores: (N, C).
        labels: (N,), class numbers.
        weights: (N,), what each example counts; None if all count the same.

    >>> scores = torch.tensor([[0.0, 0.0]])
    >>> gradient_and_hessian(criterion_of_trees("ce"), scores, torch.tensor([1]))
    (tensor([[ 0.5000, -0.5000]]), tensor([[0.2500, 0.2500]]))
    """
    z = scores.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(criterion(z, labels), z)
    if weights is not None:
        gradient = gradient * weights[:, None]
    y = labels[:, None]
    # The other classes on their own: p_k = share_k (1 - p_y). So 1 - p_y is no difference, and not divided by.
    others = scores.scatter(1, y, -torch.inf)
    total = others.logsumexp(1, keepdim=True)
    share = (others - total).exp()
    margin = scores.gather(1, y) - total
    diagonal = (share * (1 - share * margin.neg().sigmoid())).scatter(1, y, margin.sigmoid())
    return gradient, (-gradient.gather(1, y) * diagonal).clamp_min(FLOOR)


class Objective:
    """What XGBoost and LightGBM call once a round. Two classes have one score: that of the second class.

    Args:
        criterion: as in :func:`gradient_and_hessian`.
        curvature: a factor of the Hessian, that of the library's own loss.
    """

    def __init__(self, criterion: Criterion, curvature: float = 1.0):
        self.criterion, self.curvature = criterion, curvature

    def __call__(self, y_true: Floats, y_pred: Floats, sample_weight: Floats | None = None) -> tuple[Floats, Floats]:
        """Gradient and Hessian, in the shape of the scores.

        Args:
            y_true: (N,), class numbers.
            y_pred: (N, C), the scores; or (N,) for two classes.
            sample_weight: (N,), what each example counts.
        """
        pair = gradient_and_hessian(self.criterion, *_tensors(y_true, y_pred, sample_weight))
        gradient, hessian = (each.numpy() if y_pred.ndim == 2 else each[:, 1].numpy() for each in pair)
        return gradient, self.curvature * hessian

    def loss(self, y_true: Floats, y_pred: Floats, sample_weight: Floats | None = None) -> float:
        """The mean loss, a metric for data that trees are not trained on. The arguments are those of a call."""
        scores, labels, weights = _tensors(y_true, y_pred, sample_weight)
        each = copy.copy(self.criterion)
        each.reduction = "none"
        with torch.no_grad():
            return float(np.average(each(scores, labels).numpy(), weights=weights))

    def named_loss(
        self, y_true: Floats, y_pred: Floats, sample_weight: Floats | None = None
    ) -> tuple[str, float, bool]:
        """The mean loss as LightGBM wants it: name, value, and whether higher is better."""
        return "loss", self.loss(y_true, y_pred, sample_weight), False


def columns(scores: Floats) -> Floats:
    """Scores (N, C). Of two classes the first has score 0.

    Args:
        scores: (N, C), or (N,) for two classes.

    >>> columns(np.array([2.0, -3.0]))
    array([[ 0.,  2.],
           [ 0., -3.]])
    """
    return scores if scores.ndim == 2 else np.stack([np.zeros_like(scores), scores], 1)


def _tensors(y_true: Floats, y_pred: Floats, sample_weight: Floats | None) -> tuple[Tensor, Tensor, Tensor | None]:
    weights = None if sample_weight is None else torch.tensor(sample_weight)
    return torch.tensor(np.ascontiguousarray(columns(y_pred))), torch.tensor(y_true).long(), weights
