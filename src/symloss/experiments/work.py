"""The work of a cell: a run, and a test on other data if the cell needs one."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from symloss.experiments.cells import Cell
from symloss.training.folder_names import run_path
from symloss.training.prediction import accuracy_on
from symloss.training.results import Result
from symloss.training.run import OnEpoch, train
from symloss.training.run_folder import FAILURE, METRICS, Busy, RunFolder, evaluation_file
from symloss.training.settings import Settings


@dataclass(frozen=True)
class Work:
    """A run to train and to test. It can be sent to another process, or to a machine that shares the folders."""

    name: str
    settings: Settings
    folder: Path
    evaluate: tuple[str, ...] = ()
    """Other data sets to test the finished model on."""
    root: Path | None = None
    where: dict[str, Any] = field(default_factory=dict)
    """Accelerator, devices, nodes and workers."""

    @classmethod
    def of(cls, cells: Sequence[Cell], runs: Path, root: Path | None, where: dict[str, Any]) -> Work:
        """The work of cells that share a run."""
        cell = cells[0]
        # Another process may have another working folder.
        folder, root = run_path(runs, cell.settings).resolve(), None if root is None else root.resolve()
        evaluate = tuple(dict.fromkeys(cell.evaluate for cell in cells if cell.evaluate))
        return cls(f"{cell.name} seed {cell.seed}", cell.settings, folder, evaluate, root, where)

    def result(self) -> Result | None:
        """The result, if the run is finished and tested; else None."""
        folder = RunFolder(self.folder)
        folder.settings()  # raises an error if a newer version wrote them
        trained = folder.result()
        whole = all(folder.read(evaluation_file(data)) is not None for data in self.evaluate)
        return trained if whole else None

    def started(self) -> bool:
        """Whether an epoch of the run is finished."""
        metrics = self.folder / METRICS
        return metrics.exists() and metrics.stat().st_size > 0

    def carry_out(self, on_epoch: OnEpoch | None = None) -> Result:
        """Train from the last checkpoint, and test. A finished result is returned as it is. A failure is stored."""
        try:
            result = self._carry_out(on_epoch)
        except (Busy, BrokenPipeError):
            raise
        except Exception as error:
            self._write_down(error)
            raise
        (self.folder / FAILURE).unlink(missing_ok=True)
        return result

    def _write_down(self, error: Exception) -> None:
        """Store the reason of a failure in the folder of the run, for reports."""
        folder = RunFolder(self.folder)
        with contextlib.suppress(OSError, ValueError):
            folder.start(self.settings)
            folder.write(FAILURE, {"error": str(error)})

    def _carry_out(self, on_epoch: OnEpoch | None) -> Result:
        result = train(self.settings, self.folder, root=self.root, on_epoch=on_epoch, **self.where)
        folder = RunFolder(self.folder)
        for data in self.evaluate:
            if folder.read(evaluation_file(data)) is None:
                with folder.alone():
                    folder.write(
                        evaluation_file(data), accuracy_on(self.folder, data, model=self.settings.model, root=self.root)
                    )
        return result
