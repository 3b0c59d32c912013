"""Convexity on a grid: how far the value at the middle of a chord lies from the chord."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Chord(NamedTuple):
    """The chord from grid point ``start`` to ``end``. The value at ``middle`` lies ``excess`` above it."""

    excess: float
    start: int
    middle: int
    end: int


def worst_chord(values: Tensor, either_side: bool = False) -> Chord:
    """Among chords of many lengths, the one that the value at its middle exceeds most.

    Args:
        values: one row for each point of an even grid. Each column is another function.
        either_side: look for the largest distance on either side instead.

    >>> import torch
    >>> worst_chord(torch.tensor([[0.0], [1.0], [4.0], [9.0]])).excess  # convex
    -1.0
    """
    rows = values.reshape(len(values), -1)
    longest = (len(rows) - 1) // 2
    found = []
    for step in sorted({longest, *(2**k for k in range(longest.bit_length()))}):
        excess = rows[step:-step] - (rows[: -2 * step] + rows[2 * step :]) / 2
        height = (excess.abs() if either_side else excess).amax(1)
        top = int(height.argmax())
        found.append(Chord(float(height[top]), top, top + step, top + 2 * step))
    return max(found)
