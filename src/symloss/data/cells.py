"""What the cells of a table mean, how any table is read, and tables in memory: DataFrames, dictionaries of columns."""

from __future__ import annotations

import itertools
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss.checks import brief
from symloss.data.source import ROWS_HINT, BadFiles

Matrix = NDArray[np.float32]
Text = NDArray[np.object_]
"""The texts of a column (N,). None is a missing value."""

MISSING = frozenset({"", "na", "n/a", "#n/a", "<na>", "nan", "+nan", "-nan", "null", "none", "?"})
"""What people and programs write for a missing value, in lower case."""
EXACT = 2.0**24  # from here on float32 does not tell whole numbers apart
LARGEST = float(np.finfo(np.float32).max)
_CODE = re.compile("-?[0-9]+")
_MOSTLY = 0.9  # a column with this share of numbers is one of numbers with mistakes, not one of text


@dataclass(frozen=True)
class Cells:
    """The cells of the columns that were read: ``numbers`` (N, columns of numbers), where NaN is missing, and texts.

    ``names`` are all columns of the table, ``declared`` those of text that were declared to be categories. ``whole``
    has the texts of whole numbers that float32 does not tell apart.
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
    """Return whether a cell means that there is no value.

    >>> is_gap("NA"), is_gap(""), is_gap("0")
    (True, True, False)
    """
    return text.lower() in MISSING


def category(text: str) -> str | None:
    """Return the name of a category; None for a missing value. A number has one name, however it is written.

    Programs write whole numbers as 1.0 where other rows are empty. Codes such as 007 stay as they are.

    >>> category("red"), category("1.0"), category("1"), category("007"), category("NA")
    ('red', '1', '1', '007', None)
    """
    text = text.strip()
    if is_gap(text):
        return None
    value = None if _CODE.fullmatch(text) else number(text)
    if value is None:
        return text
    return str(int(value)) if value.is_integer() else repr(value)


def categories(texts: Sequence[str]) -> Text:
    """Return the categories of a column (N,), as :func:`category` names them."""
    names = {text: category(text) for text in set(texts)}
    return np.array([names[text] for text in texts], dtype=object)


def is_whole(texts: Text) -> bool:
    """Return whether every text is a whole number, written in digits."""
    return all(text is not None and _CODE.fullmatch(text) for text in texts)


def is_missing(text: str) -> bool:
    """Return whether a cell of a table means that there is no label. (The name of a folder may be nan.)"""
    return not text or text.lstrip("+-").lower() == "nan"


def no_label(unit: str, first: int, count: int) -> str:
    """Say which lines or rows are left out because they have no label."""
    return f"no label in {unit} {first}" + (f" and {count - 1} more {unit}s" if count > 1 else "")


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


_NAMED = 20  # how many columns a message names
NUMBER = "a finite number"
"""What a cell of a column of numbers must hold."""


class Table(ABC):
    """A table with named columns.

    Args:
        where: what messages call it.
    """

    unit: str
    """Whether messages count lines or rows, from 1."""

    def __init__(self, where: object) -> None:
        self.where = where
        self.columns = tuple(self._header())
        self.places = {name: place for place, name in enumerate(self.columns)}
        """The position of each column. There may be a million."""
        if len(self.places) < len(self.columns):
            repeated = next(name for place, name in enumerate(self.columns) if self.places[name] != place)
            raise ValueError(f"{where} must have columns of different names; got {repeated!r} twice")

    @abstractmethod
    def _header(self) -> list[str]: ...

    @abstractmethod
    def _spelled(self, columns: Sequence[str]) -> Iterable[tuple[str, list[str]]]:
        """Read columns as text, without spaces around it."""

    @abstractmethod
    def _numbers(self, columns: Sequence[str], leave_out: Collection[int], texts: set[str] | None = None) -> Matrix:
        """Read columns of numbers (rows, columns of numbers). A missing value is NaN.

        Columns that hold text are added to ``texts`` and left out. Without it, text is refused.
        """

    def _place(self, row: int) -> int:
        """Return what messages call a row: its number from 1, or that of its line."""
        return row + 1

    def _declared(self, columns: Iterable[str]) -> frozenset[str]:
        """Those of the columns that are declared to be categories."""
        return frozenset()

    def texts(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> dict[str, Text]:
        """Read several columns as categories, without some rows. None is a missing value."""
        return {name: np.delete(categories(cells), list(leave_out)) for name, cells in self._spelled(columns)}

    def cells(self, columns: Sequence[str], as_text: Collection[str] = (), leave_out: Collection[int] = ()) -> Cells:
        """Find out which columns hold numbers and which hold text, and read them. Those in ``as_text`` are text."""
        text_names = set(as_text)
        numbers = self._numbers([name for name in columns if name not in as_text], leave_out, text_names)
        names = [name for name in columns if name not in text_names]
        texts = self.texts([name for name in columns if name in text_names], leave_out)
        declared = self._declared(texts)
        for name in texts.keys() - declared - set(as_text):
            self._refuse_mistakes(name, texts[name])
        ends = np.maximum(numbers.max(axis=0, initial=0), -numbers.min(axis=0, initial=0))  # NaN if a value is missing
        large = [place for place in np.flatnonzero(ends >= EXACT).tolist() if (numbers[:, place] % 1 == 0).all()]
        whole = self.texts([names[place] for place in large], leave_out)
        return Cells(self.columns, tuple(names), numbers, texts, declared, whole)

    def cells_as(self, numbers: Sequence[str], texts: Sequence[str], leave_out: Collection[int] = ()) -> Cells:
        """Read columns as numbers and as text, as in training."""
        for column in (*numbers, *texts):
            self.require(column, "feature")
        return Cells(self.columns, tuple(numbers), self._numbers(numbers, leave_out), self.texts(texts, leave_out))

    def _refuse_mistakes(self, column: str, texts: Text) -> None:
        """Raise ValueError if a column is one of numbers with mistakes, not one of text."""
        filled = [text for text in texts if text is not None]
        if not _MOSTLY * len(filled) <= sum(number(text) is not None for text in filled) < len(filled):
            return
        hint = f"(--settings categorical={column}, or categorical=, takes it as text)"
        raise self._no_number(column, hint)

    def _no_number(self, column: str, hint: str = "") -> ValueError:
        """Make the error for the first cell of a column that is neither a number nor missing."""
        return self.first_wrong(column, NUMBER, lambda cell: number(cell) is not None, hint)

    def first_wrong(self, column: str, wanted: str, right: Callable[[str], bool], hint: str = "") -> ValueError:
        """Make the error for the first cell of a column that is neither right nor missing."""
        cells = enumerate(self._column(column))
        row, cell = next((row, cell) for row, cell in cells if not is_gap(cell) and not right(cell))
        return self.wrong_cell(column, wanted, cell, row, hint)

    def _column(self, column: str) -> list[str]:
        return dict(self._spelled([column]))[column]

    def text(self, column: str) -> list[str]:
        """Read a column as text. No cell may be empty."""
        cells = self._column(column)
        if "" in cells:
            raise self.wrong_cell(column, "a value", "", cells.index(""))
        return cells

    def rows(self, columns: Sequence[str], rows: Collection[int]) -> dict[int, tuple[str, ...]]:
        """Read some rows as text, by the number of the row, from 0."""
        cells = [texts for _, texts in self._spelled(columns)]
        return {row: tuple(texts[row] for texts in cells) for row in rows}

    def labels(self, column: str, bad: BadFiles) -> tuple[list[str], frozenset[int]]:
        """Read the labels of all rows that have one, and find the numbers, from 0, of the rows without."""
        cells = self._column(column)
        without = [row for row, cell in enumerate(cells) if is_missing(cell)]
        if without:
            wrong = self.wrong_cell(column, "a label", cells[without[0]], without[0], ROWS_HINT)
            bad.leave_out(Path(str(self.where)), no_label(self.unit, self._place(without[0]), len(without)), wrong)
        labels = np.delete(np.array(cells, dtype=object), without).tolist()
        check_spelling(labels, f"column {column!r} of {self.where}")
        return labels, frozenset(without)

    def require(self, column: str, what: str, hint: str = "") -> None:
        """Raise ValueError unless there is such a column. ``what`` says what it holds."""
        if column not in self.places:
            got = f"got the columns {self.named()}" + (f" {hint}" if hint else "")
            raise ValueError(f"{self.where} must have the {what} column {column!r}; {got}")

    def named(self) -> str:
        """List the columns, for a message."""
        shown, more = ", ".join(self.columns[:_NAMED]) or "none", len(self.columns) - _NAMED
        return shown if more <= 0 else f"{shown} and {more} more"

    def wrong_cell(self, column: str, wanted: str, cell: object, row: int, hint: str = "") -> ValueError:
        """Make the error for a cell that cannot be read. ``row`` counts from 0."""
        given = f"{'an empty cell' if cell == '' else brief(cell)} in {self.unit} {self._place(row)}"
        hint = hint and f" {hint}"
        return ValueError(f"column {column!r} of {self.where} must hold {wanted} in every row; got {given}{hint}")


WHERE = "the table"
"""What messages call a table that is in memory."""
_SIDE_BY_SIDE = 64
"""How many columns are written into a table at once: one by itself touches as many cache lines as rows."""


class FrameTable(Table):
    """A DataFrame, or a mapping of names to columns. pandas and polars are recognised by what they can do.

    The type of a column decides whether it holds numbers or text.

    >>> cells = FrameTable({"size": [1.5, None], "colour": ["red", "blue"]}).cells(["size", "colour"])
    >>> cells.number_names, cells.texts["colour"].tolist()
    (('size',), ['red', 'blue'])
    """

    unit = "row"
    _advice = "(turn it into numbers, or drop it)"
    _values: Mapping[str, Any] = {}

    def __init__(self, frame: Any) -> None:
        self._names = list(getattr(frame, "columns", frame))
        super().__init__(WHERE)
        self._values = {str(name): frame[name] for name in self._names}
        lengths = {len(values) for values in self._values.values()}
        if len(lengths) > 1:
            raise ValueError(f"the columns of {WHERE} must have the same length; got {sorted(lengths)}")
        self._rows = next(iter(lengths), 0)

    def _header(self) -> list[str]:
        return [str(name) for name in self._names]  # those of pandas may be numbers

    def _read(self, columns: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yield the values of each column."""
        return ((name, self._values[name]) for name in columns)

    def _spelled(self, columns: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
        for name, values in self._read(columns):
            yield name, ["" if cell is None else str(cell).strip() for cell in self._plain(name, values)]

    def _plain(self, column: str, values: Any) -> Any:
        """Return the cells of a column as Python's objects. Whole numbers keep all their digits. Dates are ISO text."""
        cells = np.asarray(values)
        return (self._value(value, column) for value in (_iso(cells) if cells.dtype.kind == "M" else cells).tolist())

    def _value(self, value: Any, column: str) -> str | int | float | None:
        """Read a cell of a column of objects: a text, a number, or None."""
        if isinstance(value, (str, int)):
            return value
        if value is None or type(value).__name__ in ("NAType", "NaTType") or value is np.ma.masked:
            return None
        if isinstance(value, date):  # which a datetime is, and a Timestamp of pandas
            return value.isoformat()
        if isinstance(value, (Real, Decimal)):
            return None if math.isnan(value) else float(value)
        raise self._neither(column, brief(value))

    def _neither(self, column: str, given: object) -> ValueError:
        advice = self._advice.format(column)
        return ValueError(f"column {column!r} of {self.where} must hold numbers or text; got {given} {advice}")

    def _declared(self, columns: Iterable[str]) -> frozenset[str]:
        """Return the columns of a type for categories: "category" in pandas, "Categorical" and "Enum" in polars."""
        kinds = {name: str(getattr(self._values.get(name), "dtype", "")).lower() for name in columns}
        return frozenset(name for name, kind in kinds.items() if kind.startswith(("categor", "enum")))

    def _numbers(self, columns: Sequence[str], leave_out: Collection[int], texts: set[str] | None = None) -> Matrix:
        kept = np.delete(np.arange(self._rows), list(leave_out))
        block, done = np.empty((len(kept), len(columns)), dtype=np.float32), 0
        found = self._number_columns(columns, kept, texts)
        while part := list(itertools.islice(found, _SIDE_BY_SIDE)):
            block[:, done : done + len(part)] = np.stack(part).T
            done += len(part)
        return np.ascontiguousarray(block[:, :done])

    def _number_columns(
        self, columns: Sequence[str], kept: NDArray[np.int64], texts: set[str] | None
    ) -> Iterator[NDArray[np.float32]]:
        declared = self._declared(columns)
        for name, given in self._read(columns):
            values = None if name in declared else self._typed_numbers(name, given)
            if values is None and texts is not None:
                texts.add(name)
                continue
            values = (self._spelled_numbers(name) if values is None else values)[kept]
            wrong = np.flatnonzero(np.abs(values) > LARGEST)
            if len(wrong):
                raise self.wrong_cell(name, NUMBER, values[wrong[0]].item(), int(kept[wrong[0]]))
            yield values.astype(np.float32)

    def _typed_numbers(self, column: str, given: Any) -> NDArray[np.float64] | None:
        """Return the numbers of a column (N,), NaN where one is missing; None for text."""
        values = np.asarray(given)
        if values.dtype.kind in "iufb" and values.ndim == 1:
            return values.astype(np.float64)
        if values.dtype.kind == "M" and values.ndim == 1:
            return None
        if values.dtype.kind not in "OUST" or values.ndim != 1:
            raise self._neither(column, getattr(given, "dtype", None) or getattr(given, "type", values.dtype))
        found = [self._value(value, column) for value in values.tolist()]
        if any(isinstance(value, str) and not is_gap(value.strip()) for value in found):
            return None
        return np.array([math.nan if value is None or isinstance(value, str) else float(value) for value in found])

    def _spelled_numbers(self, column: str) -> NDArray[np.float64]:
        """Return the numbers of a column of text (N,), NaN where one is missing."""
        spelled = [math.nan if is_gap(text) else number(text) for text in self._column(column)]
        if None in spelled:
            raise self._no_number(column)
        return np.array(spelled, np.float64)


def _iso(values: NDArray[Any]) -> NDArray[np.object_]:
    """Return dates as texts (N,), without a time where all are midnight; None for a missing one."""
    precise = values.astype("datetime64[us]")
    short = (precise == precise.astype("datetime64[D]")) | np.isnat(precise)
    texts = np.datetime_as_string(precise, unit="D" if short.all() else "us").astype(object)
    texts[np.isnat(precise)] = None
    return texts
