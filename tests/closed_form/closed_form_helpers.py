"""Small data for the closed form, and the formulas of appendix C written out example by example."""

from __future__ import annotations

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


def c_vectors(labels, classes, prior=None):
    """c_y: (C-1)/C at the label, -1/C elsewhere; or e_y - prior."""
    found = np.full((len(labels), classes), -1 / classes) if prior is None else -np.tile(prior, (len(labels), 1))
    for row, label in zip(found, labels, strict=True):
        row[label] += 1
    return found


def centroid(x, labels, classes, weights=None, prior=None):
    """mu = 1/N sum_i w_i c_{y_i} x_i^T, one outer product at a time."""
    weights = np.ones(len(x)) if weights is None else np.asarray(weights, float)
    found = np.zeros((classes, x.shape[1]))
    for w, c, row in zip(weights, c_vectors(labels, classes, prior), np.asarray(x, float), strict=True):
        found += w * np.outer(c, row)
    return found / weights.sum()


def extended(x):
    return np.column_stack([x, np.ones(len(x))])


def unhinged(scores, labels):
    """mean_k z_k - z_y of each example."""
    return scores.mean(1) - scores[np.arange(len(labels)), labels]


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
