"""The rivals on noisy labels: scikit-learn learners, and networks with one loss and early stopping.

Each has at most four settings. They are chosen by accuracy on noisy labels, with the folds of ``RobustClassifier``, and
the winner learns from all rows. Where the data are large, one of the folds chooses among fewer settings.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import torch
from noisy_cells import NoisyCell
from real_rivals import quietly_fitted
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
from sklearn.calibration import CalibratedClassifierCV  # type: ignore[import-untyped]
from sklearn.ensemble import (  # type: ignore[import-untyped]
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.neighbors import KNeighborsClassifier  # type: ignore[import-untyped]
from sklearn.svm import SVC  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]

from symloss.fit.choice import Epochs, Judged
from symloss.fit.ensemble import mean_of_networks
from symloss.fit.held_out import network_predictions, probabilities
from symloss.fit.learners import Candidate
from symloss.fit.networks import NetworkModel, Networks, NetworkSchedule, chosen_model
from symloss.fit.stacks import NetworkMember, Perceptrons
from symloss.fit.training_data import Floats, Rows, Split, TrainingData, folds, number_of_folds, rows_held_out
from symloss.training.margins import margins

Setting = dict[str, float]
NETWORKS = ("ce", "gce")
"""Losses of the networks."""
SETTINGS = tuple((rate, decay) for rate in (3e-3, 1e-3) for decay in (0.1, 1.0))
"""Learning rates and weight decays to choose from."""
SHARE_OF_EPOCHS = 1 / 3
"""Networks for images have this share of the ordinary epochs, as those of ``RobustClassifier`` by default."""
LARGE = 10**6
"""Data with more numbers than this, rows times features, use one fold and fewer settings."""


@dataclass(frozen=True)
class Rival:
    """A scikit-learn estimator and the settings to choose from.

    Args:
        settings: the settings.
        make: returns an estimator for a setting, the usual width of kernels, and a seed.
        large: number of settings tried on large data, from the first.
    """

    settings: tuple[Setting, ...]
    make: Callable[[Setting, float, int], Any]
    large: int = 2


CLASSICAL = {
    "logistic": Rival(
        tuple({"C": c} for c in (0.01, 0.001, 0.1, 1.0)),
        lambda s, width, seed: LogisticRegression(C=s["C"], max_iter=300),
    ),
    "forest": Rival(
        tuple({"leaf": leaf} for leaf in (3, 10, 1, 30)),
        lambda s, width, seed: RandomForestClassifier(100, min_samples_leaf=int(s["leaf"]), random_state=seed),
    ),
    "boosting": Rival(
        ({"trees": 30, "leaves": 31}, {"trees": 100, "leaves": 31}, {"trees": 60, "leaves": 8}),
        lambda s, width, seed: HistGradientBoostingClassifier(
            max_iter=int(s["trees"]), max_leaf_nodes=int(s["leaves"]), early_stopping=False, random_state=seed
        ),
        large=1,
    ),
    "svc": Rival(
        tuple({"C": c, "gamma": gamma} for c, gamma in ((2.0, 1.0), (0.5, 1.0), (0.5, 2.0), (8.0, 1.0))),
        lambda s, width, seed: SVC(C=s["C"], gamma=s["gamma"] * width),
    ),
    "k-nn": Rival(
        tuple({"neighbours": count} for count in (5, 15, 30, 60)),
        lambda s, width, seed: KNeighborsClassifier(int(s["neighbours"]), weights="distance"),
        large=4,  # they cost next to nothing
    ),
}
RIVALS = (*CLASSICAL, *NETWORKS)


@dataclass(frozen=True, eq=False)
class Chosen:
    """A setting that the noisy labels chose.

    Args:
        setting: the setting.
        noisy_accuracy: its accuracy on held-out noisy labels.
        held_out: out-of-fold probabilities (N, C) of the training rows. NaN for rows that no fold held out, in large
            data.
    """

    setting: Setting
    noisy_accuracy: float
    held_out: Floats


class Tuning:
    """Chooses settings for the data of one cell.

    Args:
        cell: the data. Its true labels are not used.
    """

    def __init__(self, cell: NoisyCell):
        self.noisy, self.classes, self.scaling = cell.noisy, cell.classes, cell.scaling
        # As RobustClassifier derives it, so that the folds are the same.
        self.seed = int(check_random_state(cell.seed).randint(2**31 - 1))
        self.table = TrainingData(_flat(cell.features), cell.noisy, cell.classes, cell.features.shape[1:])
        self.network = chosen_model("auto", cell.features.shape[1:], cell.classes)
        self.large = cell.features.size > LARGE
        count = number_of_folds(int(np.bincount(cell.noisy).min()), "auto", len(cell.noisy))
        self.splits = folds(cell.noisy, count, self.seed)
        self.judging = self.splits[:1] if self.large else self.splits
        self._test = _flat(cell.test)

    def features(self, rival: str) -> Any:
        """Return the training rows (N, d), scaled for the rival."""
        return self.table.scaled(self._scaling(rival))

    def test(self, rival: str) -> Any:
        """Return the test rows, scaled for the rival."""
        return self.table.scaler(self._test, self._scaling(rival))

    def _scaling(self, rival: str) -> str:
        return "channels" if rival in NETWORKS and self.network is not None else self.scaling

    def estimator(self, rival: str, setting: Mapping[str, float]) -> Any:
        """Return the rival's estimator, not fitted."""
        if rival in NETWORKS:
            trained = (setting["rate"], setting["decay"], int(setting["epochs"]), self.seed)
            if self.network is None:
                return StoppedNetwork(rival, *trained)
            return StoppedNetwork(rival, *trained, str(self.network.model), self.network.input_shape)
        return CLASSICAL[rival].make(dict(setting), self.table.kernel_width(self.scaling), self.seed)

    def choose(self, rival: str) -> Chosen:
        """Return the best setting of a rival."""
        if rival in NETWORKS:
            return self._choose_network(rival)
        rival_settings = CLASSICAL[rival].settings[: CLASSICAL[rival].large if self.large else None]
        tried = [self._tried(rival, setting) for setting in rival_settings if self._possible(setting)]
        return max(tried, key=lambda one: one.noisy_accuracy)

    def _possible(self, setting: Setting) -> bool:
        return setting.get("neighbours", 0) <= min(len(split.train) for split in self.splits)

    def _tried(self, rival: str, setting: Setting) -> Chosen:
        predictions = np.concatenate([self._fold(rival, setting, split) for split in self.judging])
        return self._chosen(setting, predictions)

    def _chosen(self, setting: Setting, predictions: Floats, noisy_accuracy: float | None = None) -> Chosen:
        rows = rows_held_out(self.judging)
        held_out = np.full((len(self.noisy), self.classes), np.nan, np.float32)
        held_out[rows] = predictions
        right = float((predictions.argmax(1) == self.noisy[rows]).mean())
        return Chosen(setting, right if noisy_accuracy is None else noisy_accuracy, held_out)

    def _fold(self, rival: str, setting: Setting, split: Split) -> Floats:
        features = self.features(rival)
        fitted = quietly_fitted(self.estimator(rival, setting), features[split.train], self.noisy[split.train])
        return probabilities(fitted, features[split.held_out], self.classes)

    def _choose_network(self, loss: str) -> Chosen:
        settings = [one for one in SETTINGS if not self.large or one[1] == SETTINGS[0][1]]
        best = best_stopped_network(
            loss, self.features(loss), self.noisy, self.judging, self.seed, self.network, settings
        )
        setting = {**dict(best.candidate.settings), "epochs": float(best.epoch or 0)}
        return self._chosen(setting, best.predictions, best.score)


def with_probabilities(estimator: Any) -> Any:
    """Return an estimator with probabilities: a support vector machine gets Platt scaling."""
    if hasattr(estimator, "predict_proba"):
        return estimator
    return CalibratedClassifierCV(estimator, ensemble=False)


def _flat(features: Any) -> Any:
    return features.reshape(len(features), -1)


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
    return Networks(inputs, y, weights, classes, members, schedule, seed, model or Perceptrons)


def _inputs(features: Any, input_shape: tuple[int, ...] | None) -> torch.Tensor:
    rows = torch.from_numpy(np.asarray(features, np.float32))
    return rows if input_shape is None else rows.reshape(-1, *input_shape)
