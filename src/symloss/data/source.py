"""Where data comes from: the one record of it, names of published data sets, paths, and what to do with bad files.

Nothing here needs torch, so that a wrong path is refused at once.
"""

from __future__ import annotations

import csv
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from symloss.checks import nearest, record

VOUCHED = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")
"""Data sets whose publishers vouch for the training labels. Those of WebVision were scraped; others are the user's."""
KNOWN = (*VOUCHED, "webvision-mini", "webvision-mini-imagenet")
"""The names of all published data sets, for ``open_data``."""
TABLES = (".csv", ".tsv", ".parquet")
FILES = (*TABLES, ".npz")
COLUMN_LISTS = ("drop", "categorical", "keep")
"""The fields of a source that list columns of a table of features."""


@dataclass(frozen=True)
class DataSource:
    """Where data comes from and how it is read. A run keeps it; fit, train, predict and audit open data by it.

    Args:
        data: one of ``KNOWN``, or a path. A name goes before a path: ``./digits`` is the path.
        label: the column of the labels, in tables.
        image: the column of the image files, in tables; None for the first of image, path and file.
        test: clean data of the same kind to test on, for the user's own data.
        drop: columns to leave out, in tables of features.
        categorical: columns whose values are categories, although they are numbers.
        keep: columns to use as features, although they look like ids.
        size: resize image files to this many pixels on each side; None for a size that fits them, see
            :func:`symloss.data.images.chosen_size`. Images of a published data set are shrunk to it, see
            :func:`symloss.data.published.shrunk`.
        skip_bad: skip unreadable images, empty class folders and unlabelled rows.
        encoder: how free text in tables becomes features: "auto", "none", or the name of an encoder, see
            :class:`symloss.data.table_encoder.TableEncoder`.
    """

    data: str
    label: str = "label"
    image: str | None = None
    test: str | Path | None = None
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    size: int | None = None
    skip_bad: bool = False
    encoder: str = "auto"

    def __post_init__(self) -> None:
        for name in COLUMN_LISTS:
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> DataSource:
        """Make the source that options or settings describe. Other names among them are ignored.

        Columns may be a text, separated by commas. None stands for the default.

        >>> DataSource.of({"data": "x.csv", "drop": "id, when", "test": None, "epochs": 3})
        DataSource(data='x.csv', label='label', image=None, test=None, drop=('id', 'when'), categorical=(), keep=(), \
size=None, skip_bad=False, encoder='auto')
        """
        chosen = {field.name: options[field.name] for field in fields(cls) if options.get(field.name) is not None}
        for name in COLUMN_LISTS:
            if isinstance(chosen.get(name), str):  # a name that holds a comma is quoted, as in a CSV file
                names = next(csv.reader([chosen[name]], skipinitialspace=True), [])
                chosen[name] = tuple(name.strip() for name in names)
        return cls(**chosen)

    @classmethod
    def from_document(cls, document: Mapping[str, Any], where: object) -> DataSource:
        """Read what :meth:`to_document` wrote. ``where`` is what messages call the document."""
        record(where, document, cls)
        return cls.of(document)

    def to_document(self) -> dict[str, Any]:
        """Return the fields by name, for JSON."""
        return asdict(self) | {"test": None if self.test is None else str(self.test)}

    @property
    def is_published(self) -> bool:
        """Whether the data is a published set by its name, not the user's own."""
        return self.data in KNOWN

    def paths(self) -> tuple[Path, Path | None]:
        """Return the paths of the user's own training and test data, which must exist and be of the same kind."""
        path = existing(self.data)
        if self.test is None:
            return path, None
        test = _path("test", "an existing folder or file", str(self.test))
        if not test.exists():
            raise FileNotFoundError(f"test must be an existing folder or file; got {str(test)!r}")
        wanted, given = _kind(path), _kind(test)
        if wanted != given:
            raise ValueError(f"test must be of the same kind as the training data, a {wanted}; got a {given}, {test}")
        return path, test

    def refuse(self, names: Sequence[str], why: str) -> None:
        """Raise ValueError if one of these fields is given, because the data has no use for it."""
        for name in names:
            if (value := getattr(self, name)) not in ((), None):
                given = ", ".join(value) if isinstance(value, tuple) else value
                raise ValueError(f"{name} must be left out for {self.data}, which {why}; got {given}")


def existing(spec: str) -> Path:
    """Return the path of the user's own data. Anything else is treated as a misspelt data set name."""
    path = _path("data", "a known name or an existing folder or file", spec)
    if path.exists():
        return path
    if path.name != spec or path.suffix in FILES:
        raise FileNotFoundError(f"data must be an existing folder or file, or one of {', '.join(KNOWN)}; got {spec!r}")
    raise ValueError(f"data must be a known name or an existing folder or file; got {spec!r}, {nearest(spec, KNOWN)}")


def _path(argument: str, allowed: str, text: str) -> Path:
    """Refuse pipes and devices, which would be waited for and cannot be read twice, and no path at all."""
    path = Path(text)
    if not text:  # as a path it would be the current folder
        raise ValueError(f"{argument} must be {allowed}; got an empty text")
    if path.exists() and not (path.is_dir() or path.is_file()):
        raise ValueError(f"{argument} must be a folder or a file; got a pipe or a device, {text!r}")
    return path


def _kind(path: Path) -> str:
    suffix = path.suffix.lower()
    return "folder" if path.is_dir() else "table" if suffix in TABLES else f"{suffix} file"


HINT = "(--skip-bad, or skip_bad=True, leaves such files out)"
"""The end of every message about a bad file."""
ROWS_HINT = "(--skip-bad, or skip_bad=True, leaves such rows out)"


@dataclass(frozen=True)
class BadFiles:
    """Raise an error at the first bad file; or, with ``skip``, report each to ``tell`` and go on."""

    skip: bool = False
    tell: Callable[[Path, str], None] | None = None

    def leave_out(self, path: Path, reason: str, error: Exception | None = None) -> None:
        """Leave out a file or a part of it, or raise the error if nothing may be skipped: by default, no image."""
        if not self.skip:
            raise refusal(path, reason) if error is None else error
        if self.tell is not None:
            self.tell(path, reason)


def refusal(path: Path, reason: str) -> ValueError | FileNotFoundError:
    """Make the error for a file that is no image or does not exist."""
    kind = ValueError if path.exists() else FileNotFoundError
    return kind(f"{path} must be an image that can be read; got {reason} {HINT}")


def warn(path: Path, reason: str) -> None:
    """Warn of a file that was left out."""
    warnings.warn(f"left out {path}: {reason}", stacklevel=2)


@dataclass(frozen=True)
class DataDescription:
    """What a run or a fit keeps of its data: all that is needed to predict on other data, and what was done to it.

    ``mean`` and ``std`` scale each channel or feature; ``image`` is the column of the image files, if it was named.
    Other fields are as in :class:`symloss.data.DataSet`.
    """

    name: str
    class_names: tuple[str, ...]
    input_shape: tuple[int, ...]
    size: int | None
    columns: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augmentation: tuple[str, ...] = ()
    image: str | None = None
