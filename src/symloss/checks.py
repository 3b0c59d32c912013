"""Checks of arguments. The message of an error names the argument, what is allowed, and the value."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


def brief(value: object) -> str:
    """Return a value as one short line, for a message.

    >>> brief([1, 2])
    '[1, 2]'
    """
    try:
        return shortened(" ".join(repr(value).split()))
    except RecursionError:
        return f"a {type(value).__name__} that is nested too deeply"
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return f"a {type(value).__name__} that is too long to print"


def shortened(text: str) -> str:
    """Return a text for a message, cut off after 100 characters.

    >>> len(shortened(1000 * "gce + "))
    100
    """
    return text if len(text) <= 100 else text[:97] + "..."


def shown_score(score: float) -> str:
    """Return a score with three digits. Probabilities below a thousandth are all the same to a reader.

    >>> shown_score(0.05131), shown_score(5.8e-184), shown_score(-1.25)
    ('0.0513', '<0.001', '-1.25')
    """
    return "<0.001" if 0 < score < 0.001 else f"{score:.3g}"


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a hint for an unknown name: the nearest known one, or all of them.

    >>> nearest("sgze", ["ce", "sgce"])
    "did you mean 'sgce'?"
    """
    known = sorted(known)
    # A name of more than three times the length of another one shares less than half with it.
    comparable = [other for other in known if len(name) <= 3 * len(other)]
    close = difflib.get_close_matches(name.lower(), comparable, n=1, cutoff=0.5)
    return f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"


def choice(argument: str, value: object, allowed: Iterable[object]) -> None:
    """Raise ValueError unless the value is one of those allowed."""
    allowed = list(allowed)
    if value not in allowed:
        raise ValueError(f"{argument} must be one of {', '.join(map(repr, allowed))}; got {brief(value)}")


@dataclass(frozen=True)
class Interval:
    """An interval of numbers, written as in mathematics.

    >>> 0.5 in Interval("(0, 1]"), 0 in Interval("(0, 1]")
    (True, False)
    """

    text: str

    def __contains__(self, value: float) -> bool:
        low, high = (float(end) for end in self.text[1:-1].split(","))
        above = value > low if self.text[0] == "(" else value >= low
        below = value < high if self.text[-1] == ")" else value <= high
        return above and below


def number(argument: str, value: Any, interval: str, whole: bool = False) -> float:
    """Check that a value is a number in an interval, and return it.

    Args:
        argument: the name of the argument, for the message.
        value: a number.
        interval: such as ``"[0, 1)"``.
        whole: whether it must be an integer.

    >>> number("q", 0.5, "(0, 1]")
    0.5
    """
    allowed = f"{argument} must be {'a whole number' if whole else 'a number'} in {interval}"
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number:
        raise TypeError(f"{allowed}; got {brief(value)}")
    try:
        found = float(value)
    except OverflowError:  # a whole number may have any number of digits
        found = math.inf
    if not math.isfinite(found) or found not in Interval(interval) or (whole and value != int(value)):
        raise ValueError(f"{allowed}; got {brief(value)}")
    return int(value) if whole else found
