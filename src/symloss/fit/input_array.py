"""What users give as features or labels, as an array; and what cannot be learnt from."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy import sparse  # type: ignore[import-untyped]
from torch import Tensor

from symloss import checks


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


def refuse_gaps(features: Any) -> None:
    """Raise ValueError if an array of features holds NaN or inf."""
    if isinstance(features, np.ndarray) and features.dtype.kind == "f" and features.ndim:
        rows = len(features)
        bad = rows - int(np.isfinite(features).all(tuple(range(1, features.ndim))).sum())
        if bad:
            raise ValueError(
                f"X must hold finite numbers; got NaN or inf in {bad:,} of {rows:,} rows: in a DataFrame missing "
                "values are filled in"
            )


def refuse_texts(features: Any) -> None:
    """Raise ValueError if features are texts, and no table with named columns."""
    if sparse.issparse(features) or hasattr(features, "columns"):
        return
    first = np.asarray(features[:1] if hasattr(features, "__len__") else features, object).ravel()[:1]
    if len(first) and isinstance(first[0], str):
        raise ValueError(
            f"X must hold numbers, or be a DataFrame; got texts such as {checks.brief(first[0])}: turn texts into "
            "embeddings first (docs/text.md)"
        )


def refuse_missing_labels(labels: Any) -> None:
    """Raise ValueError if labels are missing, or cannot be sorted, which would end in an error that names no row."""
    found = np.asarray(labels, object) if isinstance(labels, list | tuple) else np.asarray(labels)
    if found.ndim != 1 or found.dtype.kind != "O":
        return
    missing = [row for row, label in enumerate(found) if label is None or _is_nan(label)]
    if missing:
        raise ValueError(f"y must have a label in every row; got {found[missing[0]]} in row {missing[0]} (from 0)")
    kinds = sorted({"text" if isinstance(label, str) else "number" for label in found})
    if len(kinds) > 1:
        raise ValueError("y must hold labels of one type; got numbers and texts")


def _is_nan(label: object) -> bool:
    return isinstance(label, float) and math.isnan(label)
