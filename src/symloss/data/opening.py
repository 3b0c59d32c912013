"""One way to open any data set, by its name or its path: to learn from, or to predict on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from symloss import checks
from symloss.data.arrays import open_arrays, open_inputs_array
from symloss.data.columns import check_choice
from symloss.data.dataset import (
    DataSet,
    Examples,
    ImageFiles,
    Inputs,
    class_names,
    class_numbers,
    scaling_of_features,
)
from symloss.data.images import (
    IMAGE_COLUMNS,
    NotAnImage,
    Size,
    decode,
    image_column,
    list_files,
    list_folder,
    open_folder,
    open_manifest,
    readable,
    training_part,
)
from symloss.data.published import CIFAR, IDX_SCALING, open_cifar, open_digits, open_idx, shrunk
from symloss.data.source import FILES, KNOWN, TABLES, VOUCHED, BadFiles, existing, existing_test, refusal
from symloss.data.table_encoder import TableEncoder
from symloss.data.tables import TableFile, open_table, require_labels, spreadsheet_row
from symloss.data.webvision import open_webvision
from symloss.environment import data_root


def open_data(
    spec: str,
    *,
    root: Path | None = None,
    label: str = "label",
    image: str | None = None,
    test: str | Path | None = None,
    drop: Sequence[str] = (),
    categorical: Sequence[str] = (),
    keep: Sequence[str] = (),
    size: Size = None,
    skip_bad: bool = False,
    on_bad: Callable[[Path, str], None] | None = None,
) -> DataSet:
    """Open a data set: a published one by its name, or the user's own by its path.

    The path may be

    - a folder of images by class, or with ``train/`` and ``test/`` (or ``val/``) of that kind;
    - a ``.csv``, ``.tsv`` or ``.parquet`` table of image files (in the column ``image``) and labels (in the column
      ``label``);
    - a ``.csv``, ``.tsv`` or ``.parquet`` table of numbers and categories with a column ``label``;
    - an ``.npz`` with ``x`` and ``y``.

    Args:
        spec: one of ``KNOWN``, or a path. A name goes before a path: ``./digits`` is the path.
        root: the folder of published data sets; None for :func:`symloss.data.data_root`.
        label: the column of the labels, in tables.
        image: the column of the image files, in tables.
        test: clean data of the same kind to test on, for the user's own data.
        drop: columns to leave out, in tables of features.
        categorical: columns whose values are categories, although they are numbers.
        keep: columns to use as features, although they look like ids.
        size: image files are brought to this many pixels on each side; see :func:`symloss.data.images.chosen_size`.
            Images of a published data set are shrunk to it; see :func:`symloss.data.published.shrunk`.
        skip_bad: leave out files that are no images, class folders without images and rows without a label.
        on_bad: called with the path of each one that is left out, and what is wrong with it.

    >>> digits = open_data("digits")
    >>> len(digits.train), digits.input_shape, digits.classes[:3]
    (1437, (1, 8, 8), ('0', '1', '2'))
    """
    bad = BadFiles(skip_bad, on_bad)
    choice = ColumnChoice(tuple(drop), tuple(categorical), tuple(keep))
    if spec in KNOWN:
        choice.refuse(spec)
        if test is not None:
            raise ValueError(f"test must be left out for {spec}, which brings its own test data; got {str(test)!r}")
        found = _open_known(spec, data_root() if root is None else root, bad)
        if size is not None and size != "fit":
            found = shrunk(found, int(checks.number("size", size, "[1, 4096]", whole=True)))
    else:
        path = existing(spec)
        clean = None if test is None else existing_test(test, path)
        found = _open_own(path, clean, label, image, bad, choice, size)
    return replace(found, labels_are_true=spec in VOUCHED)


def _open_known(name: str, root: Path, bad: BadFiles) -> DataSet:
    if name == "digits":
        return open_digits()
    if name in IDX_SCALING:
        return open_idx(name, root)
    if name in CIFAR:
        return open_cifar(name, root)
    return open_webvision(root, imagenet=name.endswith("-imagenet"), bad=bad)


def _refuse_size(data: object, size: Size) -> None:
    if isinstance(size, int):
        raise ValueError(f"size must be left out for {data}, which holds no image files of one's own; got {size}")


def _open_own(
    path: Path, test: Path | None, label: str, image: str | None, bad: BadFiles, choice: ColumnChoice, size: Size
) -> DataSet:
    suffix = path.suffix.lower()
    if suffix in TABLES and not path.is_dir():
        return _open_table(path, test, label, image, bad, choice, size)
    choice.refuse(str(path))
    if path.is_dir():
        return open_folder(path, test, bad, size)
    if suffix == ".npz":
        _refuse_size(path, size)
        return open_arrays(path, test, bad)
    raise ValueError(f"data must be a folder or a file ending in {', '.join(FILES)}; got {str(path)!r}")


def _open_table(
    path: Path, test: Path | None, label: str, image: str | None, bad: BadFiles, choice: ColumnChoice, size: Size
) -> DataSet:
    tables = [open_table(file) for file in (path, test) if file is not None]
    require_labels(tables, label)
    train, clean = tables[0], tables[1] if test is not None else None
    images = image_column(train, image)
    if images is None:
        _refuse_size(path, size)
        return open_features(train, clean, label, bad, choice)
    choice.refuse(str(path))
    return open_manifest(train, clean, label, images, bad, size)


_KEEP = "(--keep, or keep=, takes a column that looks like an id)"


@dataclass(frozen=True)
class ColumnChoice:
    """What the user says about the columns of a table.

    Args:
        drop: columns to leave out.
        categorical: columns whose values are categories, although they are numbers.
        keep: columns to use, although they look like ids.
    """

    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()

    def refuse(self, data: str) -> None:
        """Raise ValueError if something was said, because the data has no columns of features."""
        for name, columns in vars(self).items():
            if columns:
                raise ValueError(
                    f"{name} must be left out for {data}, which is no table of features; got {', '.join(columns)}"
                )


def open_features(
    train: TableFile, test: TableFile | None, label: str, bad: BadFiles, choice: ColumnChoice | None = None
) -> DataSet:
    """A data set of float32 features. Column ``label`` holds the labels, and all other columns the features."""
    choice = choice or ColumnChoice()
    columns = [column for column in train.columns if column != label]
    if not columns:
        raise ValueError(f"{train.path} must have a column of features beside {label!r}; got none")
    check_choice(columns, choice.drop, choice.categorical, choice.keep, train.path)
    labels, without = train.labels(label, bad)
    encoder = TableEncoder(choice.drop, choice.categorical, choice.keep)
    dropped = frozenset(choice.drop)
    cells = train.cells([name for name in columns if name not in dropped], choice.categorical, without)
    features = torch.from_numpy(encoder.fit_cells(cells, train.path, _KEEP).transform_cells(cells))
    classes = class_names(labels, train.path)
    return DataSet(
        name=train.path.stem,
        train=Examples(features, class_numbers(labels, classes, train.path)),
        test=_test(test, encoder, label, classes, bad) if test is not None else None,
        classes=classes,
        scaling=scaling_of_features(features),
        columns=encoder.feature_names_,
        encoder=encoder,
    )


def _test(table: TableFile, encoder: TableEncoder, label: str, classes: Collection[str], bad: BadFiles) -> Examples:
    labels, without = table.labels(label, bad)
    cells = table.cells_as(encoder.number_names, encoder.category_names, without)
    features = torch.from_numpy(encoder.transform_cells(cells))
    return Examples(features, class_numbers(labels, tuple(classes), table.path))


@dataclass(frozen=True)
class Wanted:
    """The kind of inputs that a model was trained on.

    Args:
        shape: the shape of one input.
        size: image files are resized to this many pixels on each side.
        columns: the features of a table.
        image: the column of image paths in a table.
        encoder: how the columns of a table become features; None for a run of version 0.1.
    """

    shape: tuple[int, ...]
    size: int | None = None
    columns: tuple[str, ...] = ()
    image: str | None = None
    encoder: TableEncoder | None = None


@dataclass(frozen=True)
class Unlabelled:
    """Inputs to predict on.

    Args:
        names: for each example its file, its row as a spreadsheet counts it, or its number from 0 in an array.
        inputs: as in :class:`symloss.data.Examples`.
    """

    names: Sequence[str]
    inputs: Inputs


def open_inputs(
    spec: str, wanted: Wanted, *, root: Path | None = None, image: str | None = None, bad: BadFiles | None = None
) -> Unlabelled:
    """Open inputs to predict on.

    Args:
        spec: a known data set, whose test part is taken; a folder of images; a table; or an ``.npz`` file.
        wanted: the kind of inputs that the model takes.
        root: the folder of published data sets.
        image: the column of image paths in a table.
        bad: what to do with files that are no images.
    """
    bad = bad or BadFiles()
    if spec in KNOWN:
        test = open_data(spec, root=root, skip_bad=bad.skip, on_bad=bad.tell).test
        assert test is not None
        return _known(test.inputs, wanted, spec)
    path = existing(spec)
    if path.is_dir():
        return _images(list_files(path), path, wanted, bad)
    if path.suffix.lower() == ".npz":
        return _numbered(open_inputs_array(path), wanted, spec)
    if path.suffix.lower() not in TABLES:
        raise ValueError(f"data must be a folder, a table or an .npz file; got {spec!r}")
    table = open_table(path)
    if image is None and wanted.image in table.places:
        image = wanted.image
    column = image_column(table, image)
    if column is None:
        return _rows(table, wanted)
    return _images([path.parent / file for file in table.text(column)], path.parent, wanted, bad)


def _known(inputs: Inputs, wanted: Wanted, name: str) -> Unlabelled:
    if isinstance(inputs, Tensor):
        return _numbered(inputs, wanted, name)
    _want_images(wanted)
    if wanted.size is None:
        height, width = wanted.shape[1:]
        raise ValueError(
            f"data must be images of {height} x {width} pixels, as in the run; got {name}, files of several sizes"
        )
    # Where bad files were left out, numbers would not identify an image.
    return Unlabelled([path.name for path in inputs.paths], inputs)


def _rows(table: TableFile, wanted: Wanted) -> Unlabelled:
    if wanted.encoder is not None:
        cells = table.cells_as(wanted.encoder.number_names, wanted.encoder.category_names)
        return _table_rows(torch.from_numpy(wanted.encoder.transform_cells(cells)), wanted, str(table.path))
    if not wanted.columns:
        raise _no_features(table, wanted)
    for column in wanted.columns:
        table.require(column, "feature")
    return _table_rows(torch.from_numpy(table.numbers(wanted.columns)), wanted, str(table.path))


def _table_rows(inputs: Tensor, wanted: Wanted, where: str) -> Unlabelled:
    found = _numbered(inputs, wanted, where)
    return replace(found, names=[str(spreadsheet_row(place)) for place in range(len(found.names))])


def _no_features(table: TableFile, wanted: Wanted) -> ValueError:
    """A run on images, or on an array, knows no columns of features."""
    if len(wanted.shape) == 3:
        usual = " or ".join(dict.fromkeys(name for name in (wanted.image, *IMAGE_COLUMNS) if name is not None))
        return ValueError(
            f"{table.path} must have a column of image files, as the run was trained on images: {usual}, or the one "
            f"that --image names; got the columns {table.named()}"
        )
    return ValueError(
        f"data must be an .npz of {wanted.shape[0]} features, as the run was trained on features without column names; "
        f"got a table, {table.path}"
    )


def _numbered(inputs: Tensor, wanted: Wanted, where: str) -> Unlabelled:
    if tuple(inputs.shape[1:]) != wanted.shape:
        raise ValueError(
            f"{where} must hold inputs like those of the run, of shape {wanted.shape}; got {tuple(inputs.shape[1:])}"
        )
    return Unlabelled([str(number) for number in range(len(inputs))], inputs)


def _want_images(wanted: Wanted) -> None:
    if len(wanted.shape) != 3:
        raise ValueError(f"data must be a table or an .npz of {wanted.shape[0]} features, as in the run; got images")


def _images(paths: Sequence[Path], below: Path, wanted: Wanted, bad: BadFiles) -> Unlabelled:
    _want_images(wanted)
    good = [paths[place] for place in readable(paths, below, bad)]
    inputs: Inputs = ImageFiles(tuple(good)) if wanted.size is not None else _decoded(good, wanted.shape)
    names = [str(path.relative_to(below)) if path.is_relative_to(below) else str(path) for path in good]
    return Unlabelled(names, inputs)


def _decoded(paths: Sequence[Path], shape: tuple[int, ...]) -> Tensor:
    images = torch.empty(len(paths), *shape, dtype=torch.uint8)
    for row, path in enumerate(paths):
        try:
            pixels = decode(path, grey=shape[0] == 1)
        except NotAnImage as reason:
            raise refusal(path, str(reason)) from None
        if pixels.shape != shape:
            raise ValueError(f"{path} must be of the size that the run was trained on, {shape}; got {pixels.shape}")
        images[row] = torch.from_numpy(pixels.copy())
    return images


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
