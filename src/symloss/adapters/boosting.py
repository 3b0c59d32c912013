"""Gradient boosting with any loss of the catalogue: XGBoost and LightGBM as scikit-learn estimators.

Each estimator holds one of its library, which ``fit`` imports, so this module imports neither of them.
"""

from __future__ import annotations

import copy
import importlib
import inspect
from abc import ABC, abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
import torch
from scipy import special  # type: ignore[import-untyped]
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
from sklearn.preprocessing import LabelEncoder  # type: ignore[import-untyped]
from sklearn.utils import compute_sample_weight  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data  # type: ignore[import-untyped]
from torch import Tensor

from symloss import checks, extras
from symloss.adapters.criterion_of import AnyCriterion, criterion_of_raw_scores
from symloss.fitting import all_or_nothing
from symloss.losses.criterion import Criterion

__all__ = ["RobustLGBMClassifier", "RobustXGBClassifier"]

OF_BUILT_IN_LOSSES = ("objective", "num_class", "scale_pos_weight", "is_unbalance")
"""Parameters that only the libraries' own losses read."""


class BoostedClassifier(ClassifierMixin, BaseEstimator, ABC):  # type: ignore[misc]
    """Base of both estimators. ``parameters`` are those of the library's own classifier."""

    library: ClassVar[str]
    raw: ClassVar[str]  # the option of ``predict`` that returns scores

    def __init__(self, *, loss: AnyCriterion = "gce:q=0.7", **parameters: Any):
        self.loss = loss
        self.parameters = parameters

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the loss, and those parameters of the library that were passed."""
        return {"loss": self.loss, **self.parameters}

    def set_params(self, **parameters: Any) -> Self:
        """Change the loss or parameters of the library."""
        self.loss = parameters.pop("loss", self.loss)
        self.parameters = self.parameters | parameters
        return self

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None, eval_set: Any = None, **options: Any) -> Self:
        """Grow the trees.

        Args:
            X: (N, d), in a form that the library takes; missing values are allowed.
            y: (N,), any labels.
            sample_weight: (N,), the weight of each row.
            eval_set: pairs (rows, labels). Their mean loss is computed after each round.
            options: those of the library's own ``fit``.
        """
        validate_data(self, X, skip_check_array=True)
        criterion = criterion_of_trees(self.loss)
        for name in self.parameters.keys() & OF_BUILT_IN_LOSSES:
            given = f"{name}={checks.brief(self.parameters[name])}"
            raise ValueError(f"{name} must be left out, because only losses of {self.library} read it; got {given}")
        check_classification_targets(y)
        encoder = LabelEncoder()
        labels, self.classes_ = encoder.fit_transform(y), encoder.classes_
        if len(self.classes_) < 2:
            raise ValueError(f"y must hold two classes or more; got {len(self.classes_)} class(es)")
        weights = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        weights = weights * compute_sample_weight(self.parameters.get("class_weight"), self.classes_[labels])
        options |= {"sample_weight": weights, "eval_set": None}
        if eval_set is not None:
            options["eval_set"] = [(rows, encoder.transform(known)) for rows, known in eval_set]
        self.model_ = self._grown(X, labels, criterion, options)
        return self

    @abstractmethod
    def _grown(self, X: Any, labels: Any, criterion: Criterion, options: dict[str, Any]) -> Any:
        """Return the estimator of the library, after its ``fit`` with these options."""

    def predict_proba(self, X: Any, **options: Any) -> Floats:
        """Return the probabilities (n, C): the softmax of the scores.

        Args:
            X: (n, d).
            options: those of the library's own ``predict``, such as the rounds to use.
        """
        check_is_fitted(self)
        validate_data(self, X, skip_check_array=True, reset=False)
        probabilities: Floats = special.softmax(columns(self.model_.predict(X, **{self.raw: True}, **options)), 1)
        return probabilities

    def predict(self, X: Any, **options: Any) -> Any:
        """Return the most probable class (n,). The arguments are those of ``predict_proba``."""
        best = self.predict_proba(X, **options).argmax(1)  # which says if nothing is fitted yet
        return self.classes_[best]

    @property
    def feature_importances_(self) -> Floats:
        """The importance of each feature, as the library measures it."""
        importances: Floats = self.model_.feature_importances_
        return importances

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.sparse = True
        return tags

    def _parameters(self) -> dict[str, Any]:
        """Return the library's parameters. Class weights are already part of the row weights."""
        return {name: value for name, value in self.parameters.items() if name != "class_weight"}

    def _library(self) -> Any:
        with extras.needed_by(type(self).__name__):
            return importlib.import_module(self.library)


class RobustXGBClassifier(BoostedClassifier):
    """XGBoost with any loss of the catalogue.

    All scores start equal. With ``loss="ce"`` the trees are those of XGBoost's own loss with ``base_score=0.5``.

    Args:
        loss: a spec such as ``"gce:q=0.7"``, or a symloss loss with ``normalize=None``.
        parameters: those of ``xgboost.XGBClassifier``, without ``objective``; and ``class_weight`` as in scikit-learn.

    Attributes:
        classes_: the classes.
        model_: the ``xgboost.XGBClassifier``, fitted to class numbers. It knows ``get_booster()`` and the like.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> RobustXGBClassifier(loss="mae", n_estimators=5).fit(X, y).predict(X[:2])
    array([0, 0])
    """

    library, raw = "xgboost", "output_margin"

    def _grown(self, X: Any, labels: Any, criterion: Criterion, options: dict[str, Any]) -> Any:
        # XGBoost doubles the Hessian of more than two classes, and its other defaults are made for that.
        objective = Objective(criterion, curvature=2.0 if len(self.classes_) > 2 else 1.0)
        parameters = {"eval_metric": objective.loss} | self._parameters()
        return self._library().XGBClassifier(**parameters, objective=objective).fit(X, labels, **options)


class RobustLGBMClassifier(BoostedClassifier):
    """LightGBM with any loss of the catalogue.

    All scores start equal. With ``loss="ce"`` the trees are those of LightGBM's own loss with
    ``boost_from_average=False`` and ``feature_pre_filter=False``.

    Args:
        loss: a spec such as ``"gce:q=0.7"``, or a symloss loss with ``normalize=None``.
        parameters: those of ``lightgbm.LGBMClassifier``, without ``objective``.

    Attributes:
        classes_: the classes.
        model_: the ``lightgbm.LGBMModel``, fitted to class numbers. It knows ``booster_`` and the like.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> RobustLGBMClassifier(loss="mae", n_estimators=5, verbosity=-1).fit(X, y).predict(X[:2])
    array([0, 0])
    """

    library, raw = "lightgbm", "raw_score"

    def _grown(self, X: Any, labels: Any, criterion: Criterion, options: dict[str, Any]) -> Any:
        classes, parameters = len(self.classes_), self._parameters()
        # LightGBM has this factor too.
        objective = Objective(criterion, curvature=classes / (classes - 1) if classes > 2 else 1.0)
        _refuse_metrics_of_probabilities(parameters.get("metric"), options.get("eval_metric"))
        options = {"eval_metric": objective.named_loss} | options
        # LightGBM drops features that no leaf can use, and stops with an error if none is left and the loss is custom.
        parameters = {"feature_pre_filter": False} | parameters
        model = self._library().LGBMModel(**parameters, objective=objective, num_class=classes if classes > 2 else 1)
        if options["eval_set"] and "eval_X" in inspect.signature(model.fit).parameters:  # since 4.7
            rows, known = zip(*options.pop("eval_set"), strict=True)
            options |= {"eval_X": rows, "eval_y": known}
        return model.fit(X, labels, **options)


def _refuse_metrics_of_probabilities(*metrics: Any) -> None:
    for metric in metrics:
        for each in metric if isinstance(metric, list) else [metric]:
            if each is not None and not callable(each):
                raise ValueError(
                    "eval_metric must be a function of (labels, scores), because the metrics of lightgbm take the "
                    f"scores of a custom loss for probabilities; got {checks.brief(each)}"
                )


Floats = np.ndarray[Any, np.dtype[np.floating[Any]]]

FLOOR = 1e-16  # the smallest Hessian, as in the objectives of XGBoost


def criterion_of_trees(loss: AnyCriterion) -> Criterion:
    """Return the criterion of raw scores that adds up the losses of all examples."""
    criterion = copy.copy(criterion_of_raw_scores(loss, "trees start at scores of 0, where a norm has no direction"))
    criterion.reduction, criterion.overwrite = "sum", False
    return criterion


def gradient_and_hessian(
    criterion: Criterion, scores: Tensor, labels: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the gradient of a loss in the scores, and a positive stand-in for the diagonal of its Hessian.

    Near the scores, a loss acts as cross-entropy with a weight for each example: w = -g_y / (1 - p_y), where g is the
    gradient, p the softmax and y the label. The diagonal is that of the weighted cross-entropy, w p (1 - p). It is
    exact for cross-entropy itself. Where w is not positive, it is cut at ``FLOOR``.

    >>> scores = torch.tensor([[0.0, 0.0]])
    >>> gradient_and_hessian(criterion_of_trees("ce"), scores, torch.tensor([1]))
    (tensor([[ 0.5000, -0.5000]]), tensor([[0.2500, 0.2500]]))
    """
    z = scores.detach().requires_grad_()
    (gradient,) = torch.autograd.grad(criterion(z, labels), z)
    if weights is not None:
        gradient = gradient * weights[:, None]
    y = labels[:, None]
    # The other classes on their own: p_k = share_k (1 - p_y). So 1 - p_y is no difference, and not divided by.
    others = scores.scatter(1, y, -torch.inf)
    total = others.logsumexp(1, keepdim=True)
    share = (others - total).exp()
    margin = scores.gather(1, y) - total
    diagonal = (share * (1 - share * margin.neg().sigmoid())).scatter(1, y, margin.sigmoid())
    return gradient, (-gradient.gather(1, y) * diagonal).clamp_min(FLOOR)


class Objective:
    """What XGBoost and LightGBM call once a round. ``curvature`` is a factor of the Hessian, as in their own losses."""

    def __init__(self, criterion: Criterion, curvature: float = 1.0):
        self.criterion, self.curvature = criterion, curvature

    def __call__(self, y_true: Floats, y_pred: Floats, sample_weight: Floats | None = None) -> tuple[Floats, Floats]:
        """Return gradient and Hessian, in the shape of the scores: (N, C), or (N,) for two classes."""
        pair = gradient_and_hessian(self.criterion, *_tensors(y_true, y_pred, sample_weight))
        gradient, hessian = (each.numpy() if y_pred.ndim == 2 else each[:, 1].numpy() for each in pair)
        return gradient, self.curvature * hessian

    def loss(self, y_true: Floats, y_pred: Floats, sample_weight: Floats | None = None) -> float:
        """Return the mean loss, a metric for data that trees are not trained on."""
        scores, labels, weights = _tensors(y_true, y_pred, sample_weight)
        each = copy.copy(self.criterion)
        each.reduction = "none"
        with torch.no_grad():
            return float(np.average(each(scores, labels).numpy(), weights=weights))

    def named_loss(
        self, y_true: Floats, y_pred: Floats, sample_weight: Floats | None = None
    ) -> tuple[str, float, bool]:
        """Return the mean loss as LightGBM wants it: name, value, and whether higher is better."""
        return "loss", self.loss(y_true, y_pred, sample_weight), False


def columns(scores: Floats) -> Floats:
    """Return scores (N, C). Two classes have one score (N,), that of the second class; the first one's is 0."""
    return scores if scores.ndim == 2 else np.stack([np.zeros_like(scores), scores], 1)


def _tensors(y_true: Floats, y_pred: Floats, sample_weight: Floats | None) -> tuple[Tensor, Tensor, Tensor | None]:
    weights = None if sample_weight is None else torch.tensor(sample_weight)
    return torch.tensor(np.ascontiguousarray(columns(y_pred))), torch.tensor(y_true).long(), weights
