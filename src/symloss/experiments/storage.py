"""Storages of studies, and which process works on which trial.

A storage is a SQLite file, a database server, Redis, or a journal on a shared disk. Processes can share a study, and
any of them can be killed. A trial belongs to the process that holds its lock file. The lock ends with the process.
The next process that gets the lock of an unfinished trial continues that trial. No trial is queued a second time, so a
study has as many trials as were asked for, and no two for one point.

Processes with another folder of runs, on another machine, see no locks. For them a trial has a heartbeat in the
storage. An idle process that sees no heartbeat for ``GRACE`` seconds takes the trial over. If the first process wakes
up after all, the result that is finished first counts.

Optuna's own heartbeat (``RDBStorage``, ``RetryHeartbeatStaleTrialCallback``) is not used: journals and Redis have none,
and a stale trial fails and is queued again under another number, by the next process that starts after a grace period.
The samplers would then propose other points than in a search that nobody killed.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, unquote_plus

import sqlalchemy
from filelock import BaseFileLock
from optuna.exceptions import StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend, JournalRedisBackend
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from symloss.writing import alone, clear_write_errors, take_lock, write_whole

JOURNAL = "journal:"
PATIENCE = 60  # seconds to wait for another process that writes to the same SQLite file


def sqlite_url(path: Path) -> str:
    """Return the URL of a SQLite file, whatever characters its path holds.

    >>> sqlite_url(Path("runs/100 %/tune.db"))
    'sqlite:///runs/100 %25/tune.db'
    """
    return sqlalchemy.URL.create("sqlite", database=str(path)).render_as_string(hide_password=False)


def open_storage(url: str) -> BaseStorage:
    """Open a storage of Optuna. The URL is one of SQLAlchemy, ``redis://...``, or ``journal:FILE``."""
    try:
        if url.startswith("redis"):
            return JournalStorage(JournalRedisBackend(url))
        if url.startswith(JOURNAL):
            return JournalStorage(JournalFileBackend(url.removeprefix(JOURNAL)))
        parsed = sqlalchemy.make_url(url)
        if parsed.get_backend_name() != "sqlite":
            return RDBStorage(url)
        if parsed.database not in (None, "", ":memory:"):
            return RDBStorage(url, engine_kwargs={"connect_args": {"timeout": PATIENCE}})
    except (sqlalchemy.exc.SQLAlchemyError, ImportError, OSError, RuntimeError, ValueError) as error:
        # The error may hold a part of a password that was read as a port.
        reason = "not a valid URL" if isinstance(error, ValueError) else _reason(error, url)
        raise ValueError(
            f"`storage` must be a URL that can be opened, such as sqlite:///FILE, postgresql://USER@HOST/NAME, "
            f"redis://HOST or {JOURNAL}FILE; got {without_password(url)!r} ({reason})"
        ) from None
    raise ValueError(
        f"`storage` must outlive the process, so a SQLite URL must name a file; got {without_password(url)!r}"
    )


@contextlib.contextmanager
def readable_storage_errors(url: str) -> Iterator[None]:
    """Raise errors of a storage as one sentence."""
    try:
        yield
    except (sqlalchemy.exc.SQLAlchemyError, StorageInternalError) as error:
        raise OSError(
            f"The storage {without_password(url)} failed ({_reason(error, url)}). Finished trials are kept; rerun "
            "the same command to resume."
        ) from None


_SECRET_OPTION = re.compile(r"([?&;][^?&;=]*(?:pass|pwd|secret|token|key)[^?&;=]*=)([^&;\s]*)", re.IGNORECASE)
_PASSWORD = re.compile(r"(?>(?:.*?://)?)[^:]*:(.*)@", re.DOTALL)  # between the user and the last @; of any characters


def without_password(url: str) -> str:
    """Replace the passwords of a URL where they stand, so that it may be printed: "postgres" may be a password too."""
    url = _SECRET_OPTION.sub(r"\1***", url)
    found = _PASSWORD.match(url)
    return f"{url[: found.start(1)]}***{url[found.end(1) :]}" if found and found[1] else url


def _reason(error: BaseException, url: str) -> str:
    """Return the first line of the database's message, or of the error, without the passwords of the URL."""
    source = getattr(error, "orig", None) or error.__cause__ or error
    line = next(iter(str(source).strip().splitlines()), type(error).__name__).rstrip(".")
    password = _PASSWORD.match(_SECRET_OPTION.sub(r"\1", url))
    secrets = [password[1] if password else "", *(option[2] for option in _SECRET_OPTION.finditer(url))]
    forms = {form for secret in secrets for form in (secret, unquote(secret), unquote_plus(secret)) if form}
    for form in sorted(forms, key=len, reverse=True):
        line = line.replace(form, "***")
    return line


BEAT = 15.0  # seconds between two heartbeats
GRACE = 120.0  # seconds without a heartbeat after which a trial of another lock folder is taken over


class LockFolder:
    """The locks in a folder of runs, by which processes know of each other."""

    def __init__(self, runs: Path):
        self.folder = runs / "tune-locks"
        with clear_write_errors(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        with self.turn():
            name = self.folder / "name"
            if not name.exists():
                write_whole(name, uuid.uuid4().hex.encode())
            self.name = name.read_text()

    def turn(self) -> contextlib.AbstractContextManager[None]:
        """Hold a lock for a moment, to open the storage or to look for a trial."""
        return alone(self.folder / "turn")

    def lock(self, study: str, number: int) -> BaseFileLock | None:
        """Return the lock of a trial, held until it is released; None if another process has it."""
        folder = self.folder / hashlib.sha256(study.encode()).hexdigest()[:16]
        folder.mkdir(exist_ok=True)
        return take_lock(folder / str(number))


class Claims:
    """Hands out the trials of one study, those with a number below ``wanted``: first what a dead process left."""

    def __init__(self, study: Study, storage: BaseStorage, locks: LockFolder, wanted: int):
        self.study, self.storage, self.locks, self.wanted = study, storage, locks, wanted
        self._watched: dict[int, tuple[object, float]] = {}

    def trials(self) -> list[FrozenTrial]:
        """Return the trials so far, without any that is one too many."""
        return [each for each in self.study.get_trials(deepcopy=False) if each.number < self.wanted]

    def are_finished(self) -> bool:
        """Return whether all trials are finished, by this process or another."""
        return sum(each.state.is_finished() for each in self.trials()) == self.wanted

    def next(self) -> contextlib.AbstractContextManager[FrozenTrial] | None:
        """Return a trial to work on, as a context that writes heartbeats; None if there is none now."""
        with self.locks.turn():
            trials = self.trials()
            for trial in trials:
                if not trial.state.is_finished() and (lock := self._lock(trial)) is not None:
                    if self._take(trial):
                        return self._begin(trial, lock)
                    lock.release()
            if len(trials) == self.wanted:
                return None
            trial = self.storage.get_trial(self.study.ask()._trial_id)
            if trial.number < self.wanted and (lock := self._lock(trial)) is not None:
                return self._begin(trial, lock)
            # A process with another lock folder asked at the same moment, or one still works on a deleted study.
            self.storage.set_trial_state_values(trial._trial_id, TrialState.WAITING)
        return None

    def _lock(self, trial: FrozenTrial) -> BaseFileLock | None:
        return self.locks.lock(self.study.study_name, trial.number)

    def _begin(self, trial: FrozenTrial, lock: BaseFileLock) -> contextlib.AbstractContextManager[FrozenTrial]:
        self._beat(trial)
        return self._at_work(trial, lock)

    def _take(self, trial: FrozenTrial) -> bool:
        """Take a trial whose lock this process holds, unless a process elsewhere works on it or it has ended."""
        if trial.state == TrialState.WAITING:
            return self.storage.set_trial_state_values(trial._trial_id, TrialState.RUNNING)
        now, beat = time.monotonic(), trial.user_attrs.get("beat")
        last, since = self._watched.setdefault(trial.number, (beat, now))
        if beat != last:
            self._watched[trial.number] = beat, now
        elsewhere = beat is None or beat[0] != self.locks.name
        if elsewhere and (beat != last or now - since <= GRACE):
            return False
        return not self.storage.get_trial(trial._trial_id).state.is_finished()

    def _beat(self, trial: FrozenTrial) -> None:
        self.storage.set_trial_user_attr(trial._trial_id, "beat", [self.locks.name, time.time()])

    @contextlib.contextmanager
    def _at_work(self, trial: FrozenTrial, lock: BaseFileLock) -> Iterator[FrozenTrial]:
        stop = threading.Event()

        def keep_beating() -> None:
            while not stop.wait(BEAT):
                # A storage that is unreachable for a moment must not end a run. If it stays so, the end of the trial
                # fails.
                with contextlib.suppress(Exception):
                    self._beat(trial)

        thread = threading.Thread(target=keep_beating, daemon=True)
        thread.start()
        try:
            yield trial
        finally:
            stop.set()
            thread.join()
            lock.release()
