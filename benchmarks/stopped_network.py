"""A network with early stopping, chosen by noisy accuracy: what people train without a robust search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]

from symloss.fit.choice import Epochs, Judged
from symloss.fit.ensemble import mean_of_networks
from symloss.fit.held_out import network_predictions
from symloss.fit.learners import Candidate
from symloss.fit.networks import NetworkMember, NetworkModel, Networks, NetworkSchedule
from symloss.fit.training_data import Rows, Split, TrainingData, rows_held_out
from symloss.noise.margins import margins

SETTINGS = tuple((rate, decay) for rate in (3e-3, 1e-3) for decay in (0.1, 1.0))
"""Learning rates and weight decays to choose from."""
SHARE_OF_EPOCHS = 1 / 3
"""Networks for images have this share of the ordinary epochs, as those of ``RobustClassifier`` by default."""


class StoppedNetwork(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The network of ``RobustClassifier``, trained with one loss for a number of epochs.

    Args:
        loss: the spec of the loss.
        rate: the initial learning rate.
        decay: the weight decay.
        epochs: when training stops. The learning rate schedule is that of the full training.
        seed: random seed for initial weights and shuffling.
        model: the name of a network for images; None for the perceptron.
        input_shape: shape of an image, whose pixels are a row of X; None for the perceptron.

    Attributes:
        margins_: mean margin of each training row over the epochs (N,), also called AUM.
    """

    def __init__(
        self,
        loss: str = "ce",
        rate: float = 3e-3,
        decay: float = 1e-3,
        epochs: int = 30,
        seed: int = 0,
        model: str | None = None,
        input_shape: tuple[int, ...] | None = None,
    ):
        self.loss, self.rate, self.decay, self.epochs, self.seed = loss, rate, decay, epochs, seed
        self.model, self.input_shape = model, input_shape

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on features (N, d) and labels (N,)."""
        self.classes_, numbers = np.unique(y, return_inverse=True)
        rows, labels = torch.arange(len(numbers)), torch.from_numpy(numbers)
        network = None if self.model is None else NetworkModel(self.model, self.input_shape or (), len(self.classes_))
        members = [NetworkMember(self.loss, self.decay, rows, 0)]
        networks = _networks(network, X, numbers, len(self.classes_), members, self.rate, self.seed)
        total = torch.zeros(len(rows))
        for _ in range(self.epochs):
            networks.train_epoch()
            total += margins(networks.scores([rows])[0], labels)[0]
        self.margins_ = (total / self.epochs).numpy()
        self.module_ = networks.module(0)
        return self

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the softmax of the scores (n, C)."""
        return mean_of_networks([self.module_], _inputs(X, self.input_shape))

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the most probable class (n,)."""
        return self.classes_[self.predict_proba(X).argmax(1)]


def best_stopped_network(
    loss: str,
    features: Any,
    noisy: Rows,
    splits: Sequence[Split],
    seed: int,
    model: NetworkModel | None = None,
    settings: Sequence[tuple[float, float]] = SETTINGS,
) -> Judged:
    """Return the learning rate, weight decay and epoch with the best accuracy on held-out noisy labels.

    Args:
        loss: the spec of the loss.
        features: (N, d), scaled.
        noisy: (N,), the labels.
        splits: which rows are held out.
        seed: random seed for initial weights and shuffling.
        model: of networks for images; None for the perceptron.
        settings: learning rates and weight decays to choose from.
    """
    classes, rows = int(noisy.max()) + 1, rows_held_out(splits)
    data = TrainingData(features, noisy, classes)
    found = []
    for rate in dict.fromkeys(rate for rate, _ in settings):
        decays = [decay for one, decay in settings if one == rate]
        members = [
            NetworkMember(loss, decay, torch.from_numpy(split.train), fold)
            for decay in decays
            for fold, split in enumerate(splits)
        ]
        networks = _networks(model, features, noisy, classes, members, rate, seed)
        running = [
            Epochs(Candidate("network", (("rate", rate), ("decay", decay)), loss=loss), data, rows) for decay in decays
        ]
        for _ in range(networks.schedule.epochs):
            networks.train_epoch()
            for one, predictions in zip(running, network_predictions(networks, splits), strict=True):
                one.add(predictions)
        found += [one.result() for one in running]
    return max(found, key=lambda one: one.score)


def _networks(
    model: NetworkModel | None,
    features: Any,
    labels: Rows,
    classes: int,
    members: Sequence[NetworkMember],
    rate: float,
    seed: int,
) -> Networks:
    """Return networks of ``RobustClassifier`` with another learning rate."""
    schedule = replace(NetworkSchedule.of(min(len(member.rows) for member in members)), rate=rate)
    y = torch.from_numpy(np.asarray(labels, np.int64))
    weights = torch.ones(len(y))
    if model is not None:
        schedule = replace(schedule, epochs=max(1, round(SHARE_OF_EPOCHS * schedule.epochs)))
    inputs = _inputs(features, None if model is None else model.input_shape)
    return Networks(inputs, y, weights, classes, members, schedule, seed, model)


def _inputs(features: Any, input_shape: tuple[int, ...] | None) -> torch.Tensor:
    rows = torch.from_numpy(np.asarray(features, np.float32))
    return rows if input_shape is None else rows.reshape(-1, *input_shape)
