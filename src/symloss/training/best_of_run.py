"""The epoch with the best validation accuracy and its weights, found while a run trains.

On published data the accuracy of an epoch counts as it is. On the user's own data it is smoothed over up to five
epochs, because a few hundred noisy labels make single epochs jump. So an epoch is judged up to two epochs later.
Until then its weights wait in a file, where an interrupted run finds them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from symloss.training.best_epoch import REACH, reach_of, smoothed
from symloss.training.checkpoint import load_state, save_state
from symloss.training.results import EpochRow
from symloss.training.run_folder import BEST, RunFolder
from symloss.training.settings import Settings

WAITING = "waiting-{}.pt"
"""The weights of an epoch that is not judged yet."""


@dataclass
class BestOfRun:
    """The best epoch so far. Where nothing is held out, it is the last one."""

    epochs: int  # the number of epochs of the run
    reach: int = 0  # the most neighbours on each side that an accuracy is smoothed over
    row: EpochRow | None = None  # the metrics of the best epoch; None before the first one is judged
    accuracy: float | None = None  # its smoothed validation accuracy
    # the epochs that are not judged yet, and those that they are smoothed over
    recent: list[EpochRow] = field(default_factory=list)

    @classmethod
    def start(cls, settings: Settings, state: dict[str, Any] | None = None) -> BestOfRun:
        """Start at the beginning of a run, or where its checkpoint was written."""
        best = cls(settings.epochs, 0 if settings.data_is_published else REACH)
        if state is not None and state["epoch"]:
            best.row = None if state["best"] is None else EpochRow.from_json(state["best"])
            best.accuracy = None if best.row is None else best.row.validation_accuracy
            if best.reach:
                best.accuracy = state["smoothing"]["accuracy"]
                best.recent = [EpochRow.from_json(each) for each in state["smoothing"]["recent"]]
        return best

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps."""
        best = {"best": None if self.row is None else self.row.to_json()}
        recent = [row.to_json() for row in self.recent]
        return best | ({"smoothing": {"accuracy": self.accuracy, "recent": recent}} if self.reach else {})

    def add(self, row: EpochRow) -> bool:
        """Add the metrics of an epoch, judge the epochs that can be judged now, and return whether one is better."""
        if row.validation_accuracy is None:
            self.row = row
            return True
        self.recent.append(row)
        accuracies = {each.epoch: each.validation_accuracy or 0.0 for each in self.recent}
        better = False
        for each in self.recent:
            reach = reach_of(each.epoch, self.epochs, self.reach)
            if each.epoch + reach != row.epoch:
                continue
            accuracy = smoothed(accuracies, each.epoch, reach)
            if self.accuracy is None or accuracy > self.accuracy:
                self.row, self.accuracy, better = each, accuracy, True
        first = row.epoch + 1 - 2 * self.reach
        self.recent = [each for each in self.recent if each.epoch >= first]
        return better

    def waiting(self, epoch: int) -> list[int]:
        """Return the epochs that are not judged yet when this one is over."""
        return [each for each in range(1, epoch + 1) if each + reach_of(each, self.epochs, self.reach) > epoch]

    def keep_weights(self, folder: RunFolder, epoch: int, model: dict[str, Any], better: bool) -> None:
        """Keep the weights of this epoch while they may be the best, and those of a better epoch for good."""
        if epoch in self.waiting(epoch):
            save_state(folder, WAITING.format(epoch), {"epoch": epoch, "model": model})
        if not better or self.row is None:
            return
        waiting = folder.path / WAITING.format(self.row.epoch)
        if self.row.epoch == epoch:
            save_state(folder, BEST, {"epoch": epoch, "model": model})
        elif waiting.exists():
            folder.require_lock()
            os.replace(waiting, folder.path / BEST)
        elif load_state(folder.path / BEST)["epoch"] != self.row.epoch:  # else it was put there before a kill
            raise ValueError(
                f"{waiting} must hold the weights of epoch {self.row.epoch}, the best one, but it was removed. "
                f"Remove {folder.path} to train again."
            )

    def forget_weights(self, folder: RunFolder, epoch: int) -> None:
        """Remove weights that are no longer needed, once the checkpoint of this epoch is written.

        Those of the previous checkpoint stay: the run goes back to it if this one turns out to be damaged.
        """
        wanted = {WAITING.format(each) for at in (epoch - 1, epoch) if epoch < self.epochs for each in self.waiting(at)}
        for path in folder.path.glob(WAITING.format("*")):
            if path.name not in wanted:
                path.unlink()
