"""What learners are trained on: features in every scaling, noisy labels, and which rows are held out."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse  # type: ignore[import-untyped]
from torch import Tensor

from symloss.data.batches import Batches
from symloss.data.dataset import DataSet, Examples, ImageFiles, Scaling
from symloss.environment import data_root
from symloss.fitting import magnitude
from symloss.noise.labels import corrupt
from symloss.noise.manifest import Corruption

Rows = NDArray[np.int64]
Floats = NDArray[np.floating[Any]]
Probabilities = Floats
"""(n, C), one row for each held-out row, in the order of the splits."""

LARGEST = 2**31
"""The most bytes of decoded images."""
SCALINGS = ("raw", "standard", "channels")
ORDINARY = 2.0**100
"""Features between the inverse of this size and this size are squared as they are. Others could overflow or vanish."""
SMALLEST = 1e-12
"""A feature that varies by less than this share of its largest value is constant."""
UNEQUAL = 20
"""If the largest class has more than this many times the examples of the smallest, accuracy is balanced."""


class TrainingData:
    """Features and noisy labels.

    Args:
        features: (N, d), an array or a sparse matrix.
        given: (N,), the noisy labels as class numbers.
        num_classes: the number of classes.
        input_shape: of one row as networks see it, such as (channels, height, width). None means (d,).
        sample_weight: (N,), the weight of each row; None for equal weights.
        balanced: whether every class has the same weight. None decides by the counts of the classes.

    Attributes:
        labels: what learners are trained on: ``given``, or other labels, see :meth:`with_labels`.
        weights: (N,), in training and in accuracy; None for equal weights.
        given_weights: (N,), those of the caller, without those that balance classes.
    """

    def __init__(
        self,
        features: Any,
        given: Rows,
        num_classes: int,
        input_shape: tuple[int, ...] | None = None,
        sample_weight: Floats | None = None,
        balanced: bool | None = None,
    ):
        self.features, self.given, self.num_classes = features, given, num_classes
        self.labels = given
        self.input_shape = (features.shape[1],) if input_shape is None else tuple(input_shape)
        counts = np.bincount(given)
        self.balanced = bool(counts.max() > UNEQUAL * counts.min()) if balanced is None else balanced
        self.given_weights = None if sample_weight is None else np.asarray(sample_weight, np.float64)
        self.weights = balanced_weights(given, self.given_weights) if self.balanced else self.given_weights
        self.scaler = Scaler(features, self.input_shape[0] if len(self.input_shape) == 3 else 1)
        self._scaled: dict[str, Any] = {}

    def __len__(self) -> int:
        return len(self.given)

    def with_labels(self, labels: Rows) -> Self:
        """Return the same rows to train on with other labels: (N,), or (splits, N) if each split has its own."""
        other = copy.copy(self)
        other.labels = labels
        return other

    def take(self, rows: Rows) -> TrainingData:
        """Return some of the rows."""
        weights = None if self.given_weights is None else self.given_weights[rows]
        return TrainingData(
            self.features[rows], self.given[rows], self.num_classes, self.input_shape, weights, self.balanced
        )

    def labels_of(self, split: int) -> Rows:
        """Return (N,), the labels that a split trains on."""
        return self.labels if self.labels.ndim == 1 else self.labels[split]

    def counted(self, rows: Rows) -> Rows:
        """Return those of the rows whose weight is not zero."""
        return rows if self.weights is None else rows[self.weights[rows] > 0]

    def correct(self, predictions: Probabilities, rows: Rows) -> Floats:
        """Return (n,), what each row contributes to the accuracy on noisy labels, which is the mean."""
        return contributions(predictions, self.given[rows], None if self.weights is None else self.weights[rows])

    @property
    def measure(self) -> str:
        """What is measured, in words."""
        return "balanced accuracy" if self.balanced else "accuracy"

    def scaled(self, scaling: str) -> Any:
        """Return the features (N, d), scaled, in float32."""
        if scaling not in self._scaled:
            self._scaled[scaling] = self.scaler(self.features, scaling)
        return self._scaled[scaling]

    def kernel_width(self, scaling: str) -> float:
        """Return 1 / (d v), where v is the variance of all scaled features together. scikit-learn calls it "scale"."""
        scaled = self.scaled(scaling)
        mean = float(scaled.mean(dtype=np.float64))
        squares = scaled.multiply(scaled) if sparse.issparse(scaled) else np.square(scaled, dtype=np.float64)
        variance = float(squares.mean(dtype=np.float64)) - mean**2
        return 1 / (scaled.shape[1] * variance) if variance > 0 else 1.0


def balanced_weights(labels: Rows, sample_weight: Floats | None = None) -> Floats:
    """Return (N,), weights that give every class the same total, times those of the rows."""
    counts = np.bincount(labels)
    weights = np.ones(len(labels)) if sample_weight is None else sample_weight
    balanced: Floats = weights * (len(labels) / len(counts) / counts)[labels]
    return balanced


def contributions(predictions: Probabilities, labels: Rows, weights: Floats | None) -> Floats:
    """Return (n,), what each row contributes to the weighted accuracy, which is the mean."""
    weights = np.ones(len(labels)) if weights is None else weights
    total = weights.sum()
    scale = len(labels) / total if total > 0 else 0.0
    found: Floats = np.where(predictions.argmax(1) == labels, weights * scale, 0.0)
    return found


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean of these numbers."""
    return float(values.std() / np.sqrt(len(values)))


@dataclass(frozen=True)
class Split:
    """One split: the rows to train on, and those that are held out."""

    train: Rows
    held_out: Rows


def folds(labels: Rows, count: int, seed: int) -> tuple[Split, ...]:
    """Split rows into stratified folds; each is held out once. A class may have fewer rows than there are folds."""
    rng = np.random.default_rng(seed)
    shuffled = rng.permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    fold = np.empty(len(labels), np.int64)
    fold[by_class] = np.arange(len(labels)) % count
    return tuple(Split(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(count))


def number_of_folds(smallest_class: int, wanted: int | str, rows: int) -> int:
    """Return the number of folds. ``"auto"`` gives five, or the size of the smallest class, but at least two."""
    if wanted == "auto":
        return max(2, min(5, smallest_class, rows))
    folds_wanted = int(wanted)
    if smallest_class < folds_wanted:
        raise ValueError(
            f"every class must have at least as many examples as there are folds; got {folds_wanted} folds and a class "
            f"with {smallest_class} of them"
        )
    return folds_wanted


def rows_held_out(splits: Sequence[Split]) -> Rows:
    """Return the rows that are held out, in the order of the splits."""
    return np.concatenate([split.held_out for split in splits])


class Scaler:
    """Scales features. It is learnt from the features of the training rows, without their labels.

    ``raw`` divides all features by one number, the root of their mean square: pixels keep their relations.
    ``standard`` gives each feature mean 0 and variance 1. ``channels`` does so for each channel of images, or for all
    features together: networks for images want that.

    Args:
        features: (N, d), an array or a sparse matrix, which knows ``raw`` only.
        channels: of images, whose pixels are the features, channel by channel.
    """

    def __init__(self, features: Any, channels: int = 1):
        is_sparse = sparse.issparse(features)
        values = features.data if is_sparse else features
        unit = _units(magnitude(values))
        mean_square = float(np.mean(np.square(_divided(values, unit), dtype=np.float64))) if values.size else 0.0
        if is_sparse:
            mean_square *= values.size / max(1, features.shape[0] * features.shape[1])
        self.size = np.sqrt(mean_square) * unit or 1.0
        self._unit = {"raw": unit}
        if not is_sparse:
            self._learn_columns(features, channels)

    def _learn_columns(self, features: Any, channels: int) -> None:
        low, high = (np.asarray(ends, np.float64) for ends in (features.min(0), features.max(0)))
        largest = np.maximum(-low, high)
        self._unit["standard"] = unit = _units(largest)
        in_units = _divided(features, unit)
        mean, deviation = in_units.mean(0, dtype=np.float64), in_units.std(0, dtype=np.float64)
        # The deviation of a constant is not always 0: its mean is rounded.
        varies = np.minimum(high / unit - low / unit, deviation) > SMALLEST * (largest / unit)
        self.mean, self.deviation = mean * unit, np.where(varies, deviation, 1.0) * unit
        self.by_channel, self._unit["channels"] = _by_channel(self.mean, deviation * unit, channels)

    def shift_and_size(self, scaling: str) -> tuple[Any, Any]:
        """Return what is subtracted from the features, and what they are divided by: numbers or arrays (d,)."""
        if scaling == "standard":
            return self.mean, self.deviation
        if scaling == "channels":
            return self.by_channel
        return 0.0, self.size

    def __call__(self, features: Any, scaling: str) -> Any:
        """Return the features (N, d) scaled, in float32."""
        unit = self._unit[scaling]
        if scaling == "raw":
            return (_divided(features, unit) / (self.size / unit)).astype(np.float32)
        shift, size = self.shift_and_size(scaling)
        return ((_divided(features, unit) - shift / unit) / (size / unit)).astype(np.float32)


def _units(largest: Any) -> Any:
    """Return powers of two by which to divide features before squaring them, from their largest absolute values."""
    ordinary = (largest == 0) | ((largest >= 1 / ORDINARY) & (largest <= ORDINARY))
    powers = np.ldexp(0.5, np.frexp(largest)[1])
    # Numbers below the smallest normal one are 0 where a program has switched them off.
    return np.where(ordinary, 1.0, np.maximum(powers, np.finfo(np.float64).tiny))[()]


def _divided(features: Any, unit: Any) -> Any:
    return features if np.all(unit == 1) else features / unit


def _by_channel(mean: Any, deviation: Any, channels: int) -> tuple[tuple[Any, Any], Any]:
    """Return mean and deviation of each channel from those of its pixels, repeated for each pixel; and their unit."""
    means, deviations = mean.reshape(channels, -1), deviation.reshape(channels, -1)
    unit = _units(np.maximum(np.abs(means), deviations).max(1, keepdims=True))
    means, deviations = means / unit, deviations / unit
    spread = np.sqrt(np.mean(deviations**2, 1) + means.var(1))
    pixels, unit = means.shape[1], unit[:, 0]
    shift, size = means.mean(1) * unit, np.where(spread > 0, spread, 1.0) * unit
    return (np.repeat(shift, pixels), np.repeat(size, pixels)), np.repeat(unit, pixels)


def noisy_labels(data: DataSet, noise: str, seed: int, root: Path | None = None) -> Corruption:
    """Return the training labels of a data set, with noise for an experiment; "clean" adds none."""
    if noise != "clean" and not data.labels_are_true:
        raise ValueError(
            f"noise must be left out for data of your own, whose labels may be wrong already; got {noise!r}"
        )
    return corrupt(
        data.train.labels.numpy(),
        noise,
        num_classes=len(data.class_names),
        seed=seed,
        dataset=data.name if data.labels_are_true else None,
        inputs=data.train.inputs if isinstance(data.train.inputs, Tensor) else None,
        root=data_root() if root is None else root,
    )


def features_of(examples: Examples, size: int | None) -> NDArray[np.float32]:
    """Return inputs in float32: features (N, d), or images (N, channels, height, width) between 0 and 1.

    Image files are decoded, and resized to ``size`` pixels on each side.
    """
    inputs = examples.inputs
    every = _decoded(inputs, size) if isinstance(inputs, ImageFiles) else inputs
    chosen = every if examples.positions is None else every[examples.positions]
    scaled = chosen.float() / 255 if chosen.dtype == torch.uint8 else chosen.float()
    return scaled.numpy()


def _decoded(files: ImageFiles, size: int | None) -> Tensor:
    """Return (N, 3, size, size), between 0 and 1."""
    bytes_needed = 12 * (size or 0) ** 2 * len(files)
    if bytes_needed > LARGEST:
        raise ValueError(
            f"images must fit into {LARGEST // 2**30} GiB when they are decoded; got {len(files):,} of {size} "
            f"by {size} pixels: choose a smaller `size`"
        )
    examples = Examples(files, torch.zeros(len(files), dtype=torch.int64))
    unscaled = Scaling((0.0,) * 3, (1.0,) * 3)
    batches = Batches(examples, batch=256, scaling=unscaled, shuffle=False, seed=0, device="cpu", size=size)
    return torch.cat([batch.inputs for batch in batches.epoch(0)])
