"""Image files: their size and pixels, folders and tables of them, the size they are brought to, and thumbnails."""

from __future__ import annotations

import functools
import io
import statistics
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from symloss.data.augment import usual
from symloss.data.dataset import (
    IMAGENET,
    DataSet,
    Examples,
    ImageFiles,
    Inputs,
    class_names,
    class_numbers,
    scaling_of_images,
)
from symloss.data.source import HINT, BadFiles
from symloss.data.tables import TableFile

RESIDENT_BYTES = 2 * 2**30
"""Images of one size are held in memory if they need no more than this."""

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP", "PPM", "JPEG2000", "AVIF", "PCX", "QOI", "SGI", "TGA")
"""The formats that are read, whatever the file's ending. Pillow knows others that run programs, such as EPS."""

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Result = TypeVar("Result")


@dataclass(frozen=True)
class Look:
    """Size and kind of an image, from the header of its file."""

    height: int
    width: int
    grey: bool


@dataclass(frozen=True)
class Listed:
    """Paths and labels of image files that have not been opened yet."""

    paths: Sequence[Path]
    labels: Sequence[str]
    where: Path


@dataclass(frozen=True)
class _Seen:
    """The listed files that are images."""

    paths: list[Path]
    labels: list[str]
    looks: list[Look]
    where: Path


class NotAnImage(ValueError):  # noqa: N818 (says what is wrong)
    """The file cannot be read as an image; the message is the reason alone."""


def look(path: Path) -> Look:
    """Read size and kind from the header of a file, without decoding the pixels."""
    return _with_image(path, _look)


def picture(path: Path, *, grey: bool = False) -> Image.Image:
    """Read an image in RGB or in grey, turned upright."""
    return _with_image(path, lambda image: _upright(image, grey))


def decode(path: Path, *, grey: bool = False) -> Pixels:
    """Read the pixels (channels, height, width) of an image, turned upright: three channels, or one if grey."""
    pixels = np.asarray(picture(path, grey=grey))
    return pixels[None] if grey else pixels.transpose(2, 0, 1)


def _with_image(path: Path, use: Callable[[Image.Image], Result]) -> Result:
    try:
        with warnings.catch_warnings():
            # Pillow refuses images of twice the limit and only warns of those in between.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if path.exists() and not path.is_file():  # a pipe would be waited for
                raise NotAnImage("a folder, a pipe or a device")
            with Image.open(path, formats=_formats()) as image:
                return use(image)
    except NotAnImage:
        raise
    except FileNotFoundError:
        raise NotAnImage("no such file") from None
    except UnidentifiedImageError:
        raise NotAnImage(f"a file that is no image ({', '.join(_formats())} are read)") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise NotAnImage(f"more than the allowed {Image.MAX_IMAGE_PIXELS} pixels") from None
    except MemoryError:
        raise
    except Exception as error:  # Pillow's decoders raise many kinds
        raise NotAnImage(f"a damaged image ({' '.join(str(error).split())})") from error


@functools.cache
def _formats() -> tuple[str, ...]:
    """Those of ``FORMATS`` that the installed Pillow can read."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _look(image: Image.Image) -> Look:
    if image.mode in ("I", "F"):
        raise NotAnImage(f"pixels of mode {image.mode}, which have no fixed range")
    width, height = image.size
    if _orientation(image) >= 5:  # lies on its side
        width, height = height, width
    return Look(height, width, image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I;16"))


def _orientation(image: Image.Image) -> int:
    # Pillow would decode a whole PNG to find out that it has no EXIF data.
    if image.format == "PNG" and "exif" not in image.info:
        return 1
    return int(image.getexif().get(ExifTags.Base.Orientation, 1))


def _upright(image: Image.Image, grey: bool) -> Image.Image:
    if _orientation(image) != 1:
        image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow would clip the values to 255
        image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    if image.mode == "P" and "transparency" in image.info:  # Pillow warns of the direct way
        image = image.convert("RGBA")
    return image.convert("L" if grey else "RGB")


def open_images(name: str, train: Listed, test: Listed | None, bad: BadFiles, size: Size = None) -> DataSet:
    """A data set of images: in memory if all have one size and fit, or else files that are decoded when needed."""
    parts = [_see(part, bad) for part in (train, test) if part is not None]
    looks = {found for part in parts for found in part.looks}
    grey = all(found.grey for found in looks)
    sides = [(found.height, found.width) for part in parts for found in part.looks]
    in_memory = len(sides) * (1 if grey else 3) * max(h * w for h, w in sides) <= RESIDENT_BYTES
    side = chosen_size(size, sides, in_memory)
    resident = side is None
    loaded = [_load(part, grey, bad) if resident else (ImageFiles(tuple(part.paths)), part.labels) for part in parts]
    classes = class_names(loaded[0][1], train.where)
    examples = [
        Examples(inputs, class_numbers(labels, classes, part.where))
        for part, (inputs, labels) in zip(parts, loaded, strict=True)
    ]
    inputs = examples[0].inputs
    shape = tuple(inputs.shape[1:]) if isinstance(inputs, Tensor) else (3, side or 0, side or 0)
    return DataSet(
        name=name,
        train=examples[0],
        test=examples[1] if test is not None else None,
        classes=classes,
        scaling=scaling_of_images(inputs) if isinstance(inputs, Tensor) else IMAGENET,
        augmentation=usual(shape),
        size=side,
        size_is_chosen=side != chosen_size(None, sides, in_memory),
    )


def readable(paths: Sequence[Path], where: Path, bad: BadFiles) -> dict[int, Look]:
    """Size and kind of each file that is an image, by its position in ``paths``."""
    looks: dict[int, Look] = {}
    for place, path in enumerate(paths):
        try:
            found = look(path)
            if bad.skip:  # a truncated file has a good header
                picture(path)
        except NotAnImage as reason:
            bad.report(path, str(reason))
            continue
        looks[place] = found
    _some(looks, where)
    return looks


def _see(listed: Listed, bad: BadFiles) -> _Seen:
    looks = readable(listed.paths, listed.where, bad)
    paths, labels = [listed.paths[place] for place in looks], [listed.labels[place] for place in looks]
    return _Seen(paths, labels, list(looks.values()), listed.where)


def _load(seen: _Seen, grey: bool, bad: BadFiles) -> tuple[Inputs, list[str]]:
    """All pixels in one tensor, filled image by image, and the labels of those that could be decoded."""
    first = seen.looks[0]
    images = torch.empty(len(seen.paths), 1 if grey else 3, first.height, first.width, dtype=torch.uint8)
    rows = images.numpy()
    labels: list[str] = []
    for path, label in zip(seen.paths, seen.labels, strict=True):
        try:
            rows[len(labels)] = decode(path, grey=grey)
        except NotAnImage as reason:
            bad.report(path, str(reason))
            continue
        labels.append(label)
    _some(labels, seen.where)
    return images[: len(labels)], labels


def _some(found: Collection[object], where: Path) -> None:
    if not found:
        raise ValueError(f"{where} must name at least one image that can be read; got none")


# What file managers leave behind.
_LITTER = {"thumbs.db", "desktop.ini"}


def open_folder(folder: Path, test: Path | None, bad: BadFiles, size: Size = None) -> DataSet:
    """A data set in a folder.

    The folder holds a subfolder for each class; or ``train/`` and ``test/`` (or ``val/``), which hold these.
    """
    train, own_test = _parts(folder)
    test = test or own_test
    clean = list_folder(test, bad) if test else None
    return open_images(folder.resolve().name, list_folder(train, bad), clean, bad, size)


def training_part(folder: Path) -> Path:
    """The folder itself, or the ``train`` in it."""
    return _parts(folder)[0]


def _parts(folder: Path) -> tuple[Path, Path | None]:
    train = folder / "train"
    # A folder of locomotives may be called "train" too: it holds images, no folders.
    if not train.is_dir() or not _subfolders(train):
        return folder, None
    return train, next((part for part in (folder / "test", folder / "val") if part.is_dir()), None)


def list_folder(folder: Path, bad: BadFiles) -> Listed:
    """All files below each class's folder, sorted by name. A class without files counts as a bad file."""
    if not folder.is_dir():
        raise ValueError(f"test data for a folder of images must be a folder of images too; got {folder}")
    classes = _subfolders(folder)
    if not classes:
        raise ValueError(f"{folder} must hold a folder of images for each class; got no folder in it")
    paths, labels = [], []
    for place in classes:
        files = list_files(place)
        if not files and not bad.skip:
            raise ValueError(
                f"{folder} must have images in each class's folder; got an empty one, {place.name!r} "
                f"{HINT.replace('files', 'folders')}"
            )
        if not files:
            bad.report(place, "a folder without images")
        paths += files
        labels += [place.name] * len(files)
    return Listed(paths, labels, folder)


def list_files(folder: Path) -> list[Path]:
    """All files below a folder, sorted by name. Hidden files and those of file managers are left out."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and not _litter(path, folder))


def _subfolders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))


def _litter(path: Path, below: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.relative_to(below).parts)
    return hidden or path.name.lower() in _LITTER


Size = int | Literal["fit"] | None
"""Pixels of a side; "fit" for what fits the images; None for the rule of version 0.1, which runs from then go by."""

LARGEST = 224
"""Photos are brought to at most this many pixels on each side, unless another size is given."""


def chosen_size(size: Size, sides: Sequence[tuple[int, int]], fits_into_memory: bool) -> int | None:
    """The size that images are brought to; None where they stay as they are.

    - Images of one size stay as they are if they fit into memory and their shorter side is at most ``LARGEST``.
    - Others are brought to the shorter side of the median image, or to ``LARGEST`` if that is less.
    - A size that is given holds for all, unless the images are squares of that size already.

    Args:
        size: what is wanted.
        sides: height and width of each image.
        fits_into_memory: whether the images, as they are, fit into memory.

    >>> chosen_size("fit", [(24, 24), (30, 26), (400, 300)], True), chosen_size("fit", [(32, 32)] * 3, True)
    (26, None)
    """
    as_they_are = fits_into_memory and len(set(sides)) == 1
    if size is None:
        return None if as_they_are else LARGEST
    if size == "fit":
        shorter = statistics.median_low(min(each) for each in sides)
        return None if as_they_are and shorter <= LARGEST else min(LARGEST, shorter)
    return None if as_they_are and sides[0] == (size, size) else size


IMAGE_COLUMNS = ("image", "path", "file")


def image_column(table: TableFile, image: str | None) -> str | None:
    """The column of image paths: the one that is named, or the first of ``IMAGE_COLUMNS``; None if there is none."""
    if image is not None:
        table.require(image, "image")
        return image
    return next((column for column in IMAGE_COLUMNS if column in table.places), None)


def open_manifest(
    train: TableFile, test: TableFile | None, label: str, image: str, bad: BadFiles, size: Size = None
) -> DataSet:
    """A data set of images. Column ``image`` holds their paths, and column ``label`` their labels."""
    return open_images(
        train.path.stem,
        _listed(train, label, image, bad),
        _listed(test, label, image, bad) if test is not None else None,
        bad,
        size,
    )


def _listed(table: TableFile, label: str, image: str, bad: BadFiles) -> Listed:
    table.require(image, "image")
    labels, without = table.labels(label, bad)
    paths = [table.path.parent / name for row, name in enumerate(table.text(image)) if row not in without]
    return Listed(paths, labels, table.path)


SIDE = 96
"""Pixels of the longer side, at most. A smaller image stays as it is."""


def thumbnail(inputs: Inputs, position: int) -> bytes | None:
    """The image at a position as a PNG file; None if the inputs are no images."""
    if isinstance(inputs, ImageFiles):
        image = picture(inputs.paths[position])
    elif inputs.dim() == 4 and not inputs.is_floating_point():
        pixels = inputs[position].cpu().numpy()
        image = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    else:
        return None
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "PNG", optimize=True)
    return file.getvalue()
