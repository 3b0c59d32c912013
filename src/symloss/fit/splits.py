"""Which rows are held out, and how predictions for them are judged by their noisy labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]

UNEQUAL = 20
"""The largest class may have so many times the examples of the smallest before plain accuracy is of no use."""


@dataclass(frozen=True)
class Split:
    """One split: the rows to train on, and those that are held out."""

    train: Rows
    held_out: Rows


def folds(labels: Rows, count: int, seed: int) -> tuple[Split, ...]:
    """Split rows into folds with the same share of each class. Every row is held out once.

    Args:
        labels: (N,), class numbers. A class may have fewer rows than there are folds.
        count: the number of folds.
        seed: of the order of the rows.
    """
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(len(labels), np.int64)
    fold[by_class] = np.arange(len(labels)) % count
    return tuple(Split(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(count))


def number_of_folds(smallest_class: int, wanted: int | str, rows: int) -> int:
    """How many folds there are. ``"auto"`` gives five, or as many as the smallest class has examples, but two or more.

    Args:
        smallest_class: the number of examples in the smallest class.
        wanted: a number, or "auto".
        rows: the number of examples.
    """
    if wanted == "auto":
        return max(2, min(5, smallest_class, rows))
    folds_wanted = int(wanted)
    if smallest_class < folds_wanted:
        raise ValueError(
            f"every class must have at least as many examples as there are folds; got {folds_wanted} folds and a class "
            f"with {smallest_class} of them"
        )
    return folds_wanted


@dataclass(frozen=True)
class Judge:
    """Judges predictions by noisy labels: accuracy, or balanced accuracy where classes are very unequal.

    Args:
        labels: (N,), the noisy labels of all rows.
        weights: (N,), what each row counts.
        balanced: whether every class counts the same.
    """

    labels: Rows
    weights: Floats
    balanced: bool

    @classmethod
    def of(cls, labels: Rows, sample_weight: Floats | None = None, balanced: bool | None = None) -> Judge:
        """The judge of these labels, which are numbers from 0 on. ``balanced`` is by their counts, if it is None."""
        counts = np.bincount(labels)
        balanced = bool(counts.max() > UNEQUAL * counts.min()) if balanced is None else balanced
        weights = np.ones(len(labels)) if sample_weight is None else np.asarray(sample_weight, np.float64)
        return cls(labels, weights * (len(labels) / len(counts) / counts)[labels] if balanced else weights, balanced)

    @property
    def measure(self) -> str:
        """What is measured, in words."""
        return "balanced accuracy" if self.balanced else "accuracy"

    def right(self, probabilities: Floats, rows: Rows) -> Floats:
        """(N,), weighed so that the mean is the accuracy: what each of the rows contributes."""
        weights = self.weights[rows]
        total = weights.sum()
        scale = len(rows) / total if total > 0 else 0.0
        right: Floats = np.where(probabilities.argmax(1) == self.labels[rows], weights * scale, 0.0)
        return right


def standard_error(contributions: Floats) -> float:
    """The standard error of the mean of these numbers."""
    return float(contributions.std() / np.sqrt(len(contributions)))
