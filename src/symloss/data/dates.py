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

ISO = "ISO 8601"
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d([.,]\d+)?)?(Z|[+-]\d\d(:?\d\d)?)?)?", re.ASCII)
_NAMES = ["january", "february", "march", "april", "may", "june"]
_NAMES += ["july", "august", "september", "october", "november", "december"]
_MONTHS = {written: number for number, name in enumerate(_NAMES, 1) for written in (name, name[:3])}
_PARTS = {"day": r"(?P<day>\d{1,2})", "month": r"(?P<month>\d{1,2})", "year": r"(?P<year>\d{4}|\d\d)"}
_LONG_YEAR = {"year": r"(?P<year>\d{4})"}
_NAME = "(?P<month>[a-z]{3,9})"
_TIME = r"(?:(?:T|,? )(?P<hour>\d{1,2}):(?P<minute>\d\d)(?::(?P<second>\d\d))?(?: ?(?P<half>[ap])m)?)?"
_SPELLINGS = {
    sign.join(order): re.escape(sign).join((_PARTS | parts)[part] for part in order)
    for order, signs, parts in (
        (("day", "month", "year"), "/.-", {}),
        (("month", "day", "year"), "/-", {}),  # with dots, the day is always first
        (("year", "month", "day"), "/.-", _LONG_YEAR),
    )
    for sign in signs
}
_SPELLINGS["day month-name year"] = f"{_PARTS['day']}[ -]{_NAME}[ -]{_PARTS['year']}"
_SPELLINGS["month-name day, year"] = f"{_NAME} {_PARTS['day']},? {_PARTS['year']}"
_FORMATS = {name: re.compile(spelling + _TIME, re.ASCII | re.IGNORECASE) for name, spelling in _SPELLINGS.items()}
"""Formats other than ISO 8601, in words, and what fits them."""
_START, _DAY, _HOUR = datetime(1970, 1, 1, tzinfo=UTC), 86_400, 3600
_EARLIEST, _LATEST = -62_135_596_800 - _DAY, 253_402_300_800 + _DAY  # the years 1 to 9999, wherever on earth


def seconds(text: str | None, date_format: str = ISO) -> float | None:
    """Return the seconds from 1970 to a date, in UTC where it has an offset; NaN if it is missing, None otherwise.

    >>> seconds("1970-01-02"), seconds("1970-01-01T01:00+01:00"), seconds("2.1.1970")
    (86400.0, 0.0, None)
    >>> seconds("2.1.1970", "day.month.year")
    86400.0
    """
    if text is None:
        return math.nan
    try:
        found = _iso_date(text) if date_format == ISO else _date(_FORMATS[date_format].fullmatch(text))
    except ValueError:  # such as the 30th of February
        return None
    return None if found is None else (found - _START).total_seconds()


def _iso_date(text: str) -> datetime | None:
    found = datetime.fromisoformat(text) if _ISO.fullmatch(text) else None
    return found.replace(tzinfo=UTC) if found and not found.tzinfo else found


def _date(match: re.Match[str] | None) -> datetime | None:
    if match is None:
        return None
    month = int(_MONTHS.get(match["month"].lower(), match["month"]))
    year, day, hour = int(match["year"]), int(match["day"]), int(match["hour"] or 0)
    if len(match["year"]) == 2:
        year += 1900 if year >= 69 else 2000
    if match["half"]:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if match["half"] in "pP" else 0)
    return datetime(year, month, day, hour, int(match["minute"] or 0), int(match["second"] or 0), tzinfo=UTC)


def wanted(date_format: str) -> str:
    """Say what a cell of a column of dates must hold.

    >>> wanted("day/month/year")
    'a date such as 31/12/2026 (day/month/year)'
    """
    if date_format == ISO:
        return "a date such as 2026-01-31 or 2026-01-31T09:30"
    example = date_format
    for part, value in (("month-name", "Dec"), ("day", "31"), ("month", "12"), ("year", "2026")):
        example = example.replace(part, value)
    return f"a date such as {example} ({date_format})"


def moments(texts: Text, date_format: str = ISO) -> NDArray[np.float64] | None:
    """Return the seconds of a column of dates (N,), NaN where one is missing; None if a text is no such date."""
    known: dict[str | None, float] = {}
    for text in texts:
        if text not in known:
            if (found := seconds(text, date_format)) is None:
                return None
            known[text] = found
    return np.array([known[text] for text in texts], np.float64)


def readings(texts: Text) -> dict[str, NDArray[np.float64]]:
    """Return the moments of a column, by each format that all its texts fit: none, one, or several if ambiguous.

    >>> list(readings(np.array(["1/2/2024", "1/31/2024"], object))), list(readings(np.array(["1/2/2024"], object)))
    (['month/day/year'], ['day/month/year', 'month/day/year'])
    """
    if (found := moments(texts)) is not None:
        return {ISO: found}
    found_in = ((date_format, moments(texts, date_format)) for date_format in _FORMATS)
    return {date_format: found for date_format, found in found_in if found is not None}


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
        date_format: how the dates are written.
    """

    name: str
    start: int
    parts: tuple[str, ...]
    medians: tuple[float, ...]
    marked: bool
    date_format: str = ISO

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
        """Return what was learnt, for JSON. ISO 8601 is not named, as before there were other formats."""
        return {key: value for key, value in self._asdict().items() if key != "name" and value != ISO}

    @classmethod
    def from_entry(cls, entry: dict[str, Any]) -> Dates | None:
        """Read what :meth:`to_entry` wrote, with the name; None if something in it is wrong."""
        fields = {"start": "int", "parts": "tuple[str, ...]", "medians": "tuple[float, ...]", "marked": "bool"}
        try:
            found = checks.record("the entry", {"date_format": ISO} | entry, fields | {"date_format": "str"})
        except ValueError:
            return None
        parts, medians = found["parts"], found["medians"]
        right = len(parts) == len(set(parts)) == len(medians) > 0 and set(parts) <= PARTS.keys()
        near = all(abs(median) <= _LATEST for median in medians) and _EARLIEST <= found["start"] * _DAY <= _LATEST
        readable = found["date_format"] in (ISO, *_FORMATS)
        return cls(entry["name"], **found) if right and near and readable else None


def learn_dates(name: str, values: NDArray[np.float64], date_format: str = ISO) -> Dates:
    """Learn from the moments of a column (N,), not all of them missing: parts that differ are features.

    >>> learn_dates("when", np.array([0.0, 86400.0])).feature_names
    ('when (day)', 'when (weekday)')
    """
    given = values[~np.isnan(values)]
    parts = tuple(part for part, of in PARTS.items() if part == "day" or len(np.unique(of(given))) > 1)
    start, marked = int(np.floor(given.min() / _DAY)), len(given) < len(values)
    plain = Dates(name, start, parts, (0.0,) * len(parts), marked, date_format)
    medians = np.median(plain.features(given)[:, : len(parts)], axis=0)
    return plain._replace(medians=tuple(medians.tolist()))


def described(values: Collection[float], parts: Iterable[str], date_format: str = ISO) -> str:
    """Say what becomes of dates, by their moments in seconds.

    >>> described([0.0, 86400.0], ["day", "weekday"])
    'dates from 1970-01-01 to 1970-01-02: day, weekday'
    >>> described([0.0, 86400.0], ["day", "weekday"], "day/month/year")
    'dates (day/month/year) from 1970-01-01 to 1970-01-02: day, weekday'
    """
    written = "" if date_format == ISO else f" ({date_format})"
    low, high = (str(np.datetime64(int(end // _DAY), "D")) for end in (min(values), max(values)))
    return f"dates{written} from {low} to {high}: {', '.join(parts)}"
