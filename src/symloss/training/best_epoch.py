"""The epoch with the best validation accuracy, found while a run goes on, and its weights.

On a published data set the accuracy of an epoch counts as it is. On the user's own data it is smoothed over up to five
epochs: a few hundred noisy labels make single epochs jump. So an epoch is judged up to two epochs later. Until then its
weights wait in a file, where a run that was interrupted finds them.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

from symloss.training.checkpoint import load_state, save_state
from symloss.training.results import EpochRow
from symloss.training.run_folder import BEST, RunFolder
from symloss.training.settings import Settings
from symloss.training.smoothed_accuracy import REACH, reach_of, smoothed

WAITING = "waiting-{}.pt"
"""The weights of an epoch that is not judged yet."""


@dataclass
class BestEpoch:
    """The best epoch so far. Where nothing is held out, it is the last one.

    Args:
        epochs: the number of epochs of the run.
        reach: the most neighbours on each side that an accuracy is smoothed over.
        row: the metrics of the best epoch; None before the first one is judged.
        accuracy: its smoothed validation accuracy.
        recent: the epochs that are not judged yet, and those that they are smoothed over.
    """

    epochs: int
    reach: int = 0
    row: EpochRow | None = None
    accuracy: float | None = None
    recent: list[EpochRow] = field(default_factory=list)

    @classmethod
    def start(cls, settings: Settings, state: dict[str, Any] | None = None) -> BestEpoch:
        """At the beginning of a run, or as its checkpoint says.

        A run that was begun without smoothing goes on without it.
        """
        if state is None or not state["epoch"]:
            return cls(settings.epochs, 0 if settings.data_is_published else REACH)
        row = None if state["best"] is None else EpochRow.from_json(state["best"])
        kept = state.get("smoothing")
        if kept is None:
            return cls(settings.epochs, 0, row, None if row is None else row.validation_accuracy)
        recent = [EpochRow.from_json(each) for each in kept["recent"]]
        return cls(settings.epochs, REACH, row, kept["accuracy"], recent)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps."""
        kept: dict[str, Any] = {"best": None if self.row is None else self.row.to_json()}
        if self.reach:
            recent = [row.to_json() for row in self.recent]
            kept["smoothing"] = {"accuracy": self.accuracy, "recent": recent}
        return kept

    def add(self, row: EpochRow) -> bool:
        """Add the metrics of an epoch, and judge the epochs that can be judged now. True if one of them is better."""
        if row.validation_accuracy is None:
            self.row = row
            return True
        self.recent.append(row)
        accuracies = {each.epoch: each.validation_accuracy or 0.0 for each in self.recent}
        better = False
        for each in self._judged_at(row.epoch):
            accuracy = smoothed(accuracies, each.epoch, self._reach(each.epoch))
            if self.accuracy is None or accuracy > self.accuracy:
                self.row, self.accuracy, better = each, accuracy, True
        first = row.epoch + 1 - 2 * self.reach
        self.recent = [each for each in self.recent if each.epoch >= first]
        return better

    def waiting(self, epoch: int) -> list[int]:
        """The epochs that are not judged yet when this one is over."""
        return [each for each in range(1, epoch + 1) if each + self._reach(each) > epoch]

    def _judged_at(self, epoch: int) -> list[EpochRow]:
        return [each for each in self.recent if each.epoch + self._reach(each.epoch) == epoch]

    def _reach(self, epoch: int) -> int:
        return reach_of(epoch, self.epochs, self.reach)

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
                f"{waiting} must hold the weights of epoch {self.row.epoch}, which is the best; it was removed, so "
                f"remove {folder.path} to train it again"
            )

    def forget_weights(self, folder: RunFolder, epoch: int) -> None:
        """Remove the weights that nobody waits for, when the checkpoint of this epoch is written.

        Those of the checkpoint before stay: the run goes back to it if this one turns out to be damaged.
        """
        wanted = {WAITING.format(each) for at in (epoch - 1, epoch) if epoch < self.epochs for each in self.waiting(at)}
        for path in folder.path.glob(WAITING.format("*")):
            if path.name not in wanted:
                path.unlink()
