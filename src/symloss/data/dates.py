"""Dates become numbers: the day since the earliest one, and month, weekday and hour where they differ."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from symloss import checks
from symloss.data.cells import Matrix, Text

WANTED = "a date such as 2026-01-31 or 2026-01-31T09:30"
"""What a cell of a column of dates must hold."""
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
_START, _DAY, _HOUR = datetime(1970, 1, 1, tzinfo=UTC), 86_400, 3600
_EARLIEST, _LATEST = -62_135_596_800 - _DAY, 253_402_300_800 + _DAY  # the years 1 to 9999, wherever on earth


def seconds(text: str | None) -> float | None:
    """Return the seconds from 1970 to an ISO date, in UTC where it has an offset; NaN if it is missing, None otherwise.

    >>> seconds("1970-01-02"), seconds("1970-01-01T01:00+01:00"), seconds("31.1.1970")
    (86400.0, 0.0, None)
    """
    if text is None:
        return math.nan
    if not _ISO.fullmatch(text):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _START).total_seconds()


def are_dates(texts: Iterable[str | None]) -> bool:
    """Return whether every text is a date or missing."""
    return all(seconds(text) is not None for text in texts)


def moments(texts: Text) -> NDArray[np.float64] | None:
    """Return the seconds of a column of dates (N,), NaN where one is missing; None if a text is no date."""
    known = {text: seconds(text) for text in dict.fromkeys(texts)}
    if None in known.values():
        return None
    return np.array([known[text] for text in texts], np.float64)


def _days(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.floor(values / _DAY).astype(np.int64)


def _month(values: NDArray[np.float64]) -> NDArray[np.int64]:
    return _days(values).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12 + 1


PARTS: dict[str, Callable[[NDArray[np.float64]], NDArray[Any]]] = {
    "day": lambda values: values / _DAY,
    "month": _month,
    "weekday": lambda values: (_days(values) + 3) % 7,
    "hour": lambda values: (values // _HOUR % 24).astype(np.int64),
}
"""Features of moments in seconds: days from 1970, month from 1, weekday from 0 (Monday), hour."""


class Dates(NamedTuple):
    """What was learnt of a column of dates.

    Args:
        name: the column.
        start: the day of the earliest date, counted from 1970; days count from it.
        parts: which of ``PARTS`` are features.
        medians: what replaces each part where the date is missing.
        marked: whether another feature marks missing dates.
    """

    name: str
    start: int
    parts: tuple[str, ...]
    medians: tuple[float, ...]
    marked: bool

    def features(self, values: NDArray[np.float64]) -> Matrix:
        """Return the parts of moments (N,), and the mark of missing ones: (N, features)."""
        gaps = np.isnan(values)
        found = [np.where(gaps, median, self._part(part, values)) for part, median in self._learnt()]
        return np.stack([*found, *([gaps] if self.marked else [])], axis=1).astype(np.float32)

    def _learnt(self) -> Iterable[tuple[str, float]]:
        return zip(self.parts, self.medians, strict=True)

    def _part(self, part: str, values: NDArray[np.float64]) -> NDArray[Any]:
        found = PARTS[part](np.where(np.isnan(values), 0, values))
        return found - self.start if part == "day" else found

    @property
    def feature_names(self) -> tuple[str, ...]:
        """One for each part, and one for missing dates."""
        return (*(f"{self.name} ({part})" for part in self.parts), *([f"{self.name} is missing"] * self.marked))

    def to_entry(self) -> dict[str, Any]:
        """Return what was learnt, for JSON."""
        return {key: value for key, value in self._asdict().items() if key != "name"}

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> Dates | None:
        """Read what :meth:`to_entry` wrote, with the name; None if something in it is wrong."""
        fields = {"start": "int", "parts": "tuple[str, ...]", "medians": "tuple[float, ...]", "marked": "bool"}
        try:
            found = checks.record("the entry", entry, fields)
        except ValueError:
            return None
        parts, medians = found["parts"], found["medians"]
        right = len(parts) == len(set(parts)) == len(medians) > 0 and set(parts) <= PARTS.keys()
        near = all(abs(median) <= _LATEST for median in medians) and _EARLIEST <= found["start"] * _DAY <= _LATEST
        return cls(entry["name"], **found) if right and near else None


def learn_dates(name: str, values: NDArray[np.float64]) -> Dates:
    """Learn from the moments of a column (N,), not all of them missing: parts that differ are features.

    >>> learn_dates("when", np.array([0.0, 86400.0])).feature_names
    ('when (day)', 'when (weekday)')
    """
    given = values[~np.isnan(values)]
    parts = tuple(part for part, of in PARTS.items() if part == "day" or len(np.unique(of(given))) > 1)
    start, marked = int(np.floor(given.min() / _DAY)), len(given) < len(values)
    plain = Dates(name, start, parts, (0.0,) * len(parts), marked)
    medians = np.median(plain.features(given)[:, : len(parts)], axis=0)
    return plain._replace(medians=tuple(medians.tolist()))


def described(values: Collection[float], parts: Iterable[str]) -> str:
    """Say what becomes of dates, by their moments in seconds.

    >>> described([0.0, 86400.0], ["day", "weekday"])
    'dates from 1970-01-01 to 1970-01-02: day, weekday'
    """
    low, high = (str(np.datetime64(int(end // _DAY), "D")) for end in (min(values), max(values)))
    return f"dates from {low} to {high}: {', '.join(parts)}"
