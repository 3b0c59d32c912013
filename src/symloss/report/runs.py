"""Runs as their folders hold them, each checked before anything is said about it."""

from __future__ import annotations

import functools
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from symloss import checks
from symloss.lab.work import evaluation_file
from symloss.noise.manifest import JSON as NOISE
from symloss.recipes.profiles import profiles
from symloss.training.folder import DATA, FAILURE, RESULT, SETTINGS, RunFolder
from symloss.training.settings import Settings

MEASURES = ("test_accuracy", "validation_accuracy")


@dataclass(frozen=True)
class Run:
    """One folder: settings always, a result if it is finished."""

    folder: Path
    name: str
    """The folder, as seen from the one that was read."""
    settings: Settings
    result: dict[str, Any] | None
    failure: str | None
    """Why it was given up, where a sweep wrote that down."""

    @property
    def finished(self) -> bool:
        return self.result is not None

    @property
    def found(self) -> dict[str, Any]:
        """The result of a run that is known to be finished."""
        assert self.result is not None, self.name
        return self.result

    @property
    def measure(self) -> str | None:
        """What its accuracy is measured on: the test set, else the held-out examples, else nothing."""
        return next((name for name in MEASURES if self.found["last"].get(name) is not None), None)

    @property
    def validation_labels(self) -> str:
        return str(self.found.get("validation_labels", "unknown"))

    @functools.cached_property
    def epochs(self) -> list[dict[str, Any]]:
        """The metrics of every epoch that was written down."""
        return RunFolder(self.folder).metrics()

    @functools.cached_property
    def classes(self) -> tuple[str, ...]:
        found = (RunFolder(self.folder).read(DATA) or {}).get("classes", [])
        if not isinstance(found, list):
            raise ValueError(f"{self.folder / DATA} must hold a list of classes; got {checks.brief(found)}")
        return tuple(str(name) for name in found)

    @functools.cached_property
    def noise(self) -> tuple[str, NDArray[np.int64]] | None:
        """Which draw of the noise it was, and how many labels of each true class (row) became each class."""
        document = RunFolder(self.folder).read(NOISE)
        if document is None:
            return None
        try:
            counts = np.array(document["transitions"], dtype=np.int64)
            draw = str(document["noisy_sha256"])
        except (KeyError, ValueError, TypeError, OverflowError):
            counts, draw = np.zeros(0, dtype=np.int64), ""
        if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.size or counts.min() < 0:
            raise ValueError(f"{self.folder / NOISE} must hold a square table of transitions; got another document")
        return draw, counts

    def evaluation(self, name: str) -> float | None:
        """Its accuracy on another data set; None where it was not tested on it yet."""
        file = evaluation_file(name)
        document = RunFolder(self.folder).read(file)
        return None if document is None else _share(self.folder / file, "accuracy", document.get("accuracy"))

    @property
    def progress(self) -> str:
        """Of a run without a result: "failed: ...", or how far it came."""
        if self.failure is not None:
            return f"failed: {self.failure}"
        return f"unfinished: {max((row['epoch'] for row in self.epochs), default=0)} of {self.settings.epochs} epochs"


@dataclass(frozen=True)
class Runs:
    """Every run below a folder."""

    folder: Path
    finished: tuple[Run, ...]
    unfinished: tuple[Run, ...]
    """Those without a result, whether they failed or were cut off."""
    repeated: tuple[tuple[Run, Run], ...]
    """Runs with the settings of another one, and that other one; they do not count a second time."""


def read_runs(folder: Path | str) -> Runs:
    """Every run below a folder, or in it. A damaged one, or one of a newer version, is refused in one sentence."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"RUNS must be a folder of runs; got {str(folder)!r}, which is none")
    found = [read_run(path, folder) for path in _folders(folder)]
    if not found:
        raise FileNotFoundError(f"RUNS must be a folder of runs; got {str(folder)!r} without any run in it")
    # A finished run stands for all with its settings.
    first: dict[str, Run] = {}
    repeated = []
    for run in sorted(found, key=lambda run: not run.finished):
        if run.settings.key in first:
            repeated.append((run, first[run.settings.key]))
        else:
            first[run.settings.key] = run
    once = sorted(first.values(), key=lambda run: run.name)
    finished = tuple(run for run in once if run.finished)
    return Runs(folder, finished, tuple(run for run in once if not run.finished), tuple(repeated))


def _folders(folder: Path) -> list[Path]:
    return sorted(Path(path) for path, _, files in os.walk(folder) if SETTINGS in files)


def read_run(folder: Path, root: Path | None = None) -> Run:
    settings = _settings(folder)
    result = RunFolder(folder).read(RESULT)
    if result is not None:
        _check_result(folder / RESULT, result)
    failure = RunFolder(folder).read(FAILURE)
    reason = None if failure is None else str(failure.get("error", "for an unknown reason"))
    name = folder.name if root is None or folder == root else folder.relative_to(root).as_posix()
    return Run(folder, name, settings, result, reason)


def _settings(folder: Path) -> Settings:
    settings = RunFolder(folder).settings()
    if settings is None:
        raise ValueError(f"{folder / SETTINGS} must be there; it was removed while the runs were read")
    try:
        checks.choice("profile", settings.profile, profiles())
    except ValueError as error:
        raise ValueError(f"{folder / SETTINGS} holds no settings of a run; {error}") from None
    return settings


def _check_result(path: Path, result: dict[str, Any]) -> None:
    for name in ("last", "best"):
        row = result.get(name)
        if not isinstance(row, dict):
            raise ValueError(f"{path} must hold a result with a {name} epoch; got {checks.brief(row)}")
        for measure in (*MEASURES, "memorised"):
            if row.get(measure) is not None:
                _share(path, f"{measure} of the {name} epoch", row[measure])
    seconds = result.get("seconds", 0.0)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not math.isfinite(seconds):
        raise ValueError(f"{path} must hold seconds as a number; got {checks.brief(seconds)}")
    if not isinstance(result.get("versions", {}), dict):
        raise ValueError(f"{path} must hold versions as a JSON object; got {checks.brief(result['versions'])}")


def _share(path: Path, what: str, value: object) -> float:
    try:
        return checks.number(what, value, "[0, 1]")
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from None
