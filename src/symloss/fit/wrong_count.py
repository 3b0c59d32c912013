"""How many labels are wrong, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import ArrayLike

from symloss import checks


@dataclass(frozen=True)
class WrongCount:
    """An estimate of the number of wrong labels.

    Attributes:
        n_wrong: the number.
        interval: (low, high), the ends of an interval for it.
        method: "negative margins" or "held-out labels", whichever the number comes from.
    """

    n_wrong: int
    interval: tuple[int, int]
    method: str


def count_wrong(
    margins: ArrayLike,
    held_out_labels: ArrayLike | None = None,
    held_out_probabilities: ArrayLike | None = None,
    *,
    level: float = 0.95,
) -> WrongCount:
    """Estimate how many of N labels are wrong.

    A label whose mean margin is below 0 lost against another label while the network was trained. The number of such
    labels is the estimate. A network that learns wrong labels by heart makes it too small. Held-out labels show this:
    the share of them that the network does not predict is the share of wrong labels, and of errors of the network. If
    the number of negative margins is outside of the interval of that share, the estimate is that share of N.

    Args:
        margins: (N,), the mean margin of each label over the epochs.
        held_out_labels: (M,), noisy labels that were not trained on; None if there are none.
        held_out_probabilities: (M, C), the network's probabilities for them.
        level: the probability that the interval covers the number. It is Wilson's interval of the held-out share; it
            does not know of the network's errors. Without held-out labels it is that of the negative margins.

    >>> count_wrong([-1.0, 2.0, 3.0, 2.0]).n_wrong
    1
    """
    values = np.asarray(margins, dtype=np.float64)
    if values.ndim != 1 or not len(values) or not np.isfinite(values).all():
        raise ValueError(f"margins must be finite numbers of shape (N,); got {checks.brief(margins)}")
    checks.number("level", level, "(0, 1)")
    size, negative = len(values), int((values < 0).sum())
    if held_out_labels is None or held_out_probabilities is None:
        return WrongCount(negative, _scaled(_wilson(negative, size, level), size), "negative margins")
    labels, probabilities = np.asarray(held_out_labels), np.asarray(held_out_probabilities)
    if probabilities.ndim != 2 or labels.shape != probabilities.shape[:1] or not len(labels):
        raise ValueError(
            "held_out_probabilities must have shape (M, C) and held_out_labels shape (M,); got "
            f"{probabilities.shape} and {labels.shape}"
        )
    other = int((probabilities.argmax(1) != labels).sum())
    low, high = _wilson(other, len(labels), level)
    if low <= negative / size <= high:
        return WrongCount(negative, _scaled((low, high), size), "negative margins")
    return WrongCount(round(size * other / len(labels)), _scaled((low, high), size), "held-out labels")


def _wilson(hits: int, size: int, level: float) -> tuple[float, float]:
    """Wilson's interval for a share."""
    z = NormalDist().inv_cdf((1 + level) / 2)
    share, spread = hits / size, z * z / size
    middle = share + spread / 2
    half = z * math.sqrt(share * (1 - share) / size + spread / (4 * size))
    return max(0.0, (middle - half) / (1 + spread)), min(1.0, (middle + half) / (1 + spread))


def _scaled(shares: tuple[float, float], size: int) -> tuple[int, int]:
    return math.floor(shares[0] * size), math.ceil(shares[1] * size)
