"""Numbers too small for full precision count as zero while a network trains.

A processor computes with them many times more slowly, and small gradients make them in great numbers: a LeNet-5 with
Adam and a learning rate that has run out trained six times faster without them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def flushed_denormals() -> Iterator[None]:
    """In this thread, and in torch's threads if none of them is started yet; this thread is as before, afterwards.

    Threads have the setting of whoever started them, for good: torch can tell it to its calling thread alone.
    """
    before = _flushing()
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _flushing() -> bool:
    """torch can be told, but not asked."""
    return float(torch.tensor(1e-39) * 1.0) == 0.0
