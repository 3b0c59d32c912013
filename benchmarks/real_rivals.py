"""The rivals of fit_real.py: scikit-learn's learners, XGBoost, and linear heads with GCE and ELR.

Each has a handful of settings. Accuracy on held-out noisy labels chooses among them, by five stratified folds.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from noisy_cells import Labels, NoisyCell
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone  # type: ignore[import-untyped]
from sklearn.calibration import CalibratedClassifierCV  # type: ignore[import-untyped]
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis  # type: ignore[import-untyped]
from sklearn.ensemble import (  # type: ignore[import-untyped]
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.model_selection import StratifiedKFold  # type: ignore[import-untyped]
from sklearn.neighbors import KNeighborsClassifier  # type: ignore[import-untyped]
from sklearn.preprocessing import LabelEncoder, StandardScaler  # type: ignore[import-untyped]
from sklearn.svm import SVC  # type: ignore[import-untyped]

Floats = NDArray[np.float64]
Setting = dict[str, float]
FOLDS = 5
SMALLEST, LARGEST = 1e-4, 1 - 1e-4
"""Probabilities of ELR are kept between these."""


@dataclass(frozen=True)
class Rival:
    """A learner and its settings to choose from.

    Args:
        make: returns an estimator for a setting and a seed.
        settings: the settings.
        features: settings for encoded photos and texts; None for the same.
    """

    make: Callable[[Mapping[str, float], int], Any]
    settings: tuple[Setting, ...]
    features: tuple[Setting, ...] | None = None


def _xgboost(setting: Mapping[str, float], seed: int) -> Any:
    from xgboost import XGBClassifier  # noqa: PLC0415

    return NumberedClasses(
        XGBClassifier(
            n_estimators=int(setting["trees"]),
            max_depth=int(setting["depth"]),
            learning_rate=0.1,
            subsample=0.8,
            n_jobs=1,
            random_state=seed,
        )
    )


RIVALS: Mapping[str, Rival] = {
    "logistic": Rival(
        lambda s, seed: LogisticRegression(C=s["C"], max_iter=500),
        tuple({"C": c} for c in (0.01, 0.1, 1.0, 10.0)),
        tuple({"C": c} for c in (3e-4, 1e-3, 1e-2, 0.1)),
    ),
    "lda": Rival(lambda s, seed: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"), ({},)),
    "svc": Rival(
        lambda s, seed: SVC(C=s["C"], gamma="scale"),
        tuple({"C": c} for c in (0.3, 1.0, 3.0, 10.0)),
        tuple({"C": c} for c in (0.5, 2.0)),
    ),
    "k-nn": Rival(
        lambda s, seed: KNeighborsClassifier(int(s["neighbours"]), weights="distance"),
        tuple({"neighbours": count} for count in (5, 15, 30, 60)),
    ),
    "forest": Rival(
        lambda s, seed: RandomForestClassifier(
            int(s["trees"]), min_samples_leaf=int(s["leaf"]), max_features=s["share"] or "sqrt", random_state=seed
        ),
        tuple({"trees": 200, "leaf": leaf, "share": share} for leaf, share in ((1, 0), (5, 0), (15, 0), (5, 0.6))),
        ({"trees": 100, "leaf": 5, "share": 0},),
    ),
    "boosting": Rival(
        lambda s, seed: HistGradientBoostingClassifier(
            max_iter=int(s["trees"]), max_leaf_nodes=int(s["leaves"]), early_stopping=False, random_state=seed
        ),
        ({"trees": 30, "leaves": 31}, {"trees": 100, "leaves": 8}, {"trees": 60, "leaves": 4}),
    ),
    "xgboost": Rival(_xgboost, ({"trees": 100, "depth": 3}, {"trees": 40, "depth": 3}, {"trees": 60, "depth": 6})),
    "gce": Rival(
        lambda s, seed: LinearHead("gce", 0.7, rate=s["rate"], seed=seed),
        tuple({"rate": rate} for rate in (3e-4, 3e-3, 3e-2)),
        tuple({"rate": rate} for rate in (1e-4, 3e-4, 3e-3)),
    ),
    "elr": Rival(
        lambda s, seed: LinearHead("elr", s["lambda"], rate=s["rate"], seed=seed),
        tuple({"lambda": weight, "rate": rate} for weight in (1.0, 3.0) for rate in (3e-4, 3e-3, 3e-2)),
        tuple({"lambda": weight, "rate": rate} for weight in (1.0, 3.0) for rate in (1e-4, 3e-4, 3e-3)),
    ),
}
ON_FEATURES = ("logistic", "lda", "svc", "k-nn", "forest", "gce", "elr")
"""Rivals on encoded photos and texts. Boosting takes hours there, and has never been ahead."""


class NumberedClasses(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier that only takes labels 0 to C - 1, for any labels.

    Args:
        estimator: the classifier.
    """

    def __init__(self, estimator: Any = None):
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on features (N, d) and labels (N,)."""
        encoder = LabelEncoder()
        self.fitted_ = self.estimator.fit(X, encoder.fit_transform(y))
        self.classes_ = encoder.classes_
        return self

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the class probabilities (n, C)."""
        return self.fitted_.predict_proba(X)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the most probable class (n,)."""
        return self.classes_[self.predict_proba(X).argmax(1)]


class LinearHead(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A linear layer trained by Adam, with generalised cross-entropy or early-learning regularisation.

    Args:
        loss: "gce" (Zhang and Sabuncu 2018) or "elr" (Liu et al. 2020).
        weight: q of GCE, or lambda of ELR.
        beta: how much of its target an example keeps in a step of ELR.
        rate: the initial learning rate. It falls to 0 like a cosine.
        epochs: of the training.
        batch_size: examples in a step.
        decay: the weight decay.
        seed: random seed for shuffling.
    """

    def __init__(
        self,
        loss: str = "gce",
        weight: float = 0.7,
        beta: float = 0.9,
        rate: float = 3e-3,
        epochs: int = 40,
        batch_size: int = 128,
        decay: float = 1e-4,
        seed: int = 0,
    ):
        self.loss, self.weight, self.beta, self.rate = loss, weight, beta, rate
        self.epochs, self.batch_size, self.decay, self.seed = epochs, batch_size, decay, seed

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on features (N, d) and labels (N,)."""
        self.classes_, numbers = np.unique(y, return_inverse=True)
        inputs, labels = torch.from_numpy(np.asarray(X, np.float32)), torch.from_numpy(numbers)
        head = torch.nn.Linear(inputs.shape[1], len(self.classes_))
        torch.nn.init.zeros_(head.weight)
        torch.nn.init.zeros_(head.bias)
        targets = torch.zeros(len(labels), len(self.classes_))
        optimizer = torch.optim.AdamW(head.parameters(), lr=self.rate, weight_decay=self.decay)
        steps = self.epochs * math.ceil(len(labels) / self.batch_size)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
        generator = torch.Generator().manual_seed(self.seed)
        for _ in range(self.epochs):
            for rows in torch.split(torch.randperm(len(labels), generator=generator), self.batch_size):
                optimizer.zero_grad()
                self._loss(head(inputs[rows]), labels[rows], rows, targets).backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                schedule.step()
        self.head_ = head
        return self

    def _loss(
        self, scores: torch.Tensor, labels: torch.Tensor, rows: torch.Tensor, targets: torch.Tensor
    ) -> torch.Tensor:
        if self.loss == "gce":
            return gce(scores, labels, self.weight)
        return elr(scores, labels, rows, targets, self.beta, self.weight)

    @torch.no_grad()
    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the softmax of the scores (n, C)."""
        return self.head_(torch.from_numpy(np.asarray(X, np.float32))).double().softmax(1).numpy()

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return the most probable class (n,)."""
        return self.classes_[self.predict_proba(X).argmax(1)]


def gce(scores: torch.Tensor, labels: torch.Tensor, q: float) -> torch.Tensor:
    """Return the mean generalised cross-entropy, (1 - p^q) / q.

    Args:
        scores: (n, C).
        labels: (n,).
        q: between 0 (cross-entropy) and 1 (MAE).
    """
    log_p = scores.log_softmax(1).gather(1, labels[:, None])
    return ((1 - (q * log_p).exp()) / q).mean()


def elr(
    scores: torch.Tensor,
    labels: torch.Tensor,
    rows: torch.Tensor,
    targets: torch.Tensor,
    beta: float,
    weight: float,
) -> torch.Tensor:
    """Return the mean loss of early-learning regularisation, and update the targets of these examples.

    Args:
        scores: (n, C).
        labels: (n,).
        rows: positions of the examples (n,).
        targets: what was predicted for each example so far (N, C), changed in place.
        beta: share of the old target that is kept.
        weight: of the regularisation.
    """
    p = scores.softmax(1).clamp(SMALLEST, LARGEST)
    with torch.no_grad():
        targets[rows] = beta * targets[rows] + (1 - beta) * p / p.sum(1, keepdim=True)
    agreement = (targets[rows] * p).sum(1)
    return torch.nn.functional.cross_entropy(scores, labels) + weight * (1 - agreement).log().mean()


@dataclass(frozen=True, eq=False)
class Chosen:
    """A rival's setting that the noisy labels chose.

    Args:
        setting: the setting.
        noisy_accuracy: its accuracy on held-out noisy labels.
        held_out: out-of-fold probabilities (N, C) of the training rows.
    """

    setting: Setting
    noisy_accuracy: float
    held_out: Floats


class Tuning:
    """Chooses settings of rivals for one cell, and fits them.

    Args:
        cell: the data. Its true labels are not used.
        encoded: whether its rows are encoded photos or texts.
    """

    def __init__(self, cell: NoisyCell, encoded: bool = False):
        self.noisy, self.classes, self.seed, self.encoded = cell.noisy, cell.classes, cell.seed, encoded
        scaler = StandardScaler().fit(cell.features)
        self.features, self.test = scaler.transform(cell.features), scaler.transform(cell.test)
        folds = min(FOLDS, int(np.bincount(cell.noisy)[np.unique(cell.noisy)].min()))
        splitter = StratifiedKFold(max(2, folds), shuffle=True, random_state=cell.seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of a class with one row
            self.splits = list(splitter.split(self.features, self.noisy))

    def choose(self, rival: str) -> Chosen:
        """Return the best setting of a rival."""
        settings = RIVALS[rival].features if self.encoded else None
        return max(
            (self.tried(rival, setting) for setting in settings or RIVALS[rival].settings if self._possible(setting)),
            key=lambda one: one.noisy_accuracy,
        )

    def _possible(self, setting: Setting) -> bool:
        return setting.get("neighbours", 0) <= min(len(train) for train, _ in self.splits)

    def tried(self, rival: str, setting: Setting) -> Chosen:
        """Return what a setting is worth by the folds."""
        found = np.zeros((len(self.noisy), self.classes))
        for train, rows in self.splits:
            fitted = quietly_fitted(self.estimator(rival, setting), self.features[train], self.noisy[train])
            found[rows] = probabilities(fitted, self.features[rows], self.classes)
        return Chosen(setting, float((found.argmax(1) == self.noisy).mean()), found)

    def estimator(self, rival: str, setting: Mapping[str, float]) -> Any:
        """Return the rival's estimator, not fitted."""
        return RIVALS[rival].make(setting, self.seed)

    def predicted(self, rival: str, setting: Mapping[str, float]) -> tuple[Labels, Floats]:
        """Learn from all rows; return predictions and probabilities of the test rows."""
        estimator = with_probabilities(self.estimator(rival, setting))
        fitted = quietly_fitted(estimator, self.features, self.noisy)
        return fitted.predict(self.test), probabilities(fitted, self.test, self.classes)


class PlattScaled(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier without probabilities, and its Platt scaling.

    Its predictions are those of the classifier: after Platt scaling for each class they can be worse.

    Args:
        estimator: the classifier.
    """

    def __init__(self, estimator: Any = None):
        self.estimator = estimator

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on features (N, d) and labels (N,)."""
        self.fitted_ = clone(self.estimator).fit(X, y)
        self.scaled_ = CalibratedClassifierCV(self.estimator, ensemble=False, cv=3).fit(X, y)
        self.classes_ = self.fitted_.classes_
        return self

    def predict_proba(self, X: Any) -> Any:  # noqa: N803
        """Return the scaled probabilities (n, C)."""
        return self.scaled_.predict_proba(X)

    def predict(self, X: Any) -> Any:  # noqa: N803
        """Return what the classifier itself predicts (n,)."""
        return self.fitted_.predict(X)


def with_probabilities(estimator: Any) -> Any:
    """Return an estimator with probabilities: a support vector machine gets Platt scaling."""
    return estimator if hasattr(estimator, "predict_proba") else PlattScaled(estimator)


def probabilities(fitted: Any, features: Any, classes: int) -> Floats:
    """Return class probabilities (n, C), 0 for classes that were not learned; without them, softmax of the decision."""
    if hasattr(fitted, "predict_proba"):
        known = np.asarray(fitted.predict_proba(features), float)
    else:
        decision = np.asarray(fitted.decision_function(features), float)
        scores = np.stack([-decision, decision], 1) if decision.ndim == 1 else decision
        known = np.exp(scores - scores.max(1, keepdims=True))
        known /= known.sum(1, keepdims=True)
    found = np.zeros((len(known), classes))
    found[:, fitted.classes_] = known
    return found


def quietly_fitted(estimator: Any, features: Any, labels: Labels, **more: Any) -> Any:
    """Fit without warnings of the number of iterations, which is limited on purpose, and of collinear columns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        warnings.filterwarnings("ignore", message=".*collinear.*")
        warnings.filterwarnings("ignore", message="When X and pred_probs are both provided")  # as cleanlab is told to
        return estimator.fit(features, labels, **more)
