"""The folder of a run: settings, noise, metrics of every epoch, checkpoints, result. Nothing is ever half-written."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import NoneType
from typing import Any

from symloss import checks
from symloss.noise import manifest
from symloss.training.checkpoint import TO_PREDICT, load_state, packed
from symloss.training.settings import Settings
from symloss.writing import said, sync_folder, write_whole

SETTINGS, DATA, METRICS = "settings.json", "data.json", "metrics.jsonl"
RESULT, FAILURE, LOCK = "result.json", "failure.json", "lock"
FORMAT = 1
"""Of everything in a run's folder; it grows when an older version could misread a newer one's."""
CHECKPOINT, PREVIOUS, BEST = "checkpoint.pt", "checkpoint-previous.pt", "best.pt"
BEFORE_AN_EPOCH = (SETTINGS, DATA, manifest.JSON, manifest.NPZ, METRICS, FAILURE, BEST, LOCK)
"""Files of a run that has no checkpoint yet; the lock comes last."""


class Busy(ValueError):  # noqa: N818
    """Another process trains this run, or may do so."""


class RunFolder:
    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._lock: tuple[int, int] | None = None
        """Which file we hold as the lock. Other processes that work for us know it too."""
        self._made: list[Path] = []

    def start(self, settings: Settings) -> None:
        """Make the folder, or refuse one that belongs to another run."""
        self._made = [place for place in (self.path, *self.path.parents) if not place.exists()]
        with said(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if self.settings() is None:
            with self.alone():  # two may start the same run at the same moment
                if self.settings() is None:
                    self.write(SETTINGS, {"format": FORMAT} | settings.to_dict())
        found = self.settings()
        assert found is not None
        if found != settings:
            ours, theirs = settings.to_dict(), found.to_dict()
            other = ", ".join(sorted(name for name in ours if theirs[name] != ours[name]))
            raise ValueError(
                f"{self.path} holds a run with other settings ({other}); choose another folder, or remove it"
            )

    def settings(self) -> Settings | None:
        """What the folder's run was started with; None if there is none."""
        found = self.read(SETTINGS)
        if found is None:
            return None
        written = found.pop("format", 0)
        if not isinstance(written, int):
            raise ValueError(f"{self.path / SETTINGS} must hold its format as a number; got {checks.brief(written)}")
        if written > FORMAT:
            raise ValueError(
                f"{self.path} was written by a newer version of symloss (format {written}, this one "
                f"knows {FORMAT}); update symloss, or choose another folder"
            )
        try:
            return Settings.from_dict(found)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.path / SETTINGS} holds no settings of a run; {error}") from None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Only one process at a time; the lock goes with the process, however that ends.

        Whoever removes the lock file lets another process in. The one that was there stops before its next write.
        """
        with open(self.path / LOCK, "w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Busy(f"{self.path} is being trained by another process; wait for it, or stop it") from None
            self._lock = _identity(os.fstat(lock.fileno()))
            try:
                self.require_lock()  # it may have gone just before we locked it
                yield
            finally:
                self._lock = None

    def require_lock(self) -> None:
        """Where the run is ours alone, refuse to write once it is so no more."""
        if self._lock is None:
            return
        with contextlib.suppress(FileNotFoundError):
            if _identity(os.stat(self.path / LOCK)) == self._lock:
                return
        raise Busy(
            f"{self.path / LOCK} was removed while the run was trained, so another process may train it now; nothing "
            "more is written, and the same command goes on after the last epoch that was finished"
        )

    def has_checkpoint(self) -> bool:
        return any((self.path / name).exists() for name in (CHECKPOINT, PREVIOUS))

    def forget(self) -> None:
        """Remove a run that never came to its first checkpoint; what others put into the folder stays."""
        if self.has_checkpoint():
            return
        for name in BEFORE_AN_EPOCH:
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for place in self._made:
                place.rmdir()

    def read(self, name: str, needs: Iterable[str] = ()) -> dict[str, Any] | None:
        """What a file holds; None if there is none."""
        try:
            found = json.loads((self.path / name).read_text())
        except FileNotFoundError:
            return None
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{self.path / name} must hold JSON; {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"{self.path / name} must hold a JSON object; got {checks.brief(found)}")
        for key in needs:
            if key not in found:
                raise ValueError(
                    f"{self.path / name} is damaged: it must hold {key!r}; got {checks.brief(sorted(found))}"
                )
        return found

    def write(self, name: str, data: dict[str, Any]) -> None:
        self.require_lock()
        write_whole(self.path / name, (json.dumps(data, indent=2) + "\n").encode())

    def append_metrics(self, row: dict[str, Any]) -> None:
        """For good: a checkpoint is written after its row, so no power cut leaves a checkpoint without it."""
        self.require_lock()
        with said(self.path / METRICS), open(self.path / METRICS, "a") as file:
            file.write(json.dumps(row) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[dict[str, Any]]:
        """Every epoch that was written down; a last line that a kill cut off is none."""
        path = self.path / METRICS
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        rows = [_row(line) for line in lines]
        for number, (line, row) in enumerate(zip(lines[:-1], rows, strict=False), 1):
            if row is None:
                given = checks.brief(line.decode(errors="replace"))
                raise ValueError(
                    f"{path} is damaged: line {number} must hold the metrics of an epoch, as JSON; got {given} "
                    "(without that line, or the file, the run goes on)"
                )
        return [row for row in rows if row is not None]

    def cut_metrics(self, epochs: int, last: dict[str, Any] | None = None) -> None:
        """Forget what came after the checkpoint, whose own row may be given; say what is missing before it."""
        rows = {row["epoch"]: row for row in self.metrics() if row["epoch"] <= epochs}
        if last is not None:
            rows[epochs] = last
        lost = [epoch for epoch in range(1, epochs + 1) if epoch not in rows]
        if lost:
            warnings.warn(
                f"{self.path / METRICS} has lost {len(lost)} of the {epochs} epochs before the checkpoint, the first "
                f"of them epoch {lost[0]}; the run goes on without their metrics",
                stacklevel=2,
            )
        self.require_lock()
        text = "".join(json.dumps(rows[epoch]) + "\n" for epoch in sorted(rows))
        write_whole(self.path / METRICS, text.encode())

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """The one before it is kept, in case this one turns out to be damaged."""
        self.require_lock()
        new = self.path / (CHECKPOINT + ".new")
        write_whole(new, packed(state))
        if (self.path / CHECKPOINT).exists():
            os.replace(self.path / CHECKPOINT, self.path / PREVIOUS)
        os.replace(new, self.path / CHECKPOINT)
        sync_folder(self.path)

    def save_best(self, state: dict[str, Any]) -> None:
        self.require_lock()
        write_whole(self.path / BEST, packed(state))

    def load_best(self) -> dict[str, Any]:
        return load_state(self.path / BEST)

    def load_checkpoint(self, needs: Iterable[str] = TO_PREDICT) -> dict[str, Any] | None:
        """The last good one; None if there is none, and none was ever there."""
        bad: list[str] = []
        for name in (CHECKPOINT, PREVIOUS):
            if not (self.path / name).exists():
                continue
            try:
                state = load_state(self.path / name, needs)
            except ValueError as error:
                bad.append(str(error))
                continue
            if bad:
                before = f"the checkpoint before it, of epoch {state['epoch']}"
                warnings.warn(f"{bad[0]}; going back to {before}", stacklevel=2)
            return state
        if bad:
            raise ValueError(
                f"{', and '.join(bad)}; no good checkpoint is left, so remove {self.path} to train from the start"
            )
        return None


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def _row(line: bytes) -> dict[str, Any] | None:
    """The metrics of an epoch; None if the line holds something else."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(row, dict) or not all(type(value) in (int, float, NoneType) for value in row.values()):
        return None
    return row if type(row.get("epoch")) is int else None
