"""Events of a sweep: what happened to each piece of work, wherever it is trained."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from symloss.lab.work import Work
from symloss.runs.result import EpochRow, Result
from symloss.runs.run_folder import METRICS, Busy
from symloss.training.run import OnEpoch
from symloss.writing import disk_is_full


@dataclass(frozen=True)
class Event:
    """Something that happened to a piece of work."""

    kind: Literal["started", "epoch", "waiting", "finished", "failed", "elsewhere"]
    """"waiting": another process trains that run at this moment, and it is looked at again when all others are done;
    "elsewhere": that process still holds it, and was not waited for any longer."""
    work: Work
    row: EpochRow | Result | None = None
    """The metrics of an epoch, or the result of a finished run."""
    reason: str = ""
    disk_full: bool = False
    """Of a failure: nothing that comes after it can succeed either."""


Events = Iterator[Event]


PATIENCE = 3600.0
"""Seconds without the end of an epoch after which a run that another process holds is left to it."""


def attempt(work: Work, on_epoch: OnEpoch | None = None) -> Event:
    """Carry a piece of work out, and return how it ended. The event can be sent between processes."""
    try:
        return Event("finished", work, work.carry_out(on_epoch))
    except Busy as error:
        return Event("elsewhere", work, reason=str(error))
    except BrokenPipeError:  # nobody listens any more
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, (ValueError, OSError)) else repr(error)
        return Event("failed", work, reason=reason, disk_full=disk_is_full(error))


def attempt_patiently(work: Work, patience: float, on_epoch: OnEpoch | None = None) -> Event:
    """As :func:`attempt`, but wait while another process trains it, at most ``patience`` seconds without an epoch."""
    seen, since = -1.0, time.monotonic()
    while True:
        event = attempt(work, on_epoch)
        changed = _last_epoch(work)
        if changed != seen:
            seen, since = changed, time.monotonic()
        if event.kind != "elsewhere" or time.monotonic() - since >= patience:
            return event
        time.sleep(min(1.0, patience))


def _last_epoch(work: Work) -> float:
    """When it ended."""
    try:
        return (work.folder / METRICS).stat().st_mtime
    except FileNotFoundError:
        return 0.0
