"""Copies of the user's data with corrected labels: tables with other cells, and new paths for image files."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

from symloss.checks import brief
from symloss.data.images import training_part
from symloss.data.tables import CsvTable

_BOM = b"\xef\xbb\xbf"


def corrected_table(path: Path, label: str, labels: Mapping[int, str]) -> bytes:
    """The content of a table with other labels in some rows. Everything else in it stays.

    Args:
        path: a CSV or Parquet file.
        label: the column of the labels.
        labels: the new label of each row to change, by its number from 0. It must be a label that the table has.
    """
    if path.suffix.lower() == ".parquet":
        return _corrected_parquet(path, label, labels)
    text = io.StringIO(newline="")
    with path.open("rb") as file:
        start = file.read(2**16)
    ending = "\r\n" if b"\r\n" in start else "\n"
    delimiter = CsvTable(path).delimiter
    writer = csv.writer(text, lineterminator=ending, delimiter=delimiter)
    column = -1
    for number, cells in enumerate(_csv_lines(path, delimiter), -1):
        if number < 0:
            column = [name.strip() for name in cells].index(label)
        elif number in labels:
            cells[column] = labels[number]
        writer.writerow(cells)
    return (_BOM if start.startswith(_BOM) else b"") + text.getvalue().encode()


def rows_of_table(path: Path, columns: Sequence[str], rows: Collection[int]) -> dict[int, tuple[str, ...]]:
    """The cells of some rows of a table as text, by the number of the row.

    Args:
        path: a CSV or Parquet file.
        columns: the columns to read.
        rows: the numbers of the rows, from 0.
    """
    if path.suffix.lower() == ".parquet":
        part = _parquet(path).read(columns=list(columns))
        found = {row: part.slice(row, 1).to_pylist()[0] for row in rows}
        return {row: tuple(_text(cells[name]) for name in columns) for row, cells in found.items()}
    lines = _csv_lines(path, CsvTable(path).delimiter)
    names = [name.strip() for name in next(lines)]
    places = [names.index(column) for column in columns]
    wanted = set(rows)
    return {
        row: tuple(cells[place].strip() for place in places) for row, cells in enumerate(lines) if row in wanted
    }  # fmt: skip


def _csv_lines(path: Path, delimiter: str) -> Iterator[list[str]]:
    """The cells of each line that is not empty."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        yield from (cells for cells in csv.reader(file, strict=True, delimiter=delimiter) if cells)


def _parquet(path: Path) -> Any:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # noqa: PLC0415 (not always installed)

    return pq.ParquetFile(path)


def _text(cell: object) -> str:
    return "" if cell is None else str(cell).strip()


def _corrected_parquet(path: Path, label: str, labels: Mapping[int, str]) -> bytes:
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = _parquet(path).read()
    place = table.column_names.index(label)
    cells = table.column(label).to_pylist()
    # A label is known by its text; the table may hold it as a number.
    values = {_text(cell): cell for cell in cells}
    unknown = sorted(set(labels.values()) - set(values))
    if unknown:
        raise ValueError(f"labels must be such as {path} has; got {brief(unknown[0])}")
    for row, text in labels.items():
        cells[row] = values[text]
    field = table.schema.field(place)
    file = io.BytesIO()
    pq.write_table(table.set_column(place, field, pa.array(cells, type=field.type)), file)
    return file.getvalue()


def image_moves(folder: Path, files: Sequence[str], labels: Mapping[int, str]) -> list[tuple[str, str]]:
    """The path of each file to move, and its new path. No two files get the same one.

    Args:
        folder: a folder with a subfolder for each class, or with ``train`` in it.
        files: the paths of all images, relative to the folder.
        labels: the new class of each file to move, by its place in ``files``.
    """
    depth = len(training_part(folder).relative_to(folder).parts)
    taken, moves = set(files), []
    for place, label in labels.items():
        parts = PurePath(files[place]).parts
        new = _free(PurePath(*parts[:depth], label, *parts[depth + 1 :]), taken)
        taken.add(new)
        moves.append((files[place], new))
    return moves


def _free(path: PurePath, taken: set[str]) -> str:
    """The path, or the first of path-1, path-2, ... that no file has."""
    new, number = path, 0
    while str(new) in taken:
        number += 1
        new = path.with_stem(f"{path.stem}-{number}")
    return str(new)
