"""Small data for the closed form, and what is measured of it."""

import tracemalloc

import numpy as np


def blobs(count=90, features=4, classes=3, seed=0, offset=1.0, flipped=0.2, dtype=np.float64):
    """Overlapping classes of unequal size, away from the origin, some labels wrong; every class is there."""
    random = np.random.default_rng(seed)
    labels = random.choice(classes, count, p=np.arange(1, classes + 1) / sum(range(1, classes + 1)))
    labels[:classes] = np.arange(classes)
    x = random.standard_normal((count, features)) + random.standard_normal((classes, features))[labels] + offset
    wrong = random.random(count) < flipped
    labels = np.where(wrong, random.integers(classes, size=count), labels)
    labels[:classes] = np.arange(classes)
    return x.astype(dtype), labels


def relative(actual, expected):
    """The largest difference, as a share of the largest entry."""
    return np.abs(np.asarray(actual, float) - expected).max() / np.abs(expected).max()


def peak_bytes(work):
    """The most memory that a call allocates at a time."""
    tracemalloc.start()
    work()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak
