"""What became of the labels: the transition matrix as it was realised."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from symloss.runs.reading import Run


@dataclass(frozen=True)
class Transitions:
    """Counts over all draws of a noise: of each true class (row), how many labels became each class (column)."""

    classes: tuple[str, ...]
    counts: NDArray[np.int64]
    draws: int

    @property
    def rates(self) -> NDArray[np.float64]:
        """A class without examples has a row of zeros."""
        return np.asarray(self.counts / np.maximum(self.counts.sum(1), 1)[:, None])

    @property
    def rate(self) -> float:
        """The share of all labels that are wrong."""
        return 1 - float(np.trace(self.counts)) / max(int(self.counts.sum()), 1)

    def largest(self, most: int) -> list[tuple[str, str, float]]:
        """The most frequent mistakes: true class, label, rate."""
        rates = self.rates.copy()
        np.fill_diagonal(rates, 0)
        order = np.argsort(-rates, axis=None, kind="stable")[:most]
        pairs = [divmod(int(place), len(self.classes)) for place in order]
        return [(self.classes[i], self.classes[j], float(rates[i, j])) for i, j in pairs if rates[i, j] > 0]


def realised(runs: Iterable[Run]) -> Transitions | None:
    """Of the runs of one noise. Runs with the same labels count as one draw; None where no manifest is left."""
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
