"""Batches that wait to be counted together: to count a small batch takes longer than to keep it for a while."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class RecentBatches:
    """Keeps batches until their scores are many, then hands them on as one.

    Args:
        count: is given the numbers of the examples (M,) and their scores (M, C).
        most: the number of scores at which they are handed on; a megabyte of float32 by default.

    >>> recent = RecentBatches(lambda index, scores: print(index), most=6)
    >>> for first in (0, 2, 4):
    ...     recent.add(torch.tensor([first, first + 1]), torch.zeros(2, 2))
    tensor([0, 1, 2, 3])
    >>> recent.count_rest()
    tensor([4, 5])
    """

    def __init__(self, count: Callable[[Tensor, Tensor], None], most: int = 2**18):
        self.count, self.most = count, most
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._size = 0

    def add(self, index: Tensor, scores: Tensor) -> None:
        """Take a batch."""
        self._waiting.append((index, scores))
        self._size += scores.numel()
        if self._size >= self.most:
            self.count_rest()

    def count_rest(self) -> None:
        """Hand on the batches that wait, if any do."""
        if self._waiting:
            index, scores = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
            self.count(index, scores)
        self._waiting, self._size = [], 0
