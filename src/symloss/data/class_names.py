"""Turn labels as people write them, names or numbers, into classes 0, 1, 2, ..."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from symloss.checks import brief

if TYPE_CHECKING:
    from torch import Tensor


def class_names(labels: Iterable[str], where: object) -> tuple[str, ...]:
    """The distinct labels in order: numbers by value, names by alphabet.

    >>> class_names(["10", "9", "10"], "x.csv"), class_names(["dog", "cat"], "x.csv")
    (('9', '10'), ('cat', 'dog'))
    """
    distinct = set(labels)
    if len(distinct) < 2:
        given = f"only {brief(*distinct)}" if distinct else "none"
        raise ValueError(f"the labels of {where} must name at least two classes; got {given}")
    numbers = [number(text) for text in distinct]
    if None in numbers:
        return tuple(sorted(distinct))
    fractions = [value for value in numbers if value is not None and value != int(value)]
    if fractions:
        raise ValueError(
            f"the labels of {where} must be names or whole numbers, one for each class; got {min(fractions)}"
        )
    return tuple(sorted(distinct, key=lambda text: (float(text), text)))


def class_numbers(labels: Sequence[str], classes: Sequence[str], where: object) -> Tensor:
    """The class number of each label (N,)."""
    from symloss.data.dataset import labels_tensor  # noqa: PLC0415 (tables are read without torch)

    place = {name: number for number, name in enumerate(classes)}
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        value = number(unknown[0])
        same = next((name for name in classes if value is not None and number(name) == value), None)
        raise ValueError(
            f"the labels of {where} must be among the {len(classes)} classes of the training data, "
            f"{brief(list(classes))}; got {brief(unknown[0])}"
            + ("" if same is None else f", which is the number of {same!r}, written in another way")
        )
    return labels_tensor([place[label] for label in labels])


def is_missing(text: str) -> bool:
    """Whether a cell of a table means that there is no label. (The name of a folder may be nan.)"""
    return not text or text.lstrip("+-").lower() == "nan"


def check_spelling(labels: Iterable[str], where: object) -> None:
    """Refuse a number that is written in two ways, such as 1 and 1.0. Codes such as 7 and 007 may be two classes."""
    spelt: dict[float, str] = {}
    for text in sorted(set(labels)):
        value = number(text)
        other = text if value is None else spelt.setdefault(value, text)
        if other != text and not (_CODE.fullmatch(text) and _CODE.fullmatch(other)):
            raise ValueError(
                f"{where} must write the label of a class in one way; got {other!r} and {text!r}, the same number"
            )


_CODE = re.compile("-?[0-9]+")


def number(text: str) -> float | None:
    """Read a finite number in ASCII; None for any other text, such as 1_000 or digits of other scripts.

    >>> number("1e3"), number("1_000"), number("nan"), number(chr(0x661))
    (1000.0, None, None, None)
    """
    try:
        value = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        return None
    return value if math.isfinite(value) else None
