"""What a sweep says while it goes on, wherever its cells are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from symloss.lab.work import Work


@dataclass(frozen=True)
class Event:
    kind: Literal["started", "epoch", "finished", "failed", "elsewhere"]
    """"elsewhere": another process trains that run at this moment, and will leave its result in the folder."""
    work: Work
    row: dict[str, Any] | None = None
    """Of an epoch: its metrics; of what is finished: its result."""
    reason: str = ""
    disk_full: bool = False
    """Of a failure: nothing that comes after it can succeed either."""


Events = Iterator[Event]
