"""The content of a report, without a format: sections with tables of figures, and where the figures come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from symloss.experiments.difference import DIFFERENCE, RARE, in_words
from symloss.experiments.significance import ALIKE, LEGEND, NOTHING_CLAIMED, UNTESTED, holm, paired_p
from symloss.experiments.tables import Published, PublishedTable
from symloss.training.reading import Run, Runs
from symloss.training.results import Spread
from symloss.training.settings import FULL, displayed_profile, is_whole

UNKNOWN = "unknown"
MEMORISED = "share of the wrong labels memorised"


@dataclass(frozen=True)
class ColumnHead:
    """A column of a table: a data set with a noise, as a spec and in words."""

    dataset: str
    noise: str
    noise_text: str


@dataclass(frozen=True)
class ReportCell:
    """A cell of a table: the runs of one loss under one noise, and their figures in percent.

    ``best`` is at the epoch with the best validation accuracy, None if nothing was held out. ``top`` marks the best of
    a column, ``mark`` a figure that is not claimed to be below it. ``p_best`` is the p-value of its difference from the
    best, None where there is no test.
    """

    runs: tuple[Run, ...] = ()
    last: Spread | None = None
    best: Spread | None = None
    memorised: Spread | None = None
    published: Published | None = None
    difference: float | None = None
    p_value: float | None = None
    top: bool = False
    p_best: float | None = None
    mark: str = ""

    @property
    def by_seed(self) -> dict[int, float]:
        """Our figures by the seeds of their runs."""
        values = () if self.last is None else self.last.values
        return {run.settings.seed: value for run, value in zip(self.runs, values, strict=bool(values))}


@dataclass(frozen=True)
class Figure:
    """A line of a cell as it is printed, "-" without a figure. ``n`` is the number of runs, if not the usual one.

    ``mark`` is one of :data:`symloss.experiments.significance.LEGEND`, or empty.
    """

    kind: Literal["ours", "published", "difference", "best epoch"]
    text: str
    bold: bool = False
    n: int | None = None
    mark: str = ""


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

    def __post_init__(self) -> None:
        """Compare the figures of each column."""
        columns = [_compared(cells) for cells in zip(*(row.cells for row in self.rows), strict=True)]
        rows = (replace(row, cells=tuple(cells[i] for cells in columns)) for i, row in enumerate(self.rows))
        object.__setattr__(self, "rows", tuple(rows))

    @property
    def several_datasets(self) -> bool:
        """Whether data sets stand side by side."""
        return len({head.dataset for head in self.heads}) > 1

    def without(self, lines: Container[int]) -> ReportTable:
        """Return the table without the rows of these numbers."""
        return replace(self, rows=tuple(row for number, row in enumerate(self.rows) if number not in lines))

    def cells(self) -> Iterator[tuple[LossRow, ColumnHead, ReportCell]]:
        """Yield every cell with its row and its column, row by row."""
        for row in self.rows:
            for head, cell in zip(self.heads, row.cells, strict=True):
                yield row, head, cell


def _compared(cells: Sequence[ReportCell]) -> list[ReportCell]:
    """Mark the best of our figures in a column that has two or more, and those that it may not be better than."""
    figures = {i: cell.last.mean for i, cell in enumerate(cells) if cell.last}
    if len(figures) < 2:
        return [replace(cell, top=False, p_best=None, mark="") for cell in cells]
    best = max(figures, key=lambda i: figures[i])
    tests = {i: paired_p(cells[best].by_seed, cells[i].by_seed) for i in figures if i != best}
    tested = {i: p for i, p in tests.items() if p is not None}
    p_best = dict(zip(tested, holm(list(tested.values())), strict=True))
    marks = dict.fromkeys(tests, UNTESTED) | {i: ALIKE if p >= RARE else "" for i, p in p_best.items()}
    # Means are compared as they are printed: equal digits are equally good.
    tops = {i for i, mean in figures.items() if round(mean, 2) == round(figures[best], 2)}
    return [
        replace(cell, top=i in tops, p_best=p_best.get(i), mark="" if i in tops else marks.get(i, ""))
        for i, cell in enumerate(cells)
    ]


@dataclass(frozen=True)
class Section:
    """A part of a report: a published table, or runs that differ in nothing but loss, noise and seed."""

    name: str
    title: str
    profile: str
    measure: str  # the data that the accuracy was measured on, in words
    facts: tuple[str, ...]
    tables: tuple[ReportTable, ...]
    recipe: PublishedTable | None = None
    command: str | None = None

    @property
    def reduced(self) -> str | None:
        """A note that the recipe was reduced, or the losses are those of public code; None if neither is so."""
        return None if self.profile == FULL else displayed_profile(self.profile)

    @property
    def runs(self) -> list[Run]:
        """All runs of the section, each once, in the order of the tables."""
        return list({run.name: run for cell in self.cells() for run in cell.runs}.values())

    def cells(self) -> Iterator[ReportCell]:
        """Yield every cell of every table."""
        for table in self.tables:
            for *_, cell in table.cells():
                yield cell

    @property
    def usual_n(self) -> int:
        """The most common number of runs in a cell. A cell with another number prints it."""
        counts = Counter(cell.last.n for cell in self.cells() if cell.last)
        return max(counts, key=lambda n: (counts[n], n), default=0)

    @property
    def has_published(self) -> bool:
        """Whether a cell has a published figure."""
        return any(cell.published for cell in self.cells())

    @property
    def compares(self) -> bool:
        """Whether figures are compared with the published ones. Those of a reduced recipe only stand beside them."""
        return self.has_published and is_whole(self.profile)

    @property
    def has_best(self) -> bool:
        """Whether a cell has a figure of the best epoch."""
        return any(cell.best for cell in self.cells())

    @property
    def has_tests(self) -> bool:
        """Whether a figure was compared with the best of its column."""
        return any(cell.p_best is not None for cell in self.cells())

    @property
    def legend(self) -> str:
        """A line that explains the marks of figures; empty where no column has two figures."""
        marks = {cell.mark for cell in self.cells()} - {""}
        if self.has_tests:
            return " ".join(f"{mark} {text}." for mark, text in LEGEND.items() if mark in marks | {ALIKE})
        return f"{NOTHING_CLAIMED}." if marks else ""

    def figures(self, cell: ReportCell) -> list[Figure]:
        """Return the lines of a cell: our figure, and below it those that the section shows."""
        n = None if cell.last is None or cell.last.n == self.usual_n else cell.last.n
        mark = cell.mark if self.has_tests else ""
        lines = [Figure("ours", "-" if cell.last is None else cell.last.text, cell.top, n, mark)]
        if self.has_published:
            shown = cell.published
            lines.append(Figure("published", "-") if shown is None else Figure("published", shown.text, shown.bold))
        if self.compares:
            lines.append(Figure("difference", in_words(cell.difference, cell.p_value)))
        if self.has_best:
            lines.append(Figure("best epoch", "-" if cell.best is None else cell.best.text))
        return lines

    @property
    def caption(self) -> str:
        """One or two sentences that explain the figures in the cells."""
        n = self.usual_n
        seeds = f"mean(standard deviation) of n = {n} runs with different seeds"
        parts = [seeds if n > 1 else "one run, so without a standard deviation"]
        if any(cell.last and cell.last.n != n for cell in self.cells()):
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
    """A report of runs. :func:`symloss.experiments.compose` makes it, and each of ``FORMATS`` writes it.

    Args:
        runs: all runs that were read, with the unfinished ones.
        sections: the published tables, and the groups of other runs.
        untested: finished runs that must still be tested on another data set, with the name of that data set.
        command: the command that makes this report.
    """

    runs: Runs
    sections: tuple[Section, ...]
    untested: tuple[tuple[Run, str], ...] = ()
    command: str = "symloss report RUNS"

    @property
    def without_figure(self) -> list[tuple[Run, str]]:
        """The runs without a figure, each with the reason."""
        reasons = [(run, run.progress) for run in self.runs.unfinished]
        reasons += [(run, f"not tested on {data} yet") for run, data in self.untested]
        return reasons + [(run, f"repeats {other.name}: counted once") for run, other in self.runs.repeated]

    @property
    def missing(self) -> list[str]:
        """A line for each run without a figure: its name and the reason."""
        return [f"{run.name} ({reason})" for run, reason in self.without_figure]

    @property
    def commands(self) -> list[str]:
        """The commands that train the runs of published tables again, and the command of this report."""
        return [*(section.command for section in self.sections if section.command), self.command]

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Facts about the runs and how to read the figures, as pairs of a name and a text."""
        runs = self.runs
        in_sections = {run.name for section in self.sections for run in section.runs}
        shown = [run for run in runs.finished if run.name in in_sections]
        known = in_sections | {run.name for run, _ in self.untested}
        others = {
            "of them not of the tables that are shown": sum(run.name not in known for run in runs.finished),
            "unfinished or failed": len(runs.unfinished),
            "repeated": len(runs.repeated),
            "not tested yet": len(self.untested),
        }
        counts = [number(len(runs.finished), "finished run"), *(f"{n} {what}" for what, n in others.items() if n)]
        usual = {True: "full: the whole recipe", False: "your own settings"}
        protocols = dict.fromkeys(section.reduced or usual[section.recipe is not None] for section in self.sections)
        pairs = [("Runs", ", ".join(counts)), ("Protocol", "; ".join(protocols) or "no finished run")]
        if shown:
            ns = sorted({cell.last.n for section in self.sections for cell in section.cells() if cell.last})
            pairs += [
                ("Hardware", counted([hardware(run) for run in shown])),
                ("Versions", counted([software(run) for run in shown])),
                ("Training time", f"{duration(sum(run.result.seconds for run in shown))} in all"),
                ("Spread", f"standard deviation (n - 1) over runs with different seeds; n = {', '.join(map(str, ns))}"),
            ]
        if any(section.compares for section in self.sections):
            pairs.append(("Difference", DIFFERENCE))
        return pairs


def hardware(run: Run) -> str:
    """Describe the hardware of a run: "Intel(R) Xeon(R) Processor (x86_64), 2 threads a run"."""
    versions = run.result.versions
    threads = versions.get("threads")
    suffix = "" if threads is None else f", {number(threads, 'thread')} a run"
    return f"{versions.get('processor') or 'processor unknown'} ({versions.get('machine') or UNKNOWN}){suffix}"


def software(run: Run) -> str:
    """Describe the versions of a run: "symloss 0.2.0 (commit 5c6d4a5), Python 3.11.7, torch 2.13.0"."""
    versions = run.result.versions
    ours = f"symloss {versions.get('symloss') or UNKNOWN} (commit {versions.get('commit') or UNKNOWN})"
    return f"{ours}, Python {versions.get('python') or UNKNOWN}, torch {versions.get('torch') or UNKNOWN}"


def counted(texts: list[str]) -> str:
    """Join the different texts, the most frequent first. If there are several, each has its number of runs."""
    counts = Counter(texts).most_common()
    if len(counts) == 1:
        return counts[0][0]
    return "; ".join(f"{text} ({number(n, 'run')})" for text, n in counts) or UNKNOWN


def number(n: int, what: str) -> str:
    """Return a number with its noun, in the singular or the plural."""
    return f"{n} {what}" + ("" if n == 1 else "s")


def duration(seconds: float) -> str:
    """Return a time in the unit that suits it.

    >>> duration(12.34), duration(754), duration(7300), duration(500_000)
    ('12.3 s', '12.6 min', '2.0 h', '5.8 days')
    """
    for unit, length, limit in (("s", 1, 60), ("min", 60, 3600), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds / 86400:.1f} days"
