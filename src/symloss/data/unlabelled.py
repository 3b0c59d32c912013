"""Inputs without labels, to predict on: the same kinds of data that one trains on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from symloss.data.arrays import open_inputs_array
from symloss.data.bad import BadFiles
from symloss.data.dataset import ImageFiles, Inputs
from symloss.data.folder import list_files
from symloss.data.images import NotAnImage, decode, look
from symloss.data.manifest import image_column
from symloss.data.opening import KNOWN, TABLES, existing, open_data
from symloss.data.tables import Table, open_table


@dataclass(frozen=True)
class Wanted:
    """What a model was trained on: the shape of an input, the side that files are brought to, the columns of tables."""

    shape: tuple[int, ...]
    size: int | None = None
    columns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Unlabelled:
    names: Sequence[str]
    """Of each example: its file, or its number counted from 0."""
    inputs: Inputs


def open_inputs(
    spec: str, wanted: Wanted, *, root: Path | None = None, image: str | None = None, bad: BadFiles | None = None
) -> Unlabelled:
    """The test part of a known data set, all images below a folder, or the rows of a table or an ``.npz``."""
    bad = bad or BadFiles()
    if spec in KNOWN:
        test = open_data(spec, root=root).test
        assert test is not None
        return _numbered(test.inputs, wanted, spec)
    path = existing(spec)
    if path.is_dir():
        return _images(list_files(path), path, wanted, bad)
    if path.suffix.lower() == ".npz":
        return _numbered(open_inputs_array(path), wanted, spec)
    if path.suffix.lower() not in TABLES:
        raise ValueError(f"data must be a folder, a table or an .npz file; got {spec!r}")
    table = open_table(path)
    column = image_column(table, image)
    if column is None:
        return _rows(table, wanted)
    return _images([path.parent / file for file in table.text(column)], path.parent, wanted, bad)


def _rows(table: Table, wanted: Wanted) -> Unlabelled:
    for column in wanted.columns:
        table.require(column, "feature")
    return _numbered(table.numbers(list(wanted.columns)), wanted, str(table.path))


def _numbered(inputs: Inputs, wanted: Wanted, where: str) -> Unlabelled:
    if isinstance(inputs, Tensor) and tuple(inputs.shape[1:]) != wanted.shape:
        raise ValueError(
            f"{where} must hold inputs like those of the run, of shape {wanted.shape}; got {tuple(inputs.shape[1:])}"
        )
    return Unlabelled([str(number) for number in range(len(inputs))], inputs)


def _images(paths: Sequence[Path], below: Path, wanted: Wanted, bad: BadFiles) -> Unlabelled:
    if len(wanted.shape) != 3:
        raise ValueError(f"data must be a table or an .npz of {wanted.shape[0]} features, as in the run; got images")
    good: list[Path] = []
    for path in paths:
        try:
            look(path)
        except NotAnImage as reason:
            bad.found(path, str(reason))
            continue
        good.append(path)
    if not good:
        raise ValueError(f"{below} must hold at least one image that can be read; got none")
    names = [str(path.relative_to(below)) if path.is_relative_to(below) else str(path) for path in good]
    return Unlabelled(names, ImageFiles(tuple(good)) if wanted.size is not None else _decoded(good, wanted.shape))


def _decoded(paths: Sequence[Path], shape: tuple[int, ...]) -> Tensor:
    images = torch.empty(len(paths), *shape, dtype=torch.uint8)
    for row, path in enumerate(paths):
        pixels = decode(path, grey=shape[0] == 1)
        if pixels.shape != shape:
            raise ValueError(f"{path} must be of the size that the run was trained on, {shape}; got {pixels.shape}")
        images[row] = torch.from_numpy(pixels.copy())
    return images
