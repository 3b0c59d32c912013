"""Tables, in CSV or Parquet: cells by column, every one of them checked."""

from __future__ import annotations

import csv
import math
from abc import ABC, abstractmethod
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from symloss.checks import brief

_LARGEST = float(np.finfo(np.float32).max)


class Table(ABC):
    """Rows below named columns."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.columns = tuple(self._header())
        repeated = [name for place, name in enumerate(self.columns) if name in self.columns[:place]]
        if repeated:
            raise ValueError(f"{path} must have columns of different names; got {repeated[0]!r} twice")

    @abstractmethod
    def _header(self) -> list[str]: ...

    @abstractmethod
    def text(self, column: str) -> list[str]:
        """The cells of a column as text; none may be empty."""

    @abstractmethod
    def numbers(self, columns: Sequence[str]) -> Tensor:
        """The cells of several columns as float32 (rows, columns); all must be finite numbers."""

    def require(self, column: str, what: str) -> None:
        if column not in self.columns:
            raise ValueError(
                f"{self.path} must have the {what} column {column!r}; got the columns {', '.join(self.columns)}"
            )

    def wrong_cell(self, column: str, wanted: str, cell: object, place: str) -> ValueError:
        given = "an empty cell" if cell in ("", None) else brief(cell)
        return ValueError(f"column {column!r} of {self.path} must hold {wanted} in every row; got {given} in {place}")

    def no_rows(self) -> ValueError:
        return ValueError(f"{self.path} must have at least one row below its column names; got none")


class CsvTable(Table):
    """Comma-separated, in UTF-8, with a line of column names. Read anew for each question, so never held as text."""

    def _header(self) -> list[str]:
        _, names = next(self._lines(), (0, []))
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
                        yield reader.line_num, [cell.strip() for cell in cells]
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

    def text(self, column: str) -> list[str]:
        place, found = self.columns.index(column), []
        for line, cells in self._rows():
            if not cells[place]:
                raise self.wrong_cell(column, "a value", "", f"line {line}")
            found.append(cells[place])
        return found

    def numbers(self, columns: Sequence[str]) -> Tensor:
        places = [self.columns.index(column) for column in columns]
        found = array("f")
        for line, cells in self._rows():
            for column, place in zip(columns, places, strict=True):
                found.append(self._number(cells[place], column, line))
        return torch.from_numpy(np.frombuffer(found, dtype=np.float32)).view(-1, len(columns))

    def _number(self, cell: str, column: str, line: int) -> float:
        try:
            value = float(cell)
        except ValueError:
            value = float("nan")
        if not -_LARGEST <= value <= _LARGEST:
            raise self.wrong_cell(column, "a finite number", cell, f"line {line}")
        return value


class ParquetTable(Table):
    """An Apache Parquet file, read with pyarrow."""

    def _header(self) -> list[str]:
        with self._open() as file:
            # pandas writes its index as a column; it is none of the user's.
            return [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]

    def _open(self) -> Any:
        try:
            import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415 (not always installed)
            import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415
        except ImportError:
            raise ValueError(
                f"pyarrow must be installed to read {self.path}; got none (pip install 'symloss[parquet]' adds it)"
            ) from None
        try:
            return pq.ParquetFile(self.path)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{self.path} must be a Parquet file; got {brief(str(error))}") from error

    def _column(self, column: str) -> Any:
        with self._open() as file:
            found = file.read(columns=[column]).column(0)
        if not len(found):
            raise self.no_rows()
        return found

    def text(self, column: str) -> list[str]:
        found = []
        for row, cell in enumerate(self._column(column).to_pylist(), 1):
            text = "" if cell is None else str(cell).strip()
            if not text or (isinstance(cell, float) and math.isnan(cell)):
                raise self.wrong_cell(column, "a value", text, f"row {row}")
            found.append(text)
        return found

    def numbers(self, columns: Sequence[str]) -> Tensor:
        return torch.stack([self._numbers(column) for column in columns], dim=1)

    def _numbers(self, column: str) -> Tensor:
        cells = self._column(column)
        kind = str(cells.type)
        if not kind.startswith(("int", "uint", "float", "double", "halffloat", "decimal")):
            raise self.wrong_cell(column, "a finite number", cells[0].as_py(), f"row 1 ({kind})")
        values = cells.to_numpy().astype(np.float64)  # empty cells become NaN
        wrong = np.flatnonzero(~(np.abs(values) <= _LARGEST))
        if len(wrong):
            row = int(wrong[0])
            raise self.wrong_cell(column, "a finite number", cells[row].as_py(), f"row {row + 1}")
        return torch.from_numpy(values.astype(np.float32))


def open_table(path: Path) -> Table:
    return ParquetTable(path) if path.suffix.lower() == ".parquet" else CsvTable(path)
