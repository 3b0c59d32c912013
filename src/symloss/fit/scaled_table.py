"""The features as learners want them: ways to scale, each computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

from symloss.fitting import magnitude

SCALINGS = ("raw", "standard", "channels")
ORDINARY = 2.0**100
"""Up to this size, and down to its inverse, features are squared as they are. Others could overflow or vanish."""
SMALLEST = 1e-12
"""A feature that varies by less than this share of its largest value is constant."""


class Scaler:
    """Scales features. It is learnt from the features of the training rows, without their labels.

    ``raw`` divides all features by one number, the root of their mean square: pixels keep their relations.
    ``standard`` gives each feature mean 0 and variance 1. ``channels`` does so for each channel of images, or for all
    features together: networks for images want that.

    Args:
        features: (N, d), an array or a sparse matrix, which knows ``raw`` only.
        channels: of images, whose pixels are the features, channel by channel.
    """

    def __init__(self, features: Any, channels: int = 1):
        is_sparse = sparse.issparse(features)
        values = features.data if is_sparse else features
        unit = _units(magnitude(values))
        mean_square = float(np.mean(np.square(_divided(values, unit), dtype=np.float64))) if values.size else 0.0
        if is_sparse:
            mean_square *= values.size / max(1, features.shape[0] * features.shape[1])
        self.size = np.sqrt(mean_square) * unit or 1.0
        self._unit = {"raw": unit}
        if not is_sparse:
            self._learn_columns(features, channels)

    def _learn_columns(self, features: Any, channels: int) -> None:
        low, high = (np.asarray(ends, np.float64) for ends in (features.min(0), features.max(0)))
        largest = np.maximum(-low, high)
        self._unit["standard"] = unit = _units(largest)
        in_units = _divided(features, unit)
        mean, deviation = in_units.mean(0, dtype=np.float64), in_units.std(0, dtype=np.float64)
        # The deviation of a constant is not always 0: its mean is rounded.
        varies = np.minimum(high / unit - low / unit, deviation) > SMALLEST * (largest / unit)
        self.mean, self.deviation = mean * unit, np.where(varies, deviation, 1.0) * unit
        self.by_channel, self._unit["channels"] = _by_channel(self.mean, deviation * unit, channels)

    def shift_and_size(self, scaling: str) -> tuple[Any, Any]:
        """What is subtracted from the features, and what they are divided by: numbers or arrays (d,)."""
        if scaling == "standard":
            return self.mean, self.deviation
        if scaling == "channels":
            return self.by_channel
        return 0.0, self.size

    def __call__(self, features: Any, scaling: str) -> Any:
        """The features (N, d) scaled, in float32."""
        unit = self._unit[scaling]
        if scaling == "raw":
            return (_divided(features, unit) / (self.size / unit)).astype(np.float32)
        shift, size = self.shift_and_size(scaling)
        return ((_divided(features, unit) - shift / unit) / (size / unit)).astype(np.float32)


def _units(largest: Any) -> Any:
    """Powers of two by which features are divided before they are squared, from their largest absolute values."""
    ordinary = (largest == 0) | ((largest >= 1 / ORDINARY) & (largest <= ORDINARY))
    powers = np.ldexp(0.5, np.frexp(largest)[1])
    # Numbers below the smallest normal one are 0 where a program has switched them off.
    return np.where(ordinary, 1.0, np.maximum(powers, np.finfo(np.float64).tiny))[()]


def _divided(features: Any, unit: Any) -> Any:
    return features if np.all(unit == 1) else features / unit


def _by_channel(mean: Any, deviation: Any, channels: int) -> tuple[tuple[Any, Any], Any]:
    """Mean and deviation of all pixels of a channel, from those of each pixel, repeated for each pixel; their unit."""
    means, deviations = mean.reshape(channels, -1), deviation.reshape(channels, -1)
    unit = _units(np.maximum(np.abs(means), deviations).max(1, keepdims=True))
    means, deviations = means / unit, deviations / unit
    spread = np.sqrt(np.mean(deviations**2, 1) + means.var(1))
    pixels, unit = means.shape[1], unit[:, 0]
    shift, size = means.mean(1) * unit, np.where(spread > 0, spread, 1.0) * unit
    return (np.repeat(shift, pixels), np.repeat(size, pixels)), np.repeat(unit, pixels)


class Table:
    """The rows to learn from, scaled in each way when that is asked for.

    Args:
        features: (N, d), an array or a sparse matrix.
        classes: the number of classes.
        input_shape: of one row as networks see it, such as (channels, height, width). None means (d,).
    """

    def __init__(self, features: Any, classes: int, input_shape: tuple[int, ...] | None = None):
        self.features, self.classes = features, classes
        self.input_shape = (features.shape[1],) if input_shape is None else tuple(input_shape)
        self.scaler = Scaler(features, self.input_shape[0] if len(self.input_shape) == 3 else 1)
        self._scaled: dict[str, Any] = {}

    def scaled(self, scaling: str) -> Any:
        """The features (N, d), scaled, in float32."""
        if scaling not in self._scaled:
            self._scaled[scaling] = self.scaler(self.features, scaling)
        return self._scaled[scaling]

    def kernel_width(self, scaling: str) -> float:
        """1 / (d v), where v is the variance of all scaled features together. It is "scale" in scikit-learn."""
        scaled = self.scaled(scaling)
        mean = float(scaled.mean(dtype=np.float64))
        squares = scaled.multiply(scaled) if sparse.issparse(scaled) else np.square(scaled, dtype=np.float64)
        variance = float(squares.mean(dtype=np.float64)) - mean**2
        return 1 / (scaled.shape[1] * variance) if variance > 0 else 1.0
