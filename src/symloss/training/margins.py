"""Margins of labels: how far a model's score of the label is above all others. Wrong labels have low ones.

Those of the training examples are summed while a run trains, and kept as means over epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symloss.noise.manifest import read_arrays, write_arrays

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
    """Sum both margins of each of N training examples over the batches of a training.

    The margins are those of the model's scores, before a loss divides them by their norm, in the batches as trained:
    with augmentation and dropout. Each process adds its share; the shares are joined at the end of an epoch.

    >>> sums = MarginSums(3)
    >>> sums.add(torch.tensor([2]), torch.tensor([[-1.0], [-0.5]]))
    >>> sums.means().positions, sums.means().margin
    (array([2]), array([-1.], dtype=float32))
    """

    def __init__(self, examples: int, device: torch.device | str = "cpu"):
        self.epochs = 0
        # Rows: the margin, that of the scores divided by their norm, and the number of visits.
        self._joined = torch.zeros(3, examples, device=device)
        self._share = torch.zeros_like(self._joined)

    def add(self, index: Tensor, found: Tensor) -> None:
        """Add a batch: positions of its examples (M,), and their margins (2, M)."""
        self._share = self._share.to(found.device)
        self._share.index_add_(1, index, torch.cat([found, torch.ones_like(found[:1])]))

    def join(self, reduced: Callable[[Tensor], Any] = lambda share: share) -> None:
        """Add up the shares of all processes. Examples of other processes are 0 in this one's share."""
        share, self._share = self._share, torch.zeros_like(self._share)
        self._joined = self._joined + reduced(share).to(self._joined.device)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        return {"sums": self._joined, "epochs": self.epochs}

    def load(self, state: dict[str, Any]) -> None:
        """Take over the sums of a checkpoint.

        Raises:
            ValueError: if they are of other examples.
        """
        if state["sums"].shape != self._joined.shape:
            got = self._joined.shape[1]
            raise ValueError(f"examples must be {state['sums'].shape[-1]} as in the checkpoint; got {got}")
        self._joined.copy_(state["sums"])
        self._share.zero_()
        self.epochs = int(state["epochs"])

    def means(self, positions: Tensor | None = None) -> MeanMargins:
        """Return the means of all examples seen. ``positions`` are those of the N examples in the data set."""
        total = (self._joined + self._share.to(self._joined.device)).cpu()
        seen = total[2].nonzero().squeeze(1)
        margin, unit_margin = (total[:2, seen] / total[2, seen]).numpy()
        places = seen if positions is None else positions.cpu()[seen]
        return MeanMargins(places.numpy(), margin, unit_margin, self.epochs)
