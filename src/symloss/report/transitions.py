"""The realised transition matrix: how many labels of each class became another class."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from symloss.runs.reading import Run


@dataclass(frozen=True)
class Transitions:
    """Counts over all draws of a noise. ``counts[i, j]`` examples of the true class i have the label j."""

    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    draws: int

    @property
    def rates(self) -> NDArray[np.float64]:
        """The share of each label in each true class, shape (C, C). A class without examples has a row of zeros."""
        return np.asarray(self.counts / np.maximum(self.counts.sum(1), 1)[:, None])

    @property
    def rate(self) -> float:
        """The share of all labels that are wrong."""
        return 1 - float(np.trace(self.counts)) / max(int(self.counts.sum()), 1)

    def largest(self, most: int) -> list[tuple[str, str, float]]:
        """The most frequent wrong labels: true class, label and rate."""
        rates = self.rates.copy()
        np.fill_diagonal(rates, 0)
        order = np.argsort(-rates, axis=None, kind="stable")[:most]
        pairs = [divmod(int(index), len(self.classes)) for index in order]
        return [(self.classes[i], self.classes[j], float(rates[i, j])) for i, j in pairs if rates[i, j] > 0]


def realised(runs: Iterable[Run]) -> Transitions | None:
    """The transitions of runs with the same noise; None if no run has a manifest of its noise.

    Runs with the same labels count as one draw.
    """
    draws: dict[str, NDArray[np.int64]] = {}
    classes: tuple[str, ...] = ()
    for run in runs:
        if run.noise is not None:
            draw, counts = run.noise
            draws[draw] = counts
            classes = classes if len(classes) == len(counts) else run.classes
    if not draws or len({len(counts) for counts in draws.values()}) > 1:
        return None
    total = np.sum(list(draws.values()), axis=0)
    if len(classes) != len(total):
        classes = tuple(str(i) for i in range(len(total)))
    return Transitions(classes, total, len(draws))
