"""Margins of labels: how far a model's score of the label is above all others. Wrong labels have low ones.

Those of the training examples are summed while a run trains, and kept as means over epochs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symloss.noise.manifest import read_arrays, write_arrays

if TYPE_CHECKING:
    from lightning_fabric import Fabric

MARGINS = "margins.npz"


def margins(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the margin of scores, and that of the scores divided by their norm.

    Args:
        scores: (N, C), by a model.
        labels: (N,), class numbers.

    Returns:
        (2, N) in float32: score of the label minus the largest other score; and the same of scores / norm. Scores that
        are all 0 have the margins 0.

    >>> margins(torch.tensor([[3.0, 4.0]]), torch.tensor([0]))
    tensor([[-1.0000],
            [-0.2000]])
    """
    scores, column = scores.float(), labels[:, None]
    others = scores.scatter(1, column, -torch.inf).amax(1)
    margin = scores.gather(1, column).squeeze(1) - others
    # The smallest normal number: what is below may be flushed to 0.
    norm = torch.linalg.vector_norm(scores, dim=1).clamp_min(torch.finfo(torch.float32).tiny)
    return torch.stack([margin, margin / norm])


class RunningMargins:
    """The mean margin of each of N examples over the batches that a network was trained on.

    >>> running = RunningMargins(3)
    >>> running.add(torch.tensor([2]), torch.tensor([-1.0]))
    >>> running.means()
    tensor([ 0.,  0., -1.])
    """

    def __init__(self, examples: int):
        self.sums, self.visits = torch.zeros(examples), torch.zeros(examples)

    def add(self, rows: Tensor, found: Tensor) -> None:
        """Add the margins ``found`` of a batch, whose examples have the numbers ``rows``: both (M,)."""
        self.sums.scatter_add_(0, rows, found)
        self.visits.scatter_add_(0, rows, torch.ones_like(found))

    def means(self) -> Tensor:
        """Return the mean margin (N,) over all visits; 0 for examples never seen."""
        return self.sums / self.visits.clamp_min(1)


@dataclass(frozen=True, eq=False)
class MeanMargins:
    """The mean over epochs of the margin of each training example, also called the area under the margin (AUM).

    The margin is the score of the label minus the largest other score. It is small, or below 0, where the network
    prefers another label.

    Args:
        positions: (N,), positions of the examples among the data set's training examples.
        margin: (N,), the mean margin of the model's scores.
        unit_margin: (N,), the mean margin of the scores divided by their Euclidean norm.
        epochs: the number of epochs.

    Reference: Pleiss et al.: Identifying mislabeled data using the area under the margin ranking. NeurIPS 2020.
    """

    positions: NDArray[np.int64]
    margin: NDArray[np.float32]
    unit_margin: NDArray[np.float32]
    epochs: int

    def save(self, folder: Path) -> None:
        """Write ``margins.npz``, wholly or not at all."""
        write_arrays(folder / MARGINS, **{name: np.asarray(value) for name, value in vars(self).items()})


def read_margins(folder: Path) -> MeanMargins | None:
    """Read and check the margins of a run; return None if it has not written any."""
    path = folder / MARGINS
    if not path.exists():
        return None
    arrays = read_arrays(path, *(field.name for field in fields(MeanMargins)))
    positions, margin, unit_margin, epochs = arrays
    shapes_fit = positions.ndim == 1 and positions.shape == margin.shape == unit_margin.shape and epochs.ndim == 0
    if not shapes_fit or [array.dtype.kind for array in arrays] != list("iffi"):
        shapes = ", ".join(f"{array.dtype} of shape {array.shape}" for array in arrays)
        raise ValueError(f"{path} must hold a position and two margins for each example, and epochs; got {shapes}")
    return MeanMargins(positions, margin, unit_margin, int(epochs))


class MarginSums:
    """Sum both margins of each training example over epochs, on the device.

    The margins are those of the model's scores, before a loss divides them by their norm, in the batches as trained:
    with augmentation and dropout. Each process adds its share; the shares are joined at the end of an epoch.
    """

    def __init__(self, examples: int, fabric: Fabric):
        self.fabric, self.epochs = fabric, 0
        self.sums = torch.zeros(2, examples, device=fabric.device)
        self._epoch = torch.zeros_like(self.sums)

    def add(self, index: Tensor, scores: Tensor, labels: Tensor) -> None:
        """Add a batch: positions of its examples (M,), scores (M, C) and labels (M,)."""
        self._epoch[:, index] = margins(scores, labels)

    def end_epoch(self) -> None:
        """Add the epoch to the sums. Examples of other processes are 0 in this one's share."""
        whole = self.fabric.all_reduce(self._epoch, reduce_op="sum") if self.fabric.world_size > 1 else self._epoch
        assert isinstance(whole, Tensor)
        self.sums += whole
        self._epoch.zero_()
        self.epochs += 1

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"sums": self.sums, "epochs": self.epochs}

    def load(self, state: dict[str, Any]) -> None:
        """Take over the sums of a checkpoint.

        Raises:
            ValueError: if they are of other examples.
        """
        if state["sums"].shape != self.sums.shape:
            raise ValueError(f"margins of shape {tuple(state['sums'].shape)} for {tuple(self.sums.shape)}")
        self.sums.copy_(state["sums"])
        self.epochs = int(state["epochs"])

    def means(self, positions: Tensor | None) -> MeanMargins:
        """Return the means over epochs, for examples at these positions of the data set (None: all, in order)."""
        margin, unit_margin = (self.sums / max(self.epochs, 1)).cpu().numpy()
        places = torch.arange(len(margin)) if positions is None else positions.cpu()
        return MeanMargins(places.numpy(), margin, unit_margin, self.epochs)
