"""The cells of a table in memory: what a cell means, and the cells of a DataFrame or a dictionary of columns."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss.checks import brief, nearest

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


WHERE = "the table"


def frame_cells(frame: Any, as_text: Collection[str] = (), leave_out: Collection[str] = ()) -> Cells:
    """Read a table. The type of a column decides whether it holds numbers or text.

    Args:
        frame: a DataFrame, or a mapping of names to columns.
        as_text: columns that are text in any case.
        leave_out: columns that are not read.

    >>> cells = frame_cells({"size": [1.5, None], "colour": ["red", "blue"]})
    >>> cells.number_names, cells.texts["colour"].tolist()
    (('size',), ['red', 'blue'])
    """
    columns = _columns(frame)
    numbers: dict[str, NDArray[np.float64]] = {}
    texts: dict[str, Text] = {}
    for name in columns:
        if name in leave_out:
            continue
        values = None if name in as_text else _numbers(columns[name], name)
        if values is None:
            texts[name] = _texts(columns[name], name)
        else:
            numbers[name] = values
    declared = frozenset(name for name in texts if _is_declared(columns[name]))
    for name in texts.keys() - declared - set(as_text):
        _refuse_mistakes(texts[name], name)
    block = _block(list(numbers.values()), _rows(columns))
    large = {name: _texts(columns[name], name) for name in large_whole(tuple(numbers), block)}
    return Cells(tuple(columns), tuple(numbers), block, texts, declared, large)


def frame_cells_as(frame: Any, numbers: Sequence[str], texts: Sequence[str]) -> Cells:
    """Read columns of a table as numbers and as text, whatever their types are."""
    columns = _columns(frame)
    for name in (*numbers, *texts):
        if name not in columns:
            shown = ", ".join(list(columns)[:20])
            raise ValueError(f"{WHERE} must have the feature column {name!r}; got the columns {shown or 'none'}")
    values = [_numbers_of_any(columns[name], name) for name in numbers]
    block = _block(values, _rows(columns))
    return Cells(tuple(columns), tuple(numbers), block, {name: _texts(columns[name], name) for name in texts})


def _columns(frame: Any) -> dict[str, Any]:
    """The columns by name. The names of pandas may be numbers."""
    names = list(getattr(frame, "columns", frame))
    found = {str(name): frame[name] for name in names}
    if len(found) < len(names):
        repeated = next(str(name) for place, name in enumerate(names) if str(name) in map(str, names[:place]))
        raise ValueError(f"{WHERE} must have columns of different names; got {repeated!r} twice")
    return found


def _rows(columns: dict[str, Any]) -> int:
    lengths = {len(column) for column in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"the columns of {WHERE} must have the same length; got {sorted(lengths)}")
    return next(iter(lengths), 0)


def _block(columns: list[NDArray[np.float64]], rows: int) -> NDArray[np.float32]:
    block = np.empty((rows, len(columns)), dtype=np.float32)
    for place, values in enumerate(columns):
        block[:, place] = values
    return block


def _is_declared(column: Any) -> bool:
    """Whether a column has a type for categories: "category" in pandas, "Categorical" and "Enum" in polars."""
    return str(getattr(column, "dtype", "")).lower().startswith(("categor", "enum"))


def _numbers(column: Any, name: str) -> NDArray[np.float64] | None:
    """The numbers of a column (N,), NaN where one is missing; None for text."""
    if _is_declared(column):
        return None
    values = np.asarray(column)
    if values.dtype.kind in "iufb" and values.ndim == 1:
        return _finite(values.astype(np.float64), name)
    if values.dtype.kind not in "OUST" or values.ndim != 1:
        kind_name = getattr(column, "dtype", values.dtype)
        raise ValueError(
            f"column {name!r} of {WHERE} must hold numbers or text; got {kind_name} (turn it into numbers, or drop it)"
        )
    found = [_value(value, name) for value in values.tolist()]
    if any(isinstance(value, str) for value in found):
        return None
    return _finite(np.array([np.nan if value is None else float(value) for value in found], np.float64), name)


def _value(value: Any, name: str) -> str | float | None:
    """A cell of a column of objects: a text, a number, or None."""
    if isinstance(value, str):
        return None if is_gap(value.strip()) else value
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value is np.ma.masked:
        return None
    if isinstance(value, (Real, Decimal)):
        return None if math.isnan(value) else float(value)
    raise ValueError(f"column {name!r} of {WHERE} must hold numbers or text; got {brief(value)}")


def _finite(values: NDArray[np.float64], name: str) -> NDArray[np.float64]:
    refuse_infinite(values, name, WHERE)
    return values


def _texts(column: Any, name: str) -> Text:
    """The categories of a column (N,). Whole numbers keep all their digits."""
    return categories([_spelled(value, name) for value in np.asarray(column).tolist()])


def _spelled(value: Any, name: str) -> str:
    if isinstance(value, (int, np.integer)):
        return str(value)
    found = _value(value, name)
    if found is None:
        return ""
    return found if isinstance(found, str) else number_name(found)


def _numbers_of_any(column: Any, name: str) -> NDArray[np.float64]:
    """The numbers of a column that held numbers in training."""
    values = _numbers(column, name)
    if values is not None:
        return values
    texts = _texts(column, name)
    found = [np.nan if text is None else number(text) for text in texts]
    if None in found:
        row = found.index(None)
        raise _no_number(name, texts[row], row)
    return _finite(np.array(found, dtype=np.float64), name)


def _refuse_mistakes(texts: Text, name: str) -> None:
    row = mistaken_number(texts)
    if row is not None:
        raise _no_number(name, texts[row], row, " (name it in categorical to take it as text)")


def _no_number(name: str, text: str | None, row: int, hint: str = "") -> ValueError:
    return ValueError(
        f"column {name!r} of {WHERE} must hold a number in every row; got {brief(text)} in row {row + 1}{hint}"
    )


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
