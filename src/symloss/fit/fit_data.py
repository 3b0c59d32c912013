"""The data of a fit: features as an array, the noisy labels, and the true ones where they are known."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symloss.data.batches import Batches
from symloss.data.dataset import DataSet, Examples, ImageFiles, Inputs, Scaling
from symloss.environment import data_root
from symloss.fit.splits import Rows
from symloss.noise.labels import corrupt
from symloss.noise.manifest import Corruption

LARGEST = 2**31
"""The most bytes of decoded images."""


@dataclass(frozen=True)
class FitData:
    """What a fit learns from.

    Args:
        features: (N, d) or (N, channels, height, width), in float32. Pixels are between 0 and 1.
        noisy: (N,), the labels to learn from.
        truth: (N,), the true labels, to measure by; None where they are not known.
        corruption: which labels were changed, and how.
    """

    features: NDArray[np.float32]
    noisy: Rows
    truth: Rows | None
    corruption: Corruption


def fit_data(data: DataSet, noise: str, seed: int, root: Path | None = None) -> FitData:
    """Take the training part of a data set, and add noise to its labels for an experiment.

    Args:
        data: an open data set.
        noise: as in ``symloss train``; "clean" adds none.
        seed: of the noise.
        root: where human labels are.
    """
    labels = data.train.labels.numpy()
    if noise != "clean" and not data.labels_are_true:
        raise ValueError(
            f"noise must be left out for data of your own, whose labels may be wrong already; got {noise!r}"
        )
    corruption = corrupt(
        labels,
        noise,
        num_classes=len(data.class_names),
        seed=seed,
        dataset=data.name if data.labels_are_true else None,
        inputs=data.train.inputs if isinstance(data.train.inputs, Tensor) else None,
        root=data_root() if root is None else root,
    )
    features = features_of(data.train.inputs, data.size, data.train.positions)
    return FitData(features, corruption.labels, labels if data.labels_are_true else None, corruption)


def features_of(inputs: Inputs, size: int | None, positions: Tensor | None = None) -> NDArray[np.float32]:
    """Inputs as an array in float32. Image files are decoded."""
    every = _decoded(inputs, size) if isinstance(inputs, ImageFiles) else inputs
    chosen = every if positions is None else every[positions]
    scaled = chosen.float() / 255 if chosen.dtype == torch.uint8 else chosen.float()
    return scaled.numpy()


def _decoded(files: ImageFiles, size: int | None) -> Tensor:
    """(N, 3, size, size), between 0 and 1."""
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
