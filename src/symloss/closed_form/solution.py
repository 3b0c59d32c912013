"""W = r mu / |mu|: the minimiser of the multi-class unhinged loss among weights of Frobenius norm r (appendix C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from symloss import checks
from symloss.closed_form.sums import ROUNDING, ClassSums, Floats

FREQUENCIES = "frequencies"

Prior = ArrayLike | str | None


@dataclass(frozen=True)
class Centroid:
    """The unhinged data centroid mu = 1/N sum_i c_{y_i} psi(x_i)^T.

    ``features`` (C, d) belong to the (centred) features, ``constant`` (C,) is the extended column, ``mean`` (d,) what
    centring subtracts. What is below ``rounding`` may as well be zero.
    """

    features: Floats
    constant: Floats
    mean: Floats
    rounding: float

    @property
    def norm(self) -> float:
        """|mu|, the extended column included: minus the least loss of weights of norm 1."""
        return float(np.hypot(np.linalg.norm(self.features), np.linalg.norm(self.constant)))

    @property
    def zero(self) -> bool:
        """Whether all weights are as good as each other: the degenerate case."""
        small = np.linalg.norm(self.features) <= self.rounding
        return bool(small and np.linalg.norm(self.constant) <= ROUNDING[np.dtype(np.float64)])

    def solution(self, radius: float, dtype: np.dtype[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        """Weights (C, d) of norm ``radius`` for features that are not centred, and what to add to the scores (C,)."""
        if self.zero:
            raise ValueError(ZERO)
        factor = radius / self.norm
        weights = (factor * self.features).astype(dtype)
        # The weights as they were rounded: their rounding must not be multiplied by the mean.
        return weights, (factor * self.constant - weights.astype(np.float64) @ self.mean).astype(dtype)


ZERO = (
    "the centroid of the data must not be zero, for then all weights have the same loss; got classes whose means"
    " do not differ"
)


def centroid(totals: ClassSums, prior: Prior, fit_intercept: bool, center: bool) -> Centroid:
    """The data centroid from the sums of each class.

    Row k is (S_k - q_k sum_j S_j) / N with the sums S_k and the prior q. Centred features sum to zero, which leaves
    (S_k - n_k m) / N with the mean m; the extended column is n_k / N - q_k.
    """
    count = totals.weights.sum()
    whole, shares = totals.sums.sum(0), totals.weights / count
    given = prior_vector(prior, shares)
    mean = whole / count if center else np.zeros_like(whole)
    drift = shares if center else given
    features = (totals.sums - drift[:, None] * whole) / count
    constant = shares - given if fit_intercept else np.zeros_like(shares)
    return Centroid(features, constant, mean, totals.rounding)


def prior_vector(prior: Prior, shares: Floats) -> Floats:
    """The q of c_y = e_y - q: uniform unless given, ``frequencies`` for the classes' shares of the weight."""
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
