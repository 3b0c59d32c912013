"""What came out of a table's cells so far: mean and standard deviation over the seeds that are done."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from symloss.lab.work import evaluation_file
from symloss.recipes.cells import Cell
from symloss.training.comparison import run_folder, spread
from symloss.training.folder import RESULT, RunFolder


def accuracy(cell: Cell, runs: Path) -> float | None:
    """Of one run, on what its cell is tested on, in the last epoch; None while there is none."""
    folder = RunFolder(run_folder(runs, cell.settings))
    if cell.evaluate is not None:
        found = folder.read(evaluation_file(cell.evaluate))
        return None if found is None else float(found["accuracy"])
    result = folder.read(RESULT)
    return None if result is None else result["last"]["test_accuracy"]


def outcome(cells: Iterable[Cell], runs: Path) -> list[dict[str, Any]]:
    """One row for each cell of the table, in its order."""
    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.name, []).append(cell)
    return [_row(name, group, runs) for name, group in groups.items()]


def _row(name: str, group: list[Cell], runs: Path) -> dict[str, Any]:
    values = [accuracy(cell, runs) for cell in group]
    found = spread(values)
    published = group[0].published
    return {
        "cell": name,
        "dataset": group[0].dataset,
        "loss": group[0].title,
        "noise": group[0].noise,
        "profile": group[0].settings.profile,
        "mean": None if found is None else found["mean"],
        "std": None if found is None else found["std"],
        "runs": sum(value is not None for value in values),
        "published": None if published is None else published.text,
    }
