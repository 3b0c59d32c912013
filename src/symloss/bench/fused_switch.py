"""Fused kernels on or off, for measurements only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from symloss.losses import device_choice, evaluate


@contextmanager
def fused_kernels(on: bool) -> Iterator[None]:
    """Let every loss have, or not have, a fused kernel inside ``with``, whatever the device.

    Args:
        on: whether there are fused kernels.
    """
    places = (device_choice, evaluate)
    with patch.object(places[0], "has_fused_kernels", lambda scores: on):
        with patch.object(places[1], "has_fused_kernels", lambda scores: on):
            yield
