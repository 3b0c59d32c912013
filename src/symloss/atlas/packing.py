"""Numbers as 16-bit codes: each array has its own scale."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LAST = 65535
"""The largest code. The error of a number is at most half a step, that is 1/131070 of the range of its array."""

Array = NDArray[np.float64]


def pack(arrays: Sequence[Array]) -> tuple[str, str]:
    """The scales and the codes of all arrays, in order, compressed by zlib, as base64.

    Neighbours are alike, so each code is stored as the difference to the one before it, modulo 65536. All low bytes
    come first, then all high bytes.

    Args:
        arrays: of finite numbers.

    Returns:
        The scales as float64: the least number and the step of each array, little-endian. And the codes.
    """
    scales = np.array([_scale(array) for array in arrays], "<f8").reshape(-1, 2)
    codes = np.concatenate([_codes(array, *scale) for array, scale in zip(arrays, scales, strict=True)])
    bytewise = np.diff(codes, prepend=codes.dtype.type(0)).view(np.uint8).reshape(-1, 2).T
    return _small(scales.tobytes()), _small(bytewise.tobytes())


def unpack(scales: str, codes: str, lengths: Sequence[int]) -> list[Array]:
    """The arrays again, as the page reads them.

    Args:
        scales, codes: as :func:`pack` returns them.
        lengths: of the arrays.
    """
    pairs = np.frombuffer(_bytes(scales), "<f8").reshape(-1, 2)
    low, high = np.frombuffer(_bytes(codes), np.uint8).reshape(2, -1).astype("<u2")
    parts = np.split(np.cumsum(low + 256 * high, dtype="<u2"), np.cumsum(lengths)[:-1])
    return [least + step * part for (least, step), part in zip(pairs, parts, strict=True)]


def _scale(array: Array) -> tuple[float, float]:
    if not np.isfinite(array).all():
        raise ValueError("the numbers must be finite")
    return float(array.min()), float(array.max() - array.min()) / LAST


def _codes(array: Array, low: float, step: float) -> NDArray[np.uint16]:
    steps = (array - low) / step if step else np.zeros_like(array)
    return np.clip(np.rint(steps), 0, LAST).astype("<u2")


def _small(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9)).decode()


def _bytes(text: str) -> bytes:
    return zlib.decompress(base64.b64decode(text))
