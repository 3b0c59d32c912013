"""Inputs without labels, to predict on. They come from the same kinds of files as training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from symloss.data.arrays import open_inputs_array
from symloss.data.bad_files import BadFiles, refusal
from symloss.data.dataset import ImageFiles, Inputs
from symloss.data.image_folder import list_files
from symloss.data.image_table import IMAGE_COLUMNS, image_column
from symloss.data.images import NotAnImage, decode, readable
from symloss.data.names import KNOWN
from symloss.data.opening import open_data
from symloss.data.paths import TABLES, existing, open_table, spreadsheet_row
from symloss.data.table_encoder import TableEncoder
from symloss.data.table_file import TableFile


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
