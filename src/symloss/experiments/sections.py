"""``compose`` makes a report of runs: a section for each published table, and for each group of other runs."""

from __future__ import annotations

import contextlib
import dataclasses
import shlex
from collections.abc import Iterable, Iterator
from typing import Any

from symloss import checks
from symloss.experiments.cells import Cell, cells_matching
from symloss.experiments.difference import difference, rank_correlation
from symloss.experiments.layers import profiles
from symloss.experiments.report import ColumnHead, LossRow, Report, ReportCell, ReportTable, Section
from symloss.experiments.tables import LOSS_NAME, SPREADS, PublishedTable, TableColumn, list_tables, load_table
from symloss.noise.spec import KINDS, parse as parse_noise
from symloss.training.reading import Run, Runs
from symloss.training.results import Result, in_percent
from symloss.training.run_folder import SETTINGS
from symloss.training.settings import FULL, PUBLISHED_CODE, displayed_noise, is_whole

FEWEST = 4  # losses that a column must have for a rank correlation
OF_A_ROW = ("loss", "weight_decay", "lr", "scores", "penalty")
"""Settings that may differ between the rows of a table: a loss has presets for them."""
OF_A_CELL = ("noise", "seed")  # settings that may differ between the runs of a row
TITLES = {"weight_decay": "weight decay", "lr": "lr", "scores": "scores", "penalty": "L1 penalty"}


def compose(runs: Runs, tables: Iterable[str] | None = None, command: str = "symloss report RUNS") -> Report:
    """Make a report of runs.

    Runs of a published table are shown as that table. All other runs are grouped by the settings that they share.

    Args:
        runs: from :func:`symloss.experiments.read_runs`.
        tables: the names of the tables to show; None for all tables and all other runs.
        command: the command that the report names as its origin.
    """
    wanted = {name: load_table(name) for name in (list_tables() if tables is None else tables)}
    for run in (*runs.finished, *runs.unfinished):
        try:
            checks.choice("profile", run.settings.profile, profiles())
        except ValueError as error:
            raise ValueError(f"{run.folder / SETTINGS} holds no settings of a run; {error}") from None
    gathered = gather(runs.finished, wanted)
    sections = [each.section() for each in gathered if each.runs]
    if tables is None:
        sections = _without_repeats(sections)
        sections += own_sections(run for run in runs.finished if not cells_matching(run.settings))
    elif not gathered:
        raise ValueError(f"{runs.folder} must hold a finished run of {' or '.join(wanted)}; it has none")
    untested = tuple(pair for each in gathered for pair in each.untested)
    return Report(runs, tuple(sections), untested, command)


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


Position = tuple[str, str, str]
"""The data set, row and noise of a run in a table."""


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
            self.runs.setdefault((cell.dataset, cell.row, cell.noise), []).append((run, accuracy))

    def section(self) -> Section:
        """Return the section of a report that shows these runs."""
        recipe = self.table
        used = {dataset for dataset, _, _ in self.runs}
        columns = [column for column in recipe.datasets if column.name in used]
        together = len({column.noise for column in columns}) > 1 or all(len(column.noise) == 1 for column in columns)
        groups = [columns] if together else [[column] for column in columns]
        tables = tuple(self._report_table(group, self._heads(group, stacked=len(groups) > 1)) for group in groups)
        about = recipe.name, f"{recipe.name}: {recipe.title}", self.profile, "the test set", self._facts(tables)
        return Section(*about, tables, recipe, self._command())

    def _facts(self, tables: Iterable[ReportTable]) -> tuple[str, ...]:
        table = self.table
        if not any(column.published for column in table.datasets):
            return (f"Source of the recipe: {table.source}.",)
        short = SPREADS[table.spread]
        brackets = f"in their brackets the {table.spread} ({short}) of {table.seeds} runs"
        printed = brackets if short else "without a spread"
        correlations = (sentence for each in tables for sentence in _correlations(each))
        return (f"Published figures: {table.source}; {printed}.", *correlations)

    def _command(self) -> str:
        """Return the command that runs the same cells again."""
        table = self.table
        options = {
            "data": [column.name for column in table.datasets],
            "losses": [row.name for row in table.rows],
            "noise": list(dict.fromkeys(noise for column in table.datasets for noise in column.noise)),
        }
        words = ["symloss reproduce", table.name]
        for (option, every), used in zip(options.items(), zip(*self.runs, strict=True), strict=True):
            if set(used) != set(every):
                words.append(f"--{option} {shlex.quote(','.join(name for name in every if name in used))}")
        seeds = max(len(runs) for runs in self.runs.values())
        words += [f"--seeds {seeds}"] if seeds != table.seeds else []
        named = {FULL: [], PUBLISHED_CODE: ["--as-published-code"]}
        words += named.get(self.profile, [f"--profile {self.profile}"])
        return " ".join(words)

    def _heads(self, columns: list[TableColumn], stacked: bool) -> tuple[ColumnHead, ...]:
        """Return the columns that have a figure. Stacked tables share their columns: those that any of them needs."""
        used = {(dataset, noise) for dataset, _, noise in self.runs}
        noises = {noise for _, noise in used}
        return tuple(
            ColumnHead(column.name, noise, displayed_noise(column.data, noise))
            for column in columns
            for noise in column.noise
            if (column.name, noise) in used or (stacked and noise in noises)
        )

    def _report_table(self, columns: list[TableColumn], heads: tuple[ColumnHead, ...]) -> ReportTable:
        names = [column.name for column in columns]
        used = {row for dataset, row, _ in self.runs if dataset in names}
        rows = []
        for row in (row for row in self.table.rows if row.name in used):
            cells = tuple(self._cell((head.dataset, row.name, head.noise)) for head in heads)
            titles = [self.titles[name, row.name] for name in names if (name, row.name) in self.titles]
            rows.append(LossRow(titles[0], row.loss, {}, cells))
        return ReportTable(", ".join(column.name for column in columns), heads, tuple(rows))

    def _cell(self, position: Position) -> ReportCell:
        published = self.table.published(*position)
        by_seed = sorted(self.runs.get(position, []), key=lambda pair: pair[0].settings.seed)
        ours = in_percent(accuracy for _, accuracy in by_seed)
        runs = tuple(run for run, _ in by_seed)
        distance = p_value = None
        # A reduced run is another experiment: only the order of the losses may be compared.
        if ours is not None and published is not None and is_whole(self.profile):
            distance, p_value = difference(ours, published, self.table.spread, self.table.seeds)
        memorised = in_percent(run.result.last.memorised for run in runs)
        return ReportCell(runs, ours, memorised=memorised, published=published, difference=distance, p_value=p_value)


def _correlations(table: ReportTable) -> Iterator[str]:
    """Yield a sentence for each column that has enough figures on both sides."""
    for head, cells in zip(table.heads, zip(*(row.cells for row in table.rows), strict=True), strict=True):
        pairs = [(cell.last.mean, cell.published.value) for cell in cells if cell.last and cell.published]
        # Where all losses are alike, there is no order to compare.
        if len(pairs) >= FEWEST and all(len(set(side)) > 1 for side in zip(*pairs, strict=True)):
            yield (
                f"Rank correlation (Spearman) of ours and the published losses, {head.dataset} {head.noise_text}: "
                f"{rank_correlation(pairs):.2f} of {len(pairs)} losses."
            )


def gather(runs: Iterable[Run], tables: dict[str, PublishedTable]) -> list[TableRuns]:
    """Return the runs of these tables, in the order of the tables. Each profile has its own table."""
    gathered: dict[tuple[str, str], TableRuns] = {}
    for run in runs:
        for cell in cells_matching(run.settings):
            if cell.table in tables:
                key = cell.table, run.settings.profile
                gathered.setdefault(key, TableRuns(tables[cell.table], run.settings.profile)).add(cell, run)
    return [gathered[key] for key in sorted(gathered)]


def own_sections(runs: Iterable[Run]) -> list[Section]:
    """Return a section for each group of runs that share all settings but those of rows and cells."""
    groups: dict[tuple[tuple[str, Any], ...], list[Run]] = {}
    for run in runs:
        shared = {name: value for name, value in run.settings.to_dict().items() if name not in OF_A_ROW + OF_A_CELL}
        groups.setdefault((*shared.items(), ("measure", run.result.measure)), []).append(run)
    sections = []
    for number, common in enumerate(sorted(groups, key=str), start=1):
        first, shared = groups[common][0], dict(common)
        same_data = [dict(other) for other in groups if dict(other)["data"] == shared["data"]]
        differing = [name for name in shared if len({str(other[name]) for other in same_data}) > 1]
        told_apart = [f"{name.replace('_', ' ')} {shared[name]}" for name in differing if name != "profile"]
        title, measure = ", ".join([first.settings.data, *told_apart]), measured_on(first.result)
        about = f"runs-{number}", title, first.settings.profile, measure, _own_facts(first)
        sections.append(Section(*about, tables=(_own_table(groups[common]),)))
    return sections


def measured_on(result: Result) -> str:
    """Return the data that the accuracy of a run is measured on, in words."""
    if result.measure == "test_accuracy":
        return "the clean test set" if result.settings.data_is_published else "the test data"
    if result.measure is None:
        return "no data, since nothing was held out"
    return f"held-out examples with {result.validation_labels} labels"


def _own_facts(run: Run) -> tuple[str, ...]:
    settings, result = run.settings, run.result
    sizes = f"{result.train} training examples"
    if settings.subset is not None:
        sizes += f" (a subset of {settings.subset} was drawn: reduced)"
    if result.validation:
        sizes += f", {result.validation} held out for validation with {result.validation_labels} labels"
    if result.test:
        sizes += f", {result.test} to test on"
    how = (
        f"Model {settings.model}, {settings.epochs} epochs, batches of {settings.batch}, {settings.optimizer}, "
        f"schedule {settings.schedule}; {sizes}."
    )
    if not result.validation:
        return (how, "Nothing was held out for validation, so there is no best epoch.")
    smoothed = "" if result.smoothed is None else ", smoothed over up to five epochs"
    return (how, f"The best epoch is chosen by the {result.validation_labels} validation labels{smoothed}.")


def _own_table(runs: list[Run]) -> ReportTable:
    groups: dict[tuple[Any, ...], dict[str, list[Run]]] = {}
    for run in sorted(runs, key=lambda run: run.settings.seed):
        row = tuple(getattr(run.settings, name) for name in OF_A_ROW)
        groups.setdefault(row, {}).setdefault(run.settings.noise, []).append(run)
    noises = sorted({run.settings.noise for run in runs}, key=noise_key)
    shown = [name for name, values in zip(OF_A_ROW, zip(*groups, strict=True), strict=True) if len(set(values)) > 1]
    shown = [name for name in OF_A_ROW[1:] if name == "weight_decay" or name in shown]
    lines = []
    for row in sorted(groups, key=lambda row: (loss_key(row[0]), row[1:])):
        values = dict(zip(OF_A_ROW, row, strict=True))
        settings = {TITLES[name]: values[name] if name == "scores" else f"{values[name]:g}" for name in shown}
        cells = tuple(_own_cell(groups[row].get(noise, [])) for noise in noises)
        lines.append(LossRow(values["loss"], values["loss"], settings, cells))
    data = runs[0].settings.data
    heads = tuple(ColumnHead(data, noise, displayed_noise(data, noise)) for noise in noises)
    return ReportTable(data, heads, tuple(lines))


def _own_cell(runs: list[Run]) -> ReportCell:
    if not runs or runs[0].result.measure is None:
        return ReportCell(tuple(runs))
    measure, results = runs[0].result.measure, [run.result for run in runs]
    return ReportCell(
        tuple(runs),
        last=in_percent(getattr(result.last, measure) for result in results),
        best=in_percent(getattr(result.best, measure) for result in results) if results[0].validation else None,
        memorised=in_percent(result.last.memorised for result in results),
    )


def noise_key(text: str) -> tuple[int, float, str]:
    """Return a key to sort noises: clean comes first, then each kind by its rate."""
    try:
        spec = parse_noise(text)
    except (ValueError, TypeError):
        return len(KINDS), 0.0, text
    return KINDS.index(spec.kind), spec.rate or 0.0, text


def loss_parts(text: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a loss, and the parameters in its text. A composed loss is a name without parameters.

    This reads the text in a run's settings. :mod:`symloss.losses.spec` reads all that users may write, but needs torch.

    >>> loss_parts("sgce:q=0.2"), loss_parts("symmetrize(focal:gamma=2)")
    (('sgce', {'q': 0.2}), ('symmetrize(focal:gamma=2)', {}))
    """
    name, _, rest = text.partition(":")
    pairs = [pair.partition("=") for pair in rest.split(",")] if rest else []
    if not LOSS_NAME.fullmatch(name) or not all(equals for _, equals, _ in pairs):
        return text, {}
    return name, {key.strip(): _number_or_text(value.strip()) for key, _, value in pairs}


def _number_or_text(text: str) -> float | str:
    for number in (int, float):
        with contextlib.suppress(ValueError):
            return number(text)
    return text


def loss_key(text: str) -> tuple[int, str, tuple[tuple[str, float, str], ...]]:
    """Return a key to sort losses: in the order of the paper's first table, then by name, then by parameters."""
    name, parameters = loss_parts(text)
    names = [row.loss for row in load_table("table1").rows]
    numbers = {key: 0.0 if isinstance(value, str) else float(value) for key, value in parameters.items()}
    values = tuple((key, numbers[key], str(value)) for key, value in parameters.items())
    return names.index(name) if name in names else len(names), name, values
