"""What users give as features or labels, as an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor


def as_array(values: Any) -> Any:
    """Tensors, and lists of tensors or images, as one array. Everything else stays as it is.

    >>> as_array([np.zeros((1, 8, 8)), np.zeros((1, 8, 8))]).shape
    (2, 1, 8, 8)
    """
    if isinstance(values, Tensor):
        return values.detach().cpu().numpy()
    listed = isinstance(values, list | tuple) or (isinstance(values, np.ndarray) and values.dtype == object)
    if not listed or not len(values) or not all(isinstance(one, Tensor | np.ndarray) and one.ndim for one in values):
        return values
    images = [as_array(one) for one in values]
    other = next((one.shape for one in images if one.shape != images[0].shape), None)
    if other is not None:
        raise ValueError(f"X must hold images of one size; got {images[0].shape} and {other}: resize them first")
    return np.stack(images)
