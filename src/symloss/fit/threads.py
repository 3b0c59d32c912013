"""How many threads torch uses."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar

import torch

LARGE = 10**10
"""From so many multiply-adds on, several threads share the work."""
_outside: ContextVar[int] = ContextVar("threads outside of one_thread", default=1)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of torch inside. Steps of small networks are too short to be shared by threads."""
    before = torch.get_num_threads()
    token = _outside.set(before)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
        _outside.reset(token)


@contextlib.contextmanager
def threads_for(multiply_adds: int) -> Iterator[None]:
    """Inside of :func:`one_thread`, use all the threads from outside where the work of one step is large."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(before, _outside.get()) if multiply_adds >= LARGE else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)
