"""A data set: examples with labels, the names of the classes, and how to scale inputs."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from symloss.checks import brief
from symloss.data.augment import usual
from symloss.data.cells import number
from symloss.data.source import DataDescription
from symloss.data.tables import spreadsheet_row

if TYPE_CHECKING:
    from symloss.data.table_encoder import TableEncoder


@dataclass(frozen=True)
class ImageFiles:
    """Images that stay on disk and are decoded when they are needed.

    Args:
        paths: one file for each image.
        resized: the pixels of images that were decoded, by size and position. They are decoded once for all epochs.
    """

    paths: tuple[Path, ...]
    resized: dict[tuple[int, int], Tensor] = field(default_factory=dict, compare=False, repr=False)

    def __len__(self) -> int:
        return len(self.paths)


Inputs = Tensor | ImageFiles
"""uint8 images (N, channels, height, width), float32 features (N, d), or files."""
UNKNOWN = -1  # the label of an input to predict on


@dataclass(frozen=True)
class Origin:
    """Where the inputs of the user's own data came from, in their order; None where there are no rows or files.

    Rows of a table count from 0 below the column names. Files are as a table names them, or relative to the folder.
    """

    rows: Sequence[int] | None = None
    files: Sequence[str] | None = None

    def take(self, places: Iterable[int]) -> Origin:
        """Return the origin of the inputs at these places."""
        places = list(places)
        rows = None if self.rows is None else [self.rows[place] for place in places]
        return Origin(rows, None if self.files is None else [self.files[place] for place in places])

    def names(self, count: int) -> Sequence[str]:
        """Name ``count`` inputs: by file, by row as a spreadsheet counts it, or by a number from 0."""
        if self.files is not None:
            return self.files
        return [str(number) for number in (range(count) if self.rows is None else map(spreadsheet_row, self.rows))]


NOWHERE = Origin()
"""The origin of arrays and of published data sets in memory."""


@dataclass(frozen=True)
class Examples:
    """Inputs and their labels, in the publisher's order. A part of them shares the memory of the whole.

    Args:
        inputs: uint8 images (N, channels, height, width), float32 features (N, d), or files.
        labels: (M,) class numbers, from 0, in int64; ``UNKNOWN`` for inputs without labels.
        positions: (M,), which of the inputs each example is. None if the examples are all inputs in their order.
        origin: where the inputs came from.
        checksum: stands for the inputs in the fingerprint, where they are computed and other machines round otherwise.

    >>> examples = Examples(torch.eye(3), torch.tensor([0, 1, 1]))
    >>> len(examples), examples.take(torch.tensor([2])).labels
    (3, tensor([1]))
    """

    inputs: Inputs
    labels: Tensor
    positions: Tensor | None = None
    origin: Origin = NOWHERE
    checksum: str | None = None

    def __post_init__(self) -> None:
        count = len(self.inputs) if self.positions is None else len(self.positions)
        if count != len(self.labels):
            raise ValueError(f"inputs and labels must be as many; got {count} inputs and {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Examples:
        """Return the examples at these positions."""
        positions = index if self.positions is None else self.positions[index]
        return replace(self, labels=self.labels[index], positions=positions)

    def to(self, device: torch.device | str) -> Examples:
        """Move the inputs to a device. Files and labels stay as they are."""
        return self if isinstance(self.inputs, ImageFiles) else replace(self, inputs=self.inputs.to(device))

    def relabel(self, labels: Tensor) -> Examples:
        """Return the same inputs with other labels."""
        return replace(self, labels=labels)

    def fingerprint(self) -> str:
        """Return a checksum of labels and inputs. Files on disk count by name and size."""
        inputs, digest = self.inputs, hashlib.sha256()
        if self.checksum is not None:
            digest.update(self.checksum.encode())
        elif isinstance(inputs, ImageFiles):
            digest.update(repr([(str(path), path.stat().st_size) for path in inputs.paths]).encode())
        else:
            digest.update(repr((inputs.dtype, inputs.shape)).encode())
            digest.update(inputs.flatten().numpy().data)
        for numbers in (self.labels, self.positions):
            digest.update(b"all" if numbers is None else numbers.contiguous().numpy().data)
        return digest.hexdigest()


@dataclass(frozen=True)
class Scaling:
    """How to scale inputs: (x - mean) / std.

    Args:
        mean: one number for each channel of images in [0, 1], or for each feature.
        std: the standard deviations, as many.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class DataSet:
    """A data set, as :func:`symloss.data.open_data` returns it.

    Args:
        name: the name of a published data set, or the path of the user's.
        train: the examples to train on.
        test: clean examples to test on; None if there are none.
        class_names: the names of the classes.
        scaling: how to scale inputs.
        augmentation: random changes of training images, by the published protocol if there is one: "crop:4", "flip",
            "rotate:20", "resized-crop:224", "jitter:0.4,0.4,0.4,0.2".
        size: images that stay on disk are resized to this many pixels on each side.
        columns: the names of the features of a table.
        labels_are_true: whether the publisher or the user vouches for the training labels.
        encoder: how the columns of a table became features; None for other data.
        image: the column of the image files, in a table of them.

    >>> from symloss.data import open_data
    >>> digits = open_data("digits")
    >>> len(digits.train), len(digits.class_names), digits.input_shape
    (1437, 10, (1, 8, 8))
    """

    name: str
    train: Examples
    test: Examples | None
    class_names: tuple[str, ...]
    scaling: Scaling
    augmentation: tuple[str, ...] = ()
    size: int | None = None
    columns: tuple[str, ...] = ()
    labels_are_true: bool = True
    encoder: TableEncoder | None = None
    image: str | None = None

    @functools.cached_property
    def fingerprint(self) -> str:
        """A checksum of everything that training and testing depend on."""
        parts = [self.class_names, self.columns, self.size, self.train.fingerprint()]
        parts += [] if self.test is None else [self.test.fingerprint()]
        return hashlib.sha256(repr(parts).encode()).hexdigest()[:12]

    @property
    def streamed(self) -> bool:
        """Whether images stay on disk and are decoded when they are needed."""
        return isinstance(self.train.inputs, ImageFiles)

    def description(self, augmentation: tuple[str, ...] = ()) -> DataDescription:
        """Describe the data for a run or a fit; ``augmentation`` is what was done to its images."""
        same = ("name", "class_names", "input_shape", "size", "columns", "image")
        facts = {name: getattr(self, name) for name in same}
        return DataDescription(**facts, mean=self.scaling.mean, std=self.scaling.std, augmentation=augmentation)

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one input, as a model sees it."""
        if isinstance(self.train.inputs, ImageFiles):
            assert self.size is not None
            return (3, self.size, self.size)
        return tuple(self.train.inputs.shape[1:])


IMAGENET = Scaling((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))

# How many pixels, or cells of a table, are summed at once.
_BLOCK = 2**22


def scaling_of_images(images: Tensor) -> Scaling:
    """Mean and standard deviation of each channel of uint8 images (N, C, H, W), as values in [0, 1]."""
    channels = images.shape[1]
    counts = torch.zeros(channels, 256, dtype=torch.int64)
    for block in images.split(max(1, _BLOCK // images[0].numel())):  # type: ignore[no-untyped-call]
        for channel in range(channels):
            counts[channel] += torch.bincount(block[:, channel].flatten(), minlength=256)
    share = counts.double() / counts.sum(1, keepdim=True)
    level = torch.arange(256, dtype=torch.float64) / 255
    mean = share @ level
    variance = (share * (level - mean[:, None]) ** 2).sum(1)
    return _scaling(mean, variance.sqrt())


def scaling_of_features(features: Tensor) -> Scaling:
    """Mean and standard deviation of each column of features (N, d)."""
    means, stds = [], []
    for block in features.split(max(1, _BLOCK // len(features)), dim=1):  # type: ignore[no-untyped-call]
        columns = block.T.double().contiguous()
        means.append(columns.mean(1))
        stds.append(columns.std(1, correction=0))
    return _scaling(torch.cat(means), torch.cat(stds))


def _scaling(mean: Tensor, std: Tensor) -> Scaling:
    # What never varies needs no scaling, and must not be divided by 0.
    return Scaling(tuple(mean.tolist()), tuple(torch.where(std > 0, std, 1.0).tolist()))


def find_class_names(labels: Iterable[str], where: object) -> tuple[str, ...]:
    """Return the distinct labels in order: numbers by value, names by alphabet.

    >>> find_class_names(["10", "9", "10"], "x.csv"), find_class_names(["dog", "cat"], "x.csv")
    (('9', '10'), ('cat', 'dog'))
    """
    distinct = set(labels)
    if len(distinct) < 2:
        given = f"only {brief(*distinct)}" if distinct else "none"
        raise ValueError(f"the labels of {where} must name at least two classes; got {given}")
    numbers = [number(text) for text in distinct]
    if None in numbers:
        return tuple(sorted(distinct))
    fractions = [value for value in numbers if value is not None and value != int(value)]
    if fractions:
        raise ValueError(
            f"the labels of {where} must be names or whole numbers, one for each class; got {min(fractions)}"
        )
    return tuple(sorted(distinct, key=lambda text: (float(text), text)))


@dataclass(frozen=True)
class Part:
    """Inputs and their labels as people write them: the training or the test part of the user's own data.

    Messages call the part ``where``.
    """

    inputs: Inputs
    labels: Sequence[str]
    where: object
    origin: Origin = NOWHERE
    checksum: str | None = None

    def examples(self, class_names: Sequence[str]) -> Examples:
        """Return the part as examples of these classes."""
        places = {name: place for place, name in enumerate(class_names)}
        unknown = min(set(self.labels) - places.keys(), default=None)
        if unknown is not None:
            value = number(unknown)
            same = next((name for name in class_names if value is not None and number(name) == value), None)
            raise ValueError(
                f"the labels of {self.where} must be among the {len(class_names)} classes of the training data, "
                f"{brief(list(class_names))}; got {brief(unknown)}"
                + ("" if same is None else f", which is the number of {same!r}, written in another way")
            )
        labels = torch.tensor([places[label] for label in self.labels])
        return Examples(self.inputs, labels, origin=self.origin, checksum=self.checksum)


def assemble(name: str, train: Part, test: Part | None, **facts: Any) -> DataSet:
    """Make a data set of the user's own: find its classes, its scaling and the usual augmentation.

    ``facts`` are other fields of the data set.
    """
    names = find_class_names(train.labels, train.where)
    clean = None if test is None else test.examples(names)
    if isinstance(train.inputs, ImageFiles):
        scaling = IMAGENET
    else:
        scaling = (scaling_of_images if train.inputs.dtype == torch.uint8 else scaling_of_features)(train.inputs)
    found = DataSet(name, train.examples(names), clean, names, scaling, **facts)
    return replace(found, augmentation=usual(found.input_shape))
