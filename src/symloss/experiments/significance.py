"""Whether the best of a column is better than the other rows: paired t-tests over the seeds that both have."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from symloss.experiments.difference import RARE
from symloss.training.results import Spread

ALIKE, UNTESTED = "\u2020", "\u2021"
"""The marks behind a figure, which reports explain below the table."""
LEGEND = {
    ALIKE: f"not distinguishable from the best of its column: p is at least {RARE:g} in a two-sided paired t-test over "
    "the seeds that both have, Holm-corrected over the rows of the column. With few seeds this is so of large "
    "differences too. Figures without a mark are below the best",
    UNTESTED: "not compared with the best: fewer than two seeds in common, or the same difference on each of them",
}
NOTHING_CLAIMED = (
    "No row is claimed to be below the best of its column: that takes two common seeds, "
    "and differences that are not all the same"
)


def paired_p(best: Mapping[int, float], other: Mapping[int, float]) -> float | None:
    """Return the two-sided p-value of a paired t-test over the seeds that both rows have.

    It is 1 where the other row is not below the best one on these seeds, as nothing speaks for the best one. It is None
    with fewer than two common seeds, and where the difference is the same on all of them: then it has no spread to be
    measured by.

    Args:
        best, other: a figure for each seed.

    >>> round(paired_p({0: 3.0, 1: 5.0, 2: 4.0}, {0: 1.0, 1: 4.0, 2: 1.0, 3: 9.0}), 4)
    0.0742
    >>> paired_p({0: 3.0}, {0: 1.0}) is None
    True
    """
    differences = [best[seed] - other[seed] for seed in best if seed in other]
    if len(differences) < 2:
        return None
    mean, std = (spread := Spread.of(differences)).mean, spread.std
    if mean <= 0:
        return 1.0
    if not std or std < 1e-9 * mean:  # equal but for rounding
        return None
    from scipy.special import stdtr  # type: ignore[import-untyped]  # noqa: PLC0415 (as in difference)

    return float(2 * stdtr(len(differences) - 1, -mean * math.sqrt(len(differences)) / std))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected by Holm's method for as many tests as there are, in the same order.

    >>> holm([0.03, 0.01, 0.04])
    [0.06, 0.03, 0.06]
    """
    adjusted, least = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        least = max(least, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = least
    return adjusted
