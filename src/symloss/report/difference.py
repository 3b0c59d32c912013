"""The distance between our mean accuracy and a published one."""

from __future__ import annotations

import math

from symloss.recipes.published_tables import Published
from symloss.runs.result import Spread

DIFFERENCE = (
    "(ours - published) / sqrt(s² + t²), where s is the standard deviation of our runs and t that of "
    "the published ones: ours minus published, in standard deviations of the difference between one run of each. "
    "A published standard error of k runs counts as t = sqrt(k) times it; a spread printed as 0 counts as half of its "
    "last digit; with a single run of ours, or no published spread, the other one stands alone; "
    "'-' where there is neither."
)
"""The definition, as every report prints it."""


def published_deviation(published: Published, spread: str, runs: int) -> float | None:
    """The standard deviation of the published runs, from the printed spread; None if there is none.

    Args:
        published: the published figure.
        spread: the kind of its spread, a key of ``SPREADS``.
        runs: the number of published runs.

    >>> published_deviation(Published.parse("98.2(0.2)"), "standard error", 4)
    0.4
    >>> published_deviation(Published.parse("98.2(0.0)"), "standard deviation", 3)
    0.05
    """
    if published.spread is None or spread == "none":
        return None
    digits = len(published.text.rstrip(")").rpartition(".")[2])
    printed = published.spread or 0.5 * 10**-digits
    return printed * math.sqrt(runs) if spread == "standard error" else printed


def signed(value: float) -> str:
    """A number with one decimal and its sign. Zero has no sign.

    >>> signed(1.26), signed(-0.04)
    ('+1.3', '0.0')
    """
    text = f"{value:+.1f}"
    return text if text.strip("+-0.") else "0.0"


def difference(ours: Spread, published: Published, spread: str, runs: int) -> float | None:
    """Ours minus published, in standard deviations; None if neither has a spread. :data:`DIFFERENCE` defines it.

    Args:
        ours: accuracies in per cent.
        published: the published figure, in per cent.
        spread: the kind of the published spread.
        runs: the number of published runs.

    >>> round(difference(Spread.of([87.0, 88.0, 89.0]), Published.parse("88.50(0.50)"), "standard deviation", 3), 3)
    -0.447
    """
    known = [part for part in (ours.std, published_deviation(published, spread, runs)) if part]
    return (ours.mean - published.value) / math.hypot(*known) if known else None
