"""Sweeps: the runs of a table's cells, what is left to do, processes that train them, and the figures they reach.

Each process trains one run after another. If one crashes, the others go on. What happened to a run, on this machine or
another, is told as events.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import time
import warnings
from collections import deque
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import torch

from symloss import noise
from symloss.data import data_root, open_data
from symloss.experiments.cells import Cell
from symloss.noise.labels import human_file, require_human_file
from symloss.training.prediction import accuracy_on
from symloss.training.results import EpochRow, Result, spread
from symloss.training.run import OnEpoch, train
from symloss.training.run_folder import FAILURE, METRICS, Busy, RunFolder, evaluation_file, run_path
from symloss.training.settings import Settings
from symloss.training.task import fingerprint
from symloss.writing import disk_is_full

SPAWN = multiprocessing.get_context("spawn")
PATIENCE = 3600.0  # after this many seconds without a new epoch, a sweep stops waiting for a run of another process
POLL = 0.3  # seconds between two checks of a run that another process trains


@dataclass(frozen=True)
class Work:
    """A run to train and to test. It can be sent to another process, or to a machine that shares the folders."""

    name: str
    settings: Settings
    folder: Path
    evaluate: tuple[str, ...] = ()  # other data sets to test the finished model on
    root: Path | None = None
    where: dict[str, Any] = field(default_factory=dict)  # accelerator, devices, nodes and workers

    @classmethod
    def of(cls, cells: Sequence[Cell], runs: Path, root: Path | None, where: dict[str, Any]) -> Work:
        """Make the work of cells that share a run."""
        cell = cells[0]
        # Another process may have another working folder.
        folder, root = run_path(runs, cell.settings).resolve(), None if root is None else root.resolve()
        evaluate = tuple(dict.fromkeys(cell.evaluate for cell in cells if cell.evaluate))
        return cls(f"{cell.name} seed {cell.seed}", cell.settings, folder, evaluate, root, where)

    def result(self) -> Result | None:
        """Return the result if the run is finished and tested, else None."""
        folder = RunFolder(self.folder)
        folder.settings()  # raises an error if a newer version wrote them
        trained = folder.result()
        whole = all(folder.read(evaluation_file(data)) is not None for data in self.evaluate)
        return trained if whole else None

    def last_epoch(self) -> float:
        """Return the time at which the last epoch ended; 0 if there is none."""
        metrics = self.folder / METRICS
        return metrics.stat().st_mtime if metrics.exists() and metrics.stat().st_size else 0.0

    def carry_out(self, on_epoch: OnEpoch | None = None) -> Result:
        """Train from the last checkpoint, and test. A finished result is returned as it is."""
        folder = RunFolder(self.folder)
        result = train(self.settings, self.folder, root=self.root, on_epoch=on_epoch, **self.where)
        for data in self.evaluate:
            if folder.read(evaluation_file(data)) is None:
                with folder.alone():
                    found = accuracy_on(self.folder, data, model=self.settings.model, root=self.root)
                    folder.write(evaluation_file(data), found)
        (self.folder / FAILURE).unlink(missing_ok=True)
        return result


@dataclass
class Survey:
    """All runs of a sweep. Of ``kept`` ones only the result is left; ``missing`` has the works without data.

    ``missing`` is by the sentence that says what to download.
    """

    done: list[Work] = field(default_factory=list)
    kept: int = 0
    todo: list[Work] = field(default_factory=list)
    missing: dict[str, list[Work]] = field(default_factory=dict)

    @property
    def begun(self) -> int:
        """The number of runs of ``todo`` that continue from a checkpoint."""
        return sum(work.last_epoch() > 0 for work in self.todo)


def with_fingerprints(cells: Iterable[Cell], root: Path | None) -> list[Cell]:
    """Return the same cells, with a fingerprint in their settings where data files are not the publisher's."""
    mark = functools.cache(fingerprint)  # many cells share their data
    marked = []
    for cell in cells:
        settings = replace(cell.settings, fingerprint=mark(cell.settings.data, None, cell.settings.noise, root))
        marked.append(replace(cell, resolved=replace(cell.resolved, settings=settings)))
    return marked


def survey(
    cells: Iterable[Cell], runs: Path, root: Path | None, where: dict[str, Any] | None = None, kept: Container[str] = ()
) -> Survey:
    """Survey the runs of cells before a sweep. Cells that share a run are one piece of work.

    ``kept`` has the keys of runs whose results were kept in a file. They need no folder.
    """
    surveyed = Survey()
    same_run: dict[str, list[Cell]] = {}
    for cell in cells:
        same_run.setdefault(cell.settings.key, []).append(cell)
    needed = functools.cache(_missing)  # many runs share their data
    for group in same_run.values():
        work = Work.of(group, runs, root, where or {})
        if work.result() is not None:
            surveyed.done.append(work)
            continue
        if not work.evaluate and work.settings.key in kept:
            surveyed.kept += 1
            continue
        human = work.settings.noise if noise.parse(work.settings.noise).kind == "human" else ""
        sentence = needed((work.settings.data, *work.evaluate), human, data_root() if root is None else root)
        if sentence is None:
            surveyed.todo.append(work)
        else:
            surveyed.missing.setdefault(sentence, []).append(work)
    return surveyed


def _missing(data: tuple[str, ...], human: str, root: Path) -> str | None:
    """Return the sentence that says what to download; None if nothing is missing."""
    try:
        for name in data:
            open_data(name, root=root)
        if human:
            require_human_file(human_file(noise.parse(human), root))
    except FileNotFoundError as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Event:
    """An event of a piece of work."""

    kind: Literal["started", "epoch", "waiting", "finished", "failed", "elsewhere"]
    """"waiting": another process trains the run now, and the sweep tries it again when all others are done.
    "elsewhere": the other process still trains the run, and the sweep has stopped waiting."""
    work: Work
    row: EpochRow | Result | None = None  # the metrics of an epoch, or the result of a finished run
    reason: str = ""
    disk_full: bool = False  # whether the work failed because the disk is full. Then no other work can succeed either.


Events = Iterator[Event]


def attempt(work: Work, patience: float, on_epoch: OnEpoch | None = None) -> Event:
    """Carry out a piece of work, and return an event that says how it ended. Events can be sent between processes.

    While another process trains the run, wait for it, until it has finished no epoch for ``patience`` seconds.
    """
    seen, since = -1.0, time.monotonic()
    while True:
        try:
            return Event("finished", work, work.carry_out(on_epoch))
        except Busy as error:
            busy = Event("elsewhere", work, reason=str(error))
        except BrokenPipeError:  # the process that listened has ended
            raise
        except Exception as error:
            with contextlib.suppress(OSError, ValueError):  # for reports
                RunFolder(work.folder).start(work.settings)
                RunFolder(work.folder).write(FAILURE, {"error": str(error)})
            reason = str(error) if isinstance(error, (ValueError, OSError)) else repr(error)
            return Event("failed", work, reason=reason, disk_full=disk_is_full(error))
        changed = work.last_epoch()
        if changed != seen:
            seen, since = changed, time.monotonic()
        if time.monotonic() - since >= patience:
            return busy
        time.sleep(min(POLL, patience))


class _TrainingProcess:
    """A process that trains one piece of work after another."""

    def __init__(self, number: int, threads: int):
        self.number, self.patience = number, 0.0
        self.work: Work | None = None
        self.connection, theirs = SPAWN.Pipe()
        self.process: Any = SPAWN.Process(target=_serve, args=(theirs, number, threads), name=f"symloss-{number}")
        self.process.start()
        theirs.close()

    def give(self, work: Work, patience: float) -> Event:
        self.work, self.patience = work, patience
        with contextlib.suppress(BrokenPipeError):  # if the process has died, the next read reports it
            self.connection.send((work, patience))
        return Event("started", work)

    def hear(self) -> Event:
        """Read the next event of the process, or tell how it died."""
        assert self.work is not None
        try:
            event: Event = self.connection.recv()
        except (EOFError, OSError):
            self.process.join()
            code = self.process.exitcode
            how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            reason = f"the process that trained it {how}; rerun the same command to resume from its last epoch"
            event = Event("failed", self.work, reason=reason)
        if event.kind != "epoch":
            self.work = None
        return event


def run_in_processes(works: Iterable[Work], jobs: int, patience: float = PATIENCE) -> Events:
    """Train all works in several processes, and yield events. A full disk ends the sweep early.

    If another process trains a run, the sweep tries the run again when nothing else is left. It then waits until the
    run is finished, or until no epoch has ended for ``patience`` seconds.

    On a machine with GPUs each process uses one of them. Otherwise the processes share the cores.
    """
    waiting = deque((work, 0.0) for work in works)
    jobs = min(jobs, len(waiting))
    threads = threads_of(jobs)
    workers = [_TrainingProcess(number, threads) for number in range(jobs)]
    try:
        while waiting or any(worker.work for worker in workers):
            for worker in workers:
                if worker.work is None and waiting:
                    yield worker.give(*waiting.popleft())
            ready = wait([worker.connection for worker in workers if worker.work])
            for worker in [worker for worker in workers if worker.connection in ready]:
                event = worker.hear()
                if event.kind == "elsewhere" and worker.patience < patience:
                    waiting.append((event.work, patience))
                    event = replace(event, kind="waiting")
                yield event
                if worker.process.exitcode is not None:
                    workers[worker.number] = _TrainingProcess(worker.number, threads)
                if event.disk_full:
                    waiting.clear()
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()


def threads_of(jobs: int) -> int:
    """Return the number of threads of each process, if ``jobs`` processes share this machine."""
    return max(1, torch.get_num_threads() // max(1, jobs))


def _serve(connection: Connection, number: int, threads: int) -> None:
    # Ctrl+C ends the process that started the sweep, and that one ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = lambda message, *_, **__: print(f"symloss: {message}", file=sys.stderr, flush=True)
    if torch.cuda.device_count() > 1 and "CUDA_VISIBLE_DEVICES" not in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(number % torch.cuda.device_count())
    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, OSError):  # the process that started this one has ended
        while True:
            work, patience = connection.recv()
            connection.send(attempt(work, patience, functools.partial(_tell_epoch, connection, work)))


def _tell_epoch(connection: Connection, work: Work, row: EpochRow) -> None:
    connection.send(Event("epoch", work, row))


def outcome(cells: Iterable[Cell], runs: Path, kept: Mapping[str, Result] | None = None) -> list[dict[str, Any]]:
    """Return a row for each cell of the table, in the order of the cells: mean and standard deviation over its seeds.

    ``kept`` has the results of runs without a folder, by the key of their settings.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.name, []).append(cell)
    rows = []
    for name, group in groups.items():
        first, ours = group[0], spread(_accuracy(cell, runs, kept or {}) for cell in group)
        rows.append({
            "cell": name, "dataset": first.dataset, "loss": first.title, "noise": first.noise,
            "profile": first.settings.profile, "mean": ours and ours.mean, "std": ours and ours.std,
            "runs": 0 if ours is None else ours.n, "published": first.published and first.published.text,
        })  # fmt: skip
    return rows


def _accuracy(cell: Cell, runs: Path, kept: Mapping[str, Result]) -> float | None:
    """Return the accuracy after the last epoch, on the data that the cell reports; None if it is not finished."""
    folder = RunFolder(run_path(runs, cell.settings))
    if cell.evaluate is not None:
        return folder.evaluation(cell.evaluate)
    result = folder.result() or kept.get(cell.settings.key)
    return None if result is None else result.last.test_accuracy
