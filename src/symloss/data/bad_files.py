"""What to do with a file that is no image, or a row without a label: stop and name it, or go on without it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

HINT = "(--skip-bad, or skip_bad=True, leaves such files out)"
"""What ends every sentence about a bad file."""
ROWS_HINT = "(--skip-bad, or skip_bad=True, leaves such rows out)"


@dataclass(frozen=True)
class BadFiles:
    """Stops at the first bad file; with ``skip`` tells ``tell`` of each and goes on."""

    skip: bool = False
    tell: Callable[[Path, str], None] | None = None

    def found(self, path: Path, reason: str) -> None:
        self.leave_out(path, reason, refusal(path, reason))

    def leave_out(self, path: Path, reason: str, error: Exception) -> None:
        """Something in a file or all of it, unless the error is to be raised."""
        if not self.skip:
            raise error
        if self.tell is not None:
            self.tell(path, reason)


def refusal(path: Path, reason: str) -> ValueError | FileNotFoundError:
    kind = ValueError if path.exists() else FileNotFoundError
    return kind(f"{path} must be an image that can be read; got {reason} {HINT}")


def warn(path: Path, reason: str) -> None:
    """The usual ``tell``."""
    warnings.warn(f"left out {path}: {reason}", stacklevel=2)
