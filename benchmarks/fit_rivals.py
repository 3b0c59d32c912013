"""The rivals on noisy labels: scikit-learn learners, and networks with one loss and early stopping.

Each has at most four settings. They are chosen by accuracy on noisy labels, with the folds of ``RobustClassifier``, and
the winner learns from all rows. Where the data are large, one of the folds chooses among fewer settings.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from noisy_cells import NoisyCell
from sklearn.calibration import CalibratedClassifierCV  # type: ignore[import-untyped]
from sklearn.ensemble import (  # type: ignore[import-untyped]
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.neighbors import KNeighborsClassifier  # type: ignore[import-untyped]
from sklearn.svm import SVC  # type: ignore[import-untyped]
from sklearn.utils import check_random_state  # type: ignore[import-untyped]
from stopped_network import SETTINGS, StoppedNetwork, best_stopped_network

from symloss.fit.held_out import probabilities
from symloss.fit.networks import chosen_model
from symloss.fit.training_data import Floats, Rows, Split, TrainingData, folds, number_of_folds, rows_held_out

Setting = dict[str, float]
NETWORKS = ("ce", "gce")
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


def quietly_fitted(estimator: Any, features: Any, labels: Rows) -> Any:
    """Fit without warnings of the number of iterations, which is limited on purpose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(features, labels)


def _flat(features: Any) -> Any:
    return features.reshape(len(features), -1)
