"""Sums of the features of each class, the centroid they make, and the weights in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse  # type: ignore[import-untyped]
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import assert_all_finite  # type: ignore[import-untyped]
from torch import Tensor

from symloss import checks
from symloss.fitting import magnitude

Floats = NDArray[np.float64]
Codes = NDArray[np.int64]

BLOCK = 2**18  # the most numbers in a block, which must fit into the processor's cache
ROWS = 1024  # the most rows in a block, few enough for a sum in float32
SAMPLED = 64  # the largest feature is sought in every row with a number that this divides
FAR = 8  # features are shifted if their mean is more than this many standard deviations from zero
SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)
ROUNDING = {SINGLE: 3e-8, DOUBLE: 1e-13}
"""The rounding error of a mean, relative to the largest feature, by the precision of a block."""

TOO_LARGE = "X and sample_weight must have finite sums over the examples; got features or weights too large for that"


@dataclass(frozen=True)
class ClassSums:
    """Weighted sums over the examples of each class."""

    sums: Floats
    """(C, d), of the features."""
    weights: Floats
    """(C,), of the weights of the examples."""
    rounding: float
    """A mean of features below this may be rounding."""
    dtype: np.dtype[Any]
    """The precision of the solution."""

    def __add__(self, other: ClassSums) -> ClassSums:
        with np.errstate(over="ignore"):
            sums, weights = self.sums + other.sums, self.weights + other.weights
        rounding = max(self.rounding, other.rounding)
        return ClassSums(sums, weights, rounding, np.result_type(self.dtype, other.dtype))

    @classmethod
    def nothing(cls, num_classes: int, features: int) -> ClassSums:
        """Return the sums of no examples."""
        return cls(np.zeros((num_classes, features)), np.zeros(num_classes), 0.0, SINGLE)


def class_sums(features: Any, codes: Codes, num_classes: int, weights: Floats | None = None) -> ClassSums:
    """Sum the features (N, d) of each class, in one pass. Infinite and missing features are refused."""
    counts = np.bincount(codes, weights, minlength=num_classes).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        single = weights is None and str(features.dtype) in ("float32", "torch.float32")
        sums, rounding = _summed(features, codes, counts, weights, single)
        if not np.isfinite(sums).all():
            refuse_what_is_not_finite(features)
            sums, rounding = _summed(features, codes, counts, weights, single=False)
    if not np.isfinite(sums).all():
        raise ValueError(TOO_LARGE)
    return ClassSums(sums, counts, rounding, precision(features))


def precision(features: Any) -> np.dtype[Any]:
    """Return the precision of the solution: float32 for features of float32 and less, else float64."""
    if isinstance(features, Tensor):
        single = features.is_floating_point() and features.dtype != torch.float64
    else:
        single = features.dtype in (np.float32, np.float16)
    return SINGLE if single else DOUBLE


def _summed(features: Any, codes: Codes, counts: Floats, weights: Floats | None, single: bool) -> tuple[Floats, float]:
    """Return the sums of the features of each class, and the rounding error of their means."""
    if scipy.sparse.issparse(features):
        sums = (_indicator(codes, len(counts), weights, DOUBLE) @ features).toarray()
        return sums, ROUNDING[DOUBLE] * float(np.abs(features.data).max(initial=0.0))
    wide, shift = SINGLE if single else DOUBLE, None
    if single:
        first = _array(features[: 4 * SAMPLED]).astype(np.float64)
        is_far = bool((np.abs(first.mean(0)) > FAR * first.std(0)).any())
        shift = first.mean(0).astype(np.float32) if is_far else None
    sums, largest = _block_by_block(features, codes, len(counts), weights, wide, shift)
    rounding = ROUNDING[wide] * largest
    if shift is not None:
        sums += counts[:, None] * shift
        rounding += ROUNDING[DOUBLE] * float(np.abs(shift).max())
    return sums, rounding


def _array(features: Any) -> NDArray[Any]:
    """Return the features as an array, without a copy if numpy has their type."""
    if not isinstance(features, Tensor):
        return np.asarray(features)
    tensor = features.detach().cpu()
    array: NDArray[Any] = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return array


def _block_by_block(
    features: Any,
    codes: Codes,
    num_classes: int,
    weights: Floats | None,
    wide: np.dtype[Any],
    shift: NDArray[np.float32] | None,
) -> tuple[Floats, float]:
    """Sum features minus ``shift``, in blocks of precision ``wide``; and find the largest feature of a sample."""
    # The product with a sparse indicator runs in one thread. On a busy machine the small products of BLAS's threads
    # take many times longer.
    count, width = features.shape
    size = max(1, min(ROWS, BLOCK // width))
    sums, largest = np.zeros((num_classes, width)), 0.0
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        part = _array(features[rows])  # which a tensor on another device is moved to
        part = part if shift is None else part - shift
        # Only the classes of a block, if there are more classes than rows: else it would add to every class.
        many = num_classes > len(codes[rows])
        present, local = np.unique(codes[rows], return_inverse=True) if many else (np.arange(num_classes), codes[rows])
        weight = None if weights is None else weights[rows]
        sums[present] += _indicator(local, len(present), weight, wide) @ part
        largest = max(largest, float(np.abs(part[::SAMPLED], dtype=wide).max()))
    return sums, largest


def _indicator(codes: Codes, num_classes: int, weights: Floats | None, wide: np.dtype[Any]) -> Any:
    """Return a matrix with a row for each class, which holds the weights of its examples."""
    values = np.ones(len(codes), wide) if weights is None else weights
    return scipy.sparse.csc_array((values, codes, np.arange(len(codes) + 1)), shape=(num_classes, len(codes)))


def refuse_what_is_not_finite(features: Any) -> None:
    """Raise ValueError if a feature is infinite or missing."""
    assert_all_finite(_array(features) if isinstance(features, Tensor) else features, input_name="X")


Prior = ArrayLike | str | None


@dataclass(frozen=True)
class Centroid:
    """The unhinged data centroid mu = 1/N sum_i c_{y_i} psi(x_i)^T, divided by ``unit`` so that no square overflows."""

    features: Floats  # (C, d), the part of the (centred) features
    constant: Floats  # (C,), the extended column
    unit: float
    mean: Floats  # (d,), which centring subtracts
    rounding: float  # a norm below this may be rounding
    refusal: str  # what to say if mu is zero

    @property
    def norm(self) -> float:
        """|mu|, with the extended column. The least loss of weights of norm 1 is -|mu|."""
        return self.unit * self._length

    @property
    def zero(self) -> bool:
        """Whether mu is zero. Then all weights have the same loss."""
        return not self.constant.any() and self.norm <= self.rounding

    def solution(self, radius: float, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return weights (C, d) of norm ``radius`` and intercepts (C,), for features that are not centred."""
        if self.zero:
            raise ValueError(self.refusal)
        factor = radius / self._length
        with np.errstate(over="ignore", invalid="ignore"):
            weights = (factor * self.features).astype(dtype)
            # The rounded weights are used, so that their rounding is not multiplied by the mean.
            drift = weights.astype(np.float64) @ self.mean
            bias = (factor * self.constant - drift).astype(dtype)
        if not (np.isfinite(weights).all() and np.isfinite(bias).all() and np.isfinite(self.norm)):
            raise ValueError(
                f"X and radius must give weights and intercepts that are finite in {dtype}; got features or a radius "
                f"too large for that (radius = {radius:g}): scale them down"
            )
        return weights, bias

    @property
    def _length(self) -> float:
        return float(np.hypot(np.linalg.norm(self.features), np.linalg.norm(self.constant)))


def zero_centroid(shares: Floats, prior: Floats, center: bool) -> str:
    """Return the refusal of a zero centroid, which says what is equal: sums of the features of a class, or their means.

    Row k of the centroid is S_k - q_k sum_j S_j with the sums S_k, so without centring it does not compare means.
    """
    if center and np.count_nonzero(shares) < 2:
        equal = "examples of one class alone, from which centring subtracts their mean"
    elif center or np.allclose(shares, prior, rtol=0, atol=ROUNDING[DOUBLE]):
        equal = "features with the same mean in every class (if all are equal, for example)"
    else:
        ratio = "the same sum" if np.ptp(prior) <= ROUNDING[DOUBLE] else "sums in the ratio of the prior"
        equal = f"features with {ratio} in every class, though classes differ in size (center=True compares means)"
    return f"the centroid of the data must not be zero, for then all weights have the same loss; got {equal}"


@np.errstate(over="ignore", invalid="ignore")
def centroid(totals: ClassSums, prior: Prior, fit_intercept: bool, center: bool) -> Centroid:
    """Return the data centroid from the sums of each class.

    Row k is (S_k - q_k sum_j S_j) / N with the sums S_k and the prior q. Of centred features it is (S_k - n_k m) / N
    with the mean m. The extended column is n_k / N - q_k. Sums are divided by N first, so that nothing overflows.
    """
    count = totals.weights.sum()
    if not (np.isfinite(totals.sums).all() and np.isfinite(count)):
        raise ValueError(TOO_LARGE)
    shares, means = totals.weights / count, totals.sums / count
    whole = means.sum(0)
    given = prior_vector(prior, shares)
    mean = whole if center else np.zeros_like(whole)
    drift = shares if center else given
    features, constant = means - drift[:, None] * whole, constant_column(shares, given, fit_intercept)
    unit = magnitude(features, constant)
    return Centroid(features / unit, constant / unit, unit, mean, totals.rounding, zero_centroid(shares, given, center))


def constant_column(shares: Floats, prior: Floats, fit_intercept: bool) -> Floats:
    """Return the extended column of the centroid. Rounding is set to zero, since it may outweigh small features."""
    column = shares - prior
    nothing = not fit_intercept or np.linalg.norm(column) <= ROUNDING[DOUBLE]
    return np.zeros_like(shares) if nothing else column


def prior_vector(prior: Prior, shares: Floats) -> Floats:
    """Return the prior q (C,): uniform for None, the class shares for ``"frequencies"``, or the vector itself."""
    num_classes = len(shares)
    if prior is None:
        return np.full(num_classes, 1 / num_classes)
    if isinstance(prior, str) and prior == "frequencies":
        return shares
    try:
        vector = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        vector = np.empty(0)
    if vector.shape != (num_classes,):
        wanted = f"None, 'frequencies' or a vector of probabilities of the {num_classes} classes"
        raise ValueError(f"prior must be {wanted}; got {checks.brief(prior)}")
    if not (vector >= 0).all() or abs(vector.sum() - 1) > 1e-6:
        raise ValueError(f"prior must hold probabilities that sum to 1; got {checks.brief(prior)}")
    return vector
