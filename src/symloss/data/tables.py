"""Tables in CSV and Parquet files, read column by column. Every cell is checked."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import math
import re
from abc import abstractmethod
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss import extras
from symloss.checks import brief
from symloss.data.cells import LARGEST, NUMBER, Matrix, Table, Text, categories, is_gap, number
from symloss.data.source import TABLES, DataSource

DELIMITERS = (",", ";", "\t")
_LOOKED_AT = 3
"""How many lines decide which delimiter it is."""
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+(e[-+]?[0-9]+)?", re.IGNORECASE | re.ASCII)


class TableFile(Table):
    """A table in a file.

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(path)

    @abstractmethod
    def relabelled(self, label: str, labels: Mapping[int, str]) -> bytes:
        """Return a copy of the file with other labels in some rows. Everything else in it stays.

        Args:
            label: the column of the labels.
            labels: the new label of each row to change, by its number from 0. It must be a label that the table has.
        """

    def _no_rows(self) -> ValueError:
        return ValueError(f"{self.path} must have at least one row below its column names; got none")


class CsvTable(TableFile):
    """Separated values in UTF-8, with a line of column names. The file is read again for each call.

    The delimiter is found out. Where it is a semicolon, numbers may have a comma in place of the point.
    """

    unit = "line"

    def _header(self) -> list[str]:
        self.delimiter = self._find_delimiter()
        _, names = next(self._lines(self.delimiter), (0, []))
        names = [name.strip() for name in names]
        if not any(names):
            raise ValueError(f"{self.path} must start with a line of column names; got an empty one")
        return names

    def _find_delimiter(self) -> str:
        """Return the first delimiter that cuts the first lines into as many cells, two at least; or the comma."""
        for delimiter in DELIMITERS:
            try:
                lengths = {len(cells) for _, cells in itertools.islice(self._lines(delimiter), _LOOKED_AT)}
            except ValueError:
                continue
            if len(lengths) == 1 and min(lengths) > 1:
                return delimiter
        return self._most_columns()

    def _most_columns(self) -> str:
        """Return the delimiter that makes the most of the first line, where a line is too long or too short."""

        def columns(delimiter: str) -> int:
            return len(next(self._lines(delimiter), (0, []))[1])

        return max(DELIMITERS, key=columns)

    def _lines(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """Yield each line that is not empty, with its number."""
        try:
            with self.path.open(newline="", encoding="utf-8-sig") as file:
                reader = csv.reader(file, strict=True, delimiter=delimiter)
                for cells in reader:
                    if cells:
                        yield reader.line_num, cells
        except (UnicodeDecodeError, csv.Error) as error:
            raise ValueError(f"{self.path} must be comma-separated text in UTF-8; got {error}") from error

    def _rows(self) -> Iterator[tuple[int, list[str]]]:
        lines = self._lines(self.delimiter)
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
            raise self._no_rows()

    def _cells(self, *columns: str) -> Iterator[tuple[int, Sequence[str]]]:
        places = [self.places[column] for column in columns]
        return ((line, [cells[place].strip() for place in places]) for line, cells in self._rows())

    def texts(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> dict[str, Text]:
        if not columns:
            return {}
        found: dict[str, list[str]] = {column: [] for column in columns}
        places = [(texts, self.places[column]) for column, texts in found.items()]
        for row, (_, cells) in enumerate(self._rows()):
            if row not in leave_out:
                for texts, place in places:  # no list for each row, which the garbage collector would look through
                    texts.append(cells[place])
        return {column: categories(texts) for column, texts in found.items()}

    def relabelled(self, label: str, labels: Mapping[int, str]) -> bytes:
        with self.path.open("rb") as file:
            start = file.read(2**16)
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\r\n" if b"\r\n" in start else "\n", delimiter=self.delimiter)
        for row, (_, cells) in enumerate(self._lines(self.delimiter), -1):
            if row in labels:
                cells[self.places[label]] = labels[row]
            writer.writerow(cells)
        return (codecs.BOM_UTF8 if start.startswith(codecs.BOM_UTF8) else b"") + text.getvalue().encode()

    def numbers(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> Matrix:
        return self._block(columns, leave_out)

    def _numbers_where_possible(self, columns: Sequence[str], leave_out: Collection[int]) -> tuple[list[str], Matrix]:
        texts: set[int] = set()
        block = self._block(columns, leave_out, texts)
        if not texts:
            return list(columns), block
        kept = [place for place in range(len(columns)) if place not in texts]
        return [columns[place] for place in kept], block[:, kept]

    def _block(self, columns: Sequence[str], leave_out: Collection[int], texts: set[int] | None = None) -> Matrix:
        """Read the numbers of all rows. Columns of text are added to ``texts``; without it, text is refused."""
        places = [self.places[column] for column in columns]
        found, rows = array("f"), 0
        for row, (line, cells) in enumerate(self._rows()):
            if row not in leave_out:
                rows += 1
                chosen = [cells[place] for place in places]
                for place in texts or ():
                    chosen[place] = "nan"
                values = _plain_numbers(chosen)
                if values is None:
                    plain = [self._plain(cell) for cell in chosen]
                    values = _plain_numbers(plain)
                    if values is None:
                        values = np.array([self._number(*each, columns, line, texts) for each in enumerate(plain)])
                found.frombytes(values.astype(np.float32).tobytes())
        return np.frombuffer(found, dtype=np.float32).reshape(rows, len(columns))

    def _plain(self, cell: str) -> str:
        """Spell a cell as Python writes numbers, if it is a number or missing."""
        cell = cell.strip()
        if is_gap(cell):
            return "nan"
        return cell.replace(",", ".") if self.delimiter == ";" and _DECIMAL_COMMA.fullmatch(cell) else cell

    def _number(self, place: int, cell: str, columns: Sequence[str], line: int, texts: set[int] | None) -> float:
        value = number(cell)
        if value is not None and abs(value) <= LARGEST:
            return value
        if cell != "nan":
            if texts is None or value is not None or cell.lstrip("+-").lower() in ("inf", "infinity"):
                raise self.wrong_cell(columns[place], NUMBER, cell, line)
            texts.add(place)
        return math.nan


def _plain_numbers(cells: list[str]) -> NDArray[np.float64] | None:
    """Read all cells of a row as numbers or NaN; None if one of them has to be read by itself."""
    text = "".join(cells)
    if not text.isascii() or "_" in text:
        return None
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None
    return None if (np.abs(values) > LARGEST).any() else values


_CELLS = 2**22
"""How many cells are read at once, in whole columns."""
_NUMBERS = ("int", "uint", "float", "double", "halffloat", "decimal", "bool", "null")
_TEXTS = ("string", "large_string", "dictionary")


class ParquetTable(TableFile):
    """An Apache Parquet file, read with pyarrow."""

    unit = "row"

    def _header(self) -> list[str]:
        with self._open() as file:
            self._count: int = file.metadata.num_rows
            # pandas writes its index as a column, which is not part of the user's table.
            fields = [field for field in file.schema_arrow if not field.name.startswith("__index_level_")]
        self.types = {field.name: str(field.type) for field in fields}
        return [field.name for field in fields]

    def _open(self) -> Any:
        try:
            import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415 (not always installed)
        except ImportError:
            raise ValueError(extras.missing(str(self.path), "pyarrow")) from None
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
        if not self._count:
            raise self._no_rows()
        width = max(1, _CELLS // self._count)
        with self._open() as file:
            for start in range(0, len(columns), width):
                names = list(columns[start : start + width])
                with self._damage_said():
                    part = file.read(columns=names)
                yield {name: part.column(name) for name in names}

    def _cells(self, *columns: str) -> Iterator[tuple[int, Sequence[str]]]:
        spelled = [self._spelled(cells) for part in self._read(columns) for cells in part.values()]
        rows = zip(*spelled, strict=True)
        return ((row, [cell.strip() for cell in cells]) for row, cells in enumerate(rows, 1))

    def _spelled(self, cells: Any) -> list[str]:
        """Return the cells of a column as text. An empty one is an empty text."""
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

    def numbers(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> Matrix:
        kept = np.delete(np.arange(self._count), list(leave_out))
        found, done = np.empty((len(kept), len(columns)), dtype=np.float32), 0
        for part in self._read(columns):
            # Side by side first: a column that is written into the table by itself touches as many cache lines as rows.
            block = np.stack([self._numbers(column, cells, kept) for column, cells in part.items()])
            found[:, done : done + len(block)] = block.T
            done += len(block)
        return found

    def _numbers_where_possible(self, columns: Sequence[str], leave_out: Collection[int]) -> tuple[list[str], Matrix]:
        for column in columns:
            if not self.types[column].startswith((*_NUMBERS, *_TEXTS)):
                raise ValueError(
                    f"column {column!r} of {self.path} must hold numbers or text; got {brief(self.types[column])} "
                    f"(--drop {column}, or drop=, leaves it out)"
                )
        names = [column for column in columns if self.types[column].startswith(_NUMBERS)]
        return names, self.numbers(names, leave_out)

    def relabelled(self, label: str, labels: Mapping[int, str]) -> bytes:
        import pyarrow as pa  # noqa: PLC0415
        import pyarrow.parquet as pq  # noqa: PLC0415

        with self._open() as file:
            table = file.read()
        place = table.column_names.index(label)
        cells = table.column(place).to_pylist()
        # A label is known by its text; the table may hold it as a number.
        values = {str(cell).strip(): cell for cell in cells}
        unknown = sorted(set(labels.values()) - set(values))
        if unknown:
            raise ValueError(f"labels must be such as {self.path} has; got {brief(unknown[0])}")
        for row, text in labels.items():
            cells[row] = values[text]
        field = table.schema.field(place)
        content = io.BytesIO()
        pq.write_table(table.set_column(place, field, pa.array(cells, type=field.type)), content)
        return content.getvalue()

    def _numbers(self, column: str, cells: Any, kept: NDArray[np.int64]) -> Matrix:
        kind = str(cells.type)
        if not kind.startswith(_NUMBERS):
            raise self.wrong_cell(column, NUMBER, cells[0].as_py(), 1, f"({kind})")
        values: NDArray[np.float64] = cells.cast("double", safe=False).to_numpy()[kept]  # empty cells become NaN
        wrong = np.flatnonzero(np.abs(values) > LARGEST)
        if len(wrong):
            row = int(kept[wrong[0]])
            raise self.wrong_cell(column, NUMBER, cells[row].as_py(), row + 1)
        return values.astype(np.float32)


def spreadsheet_row(place: int) -> int:
    """Return the number of a row as a spreadsheet counts it: row 1 has the column names.

    Args:
        place: of the row below the column names, from 0.
    """
    return place + 2


def check_source(source: DataSource, *, labelled: bool = True) -> None:
    """Raise the error that opening data would raise for its paths, or for the label column of a table.

    Args:
        source: of the data.
        labelled: whether a table must have the label column.
    """
    if source.is_published:
        return
    files = [path for path in source.paths() if path is not None and path.is_file()]
    if labelled:
        require_labels([open_table(file) for file in files if file.suffix.lower() in TABLES], source.label)


def require_labels(tables: Sequence[TableFile], label: str) -> None:
    """Raise ValueError unless tables for training, and then for testing, have the label column."""
    for table, hint in zip(tables, ("(--label, or label=, names another one)", ""), strict=False):
        table.require(label, "label", hint)


def open_table(path: Path) -> TableFile:
    """Open a Parquet file, by its ending, or else a text file with separated values."""
    return ParquetTable(path) if path.suffix.lower() == ".parquet" else CsvTable(path)
