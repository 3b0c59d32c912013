"""Where the user's own data is: refusals that need no torch, so that a wrong path is refused at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from symloss.checks import nearest
from symloss.data.csv_file import CsvTable
from symloss.data.names import KNOWN
from symloss.data.parquet_file import ParquetTable
from symloss.data.table_file import TableFile

TABLES = (".csv", ".tsv", ".parquet")
FILES = (*TABLES, ".npz")


def spreadsheet_row(place: int) -> int:
    """The number of a row as a spreadsheet counts it: row 1 has the column names. All commands print it so.

    Args:
        place: of the row below the column names, from 0.
    """
    return place + 2


def check_paths(spec: str, test: str | Path | None = None, label: str | None = None) -> None:
    """Raise the error that opening data would raise for its paths, or for the label column of a table.

    Args:
        spec: a known name, or a path.
        test: the path of test data.
        label: the label column of a table; None if labels are not needed.
    """
    if spec in KNOWN:
        return
    path = existing(spec)
    paths = [path, *([] if test is None else [existing_test(test, path)])]
    if label is not None:
        require_labels([open_table(each) for each in paths if each.is_file() and each.suffix.lower() in TABLES], label)


def require_labels(tables: Sequence[TableFile], label: str) -> None:
    """Raise ValueError unless tables for training, and then for testing, have the label column."""
    for table, hint in zip(tables, ("(--label, or label=, names another one)", ""), strict=False):
        table.require(label, "label", hint)


def existing(spec: str) -> Path:
    """The path of the user's own data; what is no path must have been meant as a name."""
    if not spec:  # as a path it would be the current folder
        raise ValueError("data must be a known name or an existing folder or file; got an empty text")
    path = Path(spec)
    if path.exists():
        return _no_pipe(path, "data")
    if path.name != spec or path.suffix in FILES:
        raise FileNotFoundError(f"data must be an existing folder or file, or one of {', '.join(KNOWN)}; got {spec!r}")
    raise ValueError(f"data must be a known name or an existing folder or file; got {spec!r}, {nearest(spec, KNOWN)}")


def existing_test(given: str | Path, train: Path) -> Path:
    """The path of test data, which must be of the same kind as the training data."""
    if given == "":
        raise ValueError("test must be an existing folder or file; got an empty text")
    test = Path(given)
    if not test.exists():
        raise FileNotFoundError(f"test must be an existing folder or file; got {str(test)!r}")
    _no_pipe(test, "test")
    kinds = [("folder" if path.is_dir() else _kind(path)) for path in (train, test)]
    if kinds[0] != kinds[1]:
        raise ValueError(f"test must be of the same kind as the training data, a {kinds[0]}; got a {kinds[1]}, {test}")
    return test


def _no_pipe(path: Path, what: str) -> Path:
    """Pipes and devices would be waited for, and cannot be read twice."""
    if not (path.is_dir() or path.is_file()):
        raise ValueError(f"{what} must be a folder or a file; got a pipe or a device, {str(path)!r}")
    return path


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    return "table" if suffix in TABLES else f"{suffix} file"


def open_table(path: Path) -> TableFile:
    """A Parquet file by its ending, or else a text file with separated values."""
    return ParquetTable(path) if path.suffix.lower() == ".parquet" else CsvTable(path)
