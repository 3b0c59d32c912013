"""Checks of arguments. The message of an error names the argument, what is allowed, and the value."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import numbers
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
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


def _is_finite(value: object) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


_KINDS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "None": ("nothing", lambda value: value is None),
    "bool": ("true or false", lambda value: type(value) is bool),
    "int": ("a whole number", lambda value: type(value) is int),
    "float": ("a number", _is_finite),
    "metric": ("a number", lambda value: type(value) in (int, float)),
    "share": ("a number from 0 to 1", lambda value: _is_finite(value) and 0 <= value <= 1),
    "str": ("a text", lambda value: isinstance(value, str)),
    "Path": ("a text", lambda value: isinstance(value, str)),
    "list": ("a list", lambda value: isinstance(value, list)),
    "tuple[str, ...]": ("a list of texts", lambda value: _is_list_of("str", value)),
    "tuple[int, ...]": ("a list of whole numbers", lambda value: _is_list_of("int", value)),
    "tuple[float, ...]": ("a list of numbers", lambda value: _is_list_of("float", value)),
}
"""What a value must be, in words and as a test, by its type. A name that is not here stands for an object."""
_OBJECT = ("an object", lambda value: isinstance(value, dict))
_NOWHERE_ALLOWED = object()


def _is_list_of(kind: str, value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(_KINDS[kind][1](each) for each in value)


def kind(allowed: str, value: object) -> str | None:
    """Return None if a value is of an allowed type, or else what it must be, in words.

    >>> kind("int | None", 3), kind("int | None", "3")
    (None, 'a whole number or nothing')
    """
    kinds = [_KINDS.get(name, _OBJECT) for name in allowed.split(" | ")]
    fits = any(test(value) for _, test in kinds)
    return None if fits else " or ".join(dict.fromkeys(words for words, _ in kinds))


def record(
    where: object, document: object, fields: type | Mapping[str, str], optional: Collection[str] = ()
) -> dict[str, Any]:
    """Check a JSON object, and return the fields that are asked for, with tuples for lists. Others are ignored.

    Args:
        where: what messages call the document.
        document: the object.
        fields: a dataclass, whose fields with a default may be missing; or the type of each field, as a text.
        optional: fields that may be missing, and count as None then.

    Raises:
        ValueError: if a field is missing or of another type.

    >>> record("run.json", {"epoch": 3, "note": "x"}, {"epoch": "int", "loss": "float"}, optional=["loss"])
    {'epoch': 3, 'loss': None}
    """
    if not isinstance(document, dict):
        raise ValueError(f"{where} must hold a JSON object; got {brief(document)}")
    if isinstance(fields, type):
        needed = [part for part in dataclasses.fields(fields) if part.name in document or _has_no_default(part)]
        fields = {part.name: str(part.type) for part in needed}
    found: dict[str, Any] = {}
    for name, allowed in fields.items():
        value = document.get(name)
        is_missing = name not in document
        if is_missing and name in optional:
            found[name] = None
            continue
        words = kind(allowed, _NOWHERE_ALLOWED if is_missing else value)
        if words is not None:
            raise ValueError(f"{where} must hold {name} as {words}; got {brief(value)}")
        found[name] = tuple(value) if allowed.startswith("tuple") and value is not None else value
    return found


def _has_no_default(part: dataclasses.Field[Any]) -> bool:
    return part.default is dataclasses.MISSING and part.default_factory is dataclasses.MISSING


def json_object(where: object, text: str | bytes) -> dict[str, Any]:
    """Return the JSON object in a text, or raise ValueError with one sentence that names ``where``."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} must hold JSON; {error}") from None
    if not isinstance(document, dict):
        raise ValueError(f"{where} must hold a JSON object; got {brief(document)}")
    return document
