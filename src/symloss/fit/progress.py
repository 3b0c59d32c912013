"""What a fit says while it works."""

from __future__ import annotations

import sys
import time

EVERY = 2.0
"""Seconds between two lines."""


class ProgressLines:
    """Writes lines to stderr, none of them twice: steps every two seconds at most, and every new phase."""

    def __init__(self) -> None:
        self.last, self.line = 0.0, ""

    def step(self, line: str) -> None:
        """Write a line, unless the last one is recent."""
        now = time.monotonic()
        if now - self.last >= EVERY:
            self.last = now
            self.phase(line)

    def phase(self, line: str) -> None:
        """Write a line. What it announces may take long."""
        if line != self.line:
            self.line = line
            announce(line)


class NoProgress(ProgressLines):
    """Says nothing."""

    def phase(self, line: str) -> None:
        """Do nothing."""


def announce(line: str) -> None:
    """Write a line to stderr."""
    sys.stderr.write(f"[symloss] {line}\n")
    sys.stderr.flush()
