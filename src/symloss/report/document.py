"""A report before it has a format: sections of tables, and where their figures come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from symloss.recipes.published_tables import Published, PublishedTable
from symloss.report.figures import Figure
from symloss.report.runs import Run, Runs
from symloss.training.settings import FULL, profile_said


@dataclass(frozen=True)
class Head:
    """A column: a data set under a noise, and how that is named to people."""

    dataset: str
    noise: str
    said: str


@dataclass(frozen=True)
class Entry:
    """A cell: the runs of one loss under one noise, and what they came to."""

    runs: tuple[Run, ...] = ()
    last: Figure | None = None
    best: Figure | None = None
    """At the epoch that was best on validation; None where nothing was held out."""
    memorised: Figure | None = None
    published: Published | None = None
    difference: float | None = None
    top: bool = False
    """Whether ours is the best of its column."""


@dataclass(frozen=True)
class Line:
    """A row: a loss, and the settings in which it differs from others of its table."""

    title: str
    loss: str
    settings: dict[str, str]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class Block:
    """A grid of one data set, or of several that stand side by side."""

    title: str
    heads: tuple[Head, ...]
    lines: tuple[Line, ...]

    @property
    def runs(self) -> list[Run]:
        """Each once, in the order of the rows."""
        found = {run.name: run for line in self.lines for entry in line.entries for run in entry.runs}
        return list(found.values())

    def cells(self) -> Iterator[tuple[Line, Head, Entry]]:
        for line in self.lines:
            for head, entry in zip(self.heads, line.entries, strict=True):
                yield line, head, entry


@dataclass(frozen=True)
class Section:
    """A published table, or runs of one's own that differ in nothing but loss, noise and seed."""

    name: str
    title: str
    profile: str
    measure: str
    """In words: what the accuracy was measured on."""
    facts: tuple[str, ...]
    """Sentences about what was run."""
    blocks: tuple[Block, ...]
    recipe: PublishedTable | None = None
    command: str | None = None

    @property
    def reduced(self) -> str | None:
        """In words: that it is not the whole recipe; None if it is."""
        return None if self.profile == FULL else profile_said(self.profile)

    @property
    def runs(self) -> list[Run]:
        found = {run.name: run for block in self.blocks for run in block.runs}
        return list(found.values())

    @property
    def usual_n(self) -> int:
        """How many runs most cells have; the others say their number."""
        counts = Counter(entry.last.n for block in self.blocks for *_, entry in block.cells() if entry.last)
        return max(counts, key=lambda n: (counts[n], n), default=0)

    @property
    def has_published(self) -> bool:
        return any(entry.published for block in self.blocks for *_, entry in block.cells())

    @property
    def has_best(self) -> bool:
        return any(entry.best for block in self.blocks for *_, entry in block.cells())

    @property
    def caption(self) -> str:
        """What a cell is, in one or two sentences."""
        n = self.usual_n
        parts = ["mean(standard deviation)" if n > 1 else "one run, so without a standard deviation"]
        if n > 1:
            parts[0] += f" of n = {n} runs with different seeds"
        if any(entry.last and entry.last.n != n for block in self.blocks for *_, entry in block.cells()):
            parts.append("other n are given in the cell")
        said = (
            f"Accuracy in % after the last epoch on {self.measure}: {'; '.join(parts)}. The best of a column is bold."
        )
        return said if self.reduced is None else f"{self.reduced.capitalize()}. {said}"

    @property
    def full_title(self) -> str:
        return self.title if self.reduced is None else f"{self.title} - {self.reduced}"


@dataclass(frozen=True)
class Report:
    runs: Runs
    sections: tuple[Section, ...]
    untested: tuple[tuple[Run, str], ...] = ()
    """Finished runs that were not tested on a data set yet, on which a table reports them."""
    command: str = "symloss report RUNS"
    left_out: int = 0
    """Finished runs of tables that were not asked for."""
    shown: tuple[Run, ...] = field(default=())

    @property
    def missing(self) -> list[str]:
        """Every run without a figure, by name, and why."""
        lines = [f"{run.name} ({run.progress})" for run in self.runs.unfinished]
        lines += [f"{run.name} (trained, but not tested on {data} yet)" for run, data in self.untested]
        return lines + [
            f"{run.name} (the same settings as {other.name}: counted once)" for run, other in self.runs.repeated
        ]
