"""The unhinged classifier in the feature space of a kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Self

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]
from numpy.typing import NDArray
from sklearn.base import BaseEstimator  # type: ignore[import-untyped]
from sklearn.metrics.pairwise import pairwise_kernels  # type: ignore[import-untyped]
from sklearn.utils.validation import check_is_fitted, validate_data  # type: ignore[import-untyped]

from symloss import checks
from symloss.closed_form.sums import Floats, Prior, constant_column, precision, prior_vector, zero_centroid
from symloss.closed_form.unhinged import ByScores, checked_classes, refuse_infinite_scores
from symloss.fitting import all_or_nothing, magnitude


class KernelUnhingedClassifier(ByScores, BaseEstimator):  # type: ignore[misc]
    """The unhinged classifier W = r mu / |mu| in the feature space of a kernel, in closed form (app. C, prop. C.1).

    The centroid is a sum over the examples. So the score of class k at x is (r / |mu|) sum_i alpha_ik k(x_i, x) with
    alpha_ik = (1[y_i = k] - q_k) / N. Only |mu|^2 = sum_ij <alpha_i, alpha_j> k(x_i, x_j) needs all pairs of examples.
    They are computed in blocks: time is O(N^2), memory beyond the data O(block_size^2 + N C). For many examples, use an
    explicit feature map instead: ``make_pipeline(RBFSampler(gamma=g, n_components=3000),
    UnhingedClassifier(fit_intercept=False))`` or ``Nystroem``, both from scikit-learn.

    Args:
        kernel: a name known to ``sklearn.metrics.pairwise.pairwise_kernels``, ``"precomputed"``, or a function of two
            vectors. It must be positive semi-definite.
        gamma, degree, coef0: parameters of the kernels that have them. None for scikit-learn's default gamma.
        kernel_params: further arguments of a kernel that is a function.
        radius, center, prior: as in :class:`UnhingedClassifier`, in the feature space.
        fit_intercept: add a constant feature 1. It is off by default: kernels such as ``rbf`` are at most 1, so that a
            constant 1 outweighs the differences between classes as soon as the classes have unequal sizes.
        block_size: rows and columns of the largest part of the kernel matrix in memory.

    Attributes:
        classes_: the labels, sorted.
        dual_coef_: (N, C), the weights of the training examples in the scores.
        intercept_: (C,), with the effect of centring included.
        centroid_norm_: |mu|.
        X_fit_: the training examples.

    >>> x = np.array([[-2.0], [-1.0], [0.0], [1.0], [2.0]])
    >>> y = np.array([1, 0, 0, 0, 1])
    >>> KernelUnhingedClassifier(gamma=1.0).fit(x, y).predict([[-2.5], [0.2], [2.2]])
    array([1, 0, 1])
    """

    def __init__(
        self,
        *,
        kernel: Any = "rbf",
        gamma: float | None = None,
        degree: float = 3,
        coef0: float = 1,
        kernel_params: dict[str, Any] | None = None,
        radius: float = 1.0,
        fit_intercept: bool = False,
        center: bool = True,
        prior: Prior = None,
        block_size: int = 2048,
    ) -> None:
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.radius = radius
        self.fit_intercept = fit_intercept
        self.center = center
        self.prior = prior
        self.block_size = block_size

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit to examples (N, d), or to a precomputed kernel matrix (N, N), with labels (N,) and weights (N,)."""
        radius = checks.number("radius", self.radius, "(0, inf)")
        features = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32])
        if self.kernel == "precomputed" and features.shape[0] != features.shape[1]:
            raise ValueError(f"a precomputed kernel must be a square matrix; got one of shape {features.shape}")
        classes, codes, weights = checked_classes(y, sample_weight, features)
        share = np.full(len(codes), 1 / len(codes)) if weights is None else weights / weights.sum()
        shares = np.bincount(codes, share).astype(np.float64)
        prior = prior_vector(self.prior, shares)
        # Centring in the feature space changes only the weights of the examples.
        alpha = (np.eye(len(classes))[codes] - (shares if self.center else prior)) * share[:, None]
        constant = constant_column(shares, prior, self.fit_intercept)
        scaled, unit = self._scaled(features, constant)
        square, offset, largest = self._all_pairs(scaled, alpha, share)
        dtype = precision(features)
        if largest < float(np.finfo(dtype).tiny) and not constant.any():
            raise ValueError(f"kernel must be above 0 in {dtype} for some pair of examples; got features too small")
        refusal = f"{zero_centroid(shares, prior, self.center)}, in the feature space of the kernel"
        norm = _norm(square, constant / unit, largest * float(np.square(np.abs(alpha).sum(0)).sum()), refusal)
        with np.errstate(over="ignore", invalid="ignore"):
            dual = radius / norm * (alpha / unit)
            intercept = radius / norm * (constant / unit - (offset * unit if self.center else 0.0))
        self.classes_ = classes
        self.centroid_norm_ = unit * norm
        self.dual_coef_, self.intercept_ = _rounded(dual, intercept, dtype)
        self.X_fit_ = None if self.kernel == "precomputed" else features
        return self

    def _scaled(self, features: Any, *others: Floats) -> tuple[Any, float]:
        """Divide features by a number, so that a linear kernel neither overflows nor vanishes; return both."""
        if self.kernel != "linear":
            return features, 1.0
        scaled = features.copy()
        values = scaled.data if scipy.sparse.issparse(scaled) else scaled
        unit = magnitude(values, *others)
        values /= unit
        return scaled, unit

    def _all_pairs(self, features: Any, alpha: Floats, share: Floats) -> tuple[float, Floats, float]:
        """Return |mu|^2 without the constant, the scores of the mean example, and the kernel's largest entry."""
        square, offset, largest = 0.0, np.zeros(alpha.shape[1]), 0.0
        for rows in self._blocks(features.shape[0]):
            for columns in self._blocks(features.shape[0]):
                if columns.start < rows.start:
                    continue  # the kernel is symmetric
                block = self._kernel(features, features, rows, columns)
                largest = max(largest, float(np.abs(block).max()))
                if not np.isfinite(block).all():
                    raise ValueError("kernel must be finite for every pair of examples; got features too large for it")
                there = block @ alpha[columns]
                square += (1 if rows == columns else 2) * float(np.vdot(alpha[rows], there))
                offset += share[rows] @ there
                if rows != columns:
                    offset += (share[columns] @ block.T) @ alpha[rows]
        return square, offset, largest

    def _blocks(self, count: int) -> Iterator[slice]:
        size = int(checks.number("block_size", self.block_size, "[1, inf)", whole=True))
        return (slice(start, min(start + size, count)) for start in range(0, count, size))

    def _kernel(self, left: Any, right: Any, rows: slice, columns: slice) -> Floats:
        """Return a block of the kernel matrix."""
        if self.kernel == "precomputed":
            block = left[rows, columns]
            return np.asarray(block.toarray() if hasattr(block, "toarray") else block, dtype=np.float64)
        options = self.kernel_params or {}
        if not callable(self.kernel):
            options = {"degree": self.degree, "coef0": self.coef0}
            options |= {} if self.gamma is None else {"gamma": self.gamma}
        with np.errstate(over="ignore", invalid="ignore"):
            block = pairwise_kernels(left[rows], right[columns], metric=self.kernel, filter_params=True, **options)
        return np.asarray(block, dtype=np.float64)

    def _scores(self, X: Any) -> Any:
        check_is_fitted(self)
        features = validate_data(self, X, accept_sparse="csr", dtype=[np.float64, np.float32], reset=False)
        features, unit = self._scaled(features)
        fitted, fitted_unit = self._scaled(self.X_fit_)
        found = np.empty((features.shape[0], len(self.classes_)))
        with np.errstate(over="ignore", invalid="ignore"):
            for rows in self._blocks(features.shape[0]):
                found[rows] = self.intercept_
                for columns in self._blocks(len(self.dual_coef_)):
                    block = self._kernel(features, fitted, rows, columns)
                    weights = self.dual_coef_[columns].astype(np.float64)
                    found[rows] += unit * (block @ (fitted_unit * weights))
            scores = found.astype(self.dual_coef_.dtype)
        refuse_infinite_scores(scores)
        return scores

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.kernel != "precomputed" and not callable(self.kernel)
        tags.input_tags.pairwise = self.kernel == "precomputed"
        return tags


def _norm(square: float, constant: Floats, spread: float, refusal: str) -> float:
    """Return |mu|. Refuse a negative |mu|^2, and one that may be rounding of its bound ``spread``."""
    rounding = 64 * float(np.finfo(np.float64).eps) * spread
    if square < -rounding:
        raise ValueError(f"kernel must be positive semi-definite; got one with |mu|^2 = {square:g}")
    if square <= rounding and not constant.any():
        raise ValueError(f"{refusal}, where small features may look alike")
    return float(np.hypot(np.sqrt(max(square, 0.0)), np.linalg.norm(constant)))


def _rounded(dual: Floats, intercept: Floats, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the weights in the precision of the features. Overflow and loss of digits are refused."""
    with np.errstate(over="ignore"):
        found = dual.astype(dtype), intercept.astype(dtype)
    largest = float(np.abs(dual).max())
    if largest < float(np.finfo(dtype).tiny) or not all(np.isfinite(part).all() for part in found):
        raise ValueError(
            f"X and radius must give weights of the examples that {dtype} can hold; got weights of up to {largest:g}: "
            "scale the features or the radius"
        )
    return found
