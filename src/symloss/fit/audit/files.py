"""Labels, probabilities and items in files, and the folder of an audit of them.

Items are what the labels belong to: rows of a table, or images. Their features are not read.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from symloss import checks
from symloss.data.dataset import NOWHERE, DataSet, Examples, ImageFiles, Inputs, Origin, Scaling
from symloss.data.images import image_column, list_files
from symloss.data.source import TABLES, BadFiles, DataSource
from symloss.data.tables import open_table
from symloss.encoders.pictures import SUFFIXES
from symloss.fit.audit.scores import Audit
from symloss.fit.folder import AUDIT, LabelSource, load_audit, load_source, save_audit
from symloss.training.run_folder import DATA, RunFolder

FORMAT = 1
ARRAYS = (".npy", ".npz")
THUMBNAIL, NO_SCALING = 96, Scaling((), ())
"""The size of images that are only looked at."""


def read_labels(path: Path, column: str) -> NDArray[Any]:
    """Read labels (N,) from an array, the column of a table, or the lines of a text file."""
    suffix = _existing("--labels", path).suffix.lower()
    if suffix in ARRAYS:
        return _array(path, ("labels", "y"))
    if suffix not in TABLES:
        return np.array(_lines(path))
    table = open_table(path)
    column = column if column in table.places or len(table.columns) > 1 else table.columns[0]
    table.require(column, "label", "(--label names another one)")
    return np.array(table.labels(column, BadFiles())[0])


def read_probabilities(path: Path) -> tuple[NDArray[Any], tuple[str, ...] | None]:
    """Read probabilities (N, C), and the names of the classes if they are the columns of a table."""
    suffix = _existing("--pred-probs", path).suffix.lower()
    if suffix in ARRAYS:
        return _array(path, ("pred_probs", "probabilities")), None
    if suffix not in TABLES:
        raise ValueError(f"--pred-probs must end in {', '.join((*ARRAYS, *TABLES))}; got {str(path)!r}")
    table = open_table(path)
    return table.cells_as(table.columns, ()).numbers, table.columns


def read_class_names(text: str) -> tuple[str, ...]:
    """Read class names, separated by commas or from the lines of a text file."""
    if "," in text:
        return tuple(name.strip() for name in text.split(","))
    return tuple(_lines(_existing("--class-names", Path(text))))


def _existing(option: str, path: Path) -> Path:
    if not path.is_file():
        raise FileNotFoundError(f"{option} must be an existing file; got {str(path)!r}")
    return path


def _lines(path: Path) -> list[str]:
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} must be text in UTF-8; got {error}") from None


def _array(path: Path, names: Sequence[str]) -> NDArray[Any]:
    """Read an array without Python objects; one of these names, or the only one, of an .npz file."""
    try:
        found = np.load(path, mmap_mode="r", allow_pickle=False)
        if not isinstance(found, np.ndarray):
            with found:
                only = found.files[0] if len(found.files) == 1 else ""
                found = found[next((name for name in names if name in found.files), only)]
    except (ValueError, OSError, EOFError, zipfile.BadZipFile, KeyError) as error:
        wanted = f"a NumPy array of numbers or text, called {' or '.join(names)} in an .npz file"
        raise ValueError(f"{path} must hold {wanted}; got {checks.brief(str(error))}") from error
    array: NDArray[Any] = found
    return array


def open_items(source: DataSource, audit: Audit) -> DataSet:
    """List the items of an audit: rows of a table, images of a folder, or image files that a text file names.

    Args:
        source: ``data`` is the path of the items, or empty. Column ``label`` of a table, if there is one, must hold the
            labels of the audit. Column ``image`` names image files.
        audit: of the labels, in the order of the items.
    """
    path, checksum = Path(source.data), None
    if not source.data:
        paths, origin, count = None, NOWHERE, len(audit)
    elif path.suffix.lower() in TABLES and not path.is_dir():
        table = open_table(_existing("--items", path))
        checksum = hashlib.sha256(path.read_bytes()).hexdigest()
        column = image_column(table, source.image)
        files = None if column is None else table.text(column)
        paths = None if files is None else [path.parent / file for file in files]
        count = len(table.texts(table.columns[:1])[table.columns[0]])
        origin = Origin(range(count), files)
    else:
        if path.is_dir():
            paths = [file for file in list_files(path) if file.suffix.lower() in SUFFIXES]
        else:
            paths = [path.parent / line for line in _lines(_existing("--items", path))]
        origin = Origin(files=[str(file.relative_to(path)) if path.is_dir() else str(file) for file in paths])
        count = len(paths)
    if count != len(audit):
        raise ValueError(f"{path} must have one item for each label; got {count:,} items and {len(audit):,} labels")
    if missing := next((file for file in paths or () if not file.is_file()), None):
        raise FileNotFoundError(f"{path} must name existing image files; got {str(missing)!r}")
    if origin.rows is not None and source.label in table.places:
        _check_order(f"column {source.label!r} of {path}", table.labels(source.label, BadFiles())[0], audit)
    elif paths and path.is_dir() and {file.parent.name for file in paths} <= set(audit.class_names):
        _check_order(f"the folders of {path}", [file.parent.name for file in paths], audit)
    inputs: Inputs = torch.empty(count, 0) if paths is None else ImageFiles(tuple(paths))
    examples = Examples(inputs, torch.from_numpy(audit.given), origin=origin, checksum=checksum)
    return DataSet(source.data, examples, None, audit.class_names, NO_SCALING, size=THUMBNAIL, labels_are_true=False)


def _check_order(where: str, texts: Sequence[str], audit: Audit) -> None:
    """Raise ValueError if items have other labels than the audit: they may be in another order."""
    names = [audit.class_names[number] for number in audit.given]
    wrong = next((place for place, (text, name) in enumerate(zip(texts, names, strict=True)) if text != name), None)
    if wrong is not None:
        raise ValueError(
            f"{where} must hold the labels in the same order; item {wrong + 1} has {checks.brief(texts[wrong])}, and "
            f"the label is {checks.brief(names[wrong])}"
        )


def save(audit: Audit, source: DataSource, data: DataSet, notice: str, folder: Path) -> LabelSource:
    """Write what ``symloss audit FOLDER`` needs to list the labels again and to correct them."""
    labels = LabelSource(source, "clean", data.train.fingerprint())
    RunFolder(folder).write(DATA, asdict(data.description()))
    save_audit(audit, labels, folder)
    RunFolder(folder).write(AUDIT, {"format": FORMAT, "notice": notice})
    return labels


def load(folder: Path) -> tuple[Audit, LabelSource, DataSet, str]:
    """Return an audit, where its items are, the items, which must not have changed, and the warning of the audit."""
    document = RunFolder(folder).read(AUDIT) or {}
    version = document.get("format")
    if version != FORMAT:
        raise ValueError(
            f"{folder} must hold an audit of format {FORMAT}; got format {checks.brief(version)}, of another version "
            "of symloss: audit again"
        )
    notice = checks.record(folder / AUDIT, document, {"notice": "str"})["notice"]
    audit, source = load_audit(folder), load_source(folder)
    data = open_items(source.source, audit)
    if data.train.fingerprint() != source.fingerprint:
        raise ValueError(f"{source.source.data} has changed since the audit in {folder}: audit again.")
    return audit, source, data, notice
