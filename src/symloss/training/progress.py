"""Progress of trainings and fits as plain lines. On a terminal, the commands show the same as one live line."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterator
from contextvars import ContextVar

EVERY = 2.0
"""Seconds between two lines of progress."""


class ProgressLines:
    """Writes lines to stderr, none of them twice: steps every two seconds at most, and every new phase.

    It can be sent to other processes.
    """

    def __init__(self, verbose: bool = True) -> None:
        self.verbose, self.last, self.line = verbose, 0.0, ""

    def step(self, what: str, done: int, total: int, status: str = "") -> None:
        """Tell that steps are done. A line is written if the last one is not recent, and for the last step."""
        now = time.monotonic()
        if now - self.last >= EVERY or done == total:
            self.last = now
            self.phase(f"{what} {done}/{total}" + (f": {status}" if status else ""))

    def phase(self, line: str) -> None:
        """Write a line. What it announces may take long."""
        if self.verbose and line != self.line:
            self.line = line
            sys.stderr.write(f"[symloss] {line}\n")
            sys.stderr.flush()


_current: ContextVar[ProgressLines | None] = ContextVar("where fits show their progress", default=None)


@contextlib.contextmanager
def shown_by(progress: ProgressLines) -> Iterator[None]:
    """Show the progress of fits inside by this, whatever their ``verbose``."""
    token = _current.set(progress)
    try:
        yield
    finally:
        _current.reset(token)


def progress_of_fit(verbose: int) -> ProgressLines:
    """Return what shows the progress of a fit: lines if it is verbose, or the choice of :func:`shown_by`."""
    return _current.get() or ProgressLines(bool(verbose))
