"""Noise that depends on the input: similar examples of a class get the same wrong label."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symloss.noise.transition import Labels, by_class, flip_rate

SPREAD = 0.1
"""Standard deviation of the examples' flip rates."""

CHUNK = 1024

Inputs = NDArray[np.generic] | Tensor


def relabel_by_input(
    clean: Labels, inputs: object, rate: float, classes: int, method: str, rng: np.random.Generator
) -> Labels:
    """Instance-dependent noise after Xia et al. 2020 (part-dependent label noise).

    Each example gets its own flip rate, from a normal distribution around the rate with standard deviation 0.1. The
    distribution is truncated at equal distances on both sides, inside [0, 1], so that its mean stays the rate. A random
    projection of the example, one for each true class, gives scores. The new label is drawn from their softmax, without
    the true class. Features are standardised first, so that units do not matter.

    ``sampled`` flips each example with its own rate. ``exact`` and ``floor`` flip round(rate n) and int(rate n)
    examples: those whose rate exceeds a uniform random number by most.
    """
    rate = flip_rate(rate, classes)
    features = _checked(inputs, len(clean))
    margin = flip_rates(len(clean), rate, rng) - rng.random(len(clean))
    if method == "sampled":
        flipped = margin > 0
    else:
        number = int(rate * len(clean) + (0.5 if method == "exact" else 0))
        flipped = np.zeros(len(clean), dtype=bool)
        flipped[np.argsort(-margin, kind="stable")[:number]] = True
    return np.where(flipped, _mistakes(clean, features, classes, rng), clean)


def flip_rates(size: int, rate: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """A flip rate for each example: normal around the rate, truncated symmetrically inside [0, 1]."""
    reach = torch.tensor(min(rate, 1 - rate) / SPREAD, dtype=torch.float64)
    low, high = (float(torch.special.ndtr(end)) for end in (-reach, reach))
    levels = torch.from_numpy(low + (high - low) * rng.random(size))
    normal = torch.special.ndtri(levels).clamp(-reach, reach)
    return np.asarray(rate + SPREAD * normal.numpy())


def _mistakes(clean: Labels, features: Inputs, classes: int, rng: np.random.Generator) -> Labels:
    """The wrong class of each example, if it is flipped."""
    mean, scale = _moments(features)
    wrong = np.empty_like(clean)
    for label, group in enumerate(by_class(clean, classes)):
        projection = rng.standard_normal((len(mean), classes))
        for rows, chunk in _chunks(features, group):
            scores = ((chunk - mean) * scale) @ projection
            scores[:, label] = -np.inf
            # The largest of scores plus Gumbel noise is a draw from their softmax.
            wrong[rows] = (scores + rng.gumbel(size=scores.shape)).argmax(1)
    return wrong


def _moments(features: Inputs) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and 1 / standard deviation of each feature; a constant feature counts for nothing."""
    everything = np.arange(len(features))
    mean = sum(chunk.sum(0) for _, chunk in _chunks(features, everything)) / len(features)
    variance = sum(((chunk - mean) ** 2).sum(0) for _, chunk in _chunks(features, everything)) / len(features)
    # Rounding of the mean leaves a constant feature with a variance of about eps^2.
    varies = variance > 1e-24 * mean**2
    return mean, np.where(varies, 1 / np.sqrt(np.where(varies, variance, 1)), 0)


def _chunks(features: Inputs, rows: Labels) -> Iterator[tuple[Labels, NDArray[np.float64]]]:
    for start in range(0, len(rows), CHUNK):
        some = rows[start : start + CHUNK]
        if isinstance(features, Tensor):
            chunk = features[torch.from_numpy(some)].detach().cpu().double().numpy()
        else:
            chunk = features[some].astype(np.float64)
        if not np.isfinite(chunk).all():
            raise ValueError("inputs must be finite numbers for instance noise; got nan or inf")
        yield some, chunk.reshape(len(some), -1)


def _checked(inputs: object, size: int) -> Inputs:
    if not isinstance(inputs, (np.ndarray, Tensor)):
        raise TypeError(f"inputs must be a numpy array or a tensor for instance noise; got {type(inputs).__name__}")
    if isinstance(inputs, np.ndarray) and inputs.dtype.kind not in "biuf":
        raise TypeError(f"inputs must hold numbers for instance noise; got {inputs.dtype}")
    if isinstance(inputs, Tensor) and inputs.is_complex():
        raise TypeError(f"inputs must hold real numbers for instance noise; got {inputs.dtype}")
    shape = tuple(inputs.shape)
    if len(shape) < 2 or shape[0] != size or 0 in shape:
        raise ValueError(f"inputs must have shape ({size}, ...) with a feature at least, as the labels; got {shape}")
    return inputs
