"""Folders of runs that were never trained, with figures that a test knows, and small pieces of work for sweeps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from symloss.experiments.cells import Cell
from symloss.experiments.run import Work
from symloss.noise import corrupt
from symloss.training.run_folder import RESULT, SETTINGS, run_path
from symloss.training.settings import Settings

VERSIONS = {
    "symloss": "0.1.0", "commit": "0123abc", "python": "3.11.7", "torch": "2.13.0", "threads": 2, "machine": "x86_64",
    "processor": "A processor",
}  # fmt: skip
HOSTILE = '<img src=x onerror="window.hacked=1">'
SCRIPT = "</script><script>window.hacked=2</script>"


def write_run(
    folder: Path,
    settings: Settings,
    accuracy: float,
    *,
    best: float | None = None,
    finished: bool = True,
    classes: Sequence[str] = tuple("0123456789"),
    noise: str | None = None,
    draw: int | None = None,
    **changes: Any,
) -> Path:
    """A folder as a run leaves it behind; changes are of the result."""
    folder.mkdir(parents=True)
    _write(folder / SETTINGS, {"format": 1} | settings.to_dict())
    _write(folder / "data.json", {"name": settings.data, "class_names": list(classes)})
    held_out = settings.validation > 0
    rows = [_row(epoch, settings, accuracy, held_out) for epoch in range(1, settings.epochs + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows[: None if finished else 2]))
    labels = np.arange(50 * len(classes)) % len(classes)
    spec = settings.noise if noise is None else noise
    seed = settings.seed if draw is None else draw
    corrupt(labels, spec, num_classes=len(classes), seed=seed, dataset=settings.data).save(folder)
    if finished:
        result = {
            "settings": settings.to_dict(), "train": 900, "validation": 100 if held_out else 0,
            "validation_labels": "noisy" if held_out else "none", "test": 360, "noise_rate": 0.4, "last": rows[-1],
            "best": rows[-1] | {"test_accuracy": accuracy if best is None else best}, "seconds": 1.5,
            "versions": VERSIONS,
        }  # fmt: skip
        _write(folder / RESULT, result | changes)
    return folder


def _row(epoch: int, settings: Settings, accuracy: float, held_out: bool) -> dict[str, Any]:
    share = accuracy * (1 - np.exp(-4 * epoch / settings.epochs)) if epoch < settings.epochs else accuracy
    memorised = None if settings.noise == "clean" else 0.3 * (1 - accuracy) * epoch / settings.epochs
    validation = 0.9 * share if held_out else None
    return {"epoch": epoch, "memorised": memorised, "validation_accuracy": validation, "test_accuracy": share}


def own(**given: Any) -> Settings:
    """Settings of no published table."""
    return Settings(**{"noise": "sym:0.4", "epochs": 3} | given)


def write_cell(runs: Path, cell: Cell, accuracy: float, **more: Any) -> Path:
    """The run of a cell, where its recipe puts it."""
    return write_run(run_path(runs, cell.settings), cell.settings, accuracy, **more)


def result(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / RESULT).read_text())
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content))


def small(loss="ce", **changes):
    return Settings(**{"loss": loss, "epochs": 2, "subset": 120, "validation": 0.0, "noise": "sym:0.4"} | changes)


def work(folder, loss="ce", evaluate=(), **changes):
    settings = small(loss, **changes)
    return Work(f"{loss} seed {settings.seed}", settings, folder / settings.key, evaluate)


def small_cifar10(root, images=10):
    """CIFAR-10 of a few black images, in its binary layout."""
    folder = root / "cifar-10-batches-bin"
    folder.mkdir()
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        (folder / f"{name}.bin").write_bytes(b"".join(bytes([k % 10]) + bytes(3072) for k in range(images)))


def kinds(events):
    """name -> how it ended."""
    return {event.work.name: event.kind for event in events if event.kind not in ("started", "epoch")}


def results(runs):
    """folder -> its result, with what a clock says left out."""
    found = {}
    for path in sorted(runs.glob("*/result.json")):
        one = result(path.parent)
        for timed in (one, one["last"], one["best"]):
            del timed["seconds"]
        found[path.parent.name] = one
    return found
