"""What a fit says while it works."""

from __future__ import annotations

import sys
import time

EVERY = 2.0
"""Seconds between two lines."""


class ProgressLines:
    """Writes lines to stderr, one every two seconds at most."""

    def __init__(self) -> None:
        self.last = 0.0

    def report(self, line: str) -> None:
        """Write a line, unless the last one is recent."""
        now = time.monotonic()
        if now - self.last >= EVERY:
            self.last = now
            announce(line)


def announce(line: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"[symloss] {line}\n")
    sys.stderr.flush()
