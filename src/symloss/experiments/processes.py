"""A sweep on one machine. Each process trains one cell after another. If one crashes, the others go on."""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import signal
import sys
import warnings
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from symloss.experiments.events import PATIENCE, Event, Events, attempt_patiently
from symloss.experiments.work import Work
from symloss.training.results import EpochRow

SPAWN = multiprocessing.get_context("spawn")


@dataclass
class _TrainingProcess:
    """A process that trains one piece of work after another."""

    number: int
    process: Any
    connection: Connection
    work: Work | None = None
    patience: float = 0.0
    """How many seconds it waits for another process that trains the same run."""

    def give(self, work: Work, patience: float) -> None:
        self.work, self.patience = work, patience
        with contextlib.suppress(BrokenPipeError):  # if the process has died, the next read reports it
            self.connection.send((work, patience))

    def death(self) -> str:
        self.process.join()
        code = self.process.exitcode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
        return f"the process that trained it {how}; start the same command again to go on from its last epoch"


def run_in_processes(works: Iterable[Work], jobs: int, patience: float = PATIENCE) -> Events:
    """Train all works in several processes, and yield events. A full disk ends the sweep early.

    If another process trains a run, the sweep tries the run again when nothing else is left. It then waits until the
    run is finished, or until no epoch has ended for ``patience`` seconds.

    On a machine with GPUs each process uses one of them. Otherwise the processes share the cores.

    Args:
        works: runs to train.
        jobs: the number of processes.
        patience: seconds.
    """
    waiting = deque((work, 0.0) for work in works)
    jobs = min(jobs, len(waiting))
    threads = threads_of(jobs)
    workers = [_start(number, threads) for number in range(jobs)]
    try:
        while waiting or any(worker.work for worker in workers):
            for worker in workers:
                if worker.work is None and waiting:
                    worker.give(*waiting.popleft())
                    assert worker.work is not None
                    yield Event("started", worker.work)
            ready = wait([worker.connection for worker in workers if worker.work])
            for worker in [worker for worker in workers if worker.connection in ready]:
                event = _heard(worker)
                if event.kind == "elsewhere" and worker.patience < patience:
                    waiting.append((event.work, patience))
                    event = replace(event, kind="waiting")
                yield event
                if worker.process.exitcode is not None:
                    workers[worker.number] = _start(worker.number, threads)
                if event.disk_full:
                    waiting.clear()
    finally:
        for worker in workers:
            worker.process.terminate()
            worker.process.join()


def threads_of(jobs: int) -> int:
    """The number of threads of each process, if ``jobs`` processes share this machine."""
    return max(1, torch.get_num_threads() // max(1, jobs))


def _heard(worker: _TrainingProcess) -> Event:
    work = worker.work
    assert work is not None
    try:
        event: Event = worker.connection.recv()
    except (EOFError, OSError):
        event = Event("failed", work, reason=worker.death())
    if event.kind != "epoch":
        worker.work = None
    return event


def _start(number: int, threads: int) -> _TrainingProcess:
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=_serve, args=(theirs, number, threads), name=f"symloss-{number}")
    process.start()
    theirs.close()
    return _TrainingProcess(number, process, ours)


def _serve(connection: Connection, number: int, threads: int) -> None:
    # Ctrl+C ends the process that started the sweep, and that one ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    warnings.showwarning = _show_warning
    if torch.cuda.device_count() > 1 and "CUDA_VISIBLE_DEVICES" not in os.environ:
        os.environ["CUDA_VISIBLE_DEVICES"] = str(number % torch.cuda.device_count())
    torch.set_num_threads(threads)
    while True:
        try:
            work, patience = connection.recv()
        except (EOFError, OSError):
            return
        try:
            tell = functools.partial(_tell_epoch, connection, work)
            connection.send(attempt_patiently(work, patience, tell))
        except BrokenPipeError:
            return


def _tell_epoch(connection: Connection, work: Work, row: EpochRow) -> None:
    connection.send(Event("epoch", work, row))


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    """Print a warning as one line, without the file and line of the code."""
    print(f"symloss: {message}", file=sys.stderr, flush=True)
