"""W = r mu / |mu|: the minimiser of the multi-class unhinged loss among weights of Frobenius norm r (appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from symloss import checks
from symloss.closed_form.sums import ROUNDING, TOO_LARGE, ClassSums, Floats
from symloss.fitting import magnitude

FREQUENCIES = "frequencies"

Prior = ArrayLike | str | None


@dataclass(frozen=True)
class Centroid:
    """The unhinged data centroid mu = 1/N sum_i c_{y_i} psi(x_i)^T.

    Args:
        features: (C, d), the part of the (centred) features.
        constant: (C,), the extended column.
        mean: (d,), which centring subtracts.
        rounding: a norm below this may be rounding.
    """

    features: Floats
    constant: Floats
    mean: Floats
    rounding: float

    @property
    def norm(self) -> float:
        """|mu|, with the extended column. The least loss of weights of norm 1 is -|mu|."""
        unit = magnitude(self.features, self.constant)
        return unit * self._norm_in(unit)

    @property
    def zero(self) -> bool:
        """Whether mu is zero. Then all weights have the same loss."""
        return not self.constant.any() and self.norm <= self.rounding

    def solution(self, radius: float, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights (C, d) of norm ``radius`` and intercepts (C,), for features that are not centred."""
        if self.zero:
            raise ValueError(ZERO)
        unit = magnitude(self.features, self.constant)
        length = self._norm_in(unit)
        factor = radius / length
        with np.errstate(over="ignore", invalid="ignore"):
            weights = (factor * (self.features / unit)).astype(dtype)
            # The rounded weights are used, so that their rounding is not multiplied by the mean.
            drift = weights.astype(np.float64) @ self.mean
            bias = (factor * (self.constant / unit) - drift).astype(dtype)
        if not (np.isfinite(weights).all() and np.isfinite(bias).all() and np.isfinite(unit * length)):
            raise ValueError(
                f"X and radius must give weights and intercepts that are finite in {dtype}; got features or a radius "
                f"too large for that (radius = {radius:g}): scale them down"
            )
        return weights, bias

    def _norm_in(self, unit: float) -> float:
        return float(np.hypot(np.linalg.norm(self.features / unit), np.linalg.norm(self.constant / unit)))


ZERO = (
    "the centroid of the data must not be zero, for then all weights have the same loss; got classes whose means"
    " do not differ"
)


@np.errstate(over="ignore", invalid="ignore")
def centroid(totals: ClassSums, prior: Prior, fit_intercept: bool, center: bool) -> Centroid:
    """The data centroid from the sums of each class.

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
    features = means - drift[:, None] * whole
    return Centroid(features, constant_column(shares, given, fit_intercept), mean, totals.rounding)


def constant_column(shares: Floats, prior: Floats, fit_intercept: bool) -> Floats:
    """The extended column of the centroid. Rounding is set to zero, since it may outweigh small features."""
    column = shares - prior
    nothing = not fit_intercept or np.linalg.norm(column) <= ROUNDING[np.dtype(np.float64)]
    return np.zeros_like(shares) if nothing else column


def prior_vector(prior: Prior, shares: Floats) -> Floats:
    """The prior q (C,): uniform for None, the shares of the classes for ``"frequencies"``, or the vector itself."""
    classes = len(shares)
    if prior is None:
        return np.full(classes, 1 / classes)
    if isinstance(prior, str):
        if prior != FREQUENCIES:
            raise ValueError(f"prior must be None, {FREQUENCIES!r} or a vector; got {prior!r}")
        return shares
    try:
        vector = np.asarray(prior, dtype=np.float64)
    except (TypeError, ValueError):
        vector = np.empty(0)
    if vector.shape != (classes,):
        raise ValueError(
            f"prior must be None, {FREQUENCIES!r} or a vector of one probability for each of the {classes} classes; "
            f"got {checks.brief(prior)}"
        )
    if not (vector >= 0).all() or abs(vector.sum() - 1) > 1e-6:
        raise ValueError(f"prior must hold probabilities that sum to 1; got {checks.brief(prior)}")
    return vector
