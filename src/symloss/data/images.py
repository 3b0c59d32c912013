"""Image files: size and kind of one file, its pixels, and a data set of many files."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from symloss.data.augment import usual
from symloss.data.bad_files import BadFiles
from symloss.data.class_names import class_names, class_numbers
from symloss.data.dataset import IMAGENET, DataSet, Examples, ImageFiles, Inputs, scaling_of_images
from symloss.data.image_size import Size, chosen_size

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
