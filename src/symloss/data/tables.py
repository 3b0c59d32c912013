"""Tables in CSV and Parquet files, read column by column. Every cell is checked."""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import itertools
import math
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss import extras
from symloss.checks import brief
from symloss.data.cells import LARGEST, NUMBER, FrameTable, Matrix, Table, is_gap, number
from symloss.data.source import TABLES, DataSource

DELIMITERS = (",", ";", "\t")
_LOOKED_AT = 3  # how many lines decide which delimiter it is
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+(e[-+]?[0-9]+)?", re.IGNORECASE | re.ASCII)


class CsvTable(Table):
    """Separated values in UTF-8, with a line of column names. The file is read again for each call.

    The delimiter is found out. Where it is a semicolon, numbers may have a comma in place of the point.
    """

    unit = "line"

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(path)

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
        # Where a line is too long or too short: the one that makes the most of the first line.
        return max(DELIMITERS, key=lambda delimiter: len(next(self._lines(delimiter), (0, []))[1]))

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
            raise _no_rows(self.path)

    def _place(self, row: int) -> int:
        return next(itertools.islice(self._rows(), row, None))[0]

    def _spelled(self, columns: Sequence[str]) -> Iterable[tuple[str, list[str]]]:
        found: dict[str, list[str]] = {column: [] for column in columns}
        places = [(texts, self.places[column]) for column, texts in found.items()]
        for _, cells in self._rows() if columns else ():
            for texts, place in places:  # no list for each row, which the garbage collector would look through
                texts.append(cells[place].strip())
        return found.items()

    def relabelled(self, label: str, labels: Mapping[int, str], leave_out: Collection[int] = ()) -> bytes:
        """Return a copy of the file with other labels in some rows, and without others. Everything else in it stays.

        Args:
            label: the column of the labels.
            labels: the new label of each row to change, by its number from 0. It must be a label that the table has.
            leave_out: the numbers of the rows to leave out.
        """
        with self.path.open("rb") as file:
            start = file.read(2**16)
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\r\n" if b"\r\n" in start else "\n", delimiter=self.delimiter)
        for row, (_, cells) in enumerate(self._lines(self.delimiter), -1):
            if row in labels:
                cells[self.places[label]] = labels[row]
            if row not in leave_out:
                writer.writerow(cells)
        return (codecs.BOM_UTF8 if start.startswith(codecs.BOM_UTF8) else b"") + text.getvalue().encode()

    def _numbers(self, columns: Sequence[str], leave_out: Collection[int], texts: set[str] | None = None) -> Matrix:
        places = [self.places[column] for column in columns]
        found, rows, skipped = array("f"), 0, set[int]()
        for row, (_, cells) in enumerate(self._rows()):
            if row in leave_out:
                continue
            rows += 1
            chosen = [cells[place] for place in places]
            for place in skipped:
                chosen[place] = "nan"
            values = _plain_numbers(chosen)
            if values is None:
                plain = [self._plain(cell) for cell in chosen]
                values = _plain_numbers(plain)
            if values is None:
                read = (self._number(cell, columns[place], row, texts) for place, cell in enumerate(plain))
                values = np.fromiter(read, np.float64, len(plain))
                skipped = {place for place, column in enumerate(columns) if column in texts} if texts else skipped
            found.frombytes(values.astype(np.float32).tobytes())
        block = np.frombuffer(found, dtype=np.float32).reshape(rows, len(columns))
        return np.delete(block, list(skipped), axis=1) if skipped else block

    def _plain(self, cell: str) -> str:
        """Spell a cell as Python writes numbers, if it is a number or missing."""
        cell = cell.strip()
        if is_gap(cell):
            return "nan"
        return cell.replace(",", ".") if self.delimiter == ";" and _DECIMAL_COMMA.fullmatch(cell) else cell

    def _number(self, cell: str, column: str, row: int, texts: set[str] | None) -> float:
        value = number(cell)
        if value is not None and abs(value) <= LARGEST:
            return value
        if cell != "nan":
            if texts is None or value is not None or cell.lstrip("+-").lower() in ("inf", "infinity"):
                raise self.wrong_cell(column, NUMBER, cell, row)
            texts.add(column)
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


_CELLS = 2**22  # how many cells are read at once, in whole columns
_TEXTS = ("string", "large_string", "dictionary")


def _no_rows(path: Path) -> ValueError:
    return ValueError(f"{path} must have at least one row below its column names; got none")


class ParquetTable(FrameTable):
    """An Apache Parquet file, read with pyarrow."""

    _advice = "(--drop {}, or drop=, leaves it out)"

    def __init__(self, path: Path) -> None:
        self.path = path
        Table.__init__(self, path)

    def _header(self) -> list[str]:
        with self._open() as file:
            self._rows = file.metadata.num_rows
            # pandas writes its index as a column, which is not part of the user's table.
            return [name for name in file.schema_arrow.names if not name.startswith("__index_level_")]

    @contextlib.contextmanager
    def _open(self) -> Iterator[Any]:
        """Open the file. Damage that is found while it is read is a ValueError."""
        with extras.needed_by(str(self.path)):
            import pyarrow as pa  # type: ignore[import-untyped]  # noqa: PLC0415 (not always installed)
            import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415
        try:
            with pq.ParquetFile(self.path) as file:
                yield file
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise ValueError(f"{self.path} must be a Parquet file; got {brief(str(error))}") from error

    def _read(self, columns: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Read some columns at a time. The file is opened only once, since its header names every column."""
        if not columns:
            return
        if not self._rows:
            raise _no_rows(self.path)
        width = max(1, _CELLS // self._rows)
        with self._open() as file:
            for start in range(0, len(columns), width):
                names = list(columns[start : start + width])
                part = file.read(columns=names)
                yield from ((name, _decoded(part.column(name))) for name in names)

    def _plain(self, column: str, values: Any) -> Any:
        return values.tolist() if isinstance(values, np.ndarray) else values.to_pylist()

    def relabelled(self, label: str, labels: Mapping[int, str], leave_out: Collection[int] = ()) -> bytes:
        """See :meth:`CsvTable.relabelled`."""
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
        table = table.set_column(place, field, pa.array(cells, type=field.type))
        if leave_out:
            table = table.take([row for row in range(table.num_rows) if row not in leave_out])
        content = io.BytesIO()
        pq.write_table(table, content)
        return content.getvalue()


def _decoded(column: Any) -> Any:
    """Return a column of text or of categories as texts: a cell that is not UTF-8 is found while the file is read."""
    if not str(column.type).startswith(_TEXTS):
        return column
    return np.array(column.to_pylist(), dtype=object)


TableFile = CsvTable | ParquetTable


def spreadsheet_row(place: int) -> int:
    """Return the number of a row, from 0, as a spreadsheet counts it: row 1 has the column names."""
    return place + 2


def check_source(source: DataSource, *, labelled: bool = True) -> None:
    """Raise the error that opening data would raise for its paths, or for the label column of a table."""
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
