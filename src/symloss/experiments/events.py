"""Events of a sweep. Each says what happened to a piece of work, on this machine or another."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from symloss.experiments.work import Work
from symloss.training.results import EpochRow, Result
from symloss.training.run import OnEpoch
from symloss.training.run_folder import METRICS, Busy
from symloss.writing import disk_is_full


@dataclass(frozen=True)
class Event:
    """An event of a piece of work."""

    kind: Literal["started", "epoch", "waiting", "finished", "failed", "elsewhere"]
    """"waiting": another process trains the run now, and the sweep tries it again when all others are done.
    "elsewhere": the other process still trains the run, and the sweep has stopped to wait."""
    work: Work
    row: EpochRow | Result | None = None
    """The metrics of an epoch, or the result of a finished run."""
    reason: str = ""
    disk_full: bool = False
    """Whether the work failed because the disk is full. Then no other work can succeed either."""


Events = Iterator[Event]


PATIENCE = 3600.0
"""After this many seconds without a new epoch, a sweep stops to wait for a run of another process."""
POLL = 0.3
"""Seconds between two checks of a run that another process trains."""


def attempt(work: Work, on_epoch: OnEpoch | None = None) -> Event:
    """Carry out a piece of work, and return an event that says how it ended. Events can be sent between processes."""
    try:
        return Event("finished", work, work.carry_out(on_epoch))
    except Busy as error:
        return Event("elsewhere", work, reason=str(error))
    except BrokenPipeError:  # the process that listened has ended
        raise
    except Exception as error:
        reason = str(error) if isinstance(error, (ValueError, OSError)) else repr(error)
        return Event("failed", work, reason=reason, disk_full=disk_is_full(error))


def attempt_patiently(work: Work, patience: float, on_epoch: OnEpoch | None = None) -> Event:
    """As :func:`attempt`, but wait while another process trains the run.

    The wait ends if the other process has finished no epoch for ``patience`` seconds.
    """
    seen, since = -1.0, time.monotonic()
    while True:
        event = attempt(work, on_epoch)
        changed = _last_epoch(work)
        if changed != seen:
            seen, since = changed, time.monotonic()
        if event.kind != "elsewhere" or time.monotonic() - since >= patience:
            return event
        time.sleep(min(POLL, patience))


def _last_epoch(work: Work) -> float:
    """The time at which the last epoch ended; 0 if there is none."""
    try:
        return (work.folder / METRICS).stat().st_mtime
    except FileNotFoundError:
        return 0.0
