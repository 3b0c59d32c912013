"""The features as learners want them: two ways to scale, computed once."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]

SCALINGS = ("raw", "standard")


class Scaler:
    """Scales features. It is learnt from the features of the training rows, without their labels.

    ``raw`` divides all features by one number, the root of their mean square: pixels keep their relations.
    ``standard`` gives each feature mean 0 and variance 1.

    Args:
        features: (N, d), an array or a sparse matrix, which knows ``raw`` only.
    """

    def __init__(self, features: Any):
        is_sparse = sparse.issparse(features)
        squares = features.data if is_sparse else features
        mean_square = float(np.mean(np.square(squares, dtype=np.float64))) if squares.size else 0.0
        if is_sparse:
            mean_square *= squares.size / max(1, features.shape[0] * features.shape[1])
        self.size = np.sqrt(mean_square) or 1.0
        if not is_sparse:
            self.mean = features.mean(0, dtype=np.float64)
            deviation = features.std(0, dtype=np.float64)
            self.deviation = np.where(deviation > 1e-12 * (1 + np.abs(self.mean)), deviation, 1.0)

    def __call__(self, features: Any, scaling: str) -> Any:
        """The features (N, d) scaled, in float32."""
        if scaling == "standard":
            return ((features - self.mean) / self.deviation).astype(np.float32)
        return (features / self.size).astype(np.float32)


class Table:
    """The rows to learn from, scaled in both ways when that is asked for.

    Args:
        features: (N, d), an array or a sparse matrix.
        classes: the number of classes.
    """

    def __init__(self, features: Any, classes: int):
        self.features, self.classes = features, classes
        self.scaler = Scaler(features)
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
