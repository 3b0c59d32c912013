"""What a sweep says while it goes on, wherever its cells are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from symloss.lab.work import Work
from symloss.training.folder import Busy
from symloss.training.run import OnEpoch
from symloss.writing import disk_is_full


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


def attempt(work: Work, on_epoch: OnEpoch | None = None) -> Event:
    """Carry it out, and say what came of it, in a form that other processes and machines understand."""
    try:
        return Event("finished", work, work.carry_out(on_epoch))
    except Busy as error:
        return Event("elsewhere", work, reason=str(error))
    except BrokenPipeError:  # nobody listens any more
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, (ValueError, OSError)) else repr(error)
        return Event("failed", work, reason=reason, disk_full=disk_is_full(error))
