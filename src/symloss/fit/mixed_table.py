"""Which tables need more than a conversion to numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_mixed_table(features: Any) -> bool:
    """Whether this is a table with named columns of which some are no numbers, or have gaps.

    >>> is_mixed_table(np.eye(3))
    False
    """
    if not hasattr(features, "columns") or not hasattr(features, "__getitem__"):
        return False
    return any(_is_mixed(np.asarray(features[name])) for name in features.columns)


def _is_mixed(column: np.ndarray[Any, Any]) -> bool:
    return column.dtype.kind not in "biuf" or (column.dtype.kind == "f" and bool(np.isnan(column).any()))
