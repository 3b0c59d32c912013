"""Tables in CSV or Parquet files, read column by column. Every cell is checked."""

from __future__ import annotations

import contextlib
import csv
from abc import ABC, abstractmethod
from array import array
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symloss.checks import brief
from symloss.data.bad_files import ROWS_HINT, BadFiles
from symloss.data.class_names import check_spelling, is_missing, number

_LARGEST = float(np.finfo(np.float32).max)
_CELLS = 2**22
"""How many cells are read from a Parquet file at once, in whole columns."""
_NAMED = 20
"""How many columns a message names."""


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
    def numbers(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> Tensor:
        """The cells of several columns as float32 (rows, columns); all must be finite numbers.

        Rows whose numbers, from 0, are in ``leave_out`` are not read.
        """

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

    def require(self, column: str, what: str) -> None:
        """Raise ValueError unless there is such a column. ``what`` says what it holds."""
        if column not in self.places:
            raise ValueError(f"{self.path} must have the {what} column {column!r}; got the columns {self.named()}")

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


class CsvTable(TableFile):
    """Comma-separated values in UTF-8, with a line of column names. The file is read again for each call."""

    unit = "line"

    def _header(self) -> list[str]:
        _, names = next(self._lines(), (0, []))
        names = [name.strip() for name in names]
        if not any(names):
            raise ValueError(f"{self.path} must start with a line of column names; got an empty one")
        return names

    def _lines(self) -> Iterator[tuple[int, list[str]]]:
        """Each line that is not empty, with its number."""
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file, strict=True)
                for cells in reader:
                    if cells:
                        yield reader.line_num, cells
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{self.path} must be comma-separated text in UTF-8; got {error}") from error

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        lines = self._lines()
        next(lines)
        number = 0
        for number, cells in lines:
            if len(cells) != len(self.columns):
                raise ValueError(
                    f"line {number} of {self.path} must have {len(self.columns)} cells, one for each column; "
                    f"got {len(cells)}"
                )
            yield number, cells
        if not number:
            raise self.no_rows()

    def _cells(self, column: str) -> Iterator[tuple[int, str]]:
        place = self.places[column]
        return ((line, cells[place].strip()) for line, cells in self._rows())

    def numbers(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> Tensor:
        places = [self.places[column] for column in columns]
        found = array("f")
        for row, (line, cells) in enumerate(self._rows()):
            if row not in leave_out:
                chosen = [cells[place] for place in places]
                values = _plain_numbers(chosen)
                if values is None:
                    values = np.array([self._number(*cell, line) for cell in zip(chosen, columns, strict=True)])
                found.frombytes(values.astype(np.float32).tobytes())
        return torch.from_numpy(np.frombuffer(found, dtype=np.float32)).view(-1, len(columns))

    def _number(self, cell: str, column: str, line: int) -> float:
        value = number(cell.strip())
        if value is None or abs(value) > _LARGEST:
            raise self.wrong_cell(column, "a finite number", cell.strip(), line)
        return value


def _plain_numbers(cells: list[str]) -> NDArray[np.float64] | None:
    """All cells of a row as numbers; None if one of them has to be read by itself."""
    text = "".join(cells)
    if not text.isascii() or "_" in text:
        return None
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None
    return values if (np.abs(values) <= _LARGEST).all() else None


class ParquetTable(TableFile):
    """An Apache Parquet file, read with pyarrow."""

    unit = "row"

    def _header(self) -> list[str]:
        with self._open() as file:
            self.rows: int = file.metadata.num_rows
            # pandas writes its index as a column, which is not part of the user's table.
            return [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]

    def _open(self) -> Any:
        try:
            import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415 (not always installed)
        except ImportError:
            raise ValueError(
                f"pyarrow must be installed to read {self.path}; got none (pip install 'symloss[parquet]' adds it)"
            ) from None
        with self._damage_said():
            return pq.ParquetFile(self.path)

    @contextlib.contextmanager
    def _damage_said(self) -> Iterator[None]:
        import pyarrow as pa  # noqa: PLC0415

        try:
            yield
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} must be a Parquet file; got {brief(str(error))}") from error

    def _read(self, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Read some columns at a time. The file is opened only once, since its header names every column."""
        if not self.rows:
            raise self.no_rows()
        width = max(1, _CELLS // self.rows)
        with self._open() as file:
            for start in range(0, len(columns), width):
                names = list(columns[start : start + width])
                with self._damage_said():
                    part = file.read(columns=names)
                yield {name: part.column(name) for name in names}

    def _cells(self, column: str) -> Iterator[tuple[int, str]]:
        (part,) = self._read([column])
        with self._damage_said():
            cells = part[column].to_pylist()
        return ((row, "" if cell is None else str(cell).strip()) for row, cell in enumerate(cells, 1))

    def numbers(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> Tensor:
        kept = np.delete(np.arange(self.rows), list(leave_out))
        found, done = torch.empty(len(kept), len(columns)), 0
        for part in self._read(columns):
            # Side by side first: a column that is written into the table by itself touches as many cache lines as rows.
            block = np.stack([self._numbers(column, cells, kept) for column, cells in part.items()])
            found[:, done : done + len(block)] = torch.from_numpy(block).T
            done += len(block)
        return found

    def _numbers(self, column: str, cells: Any, kept: NDArray[np.int64]) -> NDArray[np.float32]:
        kind = str(cells.type)
        if not kind.startswith(("int", "uint", "float", "double", "halffloat", "decimal")):
            raise self.wrong_cell(column, "a finite number", cells[0].as_py(), 1, f"({kind})")
        values: NDArray[np.float64] = cells.cast("double", safe=False).to_numpy()[kept]  # empty cells become NaN
        right = np.abs(values) <= _LARGEST
        if not right.all():
            row = int(kept[right.argmin()])
            raise self.wrong_cell(column, "a finite number", cells[row].as_py(), row + 1)
        return values.astype(np.float32)


def open_table(path: Path) -> TableFile:
    """A Parquet file by its ending, or else a CSV file."""
    return ParquetTable(path) if path.suffix.lower() == ".parquet" else CsvTable(path)
