"""Sums of the margins of training examples over epochs. They find wrong labels, and cost no second pass."""

from __future__ import annotations

from typing import Any

import torch
from lightning_fabric import Fabric
from torch import Tensor

from symloss.noise.margins import margins
from symloss.training.margin_file import MeanMargins


class MarginSums:
    """The sums over epochs of both margins of each training example, on the device.

    They are of the model's scores, before a loss divides them by their norm, in the batches as they were trained on:
    with augmentation and dropout. Each process adds its share, and the shares are put together at the end of an epoch.

    Args:
        examples: the number of training examples.
        fabric: device and processes.
    """

    def __init__(self, examples: int, fabric: Fabric):
        self.fabric, self.epochs = fabric, 0
        self.sums = torch.zeros(2, examples, device=fabric.device)
        self._epoch = torch.zeros_like(self.sums)

    def add(self, index: Tensor, scores: Tensor, labels: Tensor) -> None:
        """Take the margins of a batch: the numbers of its examples (M,), their scores (M, C) and labels (M,)."""
        self._epoch[:, index] = margins(scores, labels)

    def end_epoch(self) -> None:
        """Add the epoch to the sums. Examples of other processes are 0 in this one's share."""
        if self.fabric.world_size > 1:
            whole = self.fabric.all_reduce(self._epoch, reduce_op="sum")
            assert isinstance(whole, Tensor)
            self.sums += whole
        else:
            self.sums += self._epoch
        self._epoch.zero_()
        self.epochs += 1

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        return {"sums": self.sums, "epochs": self.epochs}

    def load(self, state: dict[str, Any]) -> None:
        """Take over the sums of a checkpoint; raise if they are of other examples."""
        if state["sums"].shape != self.sums.shape:
            raise ValueError(f"margins of shape {tuple(state['sums'].shape)} for {tuple(self.sums.shape)}")
        self.sums.copy_(state["sums"])
        self.epochs = int(state["epochs"])

    def means(self, positions: Tensor | None) -> MeanMargins:
        """The means over epochs, for the examples at these positions of the data set; None for all, in order."""
        margin, unit_margin = (self.sums / max(self.epochs, 1)).cpu().numpy()
        places = torch.arange(len(margin)) if positions is None else positions.cpu()
        return MeanMargins(places.numpy(), margin, unit_margin, self.epochs)
