"""How many labels of each class become each other class, and which ones."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

METHODS = ("floor", "exact", "sampled")

Labels = NDArray[np.int64]


def relabel(clean: Labels, transition: NDArray[np.float64], method: str, rng: np.random.Generator) -> Labels:
    """Add noise from a transition matrix to labels; see :func:`symloss.noise.corrupt` for the methods."""
    groups = by_class(clean, len(transition))
    if method == "sampled":
        return _draw(clean, groups, transition, rng)
    sizes = np.array([len(group) for group in groups])
    flips = floor_counts(transition, sizes) if method == "floor" else exact_counts(transition, sizes, rng)
    noisy = clean.copy()
    for group, row in zip(groups, flips, strict=True):
        moved = rng.permutation(group)[: row.sum()]
        noisy[moved] = np.repeat(np.arange(len(row)), row)
    return noisy


def by_class(labels: Labels, classes: int) -> list[Labels]:
    """The positions of each class, in ascending order."""
    order = np.argsort(labels, kind="stable")
    ends = np.cumsum(np.bincount(labels, minlength=classes))
    return np.split(order, ends[:-1])


def floor_counts(transition: NDArray[np.float64], sizes: Labels) -> Labels:
    """int(T[c, k] n_c) labels of class c become k, as in the published tables.

    >>> floor_counts(np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([5, 9]))
    array([[0, 2],
           [0, 0]])
    """
    flips = (transition * sizes[:, None]).astype(np.int64)
    np.fill_diagonal(flips, 0)
    return flips


def exact_counts(transition: NDArray[np.float64], sizes: Labels, rng: np.random.Generator) -> Labels:
    """Numbers of labels, each less than one away from T[c, k] n_c.

    The total number of flips is the expected one, rounded. Largest remainders distribute it over the classes, and the
    flips of a class over its targets. So the flips of a class, too, are less than one away from the expected number.

    >>> exact_counts(np.array([[0.5, 0.5], [0.1, 0.9]]), np.array([5, 9]), np.random.default_rng(0))
    array([[0, 2],
           [1, 0]])
    """
    quotas = np.round(transition * sizes[:, None], 9)
    np.fill_diagonal(quotas, 0)
    per_class = np.round(quotas.sum(1), 9)
    total = int(np.floor(per_class.sum() + 0.5))
    flips = apportion(per_class, total, rng)
    return np.stack([apportion(row, number, rng) for row, number in zip(quotas, flips, strict=True)])


def apportion(quotas: NDArray[np.float64], total: int, rng: np.random.Generator) -> Labels:
    """Round each quota down or up so that the sum is ``total``. The largest remainders go up, ties at random.

    If ties went to the first class, symmetric noise would prefer low class numbers.

    >>> apportion(np.array([1.2, 2.7, 0.6]), 4, np.random.default_rng(0))
    array([1, 3, 0])
    """
    whole = np.floor(quotas).astype(np.int64)
    remainders = np.round(quotas - whole, 9)
    order = np.lexsort((rng.random(len(quotas)), -remainders))
    whole[order[: total - whole.sum()]] += 1
    return whole


def _draw(clean: Labels, groups: list[Labels], transition: NDArray[np.float64], rng: np.random.Generator) -> Labels:
    uniform = rng.random(len(clean))
    noisy = clean.copy()
    for group, row in zip(groups, transition, strict=True):
        steps = np.cumsum(row)
        noisy[group] = np.searchsorted(steps / steps[-1], uniform[group], side="right")
    return noisy
