"""Several losses on the same noisy data, several times each: what came out, as one table."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from symloss.losses.spec import parse
from symloss.training.settings import Settings, noise_said

LONGEST = 60
"""Characters of a composed loss in the name of a folder; the key tells longer ones apart."""


def run_folder(runs: Path, settings: Settings) -> Path:
    """Where a run is, or will be; version 0.1 called all labels clean that it added no noise to."""
    folder, before = (runs / _name(settings, noise) for noise in (_noise(settings), settings.noise))
    return before if before.exists() and not folder.exists() else folder


def folder_name(settings: Settings) -> str:
    """A name that people can read, and that no two settings share."""
    return _name(settings, _noise(settings))


def _noise(settings: Settings) -> str:
    return noise_said(settings.data, settings.noise).replace(" ", "-")


def _name(settings: Settings, noise: str) -> str:
    parts = (Path(settings.data).stem, noise, parse(settings.loss)[0][:LONGEST], f"seed{settings.seed}")
    readable = "-".join("".join(c if c.isalnum() or c in ".+-" else "_" for c in part) for part in parts)
    return f"{readable}-{settings.key}"


def with_seeds(settings: Settings, seeds: int) -> list[Settings]:
    return [dataclasses.replace(settings, seed=settings.seed + i) for i in range(seeds)]


def rows(results: Iterable[Sequence[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One row for each loss, of the results of its seeds."""
    return [_row(list(runs)) for runs in results]


def _row(runs: list[dict[str, Any]]) -> dict[str, Any]:
    settings = runs[0]["settings"]
    measure = "test_accuracy" if runs[0]["test"] else "validation_accuracy"
    return {
        "loss": settings["loss"],
        "lr": settings["lr"],
        "weight_decay": settings["weight_decay"],
        "measure": measure,
        "last": spread([run["last"][measure] for run in runs]),
        "best": spread([run["best"][measure] for run in runs]),
        "memorised": spread([run["last"]["memorised"] for run in runs]),
        "seconds": sum(run["seconds"] for run in runs) / len(runs),
        "runs": len(runs),
    }


def spread(values: list[float | None]) -> dict[str, float | None] | None:
    """Mean and standard deviation (n - 1) of what there is."""
    known = [value for value in values if value is not None]
    if not known:
        return None
    return {"mean": statistics.fmean(known), "std": statistics.stdev(known) if len(known) > 1 else None}
