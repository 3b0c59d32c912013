"""Checks of features, labels and weights, as scikit-learn makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_sample_weight,
    check_consistent_length,
    column_or_1d,
    validate_data,
)
from torch import Tensor

from symloss.closed_form.sums import TOO_LARGE, Codes, Floats

Labels = NDArray[Any]


def checked_features(estimator: Any, features: Any, *, reset: bool, finite: bool = True) -> Any:
    """Check features (N, d) and return an array, a CSR matrix or a tensor. Unless ``reset``, d must be as before."""
    if isinstance(features, Tensor):
        return _checked_tensor(estimator, features, reset)
    return validate_data(
        estimator, features, reset=reset, accept_sparse="csr", dtype="numeric", ensure_all_finite=finite
    )


def _checked_tensor(estimator: Any, features: Tensor, reset: bool) -> Tensor:
    if features.dim() != 2 or 0 in features.shape:
        raise ValueError(f"X must have shape (N, d) with N and d at least 1; got {tuple(features.shape)}")
    if features.is_complex():
        raise ValueError(f"X must hold real features; got {features.dtype}")
    if reset:
        estimator.n_features_in_ = features.shape[1]
        estimator.__dict__.pop("feature_names_in_", None)
    elif features.shape[1] != estimator.n_features_in_:
        raise ValueError(
            f"X has {features.shape[1]} features, but {type(estimator).__name__} is expecting "
            f"{estimator.n_features_in_} features as input"
        )
    return features


def checked_labels(labels: Any, features: Any) -> Labels:
    """Check class labels (N,), one for each row of the features."""
    if labels is None:
        raise ValueError("requires y to be passed, but the target y is None")
    if isinstance(labels, Tensor):
        labels = labels.detach().cpu().numpy()
    elif scipy.sparse.issparse(labels):
        raise TypeError("y must be a vector of labels; got a sparse matrix")
    vector = column_or_1d(labels, warn=True)
    assert_all_finite(vector, input_name="y")
    check_classification_targets(vector)
    check_consistent_length(features, vector)
    return np.asarray(vector)


def checked_weights(weights: Any, features: Any) -> Floats | None:
    """Check weights (N,), which must be at least 0 with a positive sum, and return them in float64; None stays None."""
    if weights is None:
        return None
    if isinstance(weights, Tensor):
        weights = weights.detach().cpu().double().numpy()
    if not np.asarray(weights).any():
        raise ValueError("sample_weight must have a positive sum; got weights that sum to zero")
    vector: Floats = _check_sample_weight(weights, np.empty((features.shape[0], 1)), ensure_non_negative=True)
    with np.errstate(over="ignore"):
        if not np.isfinite(vector.sum()):
            raise ValueError(TOO_LARGE)
    return vector


def refuse_infinite_scores(scores: Any) -> None:
    """Raise ValueError if scores overflow because the features are too large."""
    if not bool((scores.isfinite() if isinstance(scores, Tensor) else np.isfinite(scores)).all()):
        raise ValueError(f"X must hold features whose scores are finite in {scores.dtype}; got features too large")


def encode(labels: Labels, classes: Labels) -> Codes:
    """The positions of labels in the sorted classes. An unknown label is refused."""
    unseen = np.setdiff1d(labels, classes)
    if len(unseen):
        raise ValueError(
            f"y must hold labels among the classes {_listed(classes)}; got {unseen.tolist()[0]!r}, "
            "never seen before: give all labels to the first partial_fit as classes="
        )
    return np.searchsorted(classes, labels).astype(np.int64)


def _listed(classes: Labels) -> str:
    names = [repr(name) for name in classes.tolist()]
    return ", ".join(names if len(names) <= 10 else [*names[:10], "..."])


def two_classes(classes: Labels, argument: str = "y") -> None:
    """Raise ValueError unless there are at least two classes."""
    if len(classes) < 2:
        raise ValueError(f"{argument} must hold at least 2 classes; got {len(classes)} class: {_listed(classes)}")
