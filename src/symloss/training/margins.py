"""Margins of labels: how far a model's score of the label is above all others. Wrong labels have low ones.

Those of the training examples are summed while a run trains, and kept as means over epochs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, distributed

from symloss import checks, extras
from symloss.losses import validation
from symloss.noise.manifest import read_arrays, write_arrays

MARGINS = "margins.npz"
NAMES = ("positions", "margin", "unit_margin", "epochs")


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


class MarginRecorder:
    """Record the margins of N training examples while a model trains: their means find mislabelled examples.

    The margin is the score of the label minus the largest other score. Its mean over the epochs is also called the
    area under the margin (AUM). It is small, or below 0, where the network prefers another label. The margins are those
    of the batches as trained, with augmentation and dropout.

    Example::

        recorder = symloss.MarginRecorder(examples=len(data))
        for epoch in range(30):
            for x, labels, index in loader:  # index: which examples of the data these are, from 0
                logits = model(x)
                ...  # loss, backward, step
                recorder.add(index, logits, labels)
            recorder.end_epoch()
        audit = symloss.fit.audit_labels(noisy_labels, recorder.margin, probabilities)

    Args:
        examples: the number N of training examples.
        device: where the sums are kept.
        positions: (N,), positions of the examples in their data set; None for 0 to N - 1.

    Attributes:
        epochs: the number of epochs that have ended.
        positions: (N,), as given.

    Reference: Pleiss et al.: Identifying mislabeled data using the area under the margin ranking. NeurIPS 2020.

    >>> recorder = MarginRecorder(examples=3)
    >>> recorder.add(torch.tensor([2]), torch.tensor([[2.0, 1.0]]), torch.tensor([1]))
    >>> recorder.margin
    array([nan, nan, -1.], dtype=float32)
    """

    def __init__(self, examples: int, device: torch.device | str = "cpu", positions: Tensor | None = None):
        count = int(checks.number("examples", examples, "[1, inf)", whole=True))
        self.epochs = 0
        self.positions: NDArray[np.int64] = np.arange(count) if positions is None else positions.cpu().numpy()
        # Rows: the margin, that of the scores divided by their norm, and the number of visits.
        self._joined = torch.zeros(3, count, device=device)
        self._share = torch.zeros_like(self._joined)

    def __len__(self) -> int:
        return self._joined.shape[1]

    def add(self, index: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add a batch of M examples.

        Args:
            index: (M,), which examples they are, from 0 to N - 1.
            logits: (M, C), by the model.
            labels: (M,), class numbers.
        """
        given = {"index": index, "logits": logits, "labels": labels}
        if not all(isinstance(value, Tensor) for value in given.values()):
            kinds = ", ".join(type(value).__name__ for value in given.values())
            raise TypeError(f"index, logits and labels must be tensors; got {kinds}")
        rows, whole = logits.shape[:1], not any(each.is_floating_point() for each in (index, labels))
        if logits.dim() != 2 or logits.shape[1] < 2 or index.shape != rows or labels.shape != rows or not whole:
            shapes = ", ".join(f"{name} {tuple(value.shape)} of {value.dtype}" for name, value in given.items())
            raise ValueError(f"logits must be (M, C) with C > 1, index and labels (M,) whole numbers; got {shapes}")
        logits, classes = logits.detach(), logits.shape[1]
        labels = labels.to(logits.device, torch.int64)
        if validation.can_look(labels) and not bool(((labels >= 0) & (labels < classes)).all()):
            raise IndexError(f"labels must be 0 to {classes - 1} for {classes} classes; got {brief(labels)}")
        self.add_margins(index, margins(logits, labels))

    def add_margins(self, index: Tensor, found: Tensor) -> None:
        """Add a batch whose margins (2, M), as :func:`margins` returns them, have been computed before."""
        if validation.can_look(index) and not bool(((index >= 0) & (index < len(self))).all()):
            raise IndexError(f"index must be 0 to {len(self) - 1} for {len(self)} examples; got {brief(index)}")
        self._share = self._share.to(found.device)
        index = index.to(found.device, torch.int64)
        self._share.index_add_(1, index, torch.cat([found, torch.ones_like(found[:1])]))

    def join(self, reduced: Callable[[Tensor], Any] | None = None) -> None:
        """Add up the shares of all processes, before a checkpoint. Examples of other processes are 0 in a share.

        Args:
            reduced: returns the sum of a tensor over all processes; None for ``torch.distributed``, if it is in use.
        """
        share, self._share = self._share, torch.zeros_like(self._share)
        if reduced is not None:
            share = reduced(share)
        elif distributed.is_available() and distributed.is_initialized():
            distributed.all_reduce(share)
        self._joined = self._joined + share.to(self._joined.device)

    def end_epoch(self, reduced: Callable[[Tensor], Any] | None = None) -> None:
        """Count an epoch, and add up the shares of all processes as :meth:`join` does."""
        self.join(reduced)
        self.epochs += 1

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs to resume. With several processes call :meth:`join` before."""
        return {"sums": self._total(), "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from what ``state_dict`` returned.

        Raises:
            ValueError: if it is of other examples.
        """
        if state["sums"].shape != self._joined.shape:
            raise ValueError(f"examples must be {state['sums'].shape[-1]} as in the checkpoint; got {len(self)}")
        self._joined.copy_(state["sums"])
        self._share.zero_()
        self.epochs = int(state["epochs"])

    @property
    def margin(self) -> NDArray[np.float32]:
        """(N,), the mean margin of each example; nan for one that was never seen."""
        return self._mean(0)

    @property
    def unit_margin(self) -> NDArray[np.float32]:
        """(N,), the mean margin of the scores divided by their Euclidean norm."""
        return self._mean(1)

    @property
    def seen(self) -> NDArray[np.bool_]:
        """(N,), whether each example was seen."""
        seen: NDArray[np.bool_] = (self._total()[2] > 0).cpu().numpy()
        return seen

    def to_frame(self) -> Any:
        """Return the examples that were seen as a pandas DataFrame, the most suspicious first.

        Returns:
            A row for each: ``row`` (from ``positions``) and ``margin``.
        """
        with extras.needed_by("to_frame"):
            import pandas as pd  # type: ignore[import-untyped]  # noqa: PLC0415
        frame = pd.DataFrame({"row": self.positions, "margin": self.margin})[self.seen]
        return frame.sort_values("margin", kind="stable", ignore_index=True)

    def save(self, folder: Path) -> None:
        """Write the means of all examples seen to ``margins.npz`` of a run, wholly or not at all."""
        seen = self.seen
        arrays = {name: getattr(self, name)[seen] for name in NAMES[:3]}
        write_arrays(folder / MARGINS, **arrays, epochs=np.asarray(self.epochs))

    def _mean(self, row: int) -> NDArray[np.float32]:
        total = self._total()
        mean: NDArray[np.float32] = (total[row] / total[2]).cpu().numpy()
        return mean

    def _total(self) -> Tensor:
        return self._joined + self._share.to(self._joined.device)


def brief(values: Tensor) -> str:
    """Return numbers for a message: the smallest and the largest."""
    return f"{int(values.min())} to {int(values.max())}"


def read_margins(folder: Path) -> MarginRecorder | None:
    """Read and check the margins of a run; return None if it has not written any."""
    path = folder / MARGINS
    if not path.exists():
        return None
    arrays = read_arrays(path, *NAMES)
    positions, margin, unit_margin, epochs = arrays
    shapes_fit = positions.ndim == 1 and positions.shape == margin.shape == unit_margin.shape and epochs.ndim == 0
    if not shapes_fit or [array.dtype.kind for array in arrays] != list("iffi"):
        shapes = ", ".join(f"{array.dtype} of shape {array.shape}" for array in arrays)
        raise ValueError(f"{path} must hold a position and two margins for each example, and epochs; got {shapes}")
    recorder = MarginRecorder(len(positions), positions=torch.from_numpy(positions))
    sums = np.stack([margin, unit_margin, np.ones_like(margin)])  # each as of one visit
    recorder.load_state_dict({"sums": torch.from_numpy(sums), "epochs": epochs})
    return recorder
