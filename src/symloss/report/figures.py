"""What several runs come to, and how far that is from a published figure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from symloss.recipes.published_tables import Published
from symloss.training.comparison import spread

DIFFERENCE = (
    "(ours - published) / sqrt(s² + t²), where s is the standard deviation of our runs and t that of "
    "the published ones: ours minus published, in standard deviations of the difference between one run of each. "
    "A published standard error of k runs counts as t = sqrt(k) times it; a spread printed as 0 counts as half of its "
    "last digit; with a single run of ours, or no published spread, the other one stands alone; "
    "'-' where there is neither."
)
"""The definition, as every report prints it."""


@dataclass(frozen=True)
class Figure:
    """Accuracies of several runs, in per cent: their mean, and their standard deviation (n - 1) if there are two.

    >>> found = Figure.of([0.87, 0.88, 0.92])
    >>> found.n, found.text
    (3, '89.00(2.65)')
    """

    values: tuple[float, ...]
    mean: float
    std: float | None

    @classmethod
    def of(cls, shares: Iterable[float]) -> Figure:
        """From shares of 1; there must be one at least."""
        values = tuple(100 * share for share in shares)
        found = spread(list(values))
        assert found is not None
        assert found["mean"] is not None
        return cls(values, found["mean"], found["std"])

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def text(self) -> str:
        return f"{self.mean:.2f}" + ("" if self.std is None else f"({self.std:.2f})")


def figure(shares: Iterable[float | None]) -> Figure | None:
    """Of what is known; None where nothing is."""
    known = [share for share in shares if share is not None]
    return Figure.of(known) if known else None


def published_deviation(published: Published, spread: str, runs: int) -> float | None:
    """The standard deviation of the published runs, from what was printed.

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
    """With one decimal and its sign; nothing has none.

    >>> signed(1.26), signed(-0.04)
    ('+1.3', '0.0')
    """
    text = f"{value:+.1f}"
    return text if text.strip("+-0.") else "0.0"


def difference(ours: Figure, published: Published, spread: str, runs: int) -> float | None:
    """Ours minus published in standard deviations, as :data:`DIFFERENCE` says; None where there is no spread at all.

    >>> round(difference(Figure.of([0.87, 0.88, 0.89]), Published.parse("88.50(0.50)"), "standard deviation", 3), 3)
    -0.447
    """
    known = [part for part in (ours.std, published_deviation(published, spread, runs)) if part]
    return (ours.mean - published.value) / math.hypot(*known) if known else None
