"""Mean and standard deviation over runs that differ in their seed alone."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from symloss.runs.result import Result


@dataclass(frozen=True)
class Spread:
    """Several values, their mean, and their standard deviation (n - 1). One value has no standard deviation.

    >>> several = Spread.of([87.0, 88.0, 92.0])
    >>> several.n, several.text
    (3, '89.00(2.65)')
    """

    mean: float
    std: float | None
    values: tuple[float, ...] = ()

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """The spread of one or more values."""
        known = tuple(values)
        return cls(statistics.fmean(known), statistics.stdev(known) if len(known) > 1 else None, known)

    @property
    def n(self) -> int:
        """The number of values."""
        return len(self.values)

    @property
    def text(self) -> str:
        """``mean(standard deviation)`` with two decimals."""
        return f"{self.mean:.2f}" + ("" if self.std is None else f"({self.std:.2f})")

    def to_json(self) -> dict[str, float | None]:
        return {"mean": self.mean, "std": self.std}


def spread(values: Iterable[float | None]) -> Spread | None:
    """The spread of the values that are not None; None if there is no such value."""
    known = [value for value in values if value is not None]
    return Spread.of(known) if known else None


def in_percent(shares: Iterable[float | None]) -> Spread | None:
    """The spread of shares of 1, in per cent; None if no share is known."""
    return spread(None if share is None else 100 * share for share in shares)


@dataclass(frozen=True)
class LossSummary:
    """One line of a comparison: a loss, and what its runs came to."""

    loss: str
    lr: float
    weight_decay: float
    measure: str
    """The metric of ``last`` and ``best``."""
    last: Spread | None
    best: Spread | None
    memorised: Spread | None
    seconds: float
    """The mean training time of a run."""
    runs: int

    def to_json(self) -> dict[str, Any]:
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {name: value.to_json() if isinstance(value, Spread) else value for name, value in fields.items()}


def summarize(results: Sequence[Result]) -> LossSummary:
    """What the runs of one loss, with different seeds, came to."""
    settings = results[0].settings
    measure = "test_accuracy" if results[0].test else "validation_accuracy"
    return LossSummary(
        loss=settings.loss,
        lr=settings.lr,
        weight_decay=settings.weight_decay,
        measure=measure,
        last=spread(getattr(result.last, measure) for result in results),
        best=spread(getattr(result.best, measure) for result in results),
        memorised=spread(result.last.memorised for result in results),
        seconds=sum(result.seconds for result in results) / len(results),
        runs=len(results),
    )
