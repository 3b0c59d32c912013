"""The margins of the training examples, averaged over the epochs of a run: the file ``margins.npz``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from symloss.noise.manifest import read_arrays, write_arrays

MARGINS = "margins.npz"


@dataclass(frozen=True, eq=False)
class MeanMargins:
    """The mean over epochs of the margin of each training example. (It is also called the area under the margin, AUM.)

    The margin is the score of the label minus the largest other score. It is small, or below 0, where the network
    would rather have another label.

    Args:
        positions: (N,), which of the data set's training examples each one is.
        margin: (N,), the mean margin of the model's scores.
        unit_margin: (N,), the mean margin of the scores divided by their Euclidean norm.
        epochs: how many epochs the means are of.

    Reference: Pleiss et al.: Identifying mislabeled data using the area under the margin ranking. NeurIPS 2020.
    """

    positions: NDArray[np.int64]
    margin: NDArray[np.float32]
    unit_margin: NDArray[np.float32]
    epochs: int

    def save(self, folder: Path) -> None:
        """Write ``margins.npz``, wholly or not at all."""
        write_arrays(
            folder / MARGINS,
            positions=self.positions,
            margin=self.margin,
            unit_margin=self.unit_margin,
            epochs=np.array(self.epochs),
        )


def read_margins(folder: Path) -> MeanMargins | None:
    """The margins of a finished run, checked. None for a run that an earlier version began, which has none."""
    path = folder / MARGINS
    if not path.exists():
        return None
    positions, margin, unit_margin, epochs = read_arrays(path, "positions", "margin", "unit_margin", "epochs")
    vectors = (positions, margin, unit_margin)
    kinds = tuple(array.dtype.kind for array in (*vectors, epochs))
    if len({array.shape for array in vectors}) > 1 or positions.ndim != 1 or epochs.ndim != 0 or kinds != tuple("iffi"):
        shapes = ", ".join(f"{array.dtype} of shape {array.shape}" for array in (*vectors, epochs))
        raise ValueError(f"{path} must hold a position and two margins for each example, and epochs; got {shapes}")
    return MeanMargins(positions, margin, unit_margin, int(epochs))
