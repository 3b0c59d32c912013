"""One way to open any data set, by its name or its path: to learn from, or to predict on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from symloss import checks
from symloss.data.arrays import open_arrays, open_inputs_array
from symloss.data.cells import Matrix
from symloss.data.dataset import NOWHERE, UNKNOWN, DataSet, Examples, ImageFiles, Inputs, Origin, Part, assemble
from symloss.data.images import (
    IMAGE_COLUMNS,
    image_column,
    list_files,
    list_table,
    open_folder,
    open_images,
    readable,
    stack_images,
)
from symloss.data.published import open_cifar, open_digits, open_idx, open_webvision, shrunk
from symloss.data.source import COLUMN_LISTS, FILES, TABLES, VOUCHED, BadFiles, DataDescription, DataSource, existing
from symloss.data.table_encoder import TableEncoder
from symloss.data.tables import TableFile, open_table, require_labels
from symloss.encoders.texts import Progress
from symloss.environment import data_root

_KEEP = "(--settings keep=COLUMN, or keep=, takes a column that looks like an id)"
NO_TABLE, NO_FILES = "is no table of features", "holds no image files of one's own"
OnBad = Callable[[Path, str], None]
"""Called with the path of each file that is left out, and what is wrong with it."""


def open_data(
    source: str | DataSource,
    *,
    root: Path | None = None,
    on_bad: OnBad | None = None,
    progress: Progress | None = None,
    device: str = "auto",
    **options: Any,
) -> DataSet:
    """Open a data set: a published one by its name, or the user's own by its path.

    The path may be

    - a folder of images by class, or with ``train/`` and ``test/`` (or ``val/``) of that kind;
    - a ``.csv``, ``.tsv`` or ``.parquet`` table of image files (in the column ``image``) and labels (in the column
      ``label``);
    - a ``.csv``, ``.tsv`` or ``.parquet`` table of numbers, categories, dates and texts with a column ``label``;
    - an ``.npz`` with ``x`` and ``y``.

    Args:
        source: where the data comes from and how it is read, or only its name or path.
        root: the folder of published data sets; None for :func:`symloss.data.data_root`. Features of free text are kept
            below it, in ``features``.
        on_bad: called with the path of each file that ``skip_bad`` leaves out, and what is wrong with it.
        progress: called with how many texts of a column are encoded, and how many there are.
        device: of the text encoder, see :class:`symloss.data.table_encoder.TableEncoder`.
        options: with a name or path, the other fields of :class:`DataSource`: ``label``, ``image``, ``test``, ``drop``,
            ``categorical``, ``keep``, ``size``, ``skip_bad``, ``encoder``.

    >>> digits = open_data("digits")
    >>> len(digits.train), digits.input_shape, digits.class_names[:3]
    (1437, (1, 8, 8), ('0', '1', '2'))
    """
    if isinstance(source, str):
        source = DataSource(source, **options)
    elif options:
        raise TypeError(f"options must be part of the source; got {', '.join(options)} beside it")
    bad = BadFiles(source.skip_bad, on_bad)
    if source.is_published:
        found = _open_published(source, root or data_root(), bad)
    else:
        encoding = {"progress": progress, "device": device, "cache": _features_folder(root)}
        found = _open_own(source, bad, encoding)
    return replace(found, labels_are_true=source.data in VOUCHED)


def _open_published(source: DataSource, root: Path, bad: BadFiles) -> DataSet:
    name = source.data
    source.refuse(COLUMN_LISTS, NO_TABLE)
    source.refuse(["test"], "brings its own test data")
    if name == "digits":
        found = open_digits()
    elif name.startswith("webvision"):
        found = open_webvision(root, imagenet=name.endswith("-imagenet"), bad=bad)
    else:
        found = (open_cifar if name.startswith("cifar") else open_idx)(name, root)
    if source.size is None:
        return found
    return shrunk(found, int(checks.number("size", source.size, "[1, 4096]", whole=True)))


def _features_folder(root: Path | None) -> Path | None:
    """Return the folder that keeps features of free text; None on a machine without a home."""
    try:
        return (root or data_root()) / "features"
    except RuntimeError:
        return None


def _open_own(source: DataSource, bad: BadFiles, encoding: Mapping[str, Any]) -> DataSet:
    path, test = source.paths()
    suffix = path.suffix.lower()
    if suffix in TABLES and not path.is_dir():
        return _open_table(source, open_table(path), None if test is None else open_table(test), bad, encoding)
    source.refuse(COLUMN_LISTS, NO_TABLE)
    if path.is_dir():
        return open_folder(path, test, bad, source.size)
    if suffix == ".npz":
        source.refuse(["size"], NO_FILES)
        return open_arrays(path, test, bad)
    raise ValueError(f"data must be a folder or a file ending in {', '.join(FILES)}; got {str(path)!r}")


def _open_table(
    source: DataSource, train: TableFile, test: TableFile | None, bad: BadFiles, encoding: Mapping[str, Any]
) -> DataSet:
    require_labels([train] if test is None else [train, test], source.label)
    image = image_column(train, source.image)
    if image is None:
        source.refuse(["size"], NO_FILES)
        return _open_features(source, train, test, bad, encoding)
    source.refuse(COLUMN_LISTS, NO_TABLE)
    clean = None if test is None else list_table(test, source.label, image, bad)
    found = open_images(train.path.stem, list_table(train, source.label, image, bad), clean, bad, source.size)
    return replace(found, image=image)


def _open_features(
    source: DataSource, train: TableFile, test: TableFile | None, bad: BadFiles, encoding: Mapping[str, Any]
) -> DataSet:
    """Open a data set of float32 features. All columns but the label's are features.

    ``encoding`` has the arguments of :class:`TableEncoder` that say how texts are encoded.
    """
    columns = [column for column in train.columns if column != source.label]
    if not columns:
        raise ValueError(f"{train.path} must have a column of features beside {source.label!r}; got none")
    encoder = TableEncoder(source.drop, source.categorical, source.keep, source.encoder, **encoding)

    def part(table: TableFile, encode: Callable[[Collection[int]], Matrix]) -> Part:
        labels, without = table.labels(source.label, bad)
        rows = [row for row in range(len(labels) + len(without)) if row not in without]
        features = torch.from_numpy(encode(without))
        return Part(features, labels, table.path, Origin(rows=rows), encoder.checksum(table, without))

    rows = part(train, lambda without: encoder.fit_transform_table(train, columns, without, _KEEP))
    clean = None if test is None else part(test, lambda without: encoder.transform_table(test, without))
    return assemble(train.path.stem, rows, clean, columns=encoder.feature_names_, encoder=encoder)


def open_inputs(
    source: DataSource,
    like: DataDescription,
    encoder: TableEncoder | None = None,
    *,
    root: Path | None = None,
    on_bad: OnBad | None = None,
    any_size: bool = False,
) -> Examples:
    """Open inputs to predict on, as :func:`open_data` opens data. Their labels are ``UNKNOWN``.

    Of a known data set the test part is taken. ``like`` is the data that the model was trained on, and ``encoder`` says
    how the columns of its table became features. Arrays of images may have ``any_size`` if an encoder sees them.
    """
    bad = BadFiles(source.skip_bad, on_bad)
    if source.is_published:
        test = open_data(DataSource(source.data, skip_bad=source.skip_bad), root=root, on_bad=on_bad).test
        assert test is not None
        if isinstance(test.inputs, Tensor):
            return _unlabelled(test.inputs, like, source.data, any_size=any_size)
        if like.size is None and len(like.input_shape) == 3:
            size = " x ".join(map(str, like.input_shape[1:]))
            raise ValueError(
                f"data must be images of {size} pixels, as in the run; got {source.data}, files of several sizes"
            )
        return _of_images(test.inputs.paths, None, like, bad)
    path = existing(source.data)
    if path.is_dir():
        return _of_images(list_files(path), path, like, bad)
    if path.suffix.lower() == ".npz":
        return _unlabelled(open_inputs_array(path), like, path, any_size=any_size)
    if path.suffix.lower() not in TABLES:
        raise ValueError(f"data must be a folder, a table or an .npz file; got {source.data!r}")
    table = open_table(path)
    usual = like.image if source.image is None and like.image in table.places else source.image
    column = image_column(table, usual)
    if column is not None:
        return _of_images([path.parent / file for file in table.text(column)], path.parent, like, bad)
    if encoder is None:
        raise _no_features(table, like)
    encoder.cache = encoder.cache or _features_folder(root)
    features = torch.from_numpy(encoder.transform_table(table))
    return _unlabelled(features, like, path, Origin(rows=range(len(features))))


def _unlabelled(
    inputs: Inputs, like: DataDescription, where: object, origin: Origin = NOWHERE, *, any_size: bool = False
) -> Examples:
    shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else like.input_shape
    if shape != like.input_shape and not (any_size and len(shape) == 3):
        raise ValueError(f"{where} must hold inputs like those of the run, of shape {like.input_shape}; got {shape}")
    return Examples(inputs, torch.full((len(inputs),), UNKNOWN), origin=origin)


def _of_images(paths: Sequence[Path], below: Path | None, like: DataDescription, bad: BadFiles) -> Examples:
    """Open image files, which are named relative to a folder, or by their names alone."""
    if len(like.input_shape) != 3:
        features = like.input_shape[0]
        raise ValueError(f"data must be a table or an .npz of {features} features, as in the run; got images")
    good = [paths[place] for place in readable(paths, below, bad)]
    if below is None:
        files = [path.name for path in good]
    else:
        files = [str(path.relative_to(below)) if path.is_relative_to(below) else str(path) for path in good]
    inputs: Inputs = ImageFiles(tuple(good)) if like.size is not None else stack_images(good, like.input_shape)
    return _unlabelled(inputs, like, below, Origin(files=files))


def _no_features(table: TableFile, like: DataDescription) -> ValueError:
    """Make the error for a run on images or on an array, which knows no columns of features."""
    if len(like.input_shape) == 3:
        usual = " or ".join(dict.fromkeys(name for name in (like.image, *IMAGE_COLUMNS) if name is not None))
        return ValueError(
            f"{table.path} must have a column of image files, as the run was trained on images: {usual}, or the one "
            f"that `image` names; got the columns {table.named()}"
        )
    return ValueError(
        f"data must be an .npz of {like.input_shape[0]} features, as the run was trained on features without column "
        f"names; got a table, {table.path}"
    )
