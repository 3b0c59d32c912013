"""What the tests of noise share."""

from __future__ import annotations

import numpy as np


def some_labels(size: int, classes: int, seed: int = 0) -> np.ndarray:
    """Unbalanced, in no order."""
    weights = np.arange(1, classes + 1) / (classes * (classes + 1) / 2)
    return np.random.default_rng(seed).choice(classes, size, p=weights)


def transitions(clean: np.ndarray, noisy: np.ndarray, classes: int) -> np.ndarray:
    """By definition."""
    table = np.zeros((classes, classes), dtype=np.int64)
    for before, after in zip(clean, noisy, strict=True):
        table[before, after] += 1
    return table
