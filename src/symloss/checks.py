"""Bad input gets one sentence: which argument, what was given, what is allowed."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable
from dataclasses import dataclass


def brief(value: object) -> str:
    """What was given, on one line of a message."""
    try:
        text = " ".join(repr(value).split())
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    return text if len(text) <= 100 else text[:97] + "..."


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a name that does not exist: the nearest one, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"


def choice(argument: str, value: object, allowed: Iterable[object]) -> None:
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, allowed))}; got {brief(value)}")


@dataclass(frozen=True)
class Interval:
    """The values a parameter may take, written as in mathematics.

    >>> 0.5 in Interval("(0, 1]"), 0 in Interval("(0, 1]")
    (True, False)
    """

    text: str

    def __contains__(self, value: float) -> bool:
        low, high = (float(end) for end in self.text[1:-1].split(","))
        above = value > low if self.text[0] == "(" else value >= low
        below = value < high if self.text[-1] == ")" else value <= high
        return above and below

    def __str__(self) -> str:
        return self.text


def number(argument: str, value: object, interval: str | Interval, whole: bool = False) -> float:
    """The value as a number, refused unless it lies in the interval."""
    kind = "a whole number" if whole else "a number"
    allowed = f"{argument} must be {kind} in {interval}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{allowed}; got {brief(value)}")
    interval = interval if isinstance(interval, Interval) else Interval(interval)
    if not math.isfinite(value) or value not in interval or (whole and value != int(value)):
        raise ValueError(f"{allowed}; got {value!r}")
    return int(value) if whole else float(value)
