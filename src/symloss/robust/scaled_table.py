"""The features as learners want them: ways to scale, each computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

SCALINGS = ("raw", "standard", "channels")


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
        squares = features.data if is_sparse else features
        mean_square = float(np.mean(np.square(squares, dtype=np.float64))) if squares.size else 0.0
        if is_sparse:
            mean_square *= squares.size / max(1, features.shape[0] * features.shape[1])
        self.size = np.sqrt(mean_square) or 1.0
        if not is_sparse:
            self.mean = features.mean(0, dtype=np.float64)
            deviation = features.std(0, dtype=np.float64)
            self.by_channel = _by_channel(self.mean, deviation, channels)
            self.deviation = np.where(deviation > 1e-12 * (1 + np.abs(self.mean)), deviation, 1.0)

    def shift_and_size(self, scaling: str) -> tuple[Any, Any]:
        """What is subtracted from the features, and what they are divided by: numbers or arrays (d,)."""
        if scaling == "standard":
            return self.mean, self.deviation
        if scaling == "channels":
            return self.by_channel
        return 0.0, self.size

    def __call__(self, features: Any, scaling: str) -> Any:
        """The features (N, d) scaled, in float32."""
        if scaling == "raw":
            return (features / self.size).astype(np.float32)
        shift, size = self.shift_and_size(scaling)
        return ((features - shift) / size).astype(np.float32)


def _by_channel(mean: Any, deviation: Any, channels: int) -> tuple[Any, Any]:
    """Mean and deviation of all pixels of a channel, from those of each pixel, repeated for each pixel."""
    means, deviations = mean.reshape(channels, -1), deviation.reshape(channels, -1)
    spread = np.sqrt(np.mean(deviations**2, 1) + means.var(1))
    pixels = means.shape[1]
    return np.repeat(means.mean(1), pixels), np.repeat(np.where(spread > 0, spread, 1.0), pixels)


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
