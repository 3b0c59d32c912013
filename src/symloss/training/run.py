"""A run from beginning to end: in its own folder, on one device or many, from its last checkpoint."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch.multiprocessing.spawn import ProcessRaisedException

from symloss import extras
from symloss.data.dataset import DataSet
from symloss.environment import versions
from symloss.noise.manifest import MANIFEST_FILE
from symloss.own_code import note_of
from symloss.training.best_of_run import BestOfRun
from symloss.training.loop import Diverged, OnStep, Trainer, fit
from symloss.training.prediction import encoder_used, keep_calibration
from symloss.training.results import EpochRow, Result
from symloss.training.run_folder import COLUMNS, DATA, RESULT, Busy, RunFolder
from symloss.training.settings import PRECISIONS, Settings
from symloss.training.task import Task, augmentation, prepare
from symloss.writing import DiskFull

SEVERAL_PROCESSES = "ddp_spawn"
"""How several processes are started. Forked ones would inherit the threads of the caller."""

OnEpoch = Callable[[EpochRow], None]


def train(
    settings: Settings,
    folder: Path | str,
    *,
    root: Path | None = None,
    skip_bad: bool = False,
    accelerator: str = "auto",
    devices: int = 1,
    nodes: int = 1,
    workers: int = 0,
    data: DataSet | None = None,
    on_epoch: OnEpoch | None = None,
    on_step: OnStep | None = None,
    on_start: Callable[[], None] | None = None,
) -> Result:
    """Train a run, resume it from its last checkpoint, or return its result if it is finished.

    Args:
        settings: what decides the result.
        folder: of this run alone; created if necessary.
        root: where data sets are; see :func:`symloss.data.data_root`.
        skip_bad: skip unreadable images instead of refusing them.
        accelerator, devices, nodes: as in Lightning Fabric. On more than one node start the same command on each, with
            MASTER_ADDR, MASTER_PORT and NODE_RANK set, or by torchrun.
        workers: processes that decode images which do not fit into memory.
        data: the data set of these settings, if it is open already. With several processes each opens its own.
        on_epoch: called with the metrics of every epoch; with several processes it must be picklable.
        on_step: called after each step with its number in the epoch, from 1, and the number of steps; as picklable.
        on_start: called when all is ready, before the first step; as picklable. A run that is done does not call it.
    """
    run = RunFolder(folder)
    several = devices * nodes > 1
    first = not several or is_first()
    if first:
        run.start(settings)
    done = run.result()
    if done is not None:
        return done
    work = _Work(settings, run, root, skip_bad, workers, None if several else data, on_epoch, on_step, on_start)
    # Where the same command was started many times, on each node or by torchrun, the first stands for all.
    with run.alone() if first else contextlib.nullcontext():
        try:
            fabric = _fabric(settings, accelerator, devices, nodes)
            return _launched(fabric, work) if several else work(fabric)
        except Exception as error:
            if first and not isinstance(error, Busy | Diverged):
                run.forget()  # nothing is left of a run that fails before its first epoch is over
            raise


def is_first() -> bool:
    """Return whether this is the process that stands for all, where the same command was started many times."""
    return int(os.environ.get("RANK", os.environ.get("NODE_RANK", "0"))) == 0


def _fabric(settings: Settings, accelerator: str, devices: int, nodes: int) -> Fabric:
    several = devices * nodes > 1
    try:
        return Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=("ddp" if "TORCHELASTIC_RUN_ID" in os.environ else SEVERAL_PROCESSES) if several else "auto",
            precision=PRECISIONS[settings.precision],  # type: ignore[arg-type]
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"This machine cannot train on {devices} device(s) of accelerator {accelerator!r} ({reason})."
        ) from None


def _launched(fabric: Fabric, work: _Work) -> Result:
    """In several processes, which end with this one, however that is stopped."""
    before = multiprocessing.active_children()
    try:
        return Result.from_json(fabric.launch(work.as_json), work.folder.path / RESULT)
    except ProcessRaisedException as error:
        raise _retold(error) from None
    finally:
        ours = [process for process in multiprocessing.active_children() if process not in before]
        for process in ours:
            process.terminate()
        for process in ours:
            process.join()


def _retold(error: ProcessRaisedException) -> Exception:
    """Return what went wrong in another process, without its traceback if it is a sentence of ours."""
    if note_of(error) is not None:
        return error
    kind, _, sentence = str(error).strip().splitlines()[-1].partition(": ")
    ours = (Busy, Diverged, ValueError, TypeError, OSError, FileNotFoundError, DiskFull)
    kinds = {known.__name__: known for known in ours}
    known = kinds.get(kind.rpartition(".")[2])
    return error if known is None else known(sentence)


@dataclass
class _Work:
    """What each process does. (Fabric takes functions to other processes, but no frozen records as arguments.)"""

    settings: Settings
    folder: RunFolder
    root: Path | None
    skip_bad: bool
    workers: int
    data: DataSet | None
    on_epoch: OnEpoch | None
    on_step: OnStep | None = None
    on_start: Callable[[], None] | None = None

    def as_json(self, fabric: Fabric) -> dict[str, Any]:
        """Return the result as a document: Fabric brings no frozen records back from another process."""
        return self(fabric).to_json()

    def __call__(self, fabric: Fabric) -> Result:
        if fabric.world_size > 1:
            _hear_the_end_of_the_parent()
        folder = self.folder
        encoder = encoder_used(folder) if self.data is None else "auto"
        task = prepare(self.settings, self.root, self.skip_bad, self.data, encoder)
        description = task.data.description(augmentation(self.settings, task.data))
        if fabric.is_global_zero:
            _refuse_other_labels(folder, task)
            folder.require_lock()
            task.corruption.save(folder.path)
            folder.write(DATA, asdict(description))
            if task.data.encoder is not None:
                folder.write(COLUMNS, task.data.encoder.to_document())
        on_gpu = fabric.device.type == "cuda"
        with flushed_denormals(), torch.random.fork_rng(devices=[fabric.device] if on_gpu else []):
            trainer = Trainer(fabric, self.settings, task, self.workers, self.on_step)
            if self.on_start is not None and fabric.is_global_zero:
                self.on_start()
            best = fit(trainer, folder, self.on_epoch)
            if fabric.is_global_zero:
                keep_calibration(folder, self.settings, task, description, trainer.model, fabric.device)
        result = _result(self.settings, task, folder.metrics()[-1], best)
        if fabric.is_global_zero:
            folder.require_lock()
            trainer.margins.save(folder.path)
            folder.write(RESULT, result.to_json())
        return result


@contextlib.contextmanager
def flushed_denormals() -> Iterator[None]:
    """Treat numbers that are too small for full precision (denormals) as zero while a network trains.

    A processor computes with them many times more slowly, and small gradients make many of them: a LeNet-5 with Adam
    and a learning rate that has run out trained six times faster without them.

    The setting holds in this thread until the end of the block, and in threads that torch starts meanwhile for good:
    torch can set it for the calling thread alone, and threads inherit it.
    """
    # torch can set it, but not tell whether it is set.
    before = float(torch.tensor(1e-39) * 1.0) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(before)


def _hear_the_end_of_the_parent() -> None:
    """Let SIGINT end this process: torch sends it when the parent dies, but an ignored signal is inherited."""
    if multiprocessing.parent_process() is not None and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def _refuse_other_labels(folder: RunFolder, task: Task) -> None:
    """Raise ValueError unless a run continues with the labels that it was begun with."""
    kept = folder.read(MANIFEST_FILE) if folder.has_checkpoint() else None
    if kept is not None and kept.get("noisy_sha256") != task.corruption.manifest.noisy_sha256:
        raise ValueError(
            f"The labels of {task.data.name} have changed since {folder.path} was begun. Choose another folder, or "
            "restore the data."
        )


def _result(settings: Settings, task: Task, last: EpochRow, best: BestOfRun) -> Result:
    assert best.row is not None
    wrong = None if task.clean is None else float((task.train.labels != task.clean).float().mean())
    labels = "none" if settings.validation == 0 else "clean" if settings.clean_validation else "noisy"
    return Result(
        settings=settings,
        train=len(task.train),
        validation=len(task.validation or ()),
        validation_labels=labels,
        test=len(task.test or ()),
        noise_rate=wrong,
        last=last,
        best=best.row,
        seconds=last.seconds or 0.0,
        versions=versions(),
        smoothed=best.accuracy if best.reach else None,
    )


class TensorBoard:
    """Writes event files below the run's folder; called with the metrics of every epoch."""

    def __init__(self, folder: Path):
        with extras.needed_by("`log=tensorboard`"):
            import torch.utils.tensorboard  # noqa: F401, PLC0415
        self.folder = folder / "tensorboard"
        # Opened by the first epoch, in whichever process that is.
        self.writer: Any = None

    def __call__(self, row: EpochRow) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

        epoch = row.epoch
        if self.writer is None:
            # The reader drops what an interrupted run wrote after its checkpoint.
            self.writer = SummaryWriter(str(self.folder), purge_step=epoch)
        for name, value in row.to_json().items():
            if name != "epoch" and value is not None:
                self.writer.add_scalar(name, value, epoch)
        self.writer.flush()
