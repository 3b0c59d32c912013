"""The linear classifier with the least unhinged loss, in one pass over the data."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin  # type: ignore[import-untyped]
from sklearn.utils import assert_all_finite  # type: ignore[import-untyped]
from sklearn.utils.extmath import safe_sparse_dot, softmax  # type: ignore[import-untyped]
from sklearn.utils.multiclass import check_classification_targets  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_sample_weight,
    check_consistent_length,
    check_is_fitted,
    column_or_1d,
    validate_data,
)
from torch import Tensor

from symloss import checks
from symloss.closed_form.sums import (
    TOO_LARGE,
    ClassSums,
    Codes,
    Floats,
    Prior,
    centroid,
    class_sums,
    precision,
    refuse_what_is_not_finite,
)
from symloss.fitting import all_or_nothing

Labels = NDArray[Any]


def checked_features(estimator: Any, features: Any, *, reset: bool, finite: bool = True) -> Any:
    """Check features (N, d) and return an array, a CSR matrix or a tensor. Unless ``reset``, d must be as before."""
    if not isinstance(features, Tensor):
        options = {"accept_sparse": "csr", "dtype": "numeric", "ensure_all_finite": finite}
        return validate_data(estimator, features, reset=reset, **options)
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


def checked_classes(labels: Any, weights: Any, features: Any) -> tuple[Labels, Codes, Floats | None]:
    """Check labels and weights (N,); return the classes, the position of each label among them, and the weights."""
    classes, codes = np.unique(checked_labels(labels, features), return_inverse=True)
    two_classes(classes)
    weights = checked_weights(weights, features)
    two_classes(classes[np.bincount(codes, weights) > 0], POSITIVE)
    return classes, codes, weights


POSITIVE = "the part of y with positive sample_weight"


def refuse_infinite_scores(scores: Any) -> None:
    """Raise ValueError if scores overflow because the features are too large."""
    if not bool((scores.isfinite() if isinstance(scores, Tensor) else np.isfinite(scores)).all()):
        raise ValueError(f"X must hold features whose scores are finite in {scores.dtype}; got features too large")


def encode(labels: Labels, classes: Labels) -> Codes:
    """Return the positions of labels in the sorted classes. An unknown label is refused."""
    unseen = np.setdiff1d(labels, classes)
    if len(unseen):
        raise ValueError(
            f"y must hold labels among the classes {checks.brief(classes.tolist())}; got {unseen.tolist()[0]!r}, "
            "never seen before: give all labels to the first partial_fit as classes="
        )
    return np.searchsorted(classes, labels).astype(np.int64)


def two_classes(classes: Labels, argument: str = "y") -> None:
    """Raise ValueError unless there are at least two classes."""
    if len(classes) < 2:
        raise ValueError(f"{argument} must hold at least 2 classes; got {len(classes)} class: {classes.tolist()}")


class ByScores(ClassifierMixin):  # type: ignore[misc]
    """A classifier with one score for each class. Subclasses compute the scores (N, C) in ``_scores``."""

    classes_: Any

    def _scores(self, X: Any) -> Any:
        raise NotImplementedError

    def decision_function(self, X: Any) -> Any:
        """Return the scores (N, C). For two classes their difference z_1 - z_0 (N,), as in scikit-learn."""
        scores = self._scores(X)
        return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores

    def predict_proba(self, X: Any) -> Any:
        """Return the softmax of the scores (N, C). It is not calibrated."""
        scores = self._scores(X)
        return scores.softmax(1) if isinstance(scores, Tensor) else softmax(scores, copy=True)

    def predict(self, X: Any) -> Any:
        """Return the class of the largest score (N,): a tensor if X is one and classes are numbers, else an array."""
        best = self._scores(X).argmax(1)
        if not isinstance(best, Tensor):
            return self.classes_[best]
        if self.classes_.dtype.kind in "iuf":
            return torch.as_tensor(np.ascontiguousarray(self.classes_)).to(best.device)[best]
        return self.classes_[best.cpu().numpy()]


class UnhingedClassifier(ByScores, BaseEstimator):  # type: ignore[misc]
    """The linear classifier with the least multi-class unhinged loss, in closed form: W = r mu / |mu| (appendix C).

    By default it centres the features first, which the paper does not. ``center=False`` is appendix C exactly.

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
        center: subtract the mean of the features first; False for the centroid of appendix C. The mean carries no
            information about classes, and outweighs the rest of the centroid where features are far from zero, such as
            raw pixels.
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
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to examples (N, d) with labels (N,) and weights (N,), or None for equal weights."""
        features = checked_features(self, X, reset=True, finite=False)  # infinite features are refused by their sums
        classes, codes, weights = checked_classes(y, sample_weight, features)
        return self.solve(class_sums(features, codes, len(classes), weights), classes)

    @all_or_nothing
    def partial_fit(self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None) -> Self:
        """Add examples to those of all earlier calls. Batches in any order give the weights of one ``fit``.

        ``classes`` names all labels of all calls; without it, the labels of the first call are all classes. While the
        centroid is zero, as before a second class has come, there are no weights and prediction is refused.
        """
        first = not hasattr(self, "sums_")
        features = checked_features(self, X, reset=first, finite=False)
        labels = checked_labels(y, features)
        known = self._known_classes(classes, labels)
        totals = class_sums(features, encode(labels, known), len(known), checked_weights(sample_weight, features))
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
        two_classes(found := np.unique(labels), "y of a first partial_fit without classes=")
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
        elif hasattr(self, "coef_"):
            del self.coef_, self.intercept_
        self.classes_, self.sums_, self.centroid_norm_ = classes, totals, found.norm
        return self

    def _scores(self, X: Any) -> Any:
        check_is_fitted(self, "sums_")
        features = checked_features(self, X, reset=False)
        if not hasattr(self, "coef_"):
            raise ValueError(centroid(self.sums_, self.prior, self.fit_intercept, self.center).refusal)
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


@all_or_nothing
def fit_distributed(
    estimator: UnhingedClassifier, X: Any, y: Any, sample_weight: Any = None, *, group: Any = None
) -> UnhingedClassifier:
    """Fit to the examples of all processes of a ``torch.distributed`` group. Every process gets the same classifier.

    Each process calls this with its part of the data. A part may have any size, lack classes, or be empty. The
    processes exchange the classes and their sums, O(C d) numbers. The result is that of one ``fit`` to all the data, up
    to rounding. If one process refuses its data, all raise an error, so that none waits forever.

    Args:
        estimator: the classifier to fit.
        X: the features (N, d) of this process.
        y: their labels (N,).
        sample_weight: the weights of the examples (N,), or None.
        group: the process group; None for the default one.

    >>> fit_distributed(UnhingedClassifier(), [[0.0], [1.0]], [0, 1])
    Traceback (most recent call last):
    RuntimeError: fit_distributed must be called after torch.distributed.init_process_group; got no process group
    """
    if not (dist.is_available() and dist.is_initialized()):
        raise RuntimeError(
            "fit_distributed must be called after torch.distributed.init_process_group; got no process group"
        )
    error, found, part = None, np.empty(0), ClassSums.nothing(0, 0)
    try:
        if len(shape := tuple(getattr(X, "shape", ()))) == 2 and not shape[0]:
            part = ClassSums.nothing(0, shape[1])
        else:
            features = checked_features(estimator, X, reset=True, finite=False)
            found, codes = np.unique(checked_labels(y, features), return_inverse=True)
            part = class_sums(features, codes, len(found), checked_weights(sample_weight, features))
    except (TypeError, ValueError) as refused:
        error = " ".join(str(refused).split())
    width = part.sums.shape[1]
    classes, rounding, dtype = _agreed((error, found.tolist(), width, part.rounding, part.dtype), group)
    table = np.zeros((len(classes), width + 1))  # the last column holds the weights
    if len(found):
        table[encode(found, classes)] = np.column_stack([part.sums, part.weights])
    table = _added_up(table, group)
    sums, counts = table[:, :-1], table[:, -1]
    two_classes(classes[counts > 0], POSITIVE)
    estimator.n_features_in_ = width
    return estimator.solve(ClassSums(sums, counts, rounding, dtype), classes)


def _agreed(summary: tuple[str | None, list[Any], int, float, Any], group: Any) -> tuple[Labels, float, Any]:
    """Return classes, rounding and precision of all processes. If the data of one are refused, all raise the error."""
    told: list[Any] = [None] * dist.get_world_size(group)
    dist.all_gather_object(told, summary, group=group)
    errors, names, widths, roundings, dtypes = zip(*told, strict=True)
    for rank, error in enumerate(errors):
        if error is not None:
            raise ValueError(f"the data of process {rank} were refused: {error}")
    if len(set(widths)) > 1:
        raise ValueError(f"X must have the same number of features in every process; got {list(widths)}")
    classes = np.unique([name for some in names for name in some])
    two_classes(classes)
    return classes, max(roundings), np.result_type(*dtypes)


def _added_up(table: Floats, group: Any) -> Floats:
    """Sum an array over all processes, on a GPU if the group works on GPUs only."""
    tensor = torch.from_numpy(table)
    if dist.get_backend(group) == "nccl":
        tensor = tensor.cuda()
    dist.all_reduce(tensor, group=group)
    return tensor.cpu().numpy()
