"""Labels as an array of int64, wherever they come from."""

from __future__ import annotations

import hashlib

import numpy as np
from torch import Tensor

from symloss import checks
from symloss.noise.counts import Labels


def label_array(argument: str, value: object, classes: int | None = None) -> Labels:
    """Copy labels to int64. They must be a vector of integers, each of them a class."""
    if isinstance(value, Tensor):
        if value.is_floating_point():
            raise TypeError(f"{argument} must hold integers; got {value.dtype}")
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(f"{argument} must be a vector of integers; got {checks.brief(value)}") from None
    if array.ndim != 1 or not len(array):
        raise ValueError(f"{argument} must have shape (N,) with at least one label; got {array.shape}")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{argument} must hold integers; got {array.dtype}")
    wrong = array[(array < 0) | (array >= classes)] if classes is not None else array[array < 0]
    if len(wrong):
        allowed = "at least 0" if classes is None else f"0 to {classes - 1} with {classes} classes"
        raise ValueError(f"{argument} must be {allowed}; got {int(wrong[0])}")
    return array.astype(np.int64)


def sha256(labels: Labels) -> str:
    """Of the labels as little-endian 64-bit integers, the same on every machine.

    >>> sha256(np.array([0]))[:8], hashlib.sha256(bytes(8)).hexdigest()[:8]
    ('af5570f5', 'af5570f5')
    """
    return hashlib.sha256(labels.astype("<i8").tobytes()).hexdigest()
