"""CIFAR-10 and CIFAR-100, in the publisher's python layout or the binary one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from symloss.checks import brief
from symloss.data.dataset import DataSet, Examples, Scaling, labels_tensor
from symloss.data.unpickle import unpickle

PIXELS = 3 * 32 * 32

_CIFAR10 = "airplane automobile bird cat deer dog frog horse ship truck"
_CIFAR100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly camel can castle
caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur dolphin elephant
flatfish forest fox girl hamster house kangaroo keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree
motorcycle mountain mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate
poppy porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor train trout tulip turtle
wardrobe whale willow_tree wolf woman worm
"""
CIFAR10_CLASSES = tuple(_CIFAR10.split())
CIFAR100_CLASSES = tuple(_CIFAR100.split())

Batch = tuple[np.ndarray[Any, np.dtype[np.uint8]], list[int]]


@dataclass(frozen=True)
class _Cifar:
    """What differs between CIFAR-10 and CIFAR-100. In binary records of CIFAR-100 the fine label comes second."""

    title: str
    python_folder: str
    binary_folder: str
    train: tuple[str, ...]
    test: str
    labels: str
    label_bytes: int
    classes: tuple[str, ...]
    scaling: Scaling
    augmentation: tuple[str, ...]


CIFAR = {
    "cifar10": _Cifar(
        title="CIFAR-10",
        python_folder="cifar-10-batches-py",
        binary_folder="cifar-10-batches-bin",
        train=tuple(f"data_batch_{k}" for k in range(1, 6)),
        test="test_batch",
        labels="labels",
        label_bytes=1,
        classes=CIFAR10_CLASSES,
        scaling=Scaling((0.49139968, 0.48215827, 0.44653124), (0.24703233, 0.24348505, 0.26158768)),
        augmentation=("crop:4", "flip"),
    ),
    "cifar100": _Cifar(
        title="CIFAR-100",
        python_folder="cifar-100-python",
        binary_folder="cifar-100-binary",
        train=("train",),
        test="test",
        labels="fine_labels",
        label_bytes=2,
        classes=CIFAR100_CLASSES,
        scaling=Scaling((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
        augmentation=("crop:4", "flip", "rotate:20"),
    ),
}


def open_cifar(name: str, root: Path) -> DataSet:
    """``cifar10`` or ``cifar100`` from a publisher's folder below ``root``, or from ``root`` if it is that folder."""
    kind = CIFAR[name]
    *train, test = cifar_files(name, root)
    read = partial(_read_binary if test.suffix else _read_python, kind)
    return DataSet(
        name=name,
        train=_examples(kind, train, read),
        test=_examples(kind, [test], read),
        classes=kind.classes,
        scaling=kind.scaling,
        augmentation=kind.augmentation,
    )


def cifar_files(name: str, root: Path) -> list[Path]:
    """The paths of the data set's files, whether they exist or not. The test file comes last."""
    kind, folder = CIFAR[name], _folder(name, root)
    suffix = ".bin" if folder.name == kind.binary_folder else ""
    return [folder / f"{part}{suffix}" for part in (*kind.train, kind.test)]


def _folder(name: str, root: Path) -> Path:
    layouts = CIFAR[name].python_folder, CIFAR[name].binary_folder
    for layout in layouts:
        for folder in (root / layout, root / name / layout, root):
            if folder.name == layout and folder.is_dir():
                return folder
    raise FileNotFoundError(
        f"{name} must have its files in {root / layouts[0]} or {root / layouts[1]}; "
        f"got neither folder (`symloss data get {name}` fetches one)"
    )


def _examples(kind: _Cifar, paths: list[Path], read: Callable[[Path], Batch]) -> Examples:
    """All batches in one array, filled batch by batch, so that there is never a second copy."""
    images = np.empty((0, PIXELS), dtype=np.uint8)
    labels: list[int] = []
    for number, path in enumerate(paths):
        if not path.is_file():
            raise FileNotFoundError(f"{kind.title} must have the file {path}; got a folder without it")
        pixels, batch_labels = read(path)
        size = len(pixels)
        if number == 0:
            images = np.empty((size * len(paths), PIXELS), dtype=np.uint8)
        if size * len(paths) != len(images):
            raise ValueError(f"{path} must hold as many images as {paths[0]}; got {size}")
        images[number * size : (number + 1) * size] = pixels
        labels += batch_labels
        del pixels  # before the next batch is read
    return Examples(torch.from_numpy(images).view(-1, 3, 32, 32), labels_tensor(labels))


def _read_python(kind: _Cifar, path: Path) -> Batch:
    content = unpickle(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a dictionary; got {type(content).__name__}")
    batch = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}
    pixels, labels = batch.get("data"), batch.get(kind.labels)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
        given = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise ValueError(f"{path} must hold 'data', an array of uint8 of shape (N, {PIXELS}); got {given}")
    if not isinstance(labels, list) or len(labels) != len(pixels):
        given = f"{len(labels)} of them" if isinstance(labels, list) else type(labels).__name__
        raise ValueError(f"{path} must hold {kind.labels!r}, a list of {len(pixels)} labels; got {given}")
    _check_labels(kind, path, labels)
    return pixels, labels


def _read_binary(kind: _Cifar, path: Path) -> Batch:
    record = kind.label_bytes + PIXELS
    size = path.stat().st_size
    if size == 0 or size % record:
        raise ValueError(f"{path} must hold whole records of {record} bytes; got {size} bytes")
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, record)
    labels: list[int] = records[:, kind.label_bytes - 1].tolist()
    _check_labels(kind, path, labels)
    return records[:, kind.label_bytes :], labels


def _check_labels(kind: _Cifar, path: Path, labels: list[Any]) -> None:
    last = len(kind.classes) - 1
    wrong = [label for label in labels if type(label) is not int or not 0 <= label <= last]
    if wrong:
        raise ValueError(f"{path} must hold labels 0 to {last}; got {brief(wrong[0])}")
