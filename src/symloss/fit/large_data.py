"""Data with very many rows: a sample chooses the leaders and explains the noise, and then all rows are learnt from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from symloss.fit.choice import Judged
from symloss.fit.correction import Explanation
from symloss.fit.cost import seconds
from symloss.fit.ensemble import Ensemble
from symloss.fit.learners import Shape
from symloss.fit.training_data import Floats, Rows, folds

MOST, SAMPLE = 200_000, 100_000
"""With more rows than the first, about as many as the second choose."""
OF_A_CLASS = 50
"""The sample has at least this many rows of each class, or all that there are."""


def sample_of(labels: Rows, seed: int) -> Rows | None:
    """Return the rows (n,) that choose, in order, with the shares that classes have among all; None if all rows choose.

    >>> sample_of(np.arange(1000) % 2, 0) is None
    True
    """
    if len(labels) <= MOST:
        return None
    chosen = np.zeros(len(labels), bool)
    chosen[folds(labels, round(len(labels) / SAMPLE), seed)[0].held_out] = True
    for number, count in enumerate(np.bincount(labels, chosen)):
        if count < OF_A_CLASS:
            chosen[np.flatnonzero(labels == number)[:OF_A_CLASS]] = True
    return np.flatnonzero(chosen)


def explained(explanation: Explanation, sample: Rows, labels: Rows, predictor: Ensemble, features: Any) -> Explanation:
    """Return how predictions explain the labels of all rows (N,), from the explanation of the sample.

    The predictor has not seen the rows outside of the sample, so that its predictions are held-out ones.
    """
    rest = np.setdiff1d(np.arange(len(labels)), sample)
    scores: Floats = np.empty((len(labels), explanation.scores.shape[1]))
    scores[sample] = explanation.scores
    for rows in np.array_split(rest, max(1, len(rest) // SAMPLE)):
        scores[rows] = predictor.scores(features[rows])
    return replace(explanation, scores=scores, noisy=labels)


def labels_to_learn(whole: Explanation, sample: Rows, learnt: Rows) -> Rows:
    """Return the labels (N,) of all rows: corrected if those that the sample learnt from were."""
    if np.array_equal(learnt, whole.noisy[sample]):
        return whole.noisy
    labels: Rows = whole.posterior.argmax(1).astype(np.int64)
    labels[sample] = learnt
    return labels


def affordable(leaders: Sequence[Judged], shape: Shape, budget: float) -> list[int]:
    """Return the places of the leaders that can learn from all rows, the best first, within twice the budget."""
    left, found = 2 * budget, []
    for place, leader in enumerate(leaders):
        cost = seconds(leader.candidate, shape)
        if leader.candidate.model is None and cost <= left:
            found.append(place)
            left -= cost
    return found
