"""A table in a text file: values separated by commas, semicolons or tabs."""

from __future__ import annotations

import csv
import itertools
import math
import re
from array import array
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from symloss.data.class_names import number
from symloss.data.table_cells import LARGEST, Text, categories, is_gap
from symloss.data.table_file import NUMBER, TableFile

DELIMITERS = (",", ";", "\t")
_LOOKED_AT = 3
"""How many lines decide which delimiter it is."""
_DECIMAL_COMMA = re.compile(r"[-+]?[0-9]*,[0-9]+(e[-+]?[0-9]+)?", re.IGNORECASE | re.ASCII)

Other = Callable[[str, int, int], float]
"""What to do with a cell that is no number: its text, the place of its column, its line."""


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
        """The first one that cuts all of the first lines into as many cells, two at least; or the comma."""
        for delimiter in DELIMITERS:
            try:
                lengths = {len(cells) for _, cells in itertools.islice(self._lines(delimiter), _LOOKED_AT)}
            except ValueError:
                continue
            if len(lengths) == 1 and min(lengths) > 1:
                return delimiter
        return self._most_columns()

    def _most_columns(self) -> str:
        """Where a line is too long or too short: the delimiter that makes the most of the first line."""

        def columns(delimiter: str) -> int:
            return len(next(self._lines(delimiter), (0, []))[1])

        return max(DELIMITERS, key=columns)

    def _lines(self, delimiter: str) -> Iterator[tuple[int, list[str]]]:
        """Each line that is not empty, with its number."""
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
            raise self.no_rows()

    def _cells(self, column: str) -> Iterator[tuple[int, str]]:
        place = self.places[column]
        return ((line, cells[place].strip()) for line, cells in self._rows())

    def texts(self, columns: Sequence[str], leave_out: Collection[int] = ()) -> dict[str, Text]:
        if not columns:
            return {}
        places = [self.places[column] for column in columns]
        found: list[list[str]] = [[] for _ in columns]
        for row, (_, cells) in enumerate(self._rows()):
            if row not in leave_out:
                for place, cell_texts in zip(places, found, strict=True):
                    cell_texts.append(cells[place])
        return {column: categories(texts) for column, texts in zip(columns, found, strict=True)}

    def numbers(
        self, columns: Sequence[str], leave_out: Collection[int] = (), gaps: bool = False
    ) -> NDArray[np.float32]:
        def other(cell: str, place: int, line: int) -> float:
            if gaps and is_gap(cell):
                return math.nan
            raise self.wrong_cell(columns[place], NUMBER, cell, line)

        return self._block(columns, leave_out, other, gaps)

    def _numbers_where_possible(
        self, columns: Sequence[str], leave_out: Collection[int]
    ) -> tuple[list[str], NDArray[np.float32]]:
        texts: set[int] = set()

        def other(cell: str, place: int, line: int) -> float:
            if _is_too_large(cell):
                raise self.wrong_cell(columns[place], NUMBER, cell, line)
            if not is_gap(cell):
                texts.add(place)
            return math.nan

        block = self._block(columns, leave_out, other, True, texts)
        if not texts:
            return list(columns), block
        kept = [place for place in range(len(columns)) if place not in texts]
        return [columns[place] for place in kept], block[:, kept]

    def _block(
        self, columns: Sequence[str], leave_out: Collection[int], other: Other, gaps: bool, texts: Collection[int] = ()
    ) -> NDArray[np.float32]:
        """The numbers of all rows. Columns whose places are in ``texts``, which may grow, are not looked at."""
        places = [self.places[column] for column in columns]
        found, rows = array("f"), 0
        for row, (line, cells) in enumerate(self._rows()):
            if row not in leave_out:
                rows += 1
                chosen = [cells[place] for place in places]
                for place in texts:
                    chosen[place] = "nan"
                values = _plain_numbers(chosen, gaps)
                if values is None and gaps:
                    values = _plain_numbers([self._plain(cell) for cell in chosen], gaps)
                if values is None:
                    values = np.array([self._number(cell, place, line, other) for place, cell in enumerate(chosen)])
                found.frombytes(values.astype(np.float32).tobytes())
        return np.frombuffer(found, dtype=np.float32).reshape(rows, len(columns))

    def _plain(self, cell: str) -> str:
        """A cell as Python writes numbers, if it is a number or missing."""
        cell = cell.strip()
        if is_gap(cell):
            return "nan"
        return cell.replace(",", ".") if self.delimiter == ";" and _DECIMAL_COMMA.fullmatch(cell) else cell

    def _number(self, cell: str, place: int, line: int, other: Other) -> float:
        value = number(self._plain(cell))
        return other(cell.strip(), place, line) if value is None or abs(value) > LARGEST else value


def _is_too_large(cell: str) -> bool:
    """Whether a cell is a number that float32 cannot hold."""
    return cell.lstrip("+-").lower() in ("inf", "infinity") or number(cell) is not None


def _plain_numbers(cells: list[str], gaps: bool) -> NDArray[np.float64] | None:
    """All cells of a row as numbers; None if one of them has to be read by itself. With ``gaps`` it may be NaN."""
    text = "".join(cells)
    if not text.isascii() or "_" in text:
        return None
    try:
        values = np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        return None
    sizes = np.abs(values)
    fit = not (sizes > LARGEST).any() if gaps else (sizes <= LARGEST).all()
    return values if fit else None
