"""MNIST and Fashion-MNIST: images and labels in idx files, compressed or not."""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
import torch
from torch import Tensor

from symloss.data.dataset import DataSet, Examples, Scaling

SCALING = {"mnist": Scaling((0.1307,), (0.3081,)), "fashion-mnist": Scaling((0.2860,), (0.3530,))}
CLASSES = {
    "mnist": tuple(str(digit) for digit in range(10)),
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
}
PARTS = ("train", "t10k")
_BLOCK = 2**20


def open_idx(name: str, root: Path) -> DataSet:
    """``mnist`` or ``fashion-mnist`` from ``root/name`` or ``root``."""
    files = idx_files(name, root)
    return DataSet(
        name=name,
        train=_examples(files[:2], len(CLASSES[name])),
        test=_examples(files[2:], len(CLASSES[name])),
        classes=CLASSES[name],
        scaling=SCALING[name],
    )


def idx_files(name: str, root: Path) -> list[Path]:
    """The paths of the data set's four files."""
    folder = _folder(name, root)
    return [_existing(folder, f"{part}-{kind}-ubyte") for part in PARTS for kind in ("images-idx3", "labels-idx1")]


def _folder(name: str, root: Path) -> Path:
    for folder in (root / name, root):
        if _find(folder, "train-images-idx3-ubyte") is not None:
            return folder
    raise FileNotFoundError(
        f"{name} must have its four idx files, .gz or not, in {root / name} or {root}; "
        f"got no train-images-idx3-ubyte there (`symloss data get {name}` fetches them)"
    )


def _find(folder: Path, stem: str) -> Path | None:
    return next((path for path in (folder / stem, folder / f"{stem}.gz") if path.is_file()), None)


def _existing(folder: Path, stem: str) -> Path:
    path = _find(folder, stem)
    if path is None:
        raise FileNotFoundError(f"{folder} must hold {stem} or {stem}.gz; got neither")
    return path


def _examples(found: list[Path], classes: int) -> Examples:
    images, labels = read_idx(found[0], dimensions=3), read_idx(found[1], dimensions=1)
    if len(images) != len(labels):
        raise ValueError(
            f"{found[0]} and {found[1]} must hold as many images as labels; got {len(images)} and {len(labels)}"
        )
    if len(labels) and int(labels.max()) >= classes:
        raise ValueError(f"{found[1]} must hold labels 0 to {classes - 1}; got {int(labels.max())}")
    return Examples(images[:, None], labels.long())


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read one idx file as a tensor of unsigned bytes."""
    with _open(path) as stream:
        try:
            return _parse(path, stream, dimensions)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} must be a whole gzip file; got a damaged one ({error})") from error


def _open(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _parse(path: Path, stream: BinaryIO, dimensions: int) -> Tensor:
    # Two zero bytes, 8 for unsigned bytes, the number of dimensions, then each of them: big-endian.
    header = stream.read(4 + 4 * dimensions)
    magic = bytes([0, 0, 8, dimensions])
    if header[:4] != magic:
        given = header[:4].hex() or "an empty file"
        raise ValueError(f"{path} must be an idx file that starts with {magic.hex()}; got {given}")
    if len(header) < 4 + 4 * dimensions:
        raise ValueError(f"{path} must have an idx header of {4 + 4 * dimensions} bytes; got {len(header)}")
    shape = struct.unpack(f">{dimensions}I", header[4:])
    size = math.prod(shape)
    content = _read(stream, size)
    if len(content) != size:
        given = f"only {len(content)}" if len(content) < size else "more"
        raise ValueError(f"{path} must hold {size} bytes after its header, which says {shape}; got {given}")
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8).reshape(shape))


def _read(stream: BinaryIO, size: int) -> bytearray:
    """Read at most ``size`` bytes and a little more, so that a hostile file cannot fill the memory."""
    content = bytearray()
    while len(content) <= size and (block := stream.read(_BLOCK)):
        content += block
    return content
