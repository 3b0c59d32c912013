"""A small network that stops at a given epoch: what a person without robust choice would train."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
from torch import Tensor

from symloss.robust.candidates import Candidate
from symloss.robust.choice import Epochs, Judged
from symloss.robust.held_out import network_predictions, rows_held_out
from symloss.robust.splits import Judge, Rows, Split
from symloss.robust.stacked import LEARNING_RATE, NetworkSchedule, StackedMember, StackedNetworks

SETTINGS = tuple((rate, decay) for rate in (3e-3, 1e-3) for decay in (0.1, 1.0))
"""Learning rates and weight decays to choose from."""


class StoppedNetwork(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The perceptron of ``RobustClassifier``, trained with one loss for so many epochs.

    Args:
        loss: the spec of the loss.
        rate: the learning rate at the start.
        decay: the weight decay.
        epochs: when training stops. The learning rate falls as if it went on.
        seed: of initial weights and of the order of rows.
    """

    def __init__(self, loss: str = "ce", rate: float = 3e-3, decay: float = 1e-3, epochs: int = 30, seed: int = 0):
        self.loss, self.rate, self.decay, self.epochs, self.seed = loss, rate, decay, epochs, seed

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on features (N, d) and labels (N,)."""
        self.classes_, numbers = np.unique(y, return_inverse=True)
        member = StackedMember(self.loss, self.decay, torch.arange(len(numbers)), 0)
        networks = _Networks(X, numbers, len(self.classes_), [member], self.rate, self.seed)
        for _ in range(self.epochs):
            networks.train_epoch()
        self.module_ = networks.module(0)
        return self

    @torch.no_grad()
    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """The softmax of the scores (n, C)."""
        return self.module_(torch.from_numpy(np.asarray(X, np.float32))).softmax(1).numpy()

    def predict(self, X: Any) -> Any:  # noqa: N803
        """The most probable class (n,)."""
        return self.classes_[self.predict_proba(X).argmax(1)]


def best_stopped_network(loss: str, features: Any, noisy: Rows, splits: Sequence[Split], seed: int) -> Judged:
    """The learning rate, weight decay and epoch with the best accuracy on noisy labels that were held out."""
    judge, rows = Judge.of(noisy), rows_held_out(splits)
    found = []
    for rate in dict.fromkeys(rate for rate, _ in SETTINGS):
        decays = [decay for one, decay in SETTINGS if one == rate]
        members = [
            StackedMember(loss, decay, torch.from_numpy(split.train), fold)
            for decay in decays
            for fold, split in enumerate(splits)
        ]
        networks = _Networks(features, noisy, int(noisy.max()) + 1, members, rate, seed)
        running = [
            Epochs(Candidate("network", (("rate", rate), ("decay", decay)), loss=loss), judge, rows) for decay in decays
        ]
        for _ in range(networks.schedule.epochs):
            networks.train_epoch()
            for one, predictions in zip(running, network_predictions(networks, splits), strict=True):
                one.add(predictions)
        found += [one.result() for one in running]
    return max(found, key=lambda one: one.score)


class _Networks(StackedNetworks):
    """Stacked networks with a learning rate of their own."""

    def __init__(
        self, features: Any, labels: Rows, classes: int, members: Sequence[StackedMember], rate: float, seed: int
    ):
        schedule = NetworkSchedule.of(min(len(member.rows) for member in members))
        x, y = torch.from_numpy(np.asarray(features, np.float32)), torch.from_numpy(labels.astype(np.int64))
        super().__init__(x, y, torch.ones(len(y)), classes, members, schedule, seed)
        self.factor = rate / LEARNING_RATE

    def _move(self, gradients: Sequence[Tensor], rate: float, decay: Tensor) -> None:
        super()._move(gradients, self.factor * rate, decay)
