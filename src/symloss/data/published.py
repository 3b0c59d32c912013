"""Published data sets: digits, MNIST, Fashion-MNIST, CIFAR-10 and CIFAR-100, and whether files are the publisher's."""

from __future__ import annotations

import functools
import gzip
import hashlib
import math
import pickle
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch import Tensor
from torch.nn.functional import avg_pool2d

from symloss.checks import brief
from symloss.data.augment import Augmentation, Crop
from symloss.data.dataset import DataSet, Examples, Scaling, labels_tensor, scaling_of_images

MD5 = {
    "mnist": {
        "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
        "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
        "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
        "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
    },
    "fashion-mnist": {
        "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
        "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
        "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
        "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
    },
    "cifar10": {
        "data_batch_1": "c99cafc152244af753f735de768cd75f",
        "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
        "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
        "data_batch_4": "634d18415352ddfa80567beed471001a",
        "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        "test_batch": "40351d587109b95175f43aff81a1287e",
        "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
        "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
        "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
        "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
        "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
        "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
    },
    "cifar100": {
        "train": "16019d7e3df5f24257cddd939b257f8d",
        "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
        "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
        "test.bin": "4499cfba6c016c1be1438163640a0898",
    },
}
"""The MD5 of each unpacked file."""
_BLOCKS = 256
"""How many megabytes of a file are read at most. All have fewer; a packed file may unpack to any size."""


def deviation(name: str, root: Path) -> str | None:
    """Return a checksum of files that are not the publisher's.

    None if they are the publisher's. None also for files that cannot be read, since opening them raises an error, and
    for data sets without published checksums (WebVision).
    """
    try:
        paths = _files(name, root)
        found = {path.name.removesuffix(".gz"): _md5(path, path.stat().st_mtime_ns) for path in paths}
    except (OSError, EOFError, zlib.error):
        return None
    if all(MD5[name][file] == md5 for file, md5 in found.items()):
        return None
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:12]


def _files(name: str, root: Path) -> list[Path]:
    if name in IDX_SCALING:
        return idx_files(name, root)
    return cifar_files(name, root) if name in CIFAR else []


@functools.lru_cache(maxsize=64)
def _md5(path: Path, changed: int) -> str:
    """Compute the MD5 of a file's content, unpacked; cached until the file changes."""
    digest = hashlib.md5(usedforsecurity=False)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        for _ in range(_BLOCKS):
            digest.update(file.read(2**20))
    return digest.hexdigest()


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
    class_names: tuple[str, ...]
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
        class_names=CIFAR10_CLASSES,
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
        class_names=CIFAR100_CLASSES,
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
        train=_cifar_examples(kind, train, read),
        test=_cifar_examples(kind, [test], read),
        class_names=kind.class_names,
        scaling=kind.scaling,
        augmentation=kind.augmentation,
    )


def cifar_files(name: str, root: Path) -> list[Path]:
    """Return the paths of the data set's files, whether they exist or not. The test file comes last."""
    kind, folder = CIFAR[name], _cifar_folder(name, root)
    suffix = ".bin" if folder.name == kind.binary_folder else ""
    return [folder / f"{part}{suffix}" for part in (*kind.train, kind.test)]


def _cifar_folder(name: str, root: Path) -> Path:
    layouts = CIFAR[name].python_folder, CIFAR[name].binary_folder
    for layout in layouts:
        for folder in (root / layout, root / name / layout, root):
            if folder.name == layout and folder.is_dir():
                return folder
    raise FileNotFoundError(
        f"{name} must have its files in {root / layouts[0]} or {root / layouts[1]}; "
        f"got neither folder (`symloss data get {name}` fetches one)"
    )


def _cifar_examples(kind: _Cifar, paths: list[Path], read: Callable[[Path], Batch]) -> Examples:
    """Read all batches into one array, batch by batch, so that there is never a second copy."""
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
    last = len(kind.class_names) - 1
    wrong = [label for label in labels if type(label) is not int or not 0 <= label <= last]
    if wrong:
        raise ValueError(f"{path} must hold labels 0 to {last}; got {brief(wrong[0])}")


IDX_SCALING = {"mnist": Scaling((0.1307,), (0.3081,)), "fashion-mnist": Scaling((0.2860,), (0.3530,))}
IDX_CLASSES = {
    "mnist": tuple(str(digit) for digit in range(10)),
    "fashion-mnist": (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    ),
}
_IDX_PARTS = ("train", "t10k")
_READ_AT_ONCE = 2**20


def open_idx(name: str, root: Path) -> DataSet:
    """``mnist`` or ``fashion-mnist`` from ``root/name`` or ``root``."""
    files = idx_files(name, root)
    return DataSet(
        name=name,
        train=_idx_examples(files[:2], len(IDX_CLASSES[name])),
        test=_idx_examples(files[2:], len(IDX_CLASSES[name])),
        class_names=IDX_CLASSES[name],
        scaling=IDX_SCALING[name],
    )


def idx_files(name: str, root: Path) -> list[Path]:
    """Return the paths of the data set's four files."""
    folder = _idx_folder(name, root)
    return [_existing(folder, f"{part}-{kind}-ubyte") for part in _IDX_PARTS for kind in ("images-idx3", "labels-idx1")]


def _idx_folder(name: str, root: Path) -> Path:
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


def _idx_examples(found: list[Path], classes: int) -> Examples:
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
    with _open_idx(path) as stream:
        try:
            return _parse_idx(path, stream, dimensions)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} must be a whole gzip file; got a damaged one ({error})") from error


def _open_idx(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def _parse_idx(path: Path, stream: BinaryIO, dimensions: int) -> Tensor:
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
    while len(content) <= size and (block := stream.read(_READ_AT_ONCE)):
        content += block
    return content


def open_digits() -> DataSet:
    """Open the handwritten digits of scikit-learn, which need no download.

    1,437 training and 360 test images (1, 8, 8), always the same: a stratified split with scikit-learn's seed 0.

    Grey values of 0 to 16 are spread over 0 to 255.
    """
    # scikit-learn takes a second to import.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]  # noqa: PLC0415

    digits = load_digits()
    images = torch.from_numpy(digits.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    labels = labels_tensor(digits.target)
    places = range(len(labels))
    train, test = train_test_split(places, test_size=360, random_state=0, stratify=digits.target)
    return DataSet(
        name="digits",
        train=Examples(images[train], labels[train]),
        test=Examples(images[test], labels[test]),
        class_names=tuple(str(digit) for digit in range(10)),
        scaling=scaling_of_images(images[train]),
    )


# Stand-ins for functions that pickles name. They have no attributes, not even __dict__: a pickle can set those too, and
# on a function they would outlive the reading.


class _Dtype:
    """numpy.dtype; old pickles say 0 and 1 for False and True, of which NumPy warns."""

    __slots__ = ()

    def __call__(self, name: str | bytes, align: object = False, copy: object = False) -> np.dtype[Any]:
        text = name.decode("latin1") if isinstance(name, bytes) else name
        return np.dtype(text, align=bool(align), copy=bool(copy))


class _Encode:
    """codecs.encode: how Python 3 writes bytes in the old protocols."""

    __slots__ = ()

    def __call__(self, text: str, encoding: str = "latin1") -> bytes:
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"the encoding {encoding!r}")
        return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _Dtype(),
    ("_codecs", "encode"): _Encode(),
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _reconstruct for core in ("core", "_core")},
}


class _Refused(pickle.UnpicklingError):
    """The pickle names something outside the list."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _Refused(f"{module}.{name}")
        return _ALLOWED[module, name]


def unpickle(path: Path) -> Any:
    """Read containers and arrays from a pickle of Python 2 or 3. Text of Python 2 comes as bytes."""
    with path.open("rb") as file:
        try:
            return _Unpickler(file, encoding="bytes").load()
        except _Refused as refused:
            raise ValueError(
                f"{path} must hold only numbers, text and arrays; got {refused}, and none of it was run"
            ) from refused
        except Exception as error:  # a damaged pickle can raise nearly anything
            reason = " ".join(str(error).split()) or type(error).__name__
            raise ValueError(
                f"{path} must be a pickle as its publisher wrote it; got a damaged one ({reason})"
            ) from error


_BLOCK = 4096
"""Images that are shrunk at once: in float32 they take four times their room."""


def shrunk(data: DataSet, size: int) -> DataSet:
    """Shrink every image to ``size`` x ``size`` pixels, and the frame of crops in proportion.

    A pixel is the mean of a square of pixels, rounded. So the size must divide the side of the images.

    Args:
        data: a data set of square uint8 images in memory.
        size: pixels on each side.

    >>> from symloss.data import open_data
    >>> shrunk(open_data("digits"), 4).input_shape
    (1, 4, 4)
    """
    images = data.train.inputs
    if not isinstance(images, Tensor) or images.dim() != 4 or images.shape[2] != images.shape[3]:
        raise ValueError(f"size must be left out for {data.name}, which has no square images in memory; got {size}")
    side = images.shape[2]
    if size < 1 or side % size:
        allowed = ", ".join(str(part) for part in range(1, side + 1) if side % part == 0)
        raise ValueError(f"size must divide the {side} pixels of {data.name}, as {allowed} do; got {size}")
    if size == side:
        return data
    return replace(
        data,
        train=_shrunk(data.train, side // size),
        test=None if data.test is None else _shrunk(data.test, side // size),
        augmentation=tuple(filter(None, (_in_proportion(step, side // size) for step in data.augmentation))),
    )


def _shrunk(examples: Examples, factor: int) -> Examples:
    assert isinstance(examples.inputs, Tensor)
    count, channels, height, width = examples.inputs.shape
    small = examples.inputs.new_empty((count, channels, height // factor, width // factor))
    for start in range(0, count, _BLOCK):
        block = examples.inputs[start : start + _BLOCK].float()
        small[start : start + _BLOCK] = avg_pool2d(block, factor).round_().to(small.dtype)
    return replace(examples, inputs=small)


def _in_proportion(step: str, factor: int) -> str | None:
    """Return the step for images that are smaller by a factor; None for a crop whose frame would vanish."""
    (parsed,) = Augmentation.parse([step]).steps
    if not isinstance(parsed, Crop):
        return step
    frame = parsed.padding // factor
    return f"crop:{frame}" if frame else None
