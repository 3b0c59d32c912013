"""The validation accuracy of an epoch, smoothed over its neighbours."""

from __future__ import annotations

from collections.abc import Mapping

REACH = 2
"""The most neighbours on each side of an epoch: five epochs in all."""


def reach_of(epoch: int, epochs: int, most: int = REACH) -> int:
    """The number of neighbours on each side that an epoch is smoothed over. Epochs at the ends have fewer.

    Both sides have as many: a window with more on one side would be pulled along by a rising or falling accuracy.

    Args:
        epoch: counted from 1.
        epochs: the number of epochs of the run.
        most: the most neighbours on each side.

    >>> [reach_of(epoch, epochs=7) for epoch in range(1, 8)]
    [0, 1, 2, 2, 2, 1, 0]
    """
    return min(most, epoch - 1, epochs - epoch)


def smoothed(accuracies: Mapping[int, float], epoch: int, reach: int) -> float:
    """The mean accuracy of an epoch and its neighbours.

    >>> smoothed({1: 0.2, 2: 0.9, 3: 0.4}, epoch=2, reach=1)
    0.5
    """
    window = range(epoch - reach, epoch + reach + 1)
    return sum(accuracies[each] for each in window) / len(window)
