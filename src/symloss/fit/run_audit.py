"""The audit of a finished run: its margins rank the labels that it was trained on."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from symloss.data.dataset import Examples
from symloss.fit.audit import Audit, audit_labels
from symloss.fit.wrong_count import WrongCount, count_wrong
from symloss.noise.manifest import MANIFEST_FILE
from symloss.noise.margins import margins
from symloss.training.margin_file import MARGINS, read_margins
from symloss.training.prediction import Trained, trained
from symloss.training.run_folder import RunFolder, no_run
from symloss.training.settings import Settings
from symloss.training.task import Task, prepare


@dataclass(frozen=True)
class RunAudit:
    """The audit of a run.

    Args:
        audit: of the labels that the run was trained on.
        count: how many of them are wrong, and how that was found out.
        settings: of the run.
        task: the data of the run.
        by_margins: whether the labels are ranked by the mean margin of training, not by the checkpoint's alone.
    """

    audit: Audit
    count: WrongCount
    settings: Settings
    task: Task
    by_margins: bool


def audit_run(
    run: Path | str, *, model: str | None = None, root: Path | None = None, skip_bad: bool = False
) -> RunAudit:
    """Audit the labels that a finished run was trained on.

    The labels are ranked by the mean margin that training kept. The probabilities are those of the best epoch, or of
    the last where nothing was held out. Examples that were held out are not ranked: they count the wrong labels.

    Args:
        run: the folder of the run.
        model: the name of the run's model again, if it is code of your own.
        root: where known data sets are.
        skip_bad: as in the training of the run.
    """
    folder = RunFolder(run)
    settings = folder.settings()
    if settings is None:
        raise ValueError(no_run(run))
    if folder.result() is None:
        raise ValueError(f"The run in {str(run)!r} is not finished. Rerun the command that began it to resume.")
    network = trained(run, model=model)
    task = prepare(settings, root, skip_bad)
    _refuse_other_labels(folder, task)
    scores = _scores(network, task.train)
    mean_margins = _kept_margins(folder, task)
    ranking = margins(scores, task.train.labels)[0].numpy() if mean_margins is None else mean_margins
    count = _count(network, settings, task, ranking)
    audit = audit_labels(
        task.train.labels.numpy(),
        ranking,
        network.probabilities(scores).double().numpy(),
        n_wrong=count.n_wrong,
        interval=count.interval,
        classes=task.data.classes,
        positions=_positions(task),
        truth=None if task.clean is None else task.clean.numpy(),
    )
    return RunAudit(audit, count, settings, task, mean_margins is not None)


def _count(network: Trained, settings: Settings, task: Task, ranking: NDArray[np.float32]) -> WrongCount:
    # Held-out labels that are true say nothing of how many others are wrong.
    if task.validation is None or settings.clean_validation:
        return count_wrong(ranking)
    held_out = _scores(network, task.validation).softmax(1)
    return count_wrong(ranking, task.validation.labels.numpy(), held_out.numpy())


def _scores(network: Trained, examples: Examples) -> Tensor:
    """(N, C), in the order of the examples, by one pass."""
    found = torch.empty(len(examples), len(network.data.classes))
    for index, scores in network.scores(examples):
        found[index] = scores.float()
    return found


def _positions(task: Task) -> NDArray[np.int64]:
    positions = task.train.positions
    return np.arange(len(task.train)) if positions is None else positions.numpy()


def _kept_margins(folder: RunFolder, task: Task) -> NDArray[np.float32] | None:
    kept = read_margins(folder.path)
    if kept is None:
        warnings.warn(
            f"{folder.path} has no {MARGINS}, as a version of symloss began it that kept none; its labels are ranked "
            "by one checkpoint, which mostly finds fewer of the wrong ones",
            stacklevel=2,
        )
        return None
    if not np.array_equal(kept.positions, _positions(task)):
        raise ValueError(f"{folder.path / MARGINS} must hold the examples of the run; got {len(kept.positions)} others")
    return kept.margin


def _refuse_other_labels(folder: RunFolder, task: Task) -> None:
    kept = folder.read(MANIFEST_FILE) or {}
    if kept.get("noisy_sha256") != task.corruption.manifest.noisy_sha256:
        raise ValueError(
            f"{task.data.name} must have the labels that {folder.path} was trained on; got others, so they have "
            "changed since"
        )
