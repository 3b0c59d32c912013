"""A table in an Apache Parquet file."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss.checks import brief
from symloss.data.table_cells import LARGEST, Text, categories
from symloss.data.table_file import NUMBER, TableFile

_CELLS = 2**22
"""How many cells are read at once, in whole columns."""
_NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal", "bool", "null")
_TEXTS = ("string", "large_string", "dictionary")


class ParquetTable(TableFile):
    """An Apache Parquet file, read with pyarrow."""

    unit = "row"

    def _header(self) -> list[str]:
        with self._open() as file:
            self.rows: int = file.metadata.num_rows
            # pandas writes its index as a column, which is not part of the user's table.
            fields = [field for field in file.schema_arrow if not field.name.startswith("__index_level_")]
        self.types = {field.name: str(field.type) for field in fields}
        return [field.name for field in fields]

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
        return ((row, cell.strip()) for row, cell in enumerate(self._spelled(part[column]), 1))

    def _spelled(self, cells: Any) -> list[str]:
        """The cells of a column as text. An empty one is an empty text."""
        with self._damage_said():
            return ["" if cell is None else str(cell) for cell in cells.to_pylist()]

    def texts(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> dict[str, Text]:
        if not columns:
            return {}
        return {
            column: categories([text for row, text in enumerate(self._spelled(cells)) if row not in leave_out])
            for part in self._read(columns)
            for column, cells in part.items()
        }

    def numbers(
        self, columns: Sequence[str], leave_out: Collection[int] = (), gaps: bool = False
    ) -> NDArray[np.float32]:
        kept = np.delete(np.arange(self.rows), list(leave_out))
        found, done = np.empty((len(kept), len(columns)), dtype=np.float32), 0
        for part in self._read(columns):
            # Side by side first: a column that is written into the table by itself touches as many cache lines as rows.
            block = np.stack([self._numbers(column, cells, kept, gaps) for column, cells in part.items()])
            found[:, done : done + len(block)] = block.T
            done += len(block)
        return found

    def _numbers_where_possible(
        self, columns: Sequence[str], leave_out: Collection[int]
    ) -> tuple[list[str], NDArray[np.float32]]:
        for column in columns:
            if not self.types[column].startswith((*_NUMBERS, *_TEXTS)):
                raise ValueError(
                    f"column {column!r} of {self.path} must hold numbers or text; got {brief(self.types[column])} "
                    f"(--drop {column}, or drop=, leaves it out)"
                )
        names = [column for column in columns if self.types[column].startswith(_NUMBERS)]
        return names, self.numbers(names, leave_out, gaps=True)

    def _numbers(self, column: str, cells: Any, kept: NDArray[np.int64], gaps: bool) -> NDArray[np.float32]:
        kind = str(cells.type)
        if not kind.startswith(_NUMBERS):
            raise self.wrong_cell(column, NUMBER, cells[0].as_py(), 1, f"({kind})")
        values: NDArray[np.float64] = cells.cast("double", safe=False).to_numpy()[kept]  # empty cells become NaN
        right = np.abs(values) <= LARGEST
        if gaps:
            right |= np.isnan(values)
        if not right.all():
            row = int(kept[right.argmin()])
            raise self.wrong_cell(column, NUMBER, cells[row].as_py(), row + 1)
        return values.astype(np.float32)
