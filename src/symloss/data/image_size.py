"""The size that image files are brought to."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Literal

Size = int | Literal["fit"] | None
"""Pixels of a side; "fit" for what fits the images; None for the rule of version 0.1, which runs from then go by."""

LARGEST = 224
"""Photos are brought to at most this many pixels on each side, unless another size is given."""


def chosen_size(size: Size, sides: Sequence[tuple[int, int]], fits_into_memory: bool) -> int | None:
    """The size that images are brought to; None where they stay as they are.

    - Images of one size stay as they are if they fit into memory and their shorter side is at most ``LARGEST``.
    - Others are brought to the shorter side of the median image, or to ``LARGEST`` if that is less.
    - A size that is given holds for all, unless the images are squares of that size already.

    Args:
        size: what is wanted.
        sides: height and width of each image.
        fits_into_memory: whether the images, as they are, fit into memory.

    >>> chosen_size("fit", [(24, 24), (30, 26), (400, 300)], True), chosen_size("fit", [(32, 32)] * 3, True)
    (26, None)
    """
    as_they_are = fits_into_memory and len(set(sides)) == 1
    if size is None:
        return None if as_they_are else LARGEST
    if size == "fit":
        shorter = statistics.median_low(min(each) for each in sides)
        return None if as_they_are and shorter <= LARGEST else min(LARGEST, shorter)
    return None if as_they_are and sides[0] == (size, size) else size
