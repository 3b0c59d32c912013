"""Locks say which process works on which trial. Several processes can share a study, and any can be killed.

A trial belongs to the process that holds its lock file. The lock ends with the process. The next process that gets the
lock of an unfinished trial goes on with that trial. No trial is queued a second time, so a study has as many trials as
were asked for, and no two for one point.

Processes with another folder of runs, on another machine, see no locks. For them a trial has a heartbeat in the
storage. An idle process that sees no heartbeat for ``GRACE`` seconds takes the trial over. If the first process wakes
up after all, the result that is finished first counts.
"""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from filelock import BaseFileLock
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from symloss.experiments.spaces import Point
from symloss.writing import alone, clear_write_errors, take_lock, write_whole

BEAT = 15.0
"""Seconds between two heartbeats."""
GRACE = 120.0
"""Seconds without a heartbeat after which a trial of another lock folder is taken over."""
MOMENT = 5.0
"""The same for a trial without a lock folder. Its process was killed at the start, or is just starting elsewhere."""


class LockFolder:
    """The locks in a folder of runs. By them processes know of each other."""

    def __init__(self, runs: Path):
        self.folder = runs / "tune-locks"
        with clear_write_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with self.turn():
            name = self.folder / "name"
            if not name.exists():
                write_whole(name, uuid.uuid4().hex.encode())
            self.name = name.read_text()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """A lock that one process holds for a moment, to open the storage or to look for a trial."""
        with alone(self.folder / "turn"):
            yield

    def lock(self, study: str, number: int) -> BaseFileLock | None:
        """The lock of a trial, held until it is released; None if another process has it."""
        folder = self.folder / hashlib.sha256(study.encode()).hexdigest()[:16]
        folder.mkdir(exist_ok=True)
        return take_lock(folder / str(number))


class Claim:
    """A trial that this process works on. As a context manager it writes heartbeats."""

    def __init__(self, trial: Trial, point: Point, lock: BaseFileLock):
        self.trial, self.point, self._lock = trial, point, lock
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Claim:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._stop.set()
        self._thread.join()
        self._lock.release()

    def _beat(self) -> None:
        while not self._stop.wait(BEAT):
            # A storage that is unreachable for a moment must not end a run. If it stays so, the end of the trial fails.
            with contextlib.suppress(Exception):
                self.trial.set_user_attr("beat", time.time())


class Claims:
    """Hands out the trials of one study: first those that a dead process left, then new ones."""

    def __init__(self, study: Study, locks: LockFolder, wanted: int, draw: Callable[[Trial], Point], *, exactly: bool):
        """Args:
        study: of Optuna.
        locks: the lock folder.
        wanted: the number of trials.
        draw: asks the sampler for the point of a trial. Only one process does so at a time.
        exactly: whether a trial beyond ``wanted`` has no point, as in a grid.
        """
        self.study, self.locks, self.wanted, self.draw, self.exactly = study, locks, wanted, draw, exactly
        self._watched: dict[int, tuple[Any, float]] = {}

    def next(self) -> Claim | None:
        """A trial to work on; None if there is none now."""
        with self.locks.turn():
            for trial in self._running():
                taken = self._take_over(trial)
                if taken is not None:
                    return taken
            return self._new() if len(self.trials()) < self.wanted else None

    def others_at_work(self) -> bool:
        """Whether a trial is still being trained by another process."""
        return bool(self._running())

    def trials(self) -> list[FrozenTrial]:
        """All trials but surplus ones."""
        every = self.study.get_trials(deepcopy=False)
        return [trial for trial in every if not trial.user_attrs.get("surplus")]

    def _running(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def _new(self) -> Claim | None:
        trial = self.study.ask()
        lock = self.locks.lock(self.study.study_name, trial.number)
        if lock is None:  # a process still works on a deleted study of the same name
            return None
        if self.exactly and trial.number >= self.wanted:
            # A process with another lock folder asked at the same moment.
            trial.set_user_attr("surplus", True)
            self.study.tell(trial, state=TrialState.FAIL)
            lock.release()
            return None
        return self._mine(trial, lock)

    def _take_over(self, unfinished: FrozenTrial) -> Claim | None:
        if unfinished.user_attrs.get("place") != self.locks.name and not self._silent(unfinished):
            return None
        lock = self.locks.lock(self.study.study_name, unfinished.number)
        if lock is None:
            return None
        if all(trial.number != unfinished.number for trial in self._running()):  # it was finished in the meantime
            lock.release()
            return None
        return self._mine(Trial(self.study, unfinished._trial_id), lock)

    def _mine(self, trial: Trial, lock: BaseFileLock) -> Claim:
        try:
            trial.set_user_attr("place", self.locks.name)
            return Claim(trial, self.draw(trial), lock)
        except BaseException:
            lock.release()
            raise

    def _silent(self, trial: FrozenTrial) -> bool:
        sign, now = (trial.user_attrs.get("place"), trial.user_attrs.get("beat")), time.monotonic()
        last, since = self._watched.setdefault(trial.number, (sign, now))
        if sign != last:
            self._watched[trial.number] = sign, now
            return False
        return now - since > (MOMENT if sign[0] is None else GRACE)
