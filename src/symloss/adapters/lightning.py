"""A Lightning callback that tracks the mean margin of each training example, to find mislabelled ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback
from torch import Tensor

from symloss.adapters.margin_callbacks import MarginAudit, WithIndex
from symloss.training.margins import MarginRecorder

__all__ = ["MarginCallback", "WithIndex"]
KEYS = ("index", "scores", "labels")  # what ``training_step`` returns besides the loss


class MarginCallback(MarginAudit, Callback):  # type: ignore[misc]  # Lightning is not read by mypy
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

    Attributes:
        recorder: the margins, a :class:`symloss.MarginRecorder`.

    Shapes: scores (M, C), labels (M,) and index (M,), for the M examples of a batch.

    Reference: Pleiss et al.: Identifying mislabeled data using the area under the margin ranking. NeurIPS 2020.

    >>> import torch
    >>> margins = MarginCallback(examples=3)
    >>> step = {"scores": torch.tensor([[2.0, 1.0]]), "labels": torch.tensor([1]), "index": torch.tensor([2])}
    >>> margins.on_train_batch_end(None, None, step, None, 0)
    >>> margins.recorder.margin
    array([nan, nan, -1.], dtype=float32)
    """

    def __init__(self, examples: int):
        self.recorder = MarginRecorder(examples)

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Add the margins of a batch. Lightning calls this."""
        if isinstance(outputs, Mapping) and not outputs:
            return  # training_step has returned None to skip the batch
        if not isinstance(outputs, Mapping) or not outputs.keys() >= {*KEYS}:
            keys = list(outputs) if isinstance(outputs, Mapping) else None
            raise ValueError(
                f"training_step must return a dictionary with loss, {', '.join(KEYS)}; got the keys {keys}"
            )
        self.recorder.add(*(outputs[key] for key in KEYS))

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """Add up the shares of all processes. Lightning calls this."""
        self.recorder.end_epoch(_summed_by(trainer))

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Put the sums into a checkpoint. Lightning calls this, in all processes."""
        self.recorder.join(_summed_by(trainer))
        checkpoint[self.state_key] = self.recorder.state_dict()

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        """Go on with the sums of a checkpoint; it must be of as many examples. Lightning calls this."""
        state = checkpoint.get(self.state_key)
        if state is not None:
            self.recorder.load_state_dict(state)


def _summed_by(trainer: Any) -> Any:
    place = trainer.strategy

    def summed(share: Tensor) -> Any:
        return place.reduce(share.to(place.root_device), reduce_op="sum")

    return summed
