"""Which candidates lead, judged by held-out noisy labels."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from symloss.fit.early_learning import is_early_learning
from symloss.fit.learners import SIMPLICITY, Candidate
from symloss.fit.training_data import (
    Floats,
    Probabilities,
    Rows,
    TrainingData,
    standard_error,
)
from symloss.losses.spec import create_loss

RARE = 0.02
"""Below this rate of noise the labels can be trusted as they are."""
FEWEST, MOST = 5, 10
"""The number of candidates that are averaged. Smaller ensembles were occasionally unreliable."""
FAR_BEHIND = (3.0, 0.1)
"""Candidates this many paired standard errors, and this share of its accuracy, behind the best are not averaged."""
FEWEST_OF_TRUSTED = 3
"""The fewest if noise is rare: then the best are known well, and others only dilute them."""
OF_A_KIND = 2
"""The most leaders of one kind. More make the same mistakes, and take them for certain."""
FARTHEST = 10.0
"""In standard errors. A leader that is farther behind has the weight of this."""
CONSTANT = 0.1
"""A candidate leads only if it predicts the classes that are not its most frequent one more often than this, as a share
of how often labels name them. Where classes overlap, to predict the majority is often the best guess, and says nothing.
"""
WINDOW = 2
"""The accuracy of an epoch is averaged over this many epochs before and after it."""


@dataclass(frozen=True)
class Judged:
    """A candidate with its held-out predictions."""

    candidate: Candidate
    epoch: int | None  # when its training stops; None where there are no epochs
    score: float  # its accuracy on the noisy labels, smoothed over epochs
    right: Floats  # (n,), what each row contributes to the accuracy
    predictions: Probabilities  # (n, C)
    nearly_constant: bool = False  # whether it predicts one class for nearly all rows

    @property
    def error(self) -> float:
        """The standard error of the score."""
        return standard_error(self.right)

    def gap(self, other: Judged) -> tuple[float, float]:
        """Return by how much the other one is better, and the standard error of that on the same rows."""
        return other.score - self.score, standard_error(other.right - self.right)


def judged(candidate: Candidate, predictions: Probabilities, data: TrainingData, rows: Rows) -> Judged:
    """Return a candidate without epochs."""
    right = data.correct(predictions, rows)
    return Judged(candidate, None, float(right.mean()), right, predictions, nearly_constant(predictions, data, rows))


def nearly_constant(predictions: Probabilities, data: TrainingData, rows: Rows) -> bool:
    """Return whether predictions (n, C) leave to all classes but one a tenth of the rows that their labels have."""
    others = 1 - np.bincount(data.given[rows]).max() / len(rows)
    predicted = 1 - np.bincount(predictions.argmax(1)).max() / len(rows)
    return bool(predicted <= CONSTANT * others)


class Epochs:
    """The best epoch of one network, by accuracy smoothed over its neighbours."""

    def __init__(self, candidate: Candidate, data: TrainingData, rows: Rows):
        self.candidate, self.data, self.rows = candidate, data, rows
        self.accuracy: list[float] = []
        self.recent: deque[Probabilities] = deque(maxlen=WINDOW + 1)
        self.best: Judged | None = None

    def add(self, predictions: Probabilities) -> None:
        """Take the predictions after one more epoch."""
        self.accuracy.append(float(self.data.correct(predictions, self.rows).mean()))
        self.recent.append(predictions)
        if len(self.accuracy) > WINDOW:
            self._consider(len(self.accuracy) - 1 - WINDOW, self.recent[0])

    def result(self) -> Judged:
        """Return the best epoch so far. The last epochs have fewer neighbours."""
        for k, predictions in enumerate(self.recent):
            epoch = len(self.accuracy) - len(self.recent) + k
            if epoch > len(self.accuracy) - 1 - WINDOW:
                self._consider(epoch, predictions)
        assert self.best is not None
        return self.best

    def _consider(self, epoch: int, predictions: Probabilities) -> None:
        score = float(np.mean(self.accuracy[max(0, epoch - WINDOW) : epoch + WINDOW + 1]))
        if self.best is None or score > self.best.score:
            right = self.data.correct(predictions, self.rows)
            constant = nearly_constant(predictions, self.data, self.rows)
            self.best = Judged(self.candidate, epoch + 1, score, right, predictions, constant)


def is_symmetric(loss: str) -> bool:
    """Return whether a spec names a symmetric loss."""
    return not is_early_learning(loss) and create_loss(loss).loss.symmetric


def ranked(found: Sequence[Judged]) -> list[Judged]:
    """Return the best first. Ties keep the order in which candidates were tried."""
    return sorted(found, key=lambda one: -one.score)


def cannot_be_told_from(best: Judged, other: Judged, errors: float = 1.0) -> bool:
    """Return whether the gap is within this many paired standard errors."""
    gap, error = other.gap(best)
    return gap <= errors * error


def winner(found: Sequence[Judged]) -> Judged:
    """Return the best candidate; among those level with it the simplest learner, and the symmetric loss."""
    best, *others = ranked(telling(found))
    level = [best, *(one for one in others if cannot_be_told_from(best, one))]

    def key(one: Judged) -> tuple[int, bool, float]:
        loss = one.candidate.loss
        return SIMPLICITY[one.candidate.learner], loss is None or not is_symmetric(loss), -one.score

    return min(level, key=key)


def telling(found: Sequence[Judged]) -> list[Judged]:
    """Return the candidates that do not predict one class for nearly all rows; all if there are no such."""
    return [one for one in found if not one.nearly_constant] or list(found)


def leaders(found: Sequence[Judged], most_single: int | None = None) -> list[Judged]:
    """Return the candidates to average: the five best, and up to five more within two paired standard errors.

    If the best contradicts hardly any label: the three best, and more within one paired standard error. None of them is
    far behind, and no more than two are of a kind.

    Args:
        found: all candidates.
        most_single: how many of the networks that are trained one by one may be among them, if they are tried. Then
            those within two standard errors alone are taken: on photos, rows of pixels are 13 points behind.
    """
    by_kind = Counter[Hashable]()
    thinned = []
    for one in ranked(telling(found)):
        by_kind[one.candidate.kind] += 1
        if by_kind[one.candidate.kind] <= OF_A_KIND:
            thinned.append(one)
    best, *others = thinned
    fewest, errors = (FEWEST_OF_TRUSTED, 1.0) if best.score > 1 - RARE else (FEWEST, 2.0)
    fewest = fewest if most_single is None else 1
    level = [
        one
        for k, one in enumerate(others, 2)
        if cannot_be_told_from(best, one, errors) or (k <= fewest and not _far_behind(best, one))
    ]
    chosen = [best, *level][:MOST]
    if most_single is None:
        return chosen
    surplus = [one for one in chosen if one.candidate.learner == "network"][most_single:]
    return [one for one in chosen if one not in surplus]


def weights(members: Sequence[Judged]) -> tuple[float, ...]:
    """Return how much each leader counts in their mean: exp(-z) where it is z paired standard errors behind the best.

    On 68 cells of development tables, weights raised accuracy by 0.4 points and lowered the log-loss, and neither
    their form nor the number of leaders mattered much.
    """
    best = max(members, key=lambda one: one.score)
    gaps = (one.gap(best) for one in members)
    return tuple(math.exp(-min(gap / error, FARTHEST) if error > 0 else 0.0) for gap, error in gaps)


def _far_behind(best: Judged, other: Judged) -> bool:
    errors, share = FAR_BEHIND
    return not cannot_be_told_from(best, other, errors) and other.score < (1 - share) * best.score
