"""The content of a report, without a format: sections with tables of figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator
from dataclasses import dataclass, field, replace

from symloss.experiments.tables import Published, PublishedTable
from symloss.training.reading import Run, Runs
from symloss.training.results import Spread
from symloss.training.settings import FULL, displayed_profile


@dataclass(frozen=True)
class ColumnHead:
    """A column of a table: a data set with a noise."""

    dataset: str
    noise: str
    noise_text: str
    """The noise in words."""


@dataclass(frozen=True)
class ReportCell:
    """A cell of a table: the runs of one loss under one noise, and their figures in per cent."""

    runs: tuple[Run, ...] = ()
    last: Spread | None = None
    """The accuracy after the last epoch."""
    best: Spread | None = None
    """The accuracy at the epoch with the best validation accuracy; None if nothing was held out."""
    memorised: Spread | None = None
    """The share of the wrong labels that the models predict."""
    published: Published | None = None
    difference: float | None = None
    """Ours minus published, in standard deviations."""
    p_value: float | None = None
    """Of Welch's test of our mean against the published one."""
    top: bool = False
    """Whether our figure is the best of its column."""


@dataclass(frozen=True)
class LossRow:
    """A row of a table: a loss, and the settings in which it differs from other rows."""

    title: str
    loss: str
    settings: dict[str, str]
    cells: tuple[ReportCell, ...]


@dataclass(frozen=True)
class ReportTable:
    """A table of one data set, or of several that stand side by side."""

    title: str
    heads: tuple[ColumnHead, ...]
    rows: tuple[LossRow, ...]

    @property
    def runs(self) -> list[Run]:
        """All runs of the table, each once, in the order of the rows."""
        by_name = {run.name: run for row in self.rows for cell in row.cells for run in cell.runs}
        return list(by_name.values())

    def without(self, lines: Container[int]) -> ReportTable:
        """The table without the rows of these numbers."""
        return replace(self, rows=tuple(row for number, row in enumerate(self.rows) if number not in lines))

    def cells(self) -> Iterator[tuple[LossRow, ColumnHead, ReportCell]]:
        """Every cell with its row and its column, row by row."""
        for row in self.rows:
            for head, cell in zip(self.heads, row.cells, strict=True):
                yield row, head, cell


@dataclass(frozen=True)
class Section:
    """A part of a report: a published table, or runs that differ in nothing but loss, noise and seed."""

    name: str
    title: str
    profile: str
    measure: str
    """The data that the accuracy was measured on, in words."""
    facts: tuple[str, ...]
    """Sentences about what was run."""
    tables: tuple[ReportTable, ...]
    recipe: PublishedTable | None = None
    command: str | None = None

    @property
    def reduced(self) -> str | None:
        """A note that the recipe was reduced; None if it was not."""
        return None if self.profile == FULL else displayed_profile(self.profile)

    @property
    def runs(self) -> list[Run]:
        """All runs of the section, each once, in the order of the tables."""
        by_name = {run.name: run for table in self.tables for run in table.runs}
        return list(by_name.values())

    @property
    def usual_n(self) -> int:
        """The most common number of runs in a cell. A cell with another number prints it."""
        counts = Counter(cell.last.n for table in self.tables for *_, cell in table.cells() if cell.last)
        return max(counts, key=lambda n: (counts[n], n), default=0)

    @property
    def has_published(self) -> bool:
        """Whether a cell has a published figure."""
        return any(cell.published for table in self.tables for *_, cell in table.cells())

    @property
    def compares(self) -> bool:
        """Whether figures are compared with the published ones. Those of a reduced recipe only stand beside them."""
        return self.has_published and self.reduced is None

    @property
    def has_best(self) -> bool:
        """Whether a cell has a figure of the best epoch."""
        return any(cell.best for table in self.tables for *_, cell in table.cells())

    @property
    def caption(self) -> str:
        """One or two sentences that explain the figures in the cells."""
        n = self.usual_n
        parts = ["mean(standard deviation)" if n > 1 else "one run, so without a standard deviation"]
        if n > 1:
            parts[0] += f" of n = {n} runs with different seeds"
        if any(cell.last and cell.last.n != n for table in self.tables for *_, cell in table.cells()):
            parts.append("other n are given in the cell")
        sentence = (
            f"Accuracy in % after the last epoch on {self.measure}: {'; '.join(parts)}. The best of a column is bold."
        )
        return sentence if self.reduced is None else f"{self.reduced.capitalize()}. {sentence}"

    @property
    def full_title(self) -> str:
        """The title, with a note if the recipe was reduced."""
        return self.title if self.reduced is None else f"{self.title} - {self.reduced}"


@dataclass(frozen=True)
class Report:
    """A report of runs. :func:`symloss.experiments.compose` makes it, and each of ``FORMATS`` writes it."""

    runs: Runs
    """All runs that were read, with the unfinished ones."""
    sections: tuple[Section, ...]
    """The published tables, and the groups of other runs."""
    untested: tuple[tuple[Run, str], ...] = ()
    """Finished runs that must still be tested on another data set, with the name of that data set."""
    command: str = "symloss report RUNS"
    """The command that makes this report."""
    left_out: int = 0
    """The number of finished runs that belong to other tables than the requested ones."""
    shown: tuple[Run, ...] = field(default=())
    """The runs in the sections, each once."""

    @property
    def missing(self) -> list[str]:
        """A line for each run without a figure: its name and the reason."""
        lines = [f"{run.name} ({run.progress})" for run in self.runs.unfinished]
        lines += [f"{run.name} (trained, but not tested on {data} yet)" for run, data in self.untested]
        return lines + [
            f"{run.name} (the same settings as {other.name}: counted once)" for run, other in self.runs.repeated
        ]
