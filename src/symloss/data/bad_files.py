"""What to do with a file that is not an image, or a row without a label: stop, or leave it out and warn."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HINT = "(--skip-bad, or skip_bad=True, leaves such files out)"
"""The end of every message about a bad file."""
ROWS_HINT = "(--skip-bad, or skip_bad=True, leaves such rows out)"


@dataclass(frozen=True)
class BadFiles:
    """Raise an error at the first bad file; or, with ``skip``, report each to ``tell`` and go on."""

    skip: bool = False
    tell: Callable[[Path, str], None] | None = None

    def report(self, path: Path, reason: str) -> None:
        """Leave out a file that is no image, or raise an error if nothing may be skipped."""
        self.leave_out(path, reason, refusal(path, reason))

    def leave_out(self, path: Path, reason: str, error: Exception) -> None:
        """Leave out a file or a part of it, or raise the error if nothing may be skipped."""
        if not self.skip:
            raise error
        if self.tell is not None:
            self.tell(path, reason)


def refusal(path: Path, reason: str) -> ValueError | FileNotFoundError:
    """The error for a file that is no image or does not exist."""
    kind = ValueError if path.exists() else FileNotFoundError
    return kind(f"{path} must be an image that can be read; got {reason} {HINT}")


def warn(path: Path, reason: str) -> None:
    """Warn of a file that was left out. This is the default ``tell``."""
    warnings.warn(f"left out {path}: {reason}", stacklevel=2)
