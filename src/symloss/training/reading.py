"""Read runs back from their folders, or their results from one file. Every file is checked before it is used."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from symloss import checks
from symloss.noise.manifest import MANIFEST_FILE
from symloss.training.results import EpochRow, Result
from symloss.training.run_folder import DATA, FAILURE, SETTINGS, RunFolder, folder_name
from symloss.training.settings import Settings
from symloss.writing import alone, clear_write_errors, write_whole

SUFFIX = ".jsonl"
"""The suffix of a file of results, one a line. A result is a few hundred bytes, and all that a table needs."""


@dataclass(frozen=True)
class Run:
    """One run, as its folder holds it.

    Args:
        folder: the folder of the run.
        name: the path of that folder, relative to the one that was read.
        settings: of the run.
        outcome: the result; None if the run is not finished.
        failure: why a sweep gave the run up; None if it did not.
    """

    folder: Path
    name: str
    settings: Settings
    outcome: Result | None
    failure: str | None

    @property
    def finished(self) -> bool:
        """Whether the run has a result."""
        return self.outcome is not None

    @property
    def result(self) -> Result:
        """The result of a run that is known to be finished."""
        assert self.outcome is not None, self.name
        return self.outcome

    def accuracy(self, evaluated_on: str | None) -> float | None:
        """Return the accuracy after the last epoch, on the test set or another data set; None if there is none."""
        if evaluated_on is not None:
            return RunFolder(self.folder).evaluation(evaluated_on)
        return self.result.last.test_accuracy

    @functools.cached_property
    def epochs(self) -> list[EpochRow]:
        """The metrics of every epoch that was written down."""
        return RunFolder(self.folder).metrics()

    @functools.cached_property
    def class_names(self) -> tuple[str, ...]:
        """The names of the classes; none where they were not written down."""
        document = RunFolder(self.folder).read(DATA) or {}
        found: dict[str, tuple[str, ...] | None] = checks.record(
            self.folder / DATA, document, {"class_names": "tuple[str, ...] | None"}, optional=["class_names"]
        )
        return found["class_names"] or ()

    @functools.cached_property
    def noise(self) -> tuple[str, NDArray[np.int64]] | None:
        """The checksum of the noisy labels, and the number of labels of each true class (row) that became each class.

        None where the run has no manifest of its noise.
        """
        document = RunFolder(self.folder).read(MANIFEST_FILE)
        if document is None:
            return None
        try:
            counts = np.array(document["transitions"], dtype=np.int64)
            draw = str(document["noisy_sha256"])
        except (KeyError, ValueError, TypeError, OverflowError):
            counts, draw = np.zeros(0, dtype=np.int64), ""
        if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or not counts.size or counts.min() < 0:
            raise ValueError(
                f"{self.folder / MANIFEST_FILE} must hold a square table of transitions; got another document"
            )
        return draw, counts

    @property
    def progress(self) -> str:
        """How far a run without a result came, or "failed: ..." with the reason."""
        if self.failure is not None:
            return f"failed: {self.failure}"
        return f"unfinished: {max((row.epoch for row in self.epochs), default=0)} of {self.settings.epochs} epochs"


@dataclass(frozen=True)
class Runs:
    """Every run below a folder.

    Args:
        folder: the folder that was read.
        finished: the runs with a result.
        unfinished: the runs without one, whether they failed or were interrupted.
        repeated: runs with the settings of another run, each with that other run. They do not count a second time.
    """

    folder: Path
    finished: tuple[Run, ...]
    unfinished: tuple[Run, ...]
    repeated: tuple[tuple[Run, Run], ...]


def read_runs(folder: Path | str) -> Runs:
    """Return every run below a folder, or in it, or every result in a file of kept results (``.jsonl``).

    A damaged run, or one of a newer version, raises an error of one sentence.
    """
    folder = Path(folder)
    if folder.is_file() and folder.suffix == SUFFIX:
        runs = [_kept_run(result, folder) for result in read_kept(folder).values()]
    elif folder.is_dir():
        runs = [read_run(Path(path), folder) for path, _, files in sorted(os.walk(folder)) if SETTINGS in files]
    else:
        raise FileNotFoundError(
            f"RUNS must be a folder of runs, or a file of results that ends in {SUFFIX}; got {str(folder)!r}, "
            "which is neither"
        )
    if not runs:
        raise FileNotFoundError(f"RUNS must hold a run; got {str(folder)!r} without any run in it")
    # A finished run stands for all with its settings.
    first: dict[str, Run] = {}
    repeated = []
    for run in sorted(runs, key=lambda run: not run.finished):
        if run.settings.key in first:
            repeated.append((run, first[run.settings.key]))
        else:
            first[run.settings.key] = run
    once = sorted(first.values(), key=lambda run: run.name)
    finished = tuple(run for run in once if run.finished)
    return Runs(folder, finished, tuple(run for run in once if not run.finished), tuple(repeated))


def _kept_run(result: Result, file: Path) -> Run:
    """Return a run of which only the result is left. Its folder does not exist, so that it has no curves."""
    try:
        name = folder_name(result.settings)
    except ValueError as error:
        raise ValueError(f"{file} holds a result whose loss cannot be read; {error}") from None
    return Run(file.with_name(f"{file.name}.folders") / name, name, result.settings, result, None)


def read_run(folder: Path, root: Path | None = None) -> Run:
    """Return the run in a folder. Its name is the folder's path relative to ``root``, or the last part of it."""
    files = RunFolder(folder)
    settings = files.settings()
    if settings is None:
        raise ValueError(f"{folder / SETTINGS} was removed while the runs were being read.")
    failure = files.read(FAILURE)
    reason = None if failure is None else str(failure.get("error", "for an unknown reason"))
    name = folder.name if root is None or folder == root else folder.relative_to(root).as_posix()
    return Run(folder, name, settings, files.result(), reason)


def read_kept(path: Path) -> dict[str, Result]:
    """Return the results in a file, by the key of their settings; none if there is no such file.

    A damaged line raises an error of one sentence. Of two results with the same settings the first one counts.
    """
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError:
        raise ValueError(f"{path} must hold results as JSON, a line each; got bytes that are not text") from None
    places = {f"{path}, line {number},": line for number, line in enumerate(lines, 1) if line.strip()}
    results = [Result.from_json(checks.json_object(place, line), place) for place, line in places.items()]
    return {result.settings.key: result for result in reversed(results)}


def require_writable(path: Path) -> None:
    """Raise ValueError if a file cannot be written, before hours are spent on its content."""
    existing = next(each for each in (path, *path.absolute().parents) if each.exists())
    if path.suffix != SUFFIX or path.is_dir() or not os.access(existing, os.W_OK):
        raise ValueError(f"`--results` must be a writable file that ends in {SUFFIX}; got {str(path)!r}")


def keep(path: Path, results: Iterable[Result]) -> None:
    """Add results to a file, which is created if necessary. Results whose settings are there already are skipped.

    Several processes may do so at the same time.

    Args:
        path: the file. It is sorted by data, noise, loss and seed, so that a new result is one new line.
        results: of finished runs.
    """
    with clear_write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path):
        kept = read_kept(path)
        new = {result.settings.key: result for result in results if result.settings.key not in kept}
        if new:
            every = sorted((kept | new).values(), key=lambda result: _order(result.settings))
            write_whole(path, "".join(json.dumps(result.to_json()) + "\n" for result in every).encode())


def _order(settings: Settings) -> tuple[str, ...]:
    return settings.data, settings.profile, settings.noise, settings.loss, f"{settings.seed:010d}", settings.key
