"""Sections of runs that belong to a published table, with the published figures beside ours."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from symloss.experiments.cells import Cell, cells_matching
from symloss.experiments.difference import difference, rank_correlation, welch
from symloss.experiments.report import ColumnHead, LossRow, ReportCell, ReportTable, Section
from symloss.experiments.tables import SPREADS, PublishedTable, TableColumn, load_table
from symloss.training.reading import Run
from symloss.training.results import in_percent
from symloss.training.settings import FULL, displayed_noise

FEWEST = 4
"""Losses that a column must have for a rank correlation."""


class Position(NamedTuple):
    """The position of a run in a table."""

    dataset: str
    row: str
    noise: str


class TableRuns:
    """The runs of one table under one profile, by their position in it."""

    def __init__(self, table: PublishedTable, profile: str):
        self.table, self.profile = table, profile
        self.runs: dict[Position, list[tuple[Run, float]]] = {}
        self.titles: dict[tuple[str, str], str] = {}
        self.untested: list[tuple[Run, str]] = []

    def add(self, cell: Cell, run: Run) -> None:
        """Add a run with its accuracy. A run that was not tested yet on the table's data is kept apart."""
        self.titles[cell.dataset, cell.row] = cell.title
        accuracy = run.accuracy(cell.evaluate)
        if accuracy is None:
            self.untested.append((run, cell.evaluate or cell.dataset))
        else:
            self.runs.setdefault(Position(cell.dataset, cell.row, cell.noise), []).append((run, accuracy))

    def section(self) -> Section:
        """The section of a report that shows these runs."""
        recipe = self.table
        used = {position.dataset for position in self.runs}
        columns = [column for column in recipe.datasets if column.name in used]
        together = len({column.noise for column in columns}) > 1 or all(len(column.noise) == 1 for column in columns)
        groups = [columns] if together else [[column] for column in columns]
        tables = tuple(self._report_table(group, self._heads(group, stacked=len(groups) > 1)) for group in groups)
        return Section(
            name=recipe.name, title=f"{recipe.name}: {recipe.title}", profile=self.profile, measure="the test set",
            facts=self._facts(), tables=tables, recipe=recipe, command=self._command(),
        )  # fmt: skip

    def _facts(self) -> tuple[str, ...]:
        table = self.table
        if not any(column.published for column in table.datasets):
            return (f"Source of the recipe: {table.source}.",)
        short = SPREADS[table.spread]
        printed = (
            f"in their brackets the {table.spread} ({short}) of {table.seeds} runs" if short else "without a spread"
        )
        return (f"Published figures: {table.source}; {printed}.", *self._correlations())

    def _correlations(self) -> Iterator[str]:
        """A sentence for each column that has enough figures on both sides."""
        for column in self.table.datasets:
            for noise in column.noise:
                positions = [Position(column.name, row.name, noise) for row in self.table.rows]
                cells = [self._cell(position) for position in positions]
                pairs = [(cell.last.mean, cell.published.value) for cell in cells if cell.last and cell.published]
                # Where all losses are alike, there is no order to compare.
                if len(pairs) >= FEWEST and all(len(set(side)) > 1 for side in zip(*pairs, strict=True)):
                    yield (
                        f"Rank correlation (Spearman) of ours and the published losses, {column.name} "
                        f"{displayed_noise(column.data, noise)}: {rank_correlation(pairs):.2f} of {len(pairs)} losses."
                    )

    def _command(self) -> str:
        """The command that runs the same cells again."""
        table, positions = self.table, set(self.runs)
        noises = list(dict.fromkeys(noise for column in table.datasets for noise in column.noise))
        options = {
            "dataset": ([column.name for column in table.datasets], {position.dataset for position in positions}),
            "losses": ([row.name for row in table.rows], {position.row for position in positions}),
            "noise": (noises, {position.noise for position in positions}),
        }
        words = ["symloss reproduce", table.name]
        for option, (every, used) in options.items():
            if used != set(every):
                words.append(f"--{option} {shlex.quote(','.join(name for name in every if name in used))}")
        seeds = max(len(runs) for runs in self.runs.values())
        words += [f"--seeds {seeds}"] if seeds != table.seeds else []
        words += [f"--profile {self.profile}"] if self.profile != "full" else []
        return " ".join(words)

    def _heads(self, columns: list[TableColumn], stacked: bool) -> tuple[ColumnHead, ...]:
        """The columns that have a figure. Stacked tables share their columns: those that any of them needs."""
        used = {(position.dataset, position.noise) for position in self.runs}
        noises = {noise for _, noise in used}
        return tuple(
            ColumnHead(column.name, noise, displayed_noise(column.data, noise))
            for column in columns
            for noise in column.noise
            if (column.name, noise) in used or (stacked and noise in noises)
        )

    def _report_table(self, columns: list[TableColumn], heads: tuple[ColumnHead, ...]) -> ReportTable:
        names = {column.name for column in columns}
        used = {position.row for position in self.runs if position.dataset in names}
        rows = []
        for row in (row for row in self.table.rows if row.name in used):
            cells = tuple(self._cell(Position(head.dataset, row.name, head.noise)) for head in heads)
            title = next(
                title for (dataset, name), title in self.titles.items() if name == row.name and dataset in names
            )
            rows.append(LossRow(title, row.loss, {}, cells))
        return ReportTable(", ".join(column.name for column in columns), heads, tuple(rows))

    def _cell(self, position: Position) -> ReportCell:
        published = self.table.published(*position)
        by_seed = sorted(self.runs.get(position, []), key=lambda pair: pair[0].settings.seed)
        ours = in_percent(accuracy for _, accuracy in by_seed)
        runs = tuple(run for run, _ in by_seed)
        distance = p_value = None
        # A reduced run is another experiment: only the order of the losses may be compared.
        if ours is not None and published is not None and self.profile == FULL:
            theirs = published, self.table.spread, self.table.seeds
            distance, p_value = difference(ours, *theirs), welch(ours, *theirs)
        memorised = in_percent(run.result.last.memorised for run in runs)
        return ReportCell(runs, ours, memorised=memorised, published=published, difference=distance, p_value=p_value)


def gather(runs: Iterable[Run], tables: list[str]) -> list[TableRuns]:
    """The runs of these tables, in the order of the tables. Runs of different profiles are never in one table."""
    gathered: dict[tuple[str, str], TableRuns] = {}
    for run in runs:
        for cell in cells_matching(run.settings):
            if cell.table in tables:
                key = cell.table, run.settings.profile
                gathered.setdefault(key, TableRuns(load_table(cell.table), run.settings.profile)).add(cell, run)
    return [gathered[key] for key in sorted(gathered)]
