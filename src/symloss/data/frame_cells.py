"""The cells of a DataFrame, or of a dictionary of columns. pandas and polars are recognised by what they can do."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss.checks import brief
from symloss.data.class_names import number
from symloss.data.table_cells import (
    Cells,
    Text,
    categories,
    is_gap,
    large_whole,
    mistaken_number,
    number_name,
    refuse_infinite,
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
