"""``compose`` makes a report of runs. It finds the table of each run, and marks the best figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from symloss import checks
from symloss.experiments import own_runs
from symloss.experiments.cells import cells_matching
from symloss.experiments.profiles import profiles
from symloss.experiments.report import Report, ReportTable, Section
from symloss.experiments.table_sections import gather
from symloss.experiments.tables import list_tables
from symloss.training.reading import Run, Runs
from symloss.training.run_folder import SETTINGS


def compose(runs: Runs, tables: Iterable[str] | None = None, command: str = "symloss report RUNS") -> Report:
    """Make a report of runs.

    Runs of a published table are shown as that table. All other runs are grouped by the settings that they share.

    Args:
        runs: from :func:`symloss.experiments.read_runs`.
        tables: the names of the tables to show; None for all tables and all other runs.
        command: the command that the report names as its origin.
    """
    wanted = list_tables() if tables is None else list(tables)
    for name in wanted:
        if name not in list_tables():
            raise ValueError(f"there is no table {name!r}; {checks.nearest(name, list_tables())}")
    for run in (*runs.finished, *runs.unfinished):
        _require_known_profile(run)
    gathered = gather(runs.finished, wanted)
    sections = [each.section() for each in gathered if each.runs]
    if tables is None:
        sections = _without_repeats(sections)
        sections += own_runs.sections(run for run in runs.finished if not cells_matching(run.settings))
    elif not gathered:
        raise ValueError(f"{runs.folder} must hold a finished run of {' or '.join(wanted)}; it has none")
    shown = {run.name for section in sections for run in section.runs}
    untested = tuple(pair for each in gathered for pair in each.untested)
    left_out = {run.name for run in runs.finished} - shown - {run.name for run, _ in untested}
    return Report(
        runs, tuple(with_tops(section) for section in sections), untested, command, len(left_out),
        tuple(run for run in runs.finished if run.name in shown),
    )  # fmt: skip


def _require_known_profile(run: Run) -> None:
    try:
        checks.choice("profile", run.settings.profile, profiles())
    except ValueError as error:
        raise ValueError(f"{run.folder / SETTINGS} holds no settings of a run; {error}") from None


def _without_repeats(sections: list[Section]) -> list[Section]:
    """Leave out a table if another table holds all of its runs. A note in the other table mentions it."""
    runs = {section.name + section.profile: {run.name for run in section.runs} for section in sections}

    def inside(one: Section, other: Section) -> bool:
        mine, theirs = runs[one.name + one.profile], runs[other.name + other.profile]
        return mine < theirs or (mine == theirs and (one.has_published, one.name) < (other.has_published, other.name))

    kept = []
    for section in sections:
        if any(inside(section, other) for other in sections):
            continue
        others = [other.name for other in sections if inside(other, section)]
        notes = [f"Some of these runs are of {name} too, which --table {name} shows." for name in others]
        kept.append(dataclasses.replace(section, facts=(*section.facts, *notes)))
    return kept


def with_tops(section: Section) -> Section:
    """The same section, with the best of our figures marked in each column that has two or more."""
    return dataclasses.replace(section, tables=tuple(marked(table) for table in section.tables))


def marked(table: ReportTable) -> ReportTable:
    """The same table, with the best of our figures marked in each column that has two or more."""
    columns = list(zip(*(line.cells for line in table.rows), strict=True))
    best = []
    for column in columns:
        # Means are compared as they are printed: equal digits are equally good.
        means = [round(cell.last.mean, 2) for cell in column if cell.last]
        best.append(max(means) if len(means) > 1 else None)
    lines = [
        dataclasses.replace(
            line,
            cells=tuple(
                dataclasses.replace(cell, top=cell.last is not None and round(cell.last.mean, 2) == top)
                for cell, top in zip(line.cells, best, strict=True)
            ),
        )
        for line in table.rows
    ]
    return dataclasses.replace(table, rows=tuple(lines))
