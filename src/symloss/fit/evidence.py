"""Whether features say anything about labels: a test of held-out predictions."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from symloss.fit.training_data import Floats, Probabilities, Rows, Split

BY_CHANCE = 0.05
"""The probability of claiming that something was learnt from features that say nothing about the labels."""
EACH_LEARNS_FROM_THE_OTHER = 2.0
"""The variance over several folds, as a multiple of what each fold by itself would give.

Two rows of different folds see each other's labels. For learners that predict by sums over training rows, with weights
that are the same in both directions, each pair counts twice, and the factor is 2. For other learners it is less.
"""


def something_learnt(found: Sequence[Probabilities], noisy: Rows, splits: Sequence[Split], counted: Rows) -> bool:
    """Return whether held-out predictions of any candidate, or of all together, say something about the labels.

    Nothing is selected in the mean of all candidates. The candidates by themselves share the level once more. As the
    factor is too careful, both together keep to it: of 50 fits to shuffled labels of development tables, two passed.

    Args:
        found: predictions (n, C) of each candidate, for the held-out rows in the order of the splits.
        noisy: labels (N,).
        splits: the folds. The first of them hold out the n rows.
        counted: the rows whose weight is not zero.
    """
    if agreement(np.mean(found, 0, dtype=np.float64), noisy, splits, counted) > _errors(BY_CHANCE):
        return True
    least = _errors(BY_CHANCE / len(found))
    return any(agreement(one, noisy, splits, counted) > least for one in found)


def agreement(predictions: Probabilities, noisy: Rows, splits: Sequence[Split], counted: Rows) -> float:
    """Return in standard errors how predictions (n, C) vary together with labels.

    This is the covariance of the probability of a class with that class, summed over classes, in each fold. If the
    features say nothing, every order of a fold's labels is as probable, which gives mean and variance exactly.
    Accuracy would need far more rows, and says nothing where one class is the most probable one everywhere.

    >>> splits = (Split(np.arange(4, 8), np.arange(4)), Split(np.arange(4), np.arange(4, 8)))
    >>> labels = np.array([0, 0, 1, 1] * 2)
    >>> round(agreement(np.eye(2)[labels], labels, splits, np.arange(8)), 3)
    1.732
    """
    classes, start, total, variance, used = predictions.shape[1], 0, 0.0, 0.0, 0
    for split in splits:
        rows = split.held_out
        kept = np.isin(rows, counted, assume_unique=True)
        if start == len(predictions):
            break
        predicted = _centred(predictions[start : start + len(rows)][kept])
        labels = _centred(np.eye(classes)[noisy[rows[kept]]])
        start, used = start + len(rows), used + 1
        if len(labels) > 1:
            total += float((predicted * labels).sum())
            variance += float(((predicted.T @ predicted) * (labels.T @ labels)).sum()) / (len(labels) - 1)
    if used > 1:
        variance *= EACH_LEARNS_FROM_THE_OTHER
    return total / float(np.sqrt(variance)) if variance > 0 else 0.0


def _centred(values: Floats) -> Floats:
    centred: Floats = values - values.mean(0) if len(values) else values
    return centred


def _errors(level: float) -> float:
    return NormalDist().inv_cdf(1 - level)
