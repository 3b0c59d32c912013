"""Runs that belong to recipes, as their tables, with what was published beside them."""

from __future__ import annotations

from collections.abc import Iterable

from symloss.recipes.cells import Cell, cells_matching
from symloss.recipes.published_tables import SPREADS, PublishedTable, TableColumn, load_table
from symloss.report.document import Block, Entry, Head, Line, Section
from symloss.report.figures import difference, figure
from symloss.report.runs import Run
from symloss.training.settings import noise_said

Place = tuple[str, str, str]
"""Data set, row and noise."""


def cells_of(run: Run) -> tuple[Cell, ...]:
    """The cells whose run it is. A table may be run with more seeds than were published: any seed will do."""
    return cells_matching(run.settings)


class Gathered:
    """The runs of a table under a profile, by their place in it."""

    def __init__(self, table: PublishedTable, profile: str):
        self.table, self.profile = table, profile
        self.runs: dict[Place, list[tuple[Run, float]]] = {}
        self.titles: dict[tuple[str, str], str] = {}
        self.untested: list[tuple[Run, str]] = []

    def add(self, cell: Cell, run: Run) -> None:
        """A run, if it has a figure; one that was not tested yet on what the table reports has none."""
        self.titles[cell.dataset, cell.row] = cell.title
        last = run.found["last"].get("test_accuracy")
        accuracy = last if cell.evaluate is None else run.evaluation(cell.evaluate)
        if accuracy is None:
            self.untested.append((run, cell.evaluate or cell.dataset))
        else:
            self.runs.setdefault((cell.dataset, cell.row, cell.noise), []).append((run, accuracy))

    def section(self) -> Section:
        table = self.table
        columns = [column for column in table.datasets if any(place[0] == column.name for place in self.runs)]
        together = len({column.noise for column in columns}) > 1 or all(len(column.noise) == 1 for column in columns)
        groups = [columns] if together else [[column] for column in columns]
        blocks = tuple(self._block(group, self._heads(group, stacked=len(groups) > 1)) for group in groups)
        return Section(
            name=table.name, title=f"{table.name}: {table.title}", profile=self.profile, measure="the test set",
            facts=self._facts(), blocks=blocks, recipe=table, command=self._command(),
        )  # fmt: skip

    def _facts(self) -> tuple[str, ...]:
        table = self.table
        if not any(column.published for column in table.datasets):
            return (f"Source of the recipe: {table.source}.",)
        short = SPREADS[table.spread]
        printed = (
            f"in their brackets the {table.spread} ({short}) of {table.seeds} runs" if short else "without a spread"
        )
        return (f"Published figures: {table.source}; {printed}.",)

    def _command(self) -> str:
        """What runs the same cells again."""
        table, shown = self.table, set(self.runs)
        chosen = {
            "dataset": ([column.name for column in table.datasets], {place[0] for place in shown}),
            "losses": ([row.name for row in table.rows], {place[1] for place in shown}),
            "noise": (list(dict.fromkeys(n for c in table.datasets for n in c.noise)), {place[2] for place in shown}),
        }
        words = ["symloss reproduce", table.name]
        for option, (every, used) in chosen.items():
            if used != set(every):
                words.append(f"--{option} {','.join(name for name in every if name in used)}")
        seeds = max(len(runs) for runs in self.runs.values())
        words += [f"--seeds {seeds}"] if seeds != table.seeds else []
        words += [f"--profile {self.profile}"] if self.profile != "full" else []
        return " ".join(words)

    def _heads(self, columns: list[TableColumn], stacked: bool) -> tuple[Head, ...]:
        """The columns that have a figure; blocks that are stacked have the same ones, all that any of them needs."""
        used = {(dataset, noise) for dataset, _, noise in self.runs}
        noises = {noise for _, noise in used}
        return tuple(
            Head(column.name, noise, noise_said(column.data, noise))
            for column in columns
            for noise in column.noise
            if (column.name, noise) in used or (stacked and noise in noises)
        )

    def _block(self, columns: list[TableColumn], heads: tuple[Head, ...]) -> Block:
        names = {column.name for column in columns}
        used = {row for dataset, row, _ in self.runs if dataset in names}
        rows = [row for row in self.table.rows if row.name in used]
        lines = []
        for row in rows:
            entries = tuple(self._entry((head.dataset, row.name, head.noise)) for head in heads)
            title = next(
                title for (dataset, name), title in self.titles.items() if name == row.name and dataset in names
            )
            lines.append(Line(title, row.loss, {}, entries))
        return Block(", ".join(column.name for column in columns), heads, tuple(lines))

    def _entry(self, place: Place) -> Entry:
        dataset, row, noise = place
        published = self.table.published(dataset, row, noise)
        found = sorted(self.runs.get(place, []), key=lambda pair: pair[0].settings.seed)
        ours = figure(accuracy for _, accuracy in found)
        runs = tuple(run for run, _ in found)
        far = None
        if ours is not None and published is not None:
            far = difference(ours, published, self.table.spread, self.table.seeds)
        memorised = figure(run.found["last"].get("memorised") for run in runs)
        return Entry(runs, last=ours, memorised=memorised, published=published, difference=far)


def gather(runs: Iterable[Run], tables: list[str]) -> list[Gathered]:
    """The runs of these tables, in the order of the tables; those of different profiles never together."""
    found: dict[tuple[str, str], Gathered] = {}
    for run in runs:
        for cell in cells_of(run):
            if cell.table in tables:
                place = cell.table, run.settings.profile
                found.setdefault(place, Gathered(load_table(cell.table), run.settings.profile)).add(cell, run)
    return [found[place] for place in sorted(found)]
