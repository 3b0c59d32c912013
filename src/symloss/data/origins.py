"""Which file, or which row of a table, each training example of the user's own data came from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from symloss.data.bad_files import BadFiles
from symloss.data.dataset import DataSet, ImageFiles
from symloss.data.image_folder import list_folder, training_part
from symloss.data.image_table import image_column
from symloss.data.images import readable
from symloss.data.paths import TABLES, open_table


@dataclass(frozen=True)
class Origins:
    """Where training examples came from, in the order of the data set.

    Args:
        rows: the row of each in the table, from 0 for the first below the column names; None where there is no table.
        files: the image file of each, as the table names it or relative to the folder; None where there are none.
    """

    rows: Sequence[int] | None = None
    files: Sequence[str] | None = None


def origins(
    spec: str, data: DataSet, *, label: str = "label", image: str | None = None, skip_bad: bool = False
) -> Origins:
    """Find out where the training examples of an open data set came from.

    Args:
        spec: the name or path that the data was opened by.
        data: what was opened.
        label, image: the columns of a table.
        skip_bad: as it was opened. Then every image is decoded once more.
    """
    path = Path(spec)
    bad = BadFiles(skip_bad)
    if path.is_dir():
        found, labels = _of_folder(path, bad)
    elif path.suffix.lower() in TABLES and path.is_file():
        found, labels = _of_table(path, label, image, bad)
    elif isinstance(data.train.inputs, ImageFiles):
        return Origins(files=[str(file) for file in data.train.inputs.paths])
    else:
        return Origins()
    if labels != [data.classes[number] for number in data.train.labels.tolist()]:
        raise ValueError(f"{spec} must stay as it is while it is read; it has changed")
    return found


def _of_folder(folder: Path, bad: BadFiles) -> tuple[Origins, list[str]]:
    part = training_part(folder)
    listed = list_folder(part, bad)
    kept = _kept(listed.paths, part, bad)
    files = [str(listed.paths[place].relative_to(folder)) for place in kept]
    return Origins(files=files), [listed.labels[place] for place in kept]


def _of_table(path: Path, label: str, image: str | None, bad: BadFiles) -> tuple[Origins, list[str]]:
    table = open_table(path)
    labels, without = table.labels(label, bad)
    rows = [row for row in range(len(labels) + len(without)) if row not in without]
    column = image_column(table, image)
    if column is None:
        return Origins(rows=rows), labels
    names = table.text(column)
    kept = _kept([path.parent / names[row] for row in rows], path, bad)
    return Origins([rows[k] for k in kept], [names[rows[k]] for k in kept]), [labels[k] for k in kept]


def _kept(paths: Sequence[Path], where: Path, bad: BadFiles) -> Sequence[int]:
    """The places of the files that were not left out."""
    return list(readable(paths, where, bad)) if bad.skip else range(len(paths))
