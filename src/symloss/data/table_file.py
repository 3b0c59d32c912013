"""A table in a file, read column by column. Every cell is checked."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from symloss.checks import brief
from symloss.data.bad_files import ROWS_HINT, BadFiles
from symloss.data.class_names import check_spelling, is_missing, number
from symloss.data.table_cells import Cells, Text, is_gap, large_whole, mistaken_number

_NAMED = 20
"""How many columns a message names."""
NUMBER = "a finite number"
"""What a cell of a column of numbers must hold."""


class TableFile(ABC):
    """A table with named columns.

    Args:
        path: the file.
    """

    unit: str
    """Whether messages count lines or rows, from 1."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = tuple(self._header())
        self.places = {name: place for place, name in enumerate(self.columns)}
        """The position of each column. There may be a million."""
        if len(self.places) < len(self.columns):
            repeated = next(name for place, name in enumerate(self.columns) if self.places[name] != place)
            raise ValueError(f"{path} must have columns of different names; got {repeated!r} twice")

    @abstractmethod
    def _header(self) -> list[str]: ...

    @abstractmethod
    def _cells(self, column: str) -> Iterator[tuple[int, str]]:
        """The cells of a column as text, each with the number of its line or row."""

    @abstractmethod
    def numbers(
        self, columns: Sequence[str], leave_out: Collection[int] = (), gaps: bool = False
    ) -> NDArray[np.float32]:
        """The cells of several columns (rows, columns); all must be finite numbers.

        Rows whose numbers, from 0, are in ``leave_out`` are not read. With ``gaps`` a missing value is NaN.
        """

    @abstractmethod
    def texts(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> dict[str, Text]:
        """The cells of several columns as categories. None is a missing value."""

    @abstractmethod
    def _numbers_where_possible(
        self, columns: Sequence[str], leave_out: Collection[int]
    ) -> tuple[list[str], NDArray[np.float32]]:
        """Those of the columns that hold numbers, and their cells. NaN is a missing value."""

    def cells(self, columns: Sequence[str], as_text: Collection[str] = (), leave_out: Collection[int] = ()) -> Cells:
        """Find out which columns hold numbers and which hold text, and read them.

        Args:
            columns: the columns to read.
            as_text: those of them that are text in any case.
            leave_out: the numbers, from 0, of rows that are not read.
        """
        names, numbers = self._numbers_where_possible([name for name in columns if name not in as_text], leave_out)
        are_numbers = frozenset(names)
        texts = self.texts([name for name in columns if name not in are_numbers], leave_out)
        for name in texts.keys() - set(as_text):
            if mistaken_number(texts[name]) is not None:
                raise self._mistake(name)
        large = self.texts(large_whole(names, numbers), leave_out)
        return Cells(self.columns, tuple(names), numbers, texts, whole=large)

    def cells_as(self, numbers: Sequence[str], texts: Sequence[str], leave_out: Collection[int] = ()) -> Cells:
        """Read columns as numbers and as text, as in training."""
        for column in (*numbers, *texts):
            self.require(column, "feature")
        found = self.numbers(numbers, leave_out, gaps=True)
        return Cells(self.columns, tuple(numbers), found, self.texts(texts, leave_out))

    def _mistake(self, column: str) -> ValueError:
        cells = ((place, cell) for place, cell in self._cells(column) if not is_gap(cell))
        place, cell = next((place, cell) for place, cell in cells if number(cell) is None)
        return self.wrong_cell(
            column, NUMBER, cell, place, f"(--categorical {column}, or categorical=, takes it as text)"
        )

    def text(self, column: str) -> list[str]:
        """The cells of a column as text; none may be empty."""
        found = []
        for place, cell in self._cells(column):
            if not cell:
                raise self.wrong_cell(column, "a value", cell, place)
            found.append(cell)
        return found

    def labels(self, column: str, bad: BadFiles) -> tuple[list[str], frozenset[int]]:
        """The labels of all rows that have one, and the numbers, from 0, of the rows that were left out."""
        labels: list[str] = []
        without: dict[int, tuple[int, str]] = {}
        for row, (place, cell) in enumerate(self._cells(column)):
            if is_missing(cell):
                without[row] = place, cell
            else:
                labels.append(cell)
        if without:
            place, cell = next(iter(without.values()))
            more = f" and {len(without) - 1} more {self.unit}s" if len(without) > 1 else ""
            wrong = self.wrong_cell(column, "a label", cell, place, ROWS_HINT)
            bad.leave_out(self.path, f"no label in {self.unit} {place}{more}", wrong)
        check_spelling(labels, f"column {column!r} of {self.path}")
        return labels, frozenset(without)

    def require(self, column: str, what: str, hint: str = "") -> None:
        """Raise ValueError unless there is such a column. ``what`` says what it holds."""
        if column not in self.places:
            got = f"got the columns {self.named()}" + (f" {hint}" if hint else "")
            raise ValueError(f"{self.path} must have the {what} column {column!r}; {got}")

    def named(self) -> str:
        """The columns, for a message."""
        shown, more = ", ".join(self.columns[:_NAMED]), len(self.columns) - _NAMED
        return shown if more <= 0 else f"{shown} and {more} more"

    def wrong_cell(self, column: str, wanted: str, cell: object, row: int, hint: str = "") -> ValueError:
        """The error for a cell that cannot be read. ``row`` counts from 1."""
        given = "an empty cell" if cell in ("", None) else brief(cell)
        return ValueError(
            f"column {column!r} of {self.path} must hold {wanted} in every row; got {given} in {self.unit} {row}"
            + (f" {hint}" if hint else "")
        )

    def no_rows(self) -> ValueError:
        """The error for a table without rows."""
        return ValueError(f"{self.path} must have at least one row below its column names; got none")
