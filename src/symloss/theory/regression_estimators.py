"""Linear regression in closed form for losses that are linear in the prediction: scikit-learn estimators (app. F)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)

from symloss import checks
from symloss.fitting import all_or_nothing
from symloss.noise.targets import AnyTargetDistribution
from symloss.theory.regression import LinearRegressionLoss

Array = np.ndarray[Any, Any]

ACCEPTED: dict[str, Any] = {"accept_sparse": ["csr", "csc"], "dtype": [np.float64, np.float32]}


class _CentroidRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The minimiser of mean_i f(y_i) (w x_i) + decay/2 |w|^2, which is w = -1/decay mean_i f(y_i) x_i.

    The intercept is the weight of a feature that is always 1. So it is part of w and of the penalty. With ``center``
    the mean of the features is subtracted first.
    """

    decay: float
    fit_intercept: bool
    center: bool

    @all_or_nothing
    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit in one pass over the data.

        Args:
            X: features (N, d), dense or sparse; float32 stays float32.
            y: targets (N,) or (N, K).
            sample_weight: (N,), at least 0, the weights of the examples in all means.
        """
        decay = checks.number("decay", self.decay, "(0, inf)")
        data, targets = validate_data(self, X, y, multi_output=True, y_numeric=True, **ACCEPTED)
        share = _shares(sample_weight, data)
        with np.errstate(over="ignore", invalid="ignore"):
            slopes, origin = self._slopes(targets.reshape(len(targets), -1).astype(np.float64), share)
            total = share @ slopes
            # Centred features have mean 0, so the mean of the slopes has no effect. Without it no digits are lost where
            # features and targets are far from 0.
            weighted = share[:, None] * (slopes - total if self.center else slopes)
            mean = np.asarray(data.T @ share).ravel() if self.center else np.zeros(data.shape[1])
            coef = (np.asarray(data.T @ weighted).T - np.outer(weighted.sum(0), mean)) / -decay
            constant = total / -decay if self.fit_intercept else np.zeros_like(total)
            intercept = (origin + constant - coef @ mean).astype(data.dtype)
            coef = coef.astype(data.dtype)
        if not (np.isfinite(coef).all() and np.isfinite(intercept).all()):
            raise ValueError("the centroid of features and targets overflows; scale the features or the targets down")
        single = targets.ndim == 1
        self.coef_ = coef[0] if single else coef
        self.intercept_ = float(intercept[0]) if single else intercept
        return self

    def predict(self, X: Any) -> Array:
        """Return X coef + intercept, of shape (N,) or (N, K)."""
        check_is_fitted(self)
        data = validate_data(self, X, reset=False, **ACCEPTED)
        with np.errstate(over="ignore", invalid="ignore"):
            found: Array = np.asarray(data @ self.coef_.T) + np.asarray(self.intercept_, dtype=self.coef_.dtype)
        if not np.isfinite(found).all():
            raise ValueError(
                f"X must hold features whose predictions are finite in {found.dtype}; got features too large"
            )
        return found

    def _slopes(self, y: Array, share: Array) -> tuple[Array, Array]:
        """Return f(y) with mean zero under the corruption, (N, K), and where predictions are measured from, (K,)."""
        raise NotImplementedError

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


class UnhingedRegressor(_CentroidRegressor):
    """Linear regression with the unhinged loss, in closed form (examples F.5 and F.7).

    It minimises mean_i -chi_delta(y_i - m) (h(x_i) - m) + decay/2 |w|^2 over h(x) = m + w x. The solution is
    w = 1/decay mean_i chi_delta(y_i - m) x_i. If a share p of the targets is replaced by draws of mean m (with delta:
    symmetric about m), the expected w is 1 - p times the clean one. decay = 1 - p compensates for that.

    Args:
        decay: the weight of the penalty. It only scales h - m. With white features, 1 gives least squares.
        delta: targets are clipped to m -+ delta (the linearised symmetrized Huber loss); None for no clipping.
        corruption_mean: m, a number, or ``"mean"`` or ``"median"`` of the targets.
        fit_intercept: add a feature that is always 1. Its weight is part of w, and of the penalty.
        center: subtract the mean of the features first.

    Attributes:
        coef_: (d,) or (K, d).
        intercept_: a number or (K,).
        corruption_mean_: m, a number or (K,).

    >>> x = np.array([[-1.0], [1.0], [-1.0], [1.0]])
    >>> UnhingedRegressor().fit(x, [1.0, 5.0, 1.0, 5.0]).predict([[0.5]])
    array([4.])
    """

    def __init__(
        self,
        decay: float = 1.0,
        *,
        delta: float | None = None,
        corruption_mean: float | str = 0.0,
        fit_intercept: bool = True,
        center: bool = True,
    ):
        self.decay = decay
        self.delta = delta
        self.corruption_mean = corruption_mean
        self.fit_intercept = fit_intercept
        self.center = center

    def _slopes(self, y: Array, share: Array) -> tuple[Array, Array]:
        if not isinstance(self.corruption_mean, str):
            origin = np.full(y.shape[1], checks.number("corruption_mean", self.corruption_mean, "(-inf, inf)"))
        elif self.corruption_mean in ("mean", "median"):
            origin = share @ y if self.corruption_mean == "mean" else _weighted_median(y, share)
        else:
            given = checks.brief(self.corruption_mean)
            raise ValueError(f"corruption_mean must be 'mean', 'median' or a number; got {given}")
        self.corruption_mean_ = origin if y.shape[1] > 1 else float(origin[0])
        offset = y - origin
        if self.delta is not None:
            delta = checks.number("delta", self.delta, "(0, inf)")
            offset = offset.clip(-delta, delta)
        return -offset, origin


class LinearFamilyRegressor(_CentroidRegressor):
    """Regression with a loss f(y) z for any f: w = -1/decay mean_i (f(y_i) - E_q f) x_i (app. F).

    Every loss that is linear in the prediction and symmetric under the corruption q has this form. f(y) = -y is the
    unhinged loss, and f(y) = -clip(y, -delta, delta) its clipped form. f(y) = -sign(y) or -tanh(y) limit the effect of
    large targets further. Predictions are in the units of f.

    Args:
        f: a function of an array of targets, entry by entry; ``numpy.negative`` where None.
        corruption: q, as in :class:`SymmetrizedRegression`, but no function of x. The mean of f under q is subtracted.
            None if f has mean zero already.
        decay, fit_intercept, center: as in :class:`UnhingedRegressor`.

    Attributes:
        coef_, intercept_: as in :class:`UnhingedRegressor`.
        mean_f_: the mean of f under the corruption.

    >>> x, y = np.array([[-1.0], [1.0]]), [-3.0, 900.0]
    >>> LinearFamilyRegressor(lambda y: -np.sign(y)).fit(x, y).predict(x)
    array([-1.,  1.])
    """

    def __init__(
        self,
        f: Callable[[Array], Array] | None = None,
        *,
        corruption: AnyTargetDistribution | None = None,
        decay: float = 1.0,
        fit_intercept: bool = True,
        center: bool = True,
    ):
        self.f = f
        self.corruption = corruption
        self.decay = decay
        self.fit_intercept = fit_intercept
        self.center = center

    def _slopes(self, y: Array, share: Array) -> tuple[Array, Array]:
        if self.f is not None and not callable(self.f):
            raise TypeError(f"f must be a function of an array of targets; got {checks.brief(self.f)}")
        f = np.negative if self.f is None else self.f
        self.mean_f_ = _mean_of(f, self.corruption)
        slopes = np.asarray(f(y), dtype=np.float64)
        if slopes.shape != y.shape or not np.isfinite(slopes).all():
            given = f"shape {slopes.shape}" if slopes.shape != y.shape else "NaN or infinity"
            raise ValueError(f"f must return one finite number for each target, shape {y.shape}; got {given}")
        return slopes - self.mean_f_, np.zeros(y.shape[1])


def _mean_of(f: Callable[[Array], Array], corruption: AnyTargetDistribution | None) -> float:
    loss = LinearRegressionLoss(lambda t: torch.as_tensor(np.asarray(f(t.numpy()), dtype=np.float64)), corruption)
    if (found := loss.mean()).dim():
        raise ValueError(f"corruption must be one distribution; got a batch of shape {tuple(found.shape)}")
    return float(found)


def _shares(sample_weight: Any, X: Any) -> Array:
    """Return the weights of the examples, divided by their sum."""
    weight: Array = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
    total = weight.sum()
    if not 0 < total < np.inf:
        raise ValueError(f"sample_weight must have a sum above 0 that is finite; got {total:g}")
    share: Array = weight / total
    return share


def _weighted_median(y: Array, share: Array) -> Array:
    """Return the weighted median of each column; the middle where it is a range."""
    medians = []
    for column in y.T:
        order = column.argsort()
        middle = np.searchsorted(share[order].cumsum(), [0.5 * (1 - 1e-12), 0.5 * (1 + 1e-12)])
        medians.append(column[order[middle.clip(max=len(order) - 1)]].mean())
    return np.array(medians)
