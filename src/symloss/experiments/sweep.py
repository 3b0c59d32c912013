"""The survey before a sweep: which runs are finished, which are left to do, and which lack their data."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from symloss import noise
from symloss.data import data_root, open_data
from symloss.experiments.cells import Cell
from symloss.experiments.work import Work
from symloss.noise.labels import human_file, require_human_file
from symloss.training.task import fingerprint


@dataclass
class Survey:
    """All runs of a sweep."""

    done: list[Work] = field(default_factory=list)
    """Finished runs."""
    kept: int = 0
    """The number of finished runs of which only the result was kept. They are not in ``done``."""
    todo: list[Work] = field(default_factory=list)
    """Runs to train."""
    missing: dict[str, list[Work]] = field(default_factory=dict)
    """Runs without data, by the sentence that says what to download."""

    @property
    def begun(self) -> int:
        """The number of runs of ``todo`` that continue from a checkpoint."""
        return sum(work.started() for work in self.todo)


def with_fingerprints(cells: Iterable[Cell], root: Path | None) -> list[Cell]:
    """The same cells. If data files are not the publisher's, the settings get a fingerprint of them."""
    marks: dict[tuple[str, str], str | None] = {}
    marked = []
    for cell in cells:
        settings = cell.settings
        what = settings.data, settings.noise
        if what not in marks:
            marks[what] = fingerprint(settings.data, None, settings.noise, root)
        marked.append(
            replace(cell, resolved=replace(cell.resolved, settings=replace(settings, fingerprint=marks[what])))
        )
    return marked


def survey(
    cells: Iterable[Cell],
    runs: Path,
    root: Path | None,
    where: dict[str, Any] | None = None,
    kept: Container[str] = (),
) -> Survey:
    """Survey the runs of cells. Cells that share a run are one piece of work.

    Args:
        cells: from :func:`symloss.experiments.plan`.
        runs: the folder of all runs.
        root: the folder of data sets.
        where: accelerator, devices, nodes and workers.
        kept: the keys of runs whose results were kept in a file. They need no folder.
    """
    surveyed = Survey()
    needs: dict[tuple[str, tuple[str, ...], str], str | None] = {}
    same_run: dict[str, list[Cell]] = {}
    for cell in cells:
        same_run.setdefault(cell.settings.key, []).append(cell)
    for group in same_run.values():
        work = Work.of(group, runs, root, where or {})
        if work.result() is not None:
            surveyed.done.append(work)
            continue
        if not work.evaluate and work.settings.key in kept:
            surveyed.kept += 1
            continue
        need = (work.settings.data, work.evaluate, _human(work.settings.noise))
        if need not in needs:
            needs[need] = _missing(*need, data_root() if root is None else root)
        sentence = needs[need]
        if sentence is None:
            surveyed.todo.append(work)
        else:
            surveyed.missing.setdefault(sentence, []).append(work)
    return surveyed


def _human(spec: str) -> str:
    """The noise if its labels come from a file; else an empty text."""
    return spec if noise.parse(spec).kind == "human" else ""


def _missing(data: str, evaluate: tuple[str, ...], human: str, root: Path) -> str | None:
    """The sentence that says what to download; None if nothing is missing."""
    try:
        for name in (data, *evaluate):
            open_data(name, root=root)
        if human:
            require_human_file(human_file(noise.parse(human), root))
    except FileNotFoundError as error:
        return str(error)
    return None
