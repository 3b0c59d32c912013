"""The cells of a table in memory, and what a cell means: a number, a category, or nothing."""

from __future__ import annotations

import csv
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss.checks import nearest
from symloss.data.class_names import number

Text = NDArray[np.object_]
"""The texts of a column (N,). None is a missing value."""

MISSING = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "+nan", "-nan", "null", "none", "?"})
"""What people and programs write for a missing value, in lower case."""
EXACT = 2.0**24
"""From here on float32 does not tell whole numbers apart."""
LARGEST = float(np.finfo(np.float32).max)
_CODE = re.compile("-?[0-9]+")
_MOSTLY = 0.9
"""A column with this share of numbers is one of numbers with mistakes, not one of text."""


@dataclass(frozen=True)
class Cells:
    """The cells of the columns that were read.

    Args:
        names: all columns of the table in their order, also those that were not read.
        number_names: the columns of numbers.
        numbers: (N, columns of numbers). NaN is a missing value.
        texts: the columns of text.
        declared: columns of text that were declared to be categories.
        whole: the texts of columns of whole numbers that float32 does not tell apart.
    """

    names: tuple[str, ...]
    number_names: tuple[str, ...]
    numbers: NDArray[np.float32]
    texts: Mapping[str, Text]
    declared: frozenset[str] = frozenset()
    whole: Mapping[str, Text] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.numbers)


def is_gap(text: str) -> bool:
    """Whether a cell means that there is no value.

    >>> is_gap("NA"), is_gap(""), is_gap("0")
    (True, True, False)
    """
    return text.lower() in MISSING


def category(text: str) -> str | None:
    """The name of a category; None for a missing value. A number has one name, however it is written.

    Programs write whole numbers as 1.0 where other rows are empty. Codes such as 007 stay as they are.

    >>> category("red"), category("1.0"), category("1"), category("007"), category("NA")
    ('red', '1', '1', '007', None)
    """
    text = text.strip()
    if is_gap(text):
        return None
    value = None if _CODE.fullmatch(text) else number(text)
    return text if value is None else number_name(value)


def number_name(value: float) -> str:
    """The name of a number as a category.

    >>> number_name(3.0), number_name(0.5)
    ('3', '0.5')
    """
    value = float(value)
    return str(int(value)) if value.is_integer() else repr(value)


def categories(texts: Sequence[str]) -> Text:
    """The categories of a column (N,), as :func:`category` names them."""
    names = {text: category(text) for text in set(texts)}
    return text_array([names[text] for text in texts])


def text_array(texts: Sequence[str | None]) -> Text:
    """Texts as an array (N,) of objects."""
    array: Text = np.empty(len(texts), dtype=object)
    array[:] = texts
    return array


def is_whole(texts: Text) -> bool:
    """Whether every text is a whole number, written in digits."""
    return all(text is not None and _CODE.fullmatch(text) for text in texts)


def large_whole(names: Sequence[str], numbers: NDArray[np.float32]) -> list[str]:
    """The columns whose numbers may be whole ones that float32 does not tell apart."""
    if not len(numbers):
        return []
    large = np.flatnonzero((numbers.max(axis=0) >= EXACT) | (numbers.min(axis=0) <= -EXACT)).tolist()
    return [names[place] for place in large if (numbers[:, place] == np.floor(numbers[:, place])).all()]


def mistaken_number(texts: Text) -> int | None:
    """The first cell that is no number in a column of numbers with mistakes; None for a column of text."""
    filled = [place for place, text in enumerate(texts) if text is not None]
    wrong = [place for place in filled if number(texts[place]) is None]
    mostly = len(filled) - len(wrong) >= _MOSTLY * len(filled)
    return wrong[0] if wrong and mostly else None


def split_names(text: str | None) -> tuple[str, ...]:
    """The names of columns, separated by commas. A name that holds a comma is quoted, as in a CSV file.

    >>> split_names('id, "size, cm"'), split_names(None)
    (('id', 'size, cm'), ())
    """
    if text is None:
        return ()
    return tuple(name.strip() for name in next(csv.reader([text], skipinitialspace=True), []))


def require_columns(names: Iterable[str], known: Collection[str], argument: str, where: object) -> None:
    """Raise ValueError unless all names are columns of the table."""
    for name in names:
        if name not in known:
            raise ValueError(f"{argument} must name columns of {where}; got {name!r}, {nearest(name, map(str, known))}")


def refuse_infinite(values: NDArray[Any], column: str, where: object) -> None:
    """Raise ValueError unless all numbers of a column are finite as float32, or missing."""
    wrong = np.flatnonzero(np.abs(values) > LARGEST)
    if len(wrong):
        row = int(wrong[0])
        raise ValueError(
            f"column {column!r} of {where} must hold a finite number in every row; got {values[row]} in row {row + 1}"
        )
