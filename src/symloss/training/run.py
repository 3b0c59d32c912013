"""A run from beginning to end: in its own folder, on one device or many, from wherever it was left."""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric
from torch.multiprocessing.spawn import ProcessRaisedException

from symloss.data import KNOWN
from symloss.training.denormals import flushed_denormals
from symloss.training.folder import DATA, RESULT, RunFolder
from symloss.training.loop import Diverged, Row, Trainer, fit
from symloss.training.settings import PRECISIONS, Settings
from symloss.training.task import Task, augmentation, prepare
from symloss.training.versions import versions
from symloss.writing import DiskFull

RESULT_HOLDS = ("settings", "train", "validation", "validation_labels", "test", "noise_rate", "last", "best", "seconds")
OnEpoch = Callable[[Row], None]


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
    on_epoch: OnEpoch | None = None,
) -> dict[str, Any]:
    """Train, or go on where a run was cut off, or return the result of one that is done.

    Args:
        settings: what decides the result.
        folder: of this run alone; made if need be.
        root: where data sets are; see :func:`symloss.data.data_root`.
        skip_bad: leave out files that are no images instead of refusing them.
        accelerator, devices, nodes: as in Lightning Fabric. On more than one node start the same command on each, with
            MASTER_ADDR, MASTER_PORT and NODE_RANK set, or by torchrun.
        workers: processes that decode images which do not fit into memory.
        on_epoch: called with the metrics of every epoch; with several processes it must be picklable.
    """
    run = RunFolder(folder)
    several = devices * nodes > 1
    first = not several or is_first()
    if first:
        run.start(settings)
        if begun_unaugmented(run, settings):
            warnings.warn(
                f"{folder} was begun by version 0.1, which left images of one's own as they are, and stays so; "
                "remove it to train on augmented images",
                stacklevel=2,
            )
    done = run.read(RESULT, needs=RESULT_HOLDS)
    if done is not None:
        return done
    fabric = _fabric(settings, accelerator, devices, nodes)
    work = _Work(settings, run.path, root, skip_bad, workers, on_epoch)
    # Where the same command was started many times, on each node or by torchrun, the first stands for all.
    with run.alone() if first else contextlib.nullcontext():
        try:
            found: dict[str, Any] = fabric.launch(work) if several else work(fabric)
        except ProcessRaisedException as error:
            raise _retold(error) from None
        return found


def is_first() -> bool:
    """Whether this is the process that stands for all, where the same command was started many times."""
    return int(os.environ.get("RANK", os.environ.get("NODE_RANK", "0"))) == 0


def _fabric(settings: Settings, accelerator: str, devices: int, nodes: int) -> Fabric:
    several = devices * nodes > 1
    try:
        return Fabric(
            accelerator=accelerator,
            devices=devices,
            num_nodes=nodes,
            strategy=("ddp" if "TORCHELASTIC_RUN_ID" in os.environ else "ddp_spawn") if several else "auto",
            precision=PRECISIONS[settings.precision],  # type: ignore[arg-type]
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(
            f"accelerator and devices must be such as this machine has; got {accelerator!r} and {devices} ({reason})"
        ) from None


def _retold(error: ProcessRaisedException) -> Exception:
    """What went wrong in another process, without its traceback if it is a sentence of ours."""
    kind, _, sentence = str(error).strip().splitlines()[-1].partition(": ")
    kinds = {known.__name__: known for known in (Diverged, ValueError, TypeError, OSError, FileNotFoundError, DiskFull)}
    known = kinds.get(kind.rpartition(".")[2])
    return error if known is None else known(sentence)


@dataclass
class _Work:
    """What each process does. (Fabric takes functions to other processes, but no frozen records as arguments.)"""

    settings: Settings
    path: Path
    root: Path | None
    skip_bad: bool
    workers: int
    on_epoch: OnEpoch | None

    def __call__(self, fabric: Fabric) -> dict[str, Any]:
        folder, task = RunFolder(self.path), prepare(self.settings, self.root, self.skip_bad)
        if begun_unaugmented(folder, self.settings):
            task = replace(task, data=replace(task.data, augmentation=()))
        if fabric.is_global_zero:
            task.corruption.save(self.path)
            folder.write(DATA, _description(self.settings, task))
        on_gpu = fabric.device.type == "cuda"
        with flushed_denormals(), torch.random.fork_rng(devices=[fabric.device] if on_gpu else []):
            best = fit(Trainer(fabric, self.settings, task, self.workers), folder, self.on_epoch)
        result = _result(self.settings, task, folder.metrics()[-1], best)
        if fabric.is_global_zero:
            folder.write(RESULT, result)
        return result


def begun_unaugmented(run: RunFolder, settings: Settings) -> bool:
    """Whether its settings say "augment" and its images were not changed: it ends as it was begun, bit for bit."""
    if settings.data in KNOWN or not settings.augment or not run.has_checkpoint():
        return False
    about = run.read(DATA) or {}
    shape = about.get("input_shape")
    return not about.get("augmentation") and isinstance(shape, list) and len(shape) == 3


def _description(settings: Settings, task: Task) -> dict[str, Any]:
    """What has to be known of the data to predict on other data, and what was done to it."""
    data = task.data
    return {
        "name": data.name,
        "classes": list(data.classes),
        "input_shape": list(data.input_shape),
        "size": data.size,
        "columns": list(data.columns),
        "mean": list(data.scaling.mean),
        "std": list(data.scaling.std),
        "augmentation": list(augmentation(settings, data)),
    }


def _result(settings: Settings, task: Task, last: Row, best: Row) -> dict[str, Any]:
    wrong = None if task.clean is None else float((task.train.labels != task.clean).float().mean())
    return {
        "settings": settings.to_dict(),
        "train": len(task.train),
        "validation": len(task.validation or ()),
        "validation_labels": _validation_labels(settings),
        "test": len(task.test or ()),
        "noise_rate": wrong,
        "last": last,
        "best": best,
        "seconds": last["seconds"],
        "versions": versions(),
    }


def _validation_labels(settings: Settings) -> str:
    if settings.validation == 0:
        return "none"
    return "clean" if settings.clean_validation else "noisy"
