"""The distance between our mean accuracies and the published ones, and whether they rank losses alike."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from symloss.experiments.tables import Published
from symloss.training.results import Spread

DIFFERENCE = (
    "(ours - published) / sqrt(s² + t²), where s is the standard deviation of our runs and t that of "
    "the published ones: ours minus published, in standard deviations of the difference between one run of each. "
    "A published standard error of k runs counts as t = sqrt(k) times it; a spread printed as 0 counts as half of its "
    "last digit; with a single run of ours, or no published spread, the other one stands alone; "
    "'-' where there is neither. "
    "p: Welch's t-test of the two means, two-sided, with the same spreads, where both sides have two runs or more. "
    "Of twenty cells that agree, one has p below 0.05 by chance."
)
"""The definition, as every report prints it."""
FAR, RARE = 2.0, 0.05
"""A figure is far from the published one with p below ``RARE``, or beyond ``FAR`` standard deviations without a p."""


def published_deviation(published: Published, spread: str, runs: int) -> float | None:
    """Return the standard deviation of the published runs, from the printed spread of a kind; None if there is none."""
    if published.spread is None or spread == "none":
        return None
    digits = len(published.text.rstrip(")").rpartition(".")[2])
    printed = published.spread or 0.5 * 10**-digits
    return printed * math.sqrt(runs) if spread == "standard error" else printed


def signed(value: float) -> str:
    """Return a number with one decimal and its sign. Zero has no sign."""
    text = f"{value:+.1f}"
    return text if text.strip("+-0.") else "0.0"


def difference(ours: Spread, published: Published, spread: str, runs: int) -> tuple[float | None, float | None]:
    """Return ours minus published, in standard deviations, and its p-value. :data:`DIFFERENCE` defines both.

    The first is None if neither side has a spread, the second if one has none, or fewer than two runs.
    """
    theirs = published_deviation(published, spread, runs)
    known = [part for part in (ours.std, theirs) if part]
    distance = (ours.mean - published.value) / math.hypot(*known) if known else None
    if ours.std is None or theirs is None or runs < 2:
        return distance, None
    parts = (ours.std**2 / ours.n, ours.n - 1), (theirs**2 / runs, runs - 1)
    variance = math.fsum(part for part, _ in parts)
    freedom = variance**2 / math.fsum(part**2 / degrees for part, degrees in parts)
    t = abs(ours.mean - published.value) / math.sqrt(variance)
    from scipy.special import stdtr  # type: ignore[import-untyped]  # noqa: PLC0415 (scipy.stats takes a second)

    return distance, float(2 * stdtr(freedom, -t))


def is_far(difference: float | None, p: float | None) -> bool:
    """Return whether our figure is far from the published one.

    >>> is_far(2.5, None), is_far(2.5, 0.2), is_far(1.0, 0.01), is_far(None, None)
    (True, False, True, False)
    """
    if p is not None:
        return p < RARE
    return difference is not None and abs(difference) > FAR


def in_words(difference: float | None, p: float | None) -> str:
    """Return the difference and its p-value as a cell prints them.

    >>> in_words(-1.26, 0.034), in_words(0.5, None), in_words(3.0, 0.0002), in_words(None, None)
    ('-1.3 sd, p 0.03', '+0.5 sd', '+3.0 sd, p < 0.001', '-')
    """
    if difference is None:
        return "-"
    return f"{signed(difference)} sd" + ("" if p is None else f", p {chance(p)}")


def chance(p: float) -> str:
    """Return a p-value with its significant digits.

    >>> chance(0.234), chance(0.0042), chance(1e-9)
    ('0.23', '0.004', '< 0.001')
    """
    return "< 0.001" if p < 0.001 else f"{p:.3f}" if p < 0.01 else f"{p:.2f}"


def rank_correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's rank correlation of pairs of numbers; equal numbers share their mean rank."""
    sides = zip(*pairs, strict=True)
    ranks = [[sum(v < value for v in side) + (side.count(value) + 1) / 2 for value in side] for side in sides]
    return statistics.correlation(*ranks)
