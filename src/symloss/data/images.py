"""Image files as data: folders and tables of them, the size they are brought to, and thumbnails."""

from __future__ import annotations

import io
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

import torch
from PIL import Image
from torch import Tensor

from symloss.data.augment import pixels
from symloss.data.dataset import DataSet, ImageFiles, Inputs, Origin, Part, assemble
from symloss.data.source import HINT, BadFiles, refusal
from symloss.data.tables import TableFile
from symloss.encoders.pictures import Look, NotAnImage, look, picture

RESIDENT_BYTES = 2 * 2**30  # images of one size are held in memory if they need no more than this


def open_images(name: str, train: Part, test: Part | None, bad: BadFiles, size: int | None = None) -> DataSet:
    """Open a data set of image files: in memory if all have one size and fit, else decoded when needed."""
    looks: list[Look] = []
    parts, listed = [], []
    for part in (train,) if test is None else (train, test):
        assert isinstance(part.inputs, ImageFiles)
        paths, seen = part.inputs.paths, readable(part.inputs.paths, part.where, bad)
        looks += seen.values()
        files, labels = tuple(paths[place] for place in seen), [part.labels[place] for place in seen]
        parts.append(Part(ImageFiles(files), labels, part.where, part.origin.take(seen)))
        listed.append(files)
    channels = 1 if all(found.grey for found in looks) else 3
    sides = [(found.height, found.width) for found in looks]
    in_memory = len(sides) * channels * max(h * w for h, w in sides) <= RESIDENT_BYTES
    side = chosen_size(size, sides, in_memory)
    if side is None:
        shape = (channels, *sides[0])
        parts = [replace(part, inputs=stack_images(files, shape)) for part, files in zip(parts, listed, strict=True)]
    return assemble(name, parts[0], None if test is None else parts[1], size=side)


def stack_images(paths: Sequence[Path], shape: tuple[int, ...], *, resize: bool = False) -> Tensor:
    """Decode image files into one tensor (N, *shape), image by image. All must have the shape, or are resized."""
    images = torch.empty(len(paths), *shape, dtype=torch.uint8)
    for row, path in enumerate(paths):
        try:
            image = picture(path, grey=shape[0] == 1)
            size = (shape[2], shape[1])
            found = pixels(image.resize(size, Image.Resampling.BILINEAR) if resize else image)
        except NotAnImage as reason:
            raise refusal(path, str(reason)) from None
        if found.shape != shape:
            given = tuple(found.shape)
            raise ValueError(f"{path} must be of the size that the run was trained on, {shape}; got {given}")
        images[row] = found
    return images


def readable(paths: Sequence[Path], where: object, bad: BadFiles) -> dict[int, Look]:
    """Size and kind of each file that is an image, by its position in ``paths``."""
    looks: dict[int, Look] = {}
    for place, path in enumerate(paths):
        try:
            found = look(path)
            if bad.skip:  # a truncated file has a good header
                picture(path)
            looks[place] = found
        except NotAnImage as reason:
            bad.leave_out(path, str(reason))
    if not looks:
        raise ValueError(f"{where} must name at least one image that can be read; got none")
    return looks


# What file managers leave behind.
_LITTER = {"thumbs.db", "desktop.ini"}


def open_folder(folder: Path, test: Path | None, bad: BadFiles, size: int | None = None) -> DataSet:
    """Open a data set in a folder.

    The folder holds a subfolder for each class; or ``train/`` and ``test/`` (or ``val/``), which hold these.
    """
    train, own_test = _parts(folder)
    clean = _list_folder(test, test, bad) if test else _list_folder(own_test, folder, bad) if own_test else None
    return open_images(folder.resolve().name, _list_folder(train, folder, bad), clean, bad, size)


def _parts(folder: Path) -> tuple[Path, Path | None]:
    train = folder / "train"
    # A folder of locomotives may be called "train" too: it holds images, no folders.
    if not train.is_dir() or not _subfolders(train):
        return folder, None
    return train, next((part for part in (folder / "test", folder / "val") if part.is_dir()), None)


def _list_folder(folder: Path, below: Path, bad: BadFiles) -> Part:
    """List the files below each class's folder, sorted by name. A class without files counts as a bad file."""
    if not folder.is_dir():
        raise ValueError(f"test data for a folder of images must be a folder of images too; got {folder}")
    classes = _subfolders(folder)
    if not classes:
        raise ValueError(f"{folder} must hold a folder of images for each class; got no folder in it")
    paths: list[Path] = []
    labels: list[str] = []
    for place in classes:
        files = list_files(place)
        if not files:
            hint = HINT.replace("files", "folders")
            empty = f"{folder} must have images in each class's folder; got an empty one, {place.name!r} {hint}"
            bad.leave_out(place, "a folder without images", ValueError(empty))
        paths += files
        labels += [place.name] * len(files)
    origin = Origin(files=[str(path.relative_to(below)) for path in paths])
    return Part(ImageFiles(tuple(paths)), labels, folder, origin)


def list_files(folder: Path) -> list[Path]:
    """List the files below a folder, sorted by name, without hidden files and those of file managers."""
    found = (path for path in folder.rglob("*") if path.is_file() and path.name.lower() not in _LITTER)
    return sorted(path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts))


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


LARGEST = 224  # Photos are resized to at most this many pixels on each side, unless another size is given


def chosen_size(size: int | None, sides: Sequence[tuple[int, int]], fits_into_memory: bool) -> int | None:
    """Choose the size that images are resized to; None where they stay as they are.

    - Images of one size stay as they are if they fit into memory and their shorter side is at most ``LARGEST``.
    - Others are resized to the shorter side of the median image, or to ``LARGEST`` if that is less.
    - A size that is given holds for all, unless the images are squares of that size already.

    >>> chosen_size(None, [(24, 24), (30, 26), (400, 300)], True), chosen_size(None, [(32, 32)] * 3, True)
    (26, None)
    """
    as_they_are = fits_into_memory and len(set(sides)) == 1
    if size is not None:
        return None if as_they_are and sides[0] == (size, size) else size
    shorter = statistics.median_low(min(each) for each in sides)
    return None if as_they_are and shorter <= LARGEST else min(LARGEST, shorter)


IMAGE_COLUMNS = ("image", "path", "file")


def image_column(table: TableFile, image: str | None) -> str | None:
    """Find the column of image paths: the one that is named, or the first of ``IMAGE_COLUMNS``; None without one."""
    if image is not None:
        table.require(image, "image")
        return image
    return next((column for column in IMAGE_COLUMNS if column in table.places), None)


def list_table(table: TableFile, label: str, image: str, bad: BadFiles) -> Part:
    """List the images of a table. Column ``image`` holds their paths, and column ``label`` their labels."""
    table.require(image, "image")
    labels, without = table.labels(label, bad)
    named = {row: name for row, name in enumerate(table.text(image)) if row not in without}
    files = ImageFiles(tuple(table.path.parent / name for name in named.values()))
    return Part(files, labels, table.path, Origin(list(named), list(named.values())))


def image_moves(folder: Path, files: Sequence[str], labels: Mapping[int, str]) -> list[tuple[str, str]]:
    """Plan where files belong once their labels are corrected: old and new paths. No two new ones are equal.

    ``labels`` has the new class of each file to move, by its place in ``files``, the paths of all images.
    """
    depth = len(_parts(folder)[0].relative_to(folder).parts)
    taken, moves = set(files), []
    for place, label in labels.items():
        parts = PurePath(files[place]).parts
        if len(parts) < depth + 2:
            raise ValueError(f"{folder} must have a folder for each class; got {files[place]!r} outside of one")
        path = new = PurePath(*parts[:depth], label, *parts[depth + 1 :])
        number = 0
        while str(new) in taken:  # path-1, path-2, ...
            number += 1
            new = path.with_stem(f"{path.stem}-{number}")
        taken.add(str(new))
        moves.append((files[place], str(new)))
    return moves


SIDE = 160
"""Pixels of the longer side, at most. A smaller image stays as it is."""


def thumbnail(inputs: Inputs, position: int) -> bytes | None:
    """Return the image at a position as a PNG file, or as JPEG if it is reduced; None if the inputs are no images."""
    if isinstance(inputs, ImageFiles):
        image = picture(inputs.paths[position])
    elif inputs.dim() == 4 and not inputs.is_floating_point():
        image = Image.fromarray(inputs[position].cpu().permute(1, 2, 0).squeeze(2).numpy())
    else:
        return None
    reduced = max(image.size) > SIDE
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "JPEG" if reduced else "PNG", optimize=True, quality=80)
    return file.getvalue()
