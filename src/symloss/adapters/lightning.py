"""A Lightning callback that tracks the mean margin of each training example, to find mislabelled ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from lightning.pytorch import Callback
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset

from symloss import checks
from symloss.fit.audit.scores import Audit, audit_labels, count_wrong
from symloss.losses import validation
from symloss.training.margins import MarginSums, MeanMargins, margins

KEYS = ("index", "scores", "labels")  # what ``training_step`` returns besides the loss


class WithIndex(Dataset[Any]):
    """A data set whose examples say which one they are: (x, y) becomes (x, y, index).

    Args:
        dataset: any data set with a length. Its examples are tuples, lists or dictionaries. A dictionary gets the key
            "index".

    >>> WithIndex([("a", 0), ("b", 1)])[1]
    ('b', 1, 1)
    """

    def __init__(self, dataset: Any):
        self.dataset = dataset

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        example = self.dataset[index]
        if isinstance(example, Mapping):
            return {**example, "index": index}
        if isinstance(example, tuple | list):
            return (*example, index)
        raise TypeError(f"examples must be tuples, lists or dictionaries; got {checks.brief(example)}")


class MarginCallback(Callback):  # type: ignore[misc]  # Lightning is not read by mypy
    """Keep the mean margin of each training example over the epochs: the area under the margin (AUM).

    The margin is the score of the label minus the largest other score. Wrong labels have low ones. ``training_step``
    returns a dictionary with the loss and what the margins are made of::

        def training_step(self, batch, batch_idx):
            images, labels, index = batch  # of a data set that is wrapped in WithIndex
            scores = self.model(images)
            return {"loss": self.loss(scores, labels), "scores": scores.detach(), "labels": labels, "index": index}

    Processes add up their shares at the end of an epoch and before a checkpoint. A checkpoint keeps the sums, so
    ``trainer.fit(..., ckpt_path=...)`` goes on with them.

    Args:
        examples: the number of training examples N. An index is 0 to N - 1.

    Shapes: scores (M, C), labels (M,) and index (M,), for the M examples of a batch.

    Reference: Pleiss et al.: Identifying mislabeled data using the area under the margin ranking. NeurIPS 2020.

    >>> import torch
    >>> margins = MarginCallback(examples=3)
    >>> step = {"scores": torch.tensor([[2.0, 1.0]]), "labels": torch.tensor([1]), "index": torch.tensor([2])}
    >>> margins.on_train_batch_end(None, None, step, None, 0)
    >>> found = margins.means()
    >>> found.positions, found.margin
    (array([2]), array([-1.], dtype=float32))
    """

    def __init__(self, examples: int):
        self.examples = int(checks.number("examples", examples, "[1, inf)", whole=True))
        self._sums = MarginSums(self.examples)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Add the margins of a batch. Lightning calls this."""
        if isinstance(outputs, Mapping) and not outputs:
            return  # training_step has returned None to skip the batch
        index, scores, labels = self._checked(outputs)
        self._sums.add(index, margins(scores.detach(), labels))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Add up the shares of all processes. Lightning calls this."""
        self._join(trainer)
        self._sums.epochs += 1

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Put the sums into a checkpoint. Lightning calls this, in all processes."""
        self._join(trainer)
        checkpoint[self.state_key] = self._sums.state()

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Go on with the sums of a checkpoint; it must be of as many examples. Lightning calls this."""
        state = checkpoint.get(self.state_key)
        if state is not None:
            self._sums.load(state)

    def means(self) -> MeanMargins:
        """Return the mean margins of all examples seen; ``positions`` says which ones."""
        return self._sums.means()

    def audit(
        self, labels: ArrayLike, probabilities: ArrayLike, *, truth: ArrayLike | None = None, **options: Any
    ) -> Audit:
        """Find mislabelled examples, their number and the labels they should have. Examples never seen are left out.

        Args:
            labels: (N,), of all examples, as class numbers.
            probabilities: (N, C), of the classes, by the trained model.
            truth: (N,), the true labels, to measure by; None where they are not known.
            options: further ones of :func:`symloss.fit.audit_labels`.
        """
        found = self.means()
        rows = found.positions
        if not len(rows):
            raise ValueError("margins must be of at least one example; training_step has returned none so far")
        if options.get("n_wrong") is None and options.get("flagged") is None:
            # Counted here, as audit_labels takes margins that are all in [0, 1] for probabilities.
            counted = count_wrong(found.margin)
            options |= {"n_wrong": counted.n_wrong, "interval": options.get("interval") or counted.interval}
        return audit_labels(
            self._seen("labels", labels, rows),
            found.margin,
            self._seen("probabilities", probabilities, rows),
            positions=rows,
            truth=None if truth is None else self._seen("truth", truth, rows),
            **options,
        )

    def _seen(self, name: str, values: ArrayLike, rows: NDArray[np.int64]) -> NDArray[Any]:
        array: NDArray[Any] = np.asarray(values)
        if len(array) == self.examples:
            return array[rows]
        raise ValueError(f"{name} must be of all {self.examples} examples; got {len(array)}")

    def _join(self, trainer: Any) -> None:
        """Add up the shares of all processes. Examples of other processes are 0 in this one's share."""
        place = trainer.strategy
        self._sums.join(lambda share: place.reduce(share.to(place.root_device), reduce_op="sum"))

    def _checked(self, outputs: Any) -> tuple[Tensor, Tensor, Tensor]:
        if not isinstance(outputs, Mapping) or not outputs.keys() >= {*KEYS}:
            keys = list(outputs) if isinstance(outputs, Mapping) else None
            raise ValueError(
                f"training_step must return a dictionary with loss, {', '.join(KEYS)}; got the keys {keys}"
            )
        index, scores, labels = (outputs[key] for key in KEYS)
        rows = scores.shape[:1]
        if scores.dim() != 2 or index.shape != rows or labels.shape != rows or labels.is_floating_point():
            shapes = ", ".join(f"{key} {tuple(outputs[key].shape)} of {outputs[key].dtype}" for key in KEYS)
            raise ValueError(f"scores must be (M, C), index and labels (M,) whole numbers; got {shapes}")
        if validation.can_look(index) and not bool(((index >= 0) & (index < self.examples)).all()):
            raise IndexError(
                f"index must be 0 to {self.examples - 1} for {self.examples} examples; got {index.tolist()}"
            )
        return index, scores, labels
