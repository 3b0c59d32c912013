"""What to do with a file that is no image: stop and name it, or go on without it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class BadFiles:
    """Stops at the first bad file; with ``skip`` tells ``tell`` of each and goes on."""

    skip: bool = False
    tell: Callable[[Path, str], None] | None = None

    def found(self, path: Path, reason: str) -> None:
        if not self.skip:
            kind = ValueError if path.exists() else FileNotFoundError
            raise kind(f"{path} must be an image that can be read; got {reason} (skip_bad goes on without such files)")
        if self.tell is not None:
            self.tell(path, reason)
