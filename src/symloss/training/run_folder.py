"""The folder of a run: settings, noise, metrics of every epoch, checkpoints, result.

Every file is written wholly or not at all. :mod:`symloss.training.checkpoint` writes the checkpoints.
"""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from symloss import checks
from symloss.data.source import DataDescription
from symloss.noise.manifest import LABELS_FILE, MANIFEST_FILE
from symloss.training.results import EpochRow, Result
from symloss.training.settings import Settings, displayed_noise
from symloss.writing import clear_write_errors, take_lock, unfinished, write_whole

SETTINGS, DATA, METRICS = "settings.json", "data.json", "metrics.jsonl"
FIT = "model.json"
"""What makes a folder that of a fit, see :mod:`symloss.fit.folder`."""
COLUMNS = "columns.json"
"""How the columns of a table became features. symloss.data.table_encoder knows its content."""
RESULT, FAILURE, LOCK, CALIBRATION = "result.json", "failure.json", "lock", "calibration.json"
FORMAT = 1
"""The version of the folder's layout. It grows when an older symloss could misread a folder of a newer one."""
CHECKPOINT, PREVIOUS, BEST = "checkpoint.pt", "checkpoint-previous.pt", "best.pt"
BEFORE_AN_EPOCH = (SETTINGS, DATA, COLUMNS, MANIFEST_FILE, LABELS_FILE, METRICS, FAILURE, BEST, LOCK)
"""Files of a run that has no checkpoint yet. The lock is removed last."""


class Busy(ValueError):  # noqa: N818
    """Another process trains this run, or may do so."""


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path | str):
        self.path = Path(path)
        self._lock: tuple[int, int] | None = None
        """The lock file that we hold: device and inode. Processes that we start know it too."""
        self._made: list[Path] = []

    def start(self, settings: Settings) -> None:
        """Make the folder, or refuse one that belongs to another run, or to a fit."""
        if (self.path / FIT).exists():
            raise ValueError(f"{self.path} holds a model of `symloss fit`. Train into another folder.")
        self._made = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        with clear_write_errors(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        if self.settings() is None:
            with self.alone():  # two may start the same run at the same moment
                if self.settings() is None:
                    self.write(SETTINGS, {"format": FORMAT} | settings.to_dict())
        written = self.settings()
        assert written is not None
        if written != settings:
            ours, theirs = settings.to_dict(), written.to_dict()
            other = ", ".join(sorted(name for name in ours if theirs[name] != ours[name]))
            raise ValueError(
                f"{self.path} holds a run with other settings ({other}). Choose another folder, or remove it."
            )

    def settings(self) -> Settings | None:
        """Return the settings that the run was started with; None if there is no run."""
        document = self.read(SETTINGS)
        if document is None:
            return None
        checks.record(self.path / SETTINGS, document, {"format": "int"}, optional=["format"])
        version = document.pop("format", 0)
        if version > FORMAT:
            raise ValueError(
                f"{self.path} was written by a newer version of symloss (format {version}, this one "
                f"knows {FORMAT}). Update symloss, or choose another folder."
            )
        try:
            return Settings.from_dict(document)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{self.path / SETTINGS} holds no settings of a run; {error}") from None

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the run for this process. The lock ends with the process.

        If the lock file is removed, another process can take the run; this one stops before its next write.
        """
        lock = take_lock(self.path / LOCK)
        if lock is None:
            raise Busy(f"{self.path} is being trained by another process; wait for it, or stop it")
        try:
            self._lock = _identity(self.path / LOCK) or (0, 0)
            self.require_lock()  # it may have gone just after we locked it
            yield
        finally:
            self._lock = None
            lock.release()

    def require_lock(self) -> None:
        """Raise Busy if this process held the run and its lock was removed."""
        if self._lock is not None and _identity(self.path / LOCK) != self._lock:
            raise Busy(
                f"{self.path / LOCK} was removed during training, so another process may train this run now. Nothing "
                "more is written. Rerun the same command to resume after the last finished epoch."
            )

    def has_checkpoint(self) -> bool:
        """Return whether the run has finished an epoch."""
        return any((self.path / name).exists() for name in (CHECKPOINT, PREVIOUS))

    def forget(self) -> None:
        """Remove a run without a checkpoint. Other files in the folder stay."""
        if self.has_checkpoint():
            return
        for name in BEFORE_AN_EPOCH:
            (self.path / name).unlink(missing_ok=True)
            unfinished(self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            for folder in self._made:
                folder.rmdir()

    def result(self) -> Result | None:
        """Return the result of the run; None while it is not finished."""
        document = self.read(RESULT)
        return None if document is None else Result.from_json(document, self.path / RESULT)

    def data(self) -> DataDescription | None:
        """Return what the run trained on, checked, as the folder may be from elsewhere; None if not written yet."""
        document, path = self.read(DATA), self.path / DATA
        return None if document is None else DataDescription(**checks.record(path, document, DataDescription))

    def evaluation(self, data: str) -> float | None:
        """Return the accuracy on another data set; None if the model was not tested on it yet."""
        document, path = self.read(evaluation_file(data)), self.path / evaluation_file(data)
        return None if document is None else checks.record(path, document, {"accuracy": "share"})["accuracy"]

    def temperature(self, which: str, epoch: int) -> float | None:
        """Return what scores are divided by to get probabilities of the true classes; None if it was not fitted.

        ``which`` is "best" or "last". The temperature of another epoch does not fit the weights.
        """
        kept = (self.read(CALIBRATION) or {}).get(which)
        if not isinstance(kept, dict) or kept.get("epoch") != epoch:
            return None
        name = f"the temperature of the {which} epoch in {self.path / CALIBRATION}"
        return checks.number(name, kept.get("temperature"), "(0, inf)")

    def read(self, name: str) -> dict[str, Any] | None:
        """Return the JSON object in a file; None if there is no such file, or the path of the run is not a folder."""
        try:
            return checks.json_object(self.path / name, (self.path / name).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, data: dict[str, Any]) -> None:
        """Write a JSON file, wholly or not at all."""
        self.require_lock()
        write_whole(self.path / name, (json.dumps(data, indent=2) + "\n").encode())

    def append_metrics(self, row: EpochRow) -> None:
        """Write the metrics of an epoch, down to the disk.

        A checkpoint is written after its row, so no power cut leaves a checkpoint without it.
        """
        self.require_lock()
        with clear_write_errors(self.path / METRICS), open(self.path / METRICS, "a") as file:
            file.write(_line(row))
            file.flush()
            os.fsync(file.fileno())

    def metrics(self) -> list[EpochRow]:
        """Return the metrics of every epoch. An incomplete last line does not count."""
        path = self.path / METRICS
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return []
        rows = [_row(line) for line in lines]
        for number, (line, row) in enumerate(zip(lines[:-1], rows, strict=False), 1):
            if row is None:
                content = checks.brief(line.decode(errors="replace"))
                raise ValueError(
                    f"{path} is damaged: line {number} must hold the metrics of an epoch, as JSON; got {content} "
                    "(remove that line, or the file, to resume)"
                )
        return [row for row in rows if row is not None]

    def cut_metrics(self, epochs: int, last: EpochRow | None = None) -> None:
        """Remove what was written after a checkpoint, and warn of epochs that are missing before it."""
        rows = {row.epoch: row for row in self.metrics() if row.epoch <= epochs}
        rows |= {} if last is None else {epochs: last}
        lost = [epoch for epoch in range(1, epochs + 1) if epoch not in rows]
        if lost:
            warnings.warn(
                f"{self.path / METRICS} has lost {len(lost)} of the {epochs} epochs before the checkpoint, the first "
                f"of them epoch {lost[0]}; it is resumed without their metrics",
                stacklevel=2,
            )
        self.require_lock()
        write_whole(self.path / METRICS, "".join(_line(rows[epoch]) for epoch in sorted(rows)).encode())


LONGEST = 60
"""Characters of a composed loss in the name of a folder. The key tells longer ones apart."""


def folder_name(settings: Settings) -> str:
    """Return the name of a run's folder: readable, and different for different settings.

    >>> folder_name(Settings(noise="sym:0.4", loss="sgce:q=0.8"))
    'digits-sym_0.4-sgce-seed0-4507cc6eba60'
    """
    from symloss.losses.spec import parse  # noqa: PLC0415 (with the losses comes torch)

    noise = displayed_noise(settings.data, settings.noise).replace(" ", "-")
    parts = (Path(settings.data).stem, noise, parse(settings.loss)[0][:LONGEST], f"seed{settings.seed}")
    readable = "-".join("".join(c if c.isalnum() or c in ".+-" else "_" for c in part) for part in parts)
    return f"{readable}-{settings.key}"


def run_path(runs: Path, settings: Settings) -> Path:
    """Return the folder of a run below ``runs``, whether it exists or not."""
    return runs / folder_name(settings)


def no_run(path: Path | str) -> str:
    """Return the message for a path where a run was expected.

    >>> no_run("x")
    "No run found in 'x', which does not exist. Expected the folder of a finished `symloss train` or `symloss fit`."
    """
    path = Path(path)
    cause = "" if path.is_dir() else ", which is a file" if path.exists() else ", which does not exist"
    return f"No run found in {str(path)!r}{cause}. Expected the folder of a finished `symloss train` or `symloss fit`."


def evaluation_file(data: str) -> str:
    """Return the file, in a run's folder, with the accuracy on another data set."""
    return f"evaluation-{data}.json"


def _identity(file: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file; None if it does not exist."""
    with contextlib.suppress(FileNotFoundError):
        status = file.stat()
        return status.st_dev, status.st_ino
    return None


def _line(row: EpochRow) -> str:
    return json.dumps(row.to_json()) + "\n"


def _row(line: bytes) -> EpochRow | None:
    """Return the metrics of an epoch; None if the line holds something else."""
    try:
        return EpochRow.from_json(json.loads(line))
    except (ValueError, RecursionError):
        return None
