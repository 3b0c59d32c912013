"""Read image files: their size and kind, and their pixels, upright, whatever their format."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

FORMATS = ("PNG", "JPEG", "WEBP", "TIFF", "GIF", "BMP", "PPM", "JPEG2000", "AVIF", "PCX", "QOI", "SGI", "TGA")
"""The formats that are read, whatever the file's ending. Pillow knows others that run programs, such as EPS."""

SUFFIXES = frozenset((
    ".png", ".apng", ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".webp", ".tif", ".tiff", ".gif", ".bmp", ".dib",
    ".ppm", ".pgm", ".pbm", ".pnm", ".jp2", ".j2k", ".jpx", ".avif", ".pcx", ".qoi", ".sgi", ".tga",
))  # fmt: skip
"""Endings by which a text is taken for the path of an image."""


class Look(NamedTuple):
    """Size and kind of an image, from the header of its file."""

    height: int
    width: int
    grey: bool


class NotAnImage(ValueError):  # noqa: N818 (says what is wrong)
    """The file cannot be read as an image; the message is the reason alone."""


def look(path: Path) -> Look:
    """Read size and kind from the header of a file, without decoding the pixels."""
    with _opened(path) as image:
        width, height = image.size
        if _orientation(image) >= 5:  # lies on its side
            width, height = height, width
        return Look(height, width, image.mode in ("1", "L", "LA", "La") or image.mode.startswith("I;16"))


def picture(path: Path, *, grey: bool = False) -> Image.Image:
    """Read an image in RGB or in grey, turned upright."""
    with _opened(path) as opened:
        image: Image.Image = opened
        if _orientation(image) != 1:
            image = ImageOps.exif_transpose(image)
        if image.mode.startswith("I;16"):  # Pillow would clip the values to 255
            image = Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
        if image.mode == "P" and "transparency" in image.info:  # Pillow warns of the direct way
            image = image.convert("RGBA")
        return image.convert("L" if grey else "RGB")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Image.Image]:
    try:
        with warnings.catch_warnings():
            # Pillow refuses images of twice the limit and only warns of those in between.
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            if path.exists() and not path.is_file():  # a pipe would be waited for
                raise NotAnImage("a folder, a pipe or a device")
            with Image.open(path, formats=_formats()) as image:
                if image.mode in ("I", "F"):  # Pillow would clip the values to 255
                    raise NotAnImage(f"pixels of mode {image.mode}, which have no fixed range")
                yield image
    except (NotAnImage, MemoryError):
        raise
    except FileNotFoundError:
        raise NotAnImage("no such file") from None
    except UnidentifiedImageError:
        raise NotAnImage(f"a file that is no image ({', '.join(_formats())} are read)") from None
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise NotAnImage(f"more than the allowed {Image.MAX_IMAGE_PIXELS} pixels") from None
    except Exception as error:  # Pillow's decoders raise many kinds
        raise NotAnImage(f"a damaged image ({' '.join(str(error).split())})") from error


@functools.cache
def _formats() -> tuple[str, ...]:
    """Return those of ``FORMATS`` that the installed Pillow can read."""
    Image.init()
    return tuple(name for name in FORMATS if name in Image.OPEN)


def _orientation(image: Image.Image) -> int:
    # Pillow would decode a whole PNG to find out that it has no EXIF data.
    if image.format == "PNG" and "exif" not in image.info:
        return 1
    return int(image.getexif().get(ExifTags.Base.Orientation, 1))
