"""The epoch of a training loop with the best held-out accuracy, smoothed over up to five epochs.

A few hundred noisy labels make the accuracies of single epochs jump. So an epoch is judged with its neighbours.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from symloss import checks

REACH = 2
"""The most neighbours on each side of an epoch: five epochs in all."""


def reach_of(epoch: int, epochs: int, most: int = REACH) -> int:
    """Return the number of neighbours on each side that an epoch is smoothed over. Epochs at the ends have fewer.

    Both sides have equally many: a lopsided window would follow a rising or falling accuracy.

    >>> [reach_of(epoch, epochs=7) for epoch in range(1, 8)]
    [0, 1, 2, 2, 2, 1, 0]
    """
    return min(most, epoch - 1, epochs - epoch)


def smoothed(accuracies: Mapping[int, float], epoch: int, reach: int) -> float:
    """Return the mean accuracy of an epoch and its neighbours.

    >>> smoothed({1: 0.2, 2: 0.9, 3: 0.4}, epoch=2, reach=1)
    0.5
    """
    window = range(epoch - reach, epoch + reach + 1)
    return sum(accuracies[each] for each in window) / len(window)


class BestEpoch:
    """Early stopping by noisy labels: keep the weights of the epoch with the best held-out accuracy.

    The accuracy on noisy labels that were held out ranks epochs as the accuracy on clean labels does. Their loss does
    not. Accuracies are smoothed over up to five epochs. The weights of up to three epochs stay in memory, on the CPU.

    Attributes:
        accuracies: the accuracy of each epoch, by its number from 1.

    >>> model, best = nn.Linear(1, 1), BestEpoch()
    >>> for epoch, accuracy in enumerate([0.3, 0.5, 0.9, 0.2, 0.1], start=1):
    ...     _ = nn.init.constant_(model.weight, epoch)
    ...     best.add(accuracy, model)
    >>> best.epoch, round(best.accuracy, 3)  # alone, epoch 3 has 0.9
    (2, 0.567)
    >>> best.load_into(model).weight.item()
    2.0
    """

    def __init__(self) -> None:
        self.accuracies: dict[int, float] = {}
        self._weights: dict[int, dict[str, Any]] = {}

    def add(self, accuracy: float | Tensor, model: nn.Module) -> None:
        """Add an epoch: its accuracy on held-out labels, from 0 to 1, and the model as it is now."""
        value = float(accuracy) if isinstance(accuracy, Tensor) and accuracy.numel() == 1 else accuracy
        self.accuracies[len(self.accuracies) + 1] = checks.number("accuracy", value, "[0, 1]")
        last = len(self.accuracies)
        self._weights[last] = {name: _copied(value) for name, value in model.state_dict().items()}
        # An epoch is settled when all its neighbours are there. Of those that are settled only the best may win.
        settled = [epoch for epoch in self._weights if epoch + min(REACH, epoch - 1) <= last]
        for epoch in set(settled) - {max(settled, key=self._smoothed)}:
            del self._weights[epoch]

    @property
    def epoch(self) -> int:
        """The best epoch so far, from 1; the first of equals."""
        if not self._weights:
            raise ValueError("No epoch to choose from. Call add(accuracy, model) after each epoch.")
        return max(sorted(self._weights), key=self._smoothed)

    @property
    def accuracy(self) -> float:
        """The smoothed accuracy of the best epoch."""
        return self._smoothed(self.epoch)

    def load_into(self, model: nn.Module) -> nn.Module:
        """Load the weights of the best epoch into a model, and return the model."""
        model.load_state_dict(self._weights[self.epoch])
        return model

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs to resume: all accuracies, and the weights that may be the best."""
        return {"accuracies": dict(self.accuracies), "weights": dict(self._weights)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from what ``state_dict`` returned."""
        self.accuracies, self._weights = dict(state["accuracies"]), dict(state["weights"])

    def _smoothed(self, epoch: int) -> float:
        return smoothed(self.accuracies, epoch, reach_of(epoch, len(self.accuracies)))


def _copied(value: Any) -> Any:
    return value.detach().to("cpu", copy=True) if isinstance(value, torch.Tensor) else copy.deepcopy(value)
