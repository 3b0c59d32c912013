"""The linear classifier of least unhinged loss, in one pass over the data."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator  # type: ignore[import-untyped]
from sklearn.utils.extmath import safe_sparse_dot  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted  # type: ignore[import-untyped]
from torch import Tensor

from symloss import checks
from symloss.closed_form.inputs import (
    Labels,
    checked_features,
    checked_labels,
    checked_weights,
    encode,
    refuse_infinite_scores,
    two_classes,
)
from symloss.closed_form.score_classifier import ByScores
from symloss.closed_form.solution import ZERO, Prior, centroid
from symloss.closed_form.sums import ClassSums, class_sums, precision, refuse_what_is_not_finite
from symloss.fitting import all_or_nothing


class UnhingedClassifier(ByScores, BaseEstimator):  # type: ignore[misc]
    """The linear classifier with the least multi-class unhinged loss, in closed form: W = r mu / |mu| (appendix C).

    The loss of scores z at label y is sum_k q_k z_k - z_y with the prior q, which is uniform in the paper. The loss is
    symmetric: if labels are replaced at random by draws from q, the expected centroid
    mu = 1/N sum_i (e_{y_i} - q) x_i^T changes its length, but not its direction. Fitting takes one pass over the data
    and O(C d) memory.

    The scores are not calibrated. :meth:`predict_proba` is their softmax, and the radius sets how far it is from
    uniform. If you need probabilities, wrap the classifier in ``sklearn.calibration.CalibratedClassifierCV``.

    Args:
        radius: the norm r of the weights. It scales the scores and changes no prediction.
        fit_intercept: extend every example by a constant 1, whose weights count in the norm. With centred features
            these weights depend on the class frequencies alone. Turn it off for features that are small compared to 1,
            such as those of ``RBFSampler``, since they would be outweighed.
        center: subtract the mean of the features first. The mean carries no information about classes, and outweighs
            the rest of the centroid where features are far from zero, such as raw pixels.
        prior: the q above. None for 1/C, ``"frequencies"`` for the shares of the classes, or a vector in the order of
            ``classes_``. With centred features it changes the intercept only.

    Attributes:
        classes_: the labels, sorted.
        coef_: (C, d), one row of weights for each class, also for two classes; float32 if the data is.
        intercept_: (C,), with the effect of centring included. Scores are ``X @ coef_.T + intercept_``.
        centroid_norm_: |mu|. The mean loss on the (centred) training data is -radius * |mu|.
        sums_: the sums of each class, see :class:`symloss.closed_form.sums.ClassSums`.

    ``decision_function`` gives the scores (N, C), and for two classes z_1 - z_0 of shape (N,), as in scikit-learn.
    Tensors give tensors on the same device.

    >>> x = np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [2.0, 0.0]])
    >>> model = UnhingedClassifier().fit(x, ["up", "up", "right", "right"])
    >>> model.predict([[0.5, 3.0]]).tolist()
    ['up']
    >>> model.coef_.round(2).tolist()
    [[0.5, -0.5], [-0.5, 0.5]]
    """

    def __init__(
        self, *, radius: float = 1.0, fit_intercept: bool = True, center: bool = True, prior: Prior = None
    ) -> None:
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.center = center
        self.prior = prior

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:  # noqa: N803
        """Fit to examples (N, d) with labels (N,) and weights (N,), or None for equal weights."""
        features = checked_features(self, X, reset=True, finite=False)
        labels = checked_labels(y, features)
        weights = checked_weights(sample_weight, features)
        classes, codes = np.unique(labels, return_inverse=True)
        two_classes(classes)
        totals = class_sums(features, codes, len(classes), weights)
        two_classes(classes[totals.weights > 0], "the part of y with positive sample_weight")
        return self.solve(totals, classes)

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:  # noqa: N803
        """Add examples to those of all earlier calls. Batches in any order give the weights of one ``fit``.

        ``classes`` names all labels of all calls; without it, the labels of the first call are all classes. While the
        centroid is zero, as before a second class has come, there are no weights and prediction is refused.
        """
        first = not hasattr(self, "sums_")
        features = checked_features(self, X, reset=first, finite=False)
        labels = checked_labels(y, features)
        weights = checked_weights(sample_weight, features)
        known = self._known_classes(classes, labels)
        totals = class_sums(features, encode(labels, known), len(known), weights)
        return self.solve(totals if first else self.sums_ + totals, known, refuse=False)

    def _known_classes(self, classes: Any, labels: Labels) -> Labels:
        if classes is not None:
            named = np.unique(classes.cpu().numpy() if isinstance(classes, Tensor) else classes)
            if hasattr(self, "sums_") and not np.array_equal(named, self.classes_):
                raise ValueError(
                    f"classes must be those of the first partial_fit, {checks.brief(self.classes_.tolist())}; "
                    f"got {checks.brief(named.tolist())}"
                )
            two_classes(named, "classes")
            return named
        if hasattr(self, "sums_"):
            return np.asarray(self.classes_)
        found = np.unique(labels)
        two_classes(found, "y of a first partial_fit without classes=")
        return found

    @all_or_nothing
    def merge(self, other: UnhingedClassifier) -> Self:
        """Add the data of another classifier. Shards that were fitted separately give the weights of one ``fit``.

        Both must know the same classes, see ``classes`` of :meth:`partial_fit`. The settings of this one are used.

        >>> x, y = np.eye(4), np.array([0, 1, 0, 1])
        >>> parts = [UnhingedClassifier().partial_fit(x[i::2], y[i::2], classes=[0, 1]) for i in range(2)]
        >>> bool(np.allclose(parts[0].merge(parts[1]).coef_, UnhingedClassifier().fit(x, y).coef_))
        True
        """
        if not isinstance(other, UnhingedClassifier):
            raise TypeError(f"other must be an UnhingedClassifier; got {type(other).__name__}")
        check_is_fitted(self, "sums_")
        check_is_fitted(other, "sums_")
        if not np.array_equal(self.classes_, other.classes_):
            raise ValueError(
                f"other must know the classes {checks.brief(self.classes_.tolist())}; got "
                f"{checks.brief(other.classes_.tolist())} (partial_fit takes all of them as classes=)"
            )
        if self.n_features_in_ != other.n_features_in_:
            raise ValueError(f"other must have {self.n_features_in_} features; got {other.n_features_in_}")
        return self.solve(self.sums_ + other.sums_, self.classes_, refuse=False)

    def solve(self, totals: ClassSums, classes: Labels, *, refuse: bool = True) -> Self:
        """Compute the weights from the sums of each of the sorted classes.

        A zero centroid raises ValueError; or, without ``refuse``, leaves the classifier without weights.
        """
        radius = checks.number("radius", self.radius, "(0, inf)")
        found = centroid(totals, self.prior, self.fit_intercept, self.center)
        if refuse or not found.zero:
            self.coef_, self.intercept_ = found.solution(radius, totals.dtype)
        else:
            self.__dict__.pop("coef_", None)
            self.__dict__.pop("intercept_", None)
        self.classes_ = classes
        self.sums_ = totals
        self.centroid_norm_ = found.norm
        return self

    def _scores(self, X: Any) -> Any:  # noqa: N803
        check_is_fitted(self, "sums_")
        features = checked_features(self, X, reset=False)
        if not hasattr(self, "coef_"):
            raise ValueError(ZERO)
        if not isinstance(features, Tensor):
            with np.errstate(over="ignore", invalid="ignore"):
                scores = safe_sparse_dot(features, self.coef_.T, dense_output=True) + self.intercept_
            refuse_infinite_scores(scores)
            return scores
        dtype = torch.float32 if precision(features) == np.float32 else torch.float64
        weight, bias = (torch.as_tensor(part).to(features.device, dtype) for part in (self.coef_, self.intercept_))
        found = torch.nn.functional.linear(features.to(dtype), weight, bias)
        if not bool(found.isfinite().all()):
            refuse_what_is_not_finite(features)
            refuse_infinite_scores(found)
        return found

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "sums_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
