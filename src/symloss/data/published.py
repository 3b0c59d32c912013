"""Published data sets: digits, MNIST, Fashion-MNIST, CIFAR, mini WebVision; and whether files are the publisher's."""

from __future__ import annotations

import functools
import gzip
import hashlib
import itertools
import math
import pickle
import struct
import tomllib
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from torch import Tensor
from torch.nn.functional import avg_pool2d

from symloss.checks import brief
from symloss.data.dataset import IMAGENET, DataSet, Examples, ImageFiles, Origin, Scaling, scaling_of_images
from symloss.data.download import SOURCES, by_hand
from symloss.data.images import readable
from symloss.data.source import BadFiles, refusal
from symloss.noise.transition import SUPERCLASSES

_BLOCKS = 256
"""How many megabytes of a file are read at most. All have fewer; a packed file may unpack to any size."""


def deviation(name: str, root: Path) -> str | None:
    """Return a checksum of files that are not the publisher's.

    None if they are the publisher's. None also for files that cannot be read, since opening them raises an error, and
    for data sets without published checksums (WebVision).
    """
    try:
        paths = (cifar_files if name.startswith("cifar") else idx_files)(name, root) if name in SOURCES else []
        found = {path.name.removesuffix(".gz"): _md5(path, path.stat().st_mtime_ns) for path in paths}
    except (OSError, EOFError, zlib.error):
        return None
    layouts = [SOURCES[source].unpacked for source in (name, f"{name}-binary") if source in SOURCES]
    if not found or any(found.items() <= published.items() for published in layouts):
        return None
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:12]


@functools.lru_cache(maxsize=64)
def _md5(path: Path, changed: int) -> str:
    """Compute the MD5 of a file's content, unpacked; cached until the file changes."""
    digest = hashlib.md5(usedforsecurity=False)
    with _unpacked(path) as file:
        for _ in range(_BLOCKS):
            digest.update(file.read(_READ_AT_ONCE))
    return digest.hexdigest()


def _unpacked(path: Path) -> BinaryIO:
    return cast(BinaryIO, gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


CIFAR100_CLASSES = tuple(sorted(" ".join(SUPERCLASSES.values()).split()))
PROTOCOLS = {
    name: (
        tuple(entry.get("class_names", CIFAR100_CLASSES)),
        Scaling(tuple(entry["mean"]), tuple(entry["std"])),
        tuple(entry["augmentation"]),
    )
    for name, entry in tomllib.loads(Path(__file__).with_name("protocols.toml").read_text()).items()
}
"""Names of the classes, scaling and augmentation, as published."""

PIXELS = 3 * 32 * 32

Batch = tuple[np.ndarray[Any, np.dtype[np.uint8]], list[int]]


def open_cifar(name: str, root: Path) -> DataSet:
    """``cifar10`` or ``cifar100`` from a publisher's folder below ``root``, or from ``root`` if it is that folder."""
    *train, test = cifar_files(name, root)
    return DataSet(name, _cifar_examples(name, train), _cifar_examples(name, [test]), *PROTOCOLS[name])


def cifar_files(name: str, root: Path) -> list[Path]:
    """Return the paths of the data set's files, whether they exist or not. The test file comes last."""
    layouts = SOURCES[name], SOURCES[f"{name}-binary"]
    for layout in layouts:
        for folder in (root / layout.folder, root / name / layout.folder, root):
            if folder.name == layout.folder and folder.is_dir():
                return [folder / file for file in layout.unpacked]
    raise FileNotFoundError(
        f"{name} must have its files in {root / layouts[0].folder} or {root / layouts[1].folder}; "
        f"got neither folder (`symloss data get {name}` fetches one)"
    )


def _cifar_examples(name: str, paths: list[Path]) -> Examples:
    batches = [_cifar_batch(name, path) for path in paths]
    images = torch.from_numpy(np.concatenate([pixels for pixels, _ in batches]))
    return Examples(images.view(-1, 3, 32, 32), torch.tensor([label for _, labels in batches for label in labels]))


def _cifar_batch(name: str, path: Path) -> Batch:
    if not path.is_file():
        title = name.replace("cifar", "CIFAR-")
        raise FileNotFoundError(f"{title} must have the file {path}; got a folder without it")
    pixels, labels = (_read_binary if path.suffix else _read_python)(name, path)
    last = len(PROTOCOLS[name][0]) - 1
    wrong = [label for label in labels if type(label) is not int or not 0 <= label <= last]
    if wrong:
        raise ValueError(f"{path} must hold labels 0 to {last}; got {brief(wrong[0])}")
    return pixels, labels


def _read_python(name: str, path: Path) -> Batch:
    key = "labels" if name == "cifar10" else "fine_labels"
    content = unpickle(path)
    if not isinstance(content, dict):
        raise ValueError(f"{path} must hold a dictionary; got {type(content).__name__}")
    batch = {key.decode("latin1") if isinstance(key, bytes) else key: value for key, value in content.items()}
    pixels, labels = batch.get("data"), batch.get(key)
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8 or pixels.shape[1:] != (PIXELS,):
        given = f"{pixels.dtype} {pixels.shape}" if isinstance(pixels, np.ndarray) else type(pixels).__name__
        raise ValueError(f"{path} must hold 'data', an array of uint8 of shape (N, {PIXELS}); got {given}")
    if not isinstance(labels, list) or len(labels) != len(pixels):
        given = f"{len(labels)} of them" if isinstance(labels, list) else type(labels).__name__
        raise ValueError(f"{path} must hold {key!r}, a list of {len(pixels)} labels; got {given}")
    return pixels, labels


def _read_binary(name: str, path: Path) -> Batch:
    label_bytes = 1 if name == "cifar10" else 2  # the fine label comes second
    record, size = label_bytes + PIXELS, path.stat().st_size
    if size == 0 or size % record:
        raise ValueError(f"{path} must hold whole records of {record} bytes; got {size} bytes")
    records = np.fromfile(path, dtype=np.uint8).reshape(-1, record)
    labels: list[int] = records[:, label_bytes - 1].tolist()
    return records[:, label_bytes:], labels


_READ_AT_ONCE = 2**20


def open_idx(name: str, root: Path) -> DataSet:
    """``mnist`` or ``fashion-mnist`` from ``root/name`` or ``root``."""
    files = idx_files(name, root)
    return DataSet(name, _idx_examples(files[:2]), _idx_examples(files[2:]), *PROTOCOLS[name])


def idx_files(name: str, root: Path) -> list[Path]:
    """Return the paths of the data set's four files: images and labels to train on, then to test on."""
    stems = list(SOURCES[name].unpacked)
    for folder in (root / name, root):
        # An unpacked file goes before a packed one.
        paths = [path for stem in stems for path in (folder / f"{stem}.gz", folder / stem) if path.is_file()]
        found = {path.name.removesuffix(".gz"): path for path in paths}
        if stems[0] not in found:
            continue
        for stem in stems:
            if stem not in found:
                raise FileNotFoundError(f"{folder} must hold {stem} or {stem}.gz; got neither")
        return [found[stem] for stem in stems]
    raise FileNotFoundError(
        f"{name} must have its four idx files, .gz or not, in {root / name} or {root}; "
        f"got no {stems[0]} there (`symloss data get {name}` fetches them)"
    )


def _idx_examples(found: list[Path]) -> Examples:
    images, labels = read_idx(found[0], dimensions=3), read_idx(found[1], dimensions=1)
    if len(images) != len(labels):
        raise ValueError(
            f"{found[0]} and {found[1]} must hold as many images as labels; got {len(images)} and {len(labels)}"
        )
    if len(labels) and int(labels.max()) > 9:
        raise ValueError(f"{found[1]} must hold labels 0 to 9; got {int(labels.max())}")
    return Examples(images[:, None], labels.long())


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read one idx file as a tensor of unsigned bytes."""
    # Two zero bytes, 8 for unsigned bytes, the number of dimensions, then each of them: big-endian.
    magic, start = bytes([0, 0, 8, dimensions]), 4 + 4 * dimensions
    try:
        with _unpacked(path) as stream:
            header = stream.read(start)
            if header[:4] != magic:
                given = header[:4].hex() or "an empty file"
                raise ValueError(f"{path} must be an idx file that starts with {magic.hex()}; got {given}")
            if len(header) < start:
                raise ValueError(f"{path} must have an idx header of {start} bytes; got {len(header)}")
            shape = struct.unpack(f">{dimensions}I", header[4:])
            size, content = math.prod(shape), bytearray()
            # A little more than there should be, so that a hostile file cannot fill the memory.
            while len(content) <= size and (block := stream.read(_READ_AT_ONCE)):
                content += block
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path} must be a whole gzip file; got a damaged one ({error})") from error
    if len(content) != size:
        given = f"only {len(content)}" if len(content) < size else "more"
        raise ValueError(f"{path} must hold {size} bytes after its header, which says {shape}; got {given}")
    return torch.from_numpy(np.frombuffer(content, dtype=np.uint8).reshape(shape))


def open_digits() -> DataSet:
    """Open the handwritten digits of scikit-learn, which need no download.

    1,437 training and 360 test images (1, 8, 8), always the same: a stratified split with scikit-learn's seed 0. Grey
    values of 0 to 16 are spread over 0 to 255.
    """
    # scikit-learn takes a second to import.
    from sklearn.datasets import load_digits  # type: ignore[import-untyped]  # noqa: PLC0415
    from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]  # noqa: PLC0415

    digits = load_digits()
    images = torch.from_numpy(digits.images).mul(255 / 16).round().to(torch.uint8)[:, None]
    labels = torch.from_numpy(digits.target).long()
    places = range(len(labels))
    train, test = train_test_split(places, test_size=360, random_state=0, stratify=digits.target)
    return DataSet(
        name="digits",
        train=Examples(images[train], labels[train]),
        test=Examples(images[test], labels[test]),
        class_names=PROTOCOLS["mnist"][0],
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


class _Unpickler(pickle.Unpickler):
    refused = ""
    """What the pickle names outside the list."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            self.refused = f"{module}.{name}"
            raise pickle.UnpicklingError(self.refused)
        return _ALLOWED[module, name]


def unpickle(path: Path) -> Any:
    """Read containers and arrays from a pickle of Python 2 or 3. Text of Python 2 comes as bytes."""
    with path.open("rb") as file:
        unpickler = _Unpickler(file, encoding="bytes")
        try:
            return unpickler.load()
        except Exception as error:  # a damaged pickle can raise nearly anything
            if unpickler.refused:
                reason = f"must hold only numbers, text and arrays; got {unpickler.refused}, and none of it was run"
            else:
                damage = " ".join(str(error).split()) or type(error).__name__
                reason = f"must be a pickle as its publisher wrote it; got a damaged one ({damage})"
            raise ValueError(f"{path} {reason}") from error


_BLOCK = 4096  # images that are shrunk at once: in float32 they take four times their room


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
    factor = side // size
    return replace(
        data,
        train=_shrunk(data.train, factor),
        test=None if data.test is None else _shrunk(data.test, factor),
        augmentation=tuple(filter(None, (_in_proportion(step, factor) for step in data.augmentation))),
    )


def _shrunk(examples: Examples, factor: int) -> Examples:
    assert isinstance(examples.inputs, Tensor)
    blocks = examples.inputs.split(_BLOCK)  # type: ignore[no-untyped-call]
    small = torch.cat([avg_pool2d(block.float(), factor).round_().to(torch.uint8) for block in blocks])
    return replace(examples, inputs=small)


def _in_proportion(step: str, factor: int) -> str | None:
    """Return the step for images that are smaller by a factor; None for a crop whose frame would vanish."""
    if not step.startswith("crop:"):
        return step
    frame = int(step.removeprefix("crop:")) // factor
    return f"crop:{frame}" if frame else None


_KEPT, _OF_IMAGENET = 50, 1000


def open_webvision(root: Path, *, imagenet: bool = False, bad: BadFiles | None = None) -> DataSet:
    """Open mini WebVision: the first 50 classes of its Google images, tested on WebVision's or ILSVRC12's validation.

    Images stay on disk. The publishers give the files on request only. They belong here, under the publishers' names::

        root/webvision/info/train_filelist_google.txt    lines "google/q0001/a.jpg 0"
        root/webvision/google/...                        the training images, resized to 256
        root/webvision/info/val_filelist.txt             lines "val000001.jpg 0"
        root/webvision/val_images_256/...
        root/webvision/info/synsets.txt                  optional, lines "n01440764 tench, Tinca tinca"
        root/ilsvrc12/val.txt                            lines "ILSVRC2012_val_00000001.JPEG 65"
        root/ilsvrc12/val/...                            those images; or, without val.txt, folders n01440764/...

    Args:
        root: the folder of data sets.
        imagenet: test on the validation images of ILSVRC12 instead of WebVision's.
        bad: what to do with files that are no images; None raises an error at the first.

    >>> open_webvision(Path("no-such-folder"))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: ...
    """
    bad = bad or BadFiles()
    folder = root / "webvision"
    help_ = by_hand("webvision-mini", root)
    train = _webvision_list(folder / "info" / "train_filelist_google.txt", folder, help_, bad)
    if imagenet:
        test = _imagenet_validation(root / "ilsvrc12", by_hand("webvision-mini-imagenet", root), bad)
    else:
        test = _webvision_list(folder / "info" / "val_filelist.txt", folder / "val_images_256", help_, bad)
    return DataSet(
        name="webvision-mini-imagenet" if imagenet else "webvision-mini",
        train=train,
        test=test,
        class_names=_webvision_names(folder / "info" / "synsets.txt"),
        scaling=IMAGENET,
        augmentation=("resized-crop:224", "flip", "jitter:0.4,0.4,0.4,0.2"),
        size=224,
    )


def _webvision_list(listing: Path, folder: Path, help_: str, bad: BadFiles) -> Examples:
    """Return the images of the first classes, in the order of the list."""
    if not listing.is_file():
        raise FileNotFoundError(f"mini WebVision must have the list {listing}; got no such file: {help_}")
    paths, labels = [], []
    with listing.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            name, _, label = line.strip().rpartition(" ")
            if not name or not (label.isascii() and label.isdecimal()):
                raise ValueError(f"line {number} of {listing} must be `path label`; got {brief(line.strip())}")
            if int(label) < _KEPT:
                paths.append(folder / name.strip())
                labels.append(int(label))
    return _webvision_files(paths, labels, listing, help_, bad)


def _imagenet_validation(folder: Path, help_: str, bad: BadFiles) -> Examples:
    listing, images = folder / "val.txt", folder / "val"
    if listing.is_file():
        return _webvision_list(listing, images, help_, bad)
    # In the order of their names the folders are the classes 0, 1, 2, ... of ILSVRC12 and of WebVision.
    classes = sorted(path for path in images.iterdir() if path.is_dir()) if images.is_dir() else []
    if len(classes) not in (_KEPT, _OF_IMAGENET):
        raise FileNotFoundError(
            f"ILSVRC12 validation must have the list {listing}, or in {images} folders of all {_OF_IMAGENET} classes "
            f"or of the first {_KEPT}; got no list and {len(classes)} folders: {help_}"
        )
    files = [sorted(place.iterdir()) for place in classes[:_KEPT]]
    labels = [label for label, paths in enumerate(files) for _ in paths]
    return _webvision_files(list(itertools.chain(*files)), labels, images, help_, bad)


def _webvision_files(paths: Sequence[Path], labels: Sequence[int], where: Path, help_: str, bad: BadFiles) -> Examples:
    there = [path.is_file() for path in paths]
    if not any(there):
        raise FileNotFoundError(f"the images of {where} must be on disk; got none of {len(paths)}: {help_}")
    if not bad.skip and not all(there):
        raise refusal(paths[there.index(False)], "no such file")
    kept = readable(paths, where, bad) if bad.skip else range(len(paths))
    files = ImageFiles(tuple(paths[k] for k in kept))
    origin = Origin(files=[str(path) for path in files.paths])
    return Examples(files, torch.tensor([labels[k] for k in kept]), origin=origin)


def _webvision_names(synsets: Path) -> tuple[str, ...]:
    """Return the first name of each class where the publisher's list is there, else its number."""
    lines = synsets.read_text(encoding="utf-8").splitlines()[:_KEPT] if synsets.is_file() else []
    if len(lines) < _KEPT:
        return tuple(str(label) for label in range(_KEPT))
    return tuple(line.partition(" ")[2].split(",")[0].strip() or line for line in lines)
