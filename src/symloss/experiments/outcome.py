"""The figures of a table's cells: mean and standard deviation over the finished seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from symloss.experiments.cells import Cell
from symloss.training.folder_names import run_path
from symloss.training.results import Result, spread
from symloss.training.run_folder import RunFolder


def accuracy(cell: Cell, runs: Path, kept: Mapping[str, Result]) -> float | None:
    """The accuracy of a run after its last epoch, on the data that its cell reports; None if it is not finished."""
    folder = RunFolder(run_path(runs, cell.settings))
    if cell.evaluate is not None:
        return folder.evaluation(cell.evaluate)
    result = folder.result() or kept.get(cell.settings.key)
    return None if result is None else result.last.test_accuracy


def outcome(cells: Iterable[Cell], runs: Path, kept: Mapping[str, Result] | None = None) -> list[dict[str, Any]]:
    """A row for each cell of the table, in the order of the cells.

    Args:
        cells: the runs of a table.
        runs: the folder of all runs.
        kept: results of runs without a folder, by the key of their settings.
    """
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.name, []).append(cell)
    return [_row(name, group, runs, kept or {}) for name, group in groups.items()]


def _row(name: str, group: list[Cell], runs: Path, kept: Mapping[str, Result]) -> dict[str, Any]:
    ours = spread(accuracy(cell, runs, kept) for cell in group)
    published = group[0].published
    return {
        "cell": name,
        "dataset": group[0].dataset,
        "loss": group[0].title,
        "noise": group[0].noise,
        "profile": group[0].settings.profile,
        "mean": None if ours is None else ours.mean,
        "std": None if ours is None else ours.std,
        "runs": 0 if ours is None else ours.n,
        "published": None if published is None else published.text,
    }
