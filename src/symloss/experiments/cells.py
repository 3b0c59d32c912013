"""The cells of published tables. A cell has one run for each seed. Its settings come from the recipe of the table."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from symloss import checks
from symloss.experiments.layers import (
    PROFILES_FILE,
    Layer,
    Resolved,
    changes,
    deviation,
    profiles,
    resolve_layers,
)
from symloss.experiments.tables import FOLDER, Published, PublishedTable, TableColumn, TableRow, list_tables, load_table
from symloss.noise.spec import parse
from symloss.noise.transition import plain_kind
from symloss.training.settings import FULL, Settings


@dataclass(frozen=True)
class Cell:
    """One run of a table.

    Args:
        table, dataset, row: names of the table, of its data set and of its row.
        title: the name of the row in a report.
        noise: such as "sym:0.8".
        resolved: every setting of the run, with its source.
        evaluate: a data set to test the finished model on, instead of the one it was trained on.
        published: the published figure; None where there is none.
    """

    table: str
    dataset: str
    row: str
    title: str
    noise: str
    resolved: Resolved
    evaluate: str | None
    published: Published | None

    @property
    def name(self) -> str:
        """The name of the cell, such as "table1/cifar10/sgce/sym:0.8". All seeds share it."""
        return f"{self.table}/{self.dataset}/{self.row}/{self.noise}"

    @property
    def settings(self) -> Settings:
        """Every setting of the run."""
        return self.resolved.settings

    @property
    def sources(self) -> dict[str, str]:
        """Where each setting comes from."""
        return self.resolved.sources

    @property
    def seed(self) -> int:
        """The seed of the run."""
        return self.settings.seed


def plan(
    table: str,
    *,
    datasets: Iterable[str] | None = None,
    losses: Iterable[str] | None = None,
    noise: Iterable[str] | None = None,
    seeds: int | None = None,
    profile: str = FULL,
) -> list[Cell]:
    """Plan the runs of a table, or of a part of it, ordered by seed.

    Args:
        table: name of a table.
        datasets, losses, noise: names of the table's data sets, rows and noise; all by default. A profile leaves out
            data sets that it has no form of.
        seeds: runs of each cell; the published number by default.
        profile: "full", one that shrinks the runs, or "published-code".

    >>> [cell.name for cell in plan("table1", datasets=["cifar10"], losses=["sgce"], noise=["sym:0.8"], seeds=1)]
    ['table1/cifar10/sgce/sym:0.8']
    """
    loaded = load_table(table)
    checks.choice("profile", profile, profiles())
    if seeds is not None:
        checks.number("seeds", seeds, "[1, inf)", whole=True)
    columns = _columns(loaded, datasets, profile)
    rows = _chosen("loss", losses, {row.name: row for row in loaded.rows}, table)
    every_noise = {spec: spec for column in columns for spec in column.noise}
    wanted = set(_chosen("noise", noise, every_noise, table))
    return [
        _cell(loaded, column, row, spec, seed, profile)
        for seed in range(loaded.seeds if seeds is None else seeds)
        for column in columns
        for row in rows
        for spec in column.noise
        if spec in wanted
    ]


def find_cell(name: str, *, seed: int = 0, profile: str = FULL) -> Cell:
    """Return a cell by its name.

    Args:
        name: table, data set, row and noise, as in "table1/cifar10/sgce/sym:0.8".
        seed: the seed of the run.
        profile: "full", or one that shrinks the run.

    >>> find_cell("table1/cifar10/sgce/sym:0.8").settings.loss
    'sgce:q=0.8'
    """
    parts = name.split("/", 3)
    if len(parts) != 4:
        raise ValueError(
            f"a cell must read table/data set/loss/noise, as table1/cifar10/sgce/sym:0.8; got {checks.brief(name)}"
        )
    table, dataset, row, spec = parts
    cells = plan(table, datasets=[dataset], losses=[row], noise=[spec], seeds=seed + 1, profile=profile)
    return cells[seed]


def cells_matching(settings: Settings) -> tuple[Cell, ...]:
    """Return the cells, of all tables, whose run has these settings. The seed does not count."""
    return _cells_by_key(settings.profile, settings.data).get(dataclasses.replace(settings, seed=0).key, ())


@functools.cache
def _cells_by_key(profile: str, data: str) -> dict[str, tuple[Cell, ...]]:
    """Return the cells of a profile and a data set with the first seed, by the key of their settings."""
    found: dict[str, tuple[Cell, ...]] = {}
    for table in map(load_table, list_tables() if profile in profiles() else ()):
        columns = [column for column in _of_profile(table.datasets, profile) if column.data == data]
        for column, row in itertools.product(columns, table.rows):
            for noise in column.noise:
                cell = _cell(table, column, row, noise, 0, profile)
                found[cell.settings.key] = (*found.get(cell.settings.key, ()), cell)
    return found


def _chosen(what: str, wanted: Iterable[str] | None, known: dict[str, Any], table: str) -> list[Any]:
    if wanted is None:
        return list(known.values())
    wanted = list(wanted)
    for name in wanted:
        if name not in known:
            raise ValueError(f"{table} has no {what} {checks.brief(name)}; {checks.nearest(name, known)}")
    return [value for name, value in known.items() if name in wanted]


def _columns(table: PublishedTable, datasets: Iterable[str] | None, profile: str) -> list[TableColumn]:
    """Return the data sets of a table that are wanted, or else all those that the profile has a form of."""
    chosen = _chosen("data set", datasets, {column.name: column for column in table.datasets}, table.name)
    if not chosen:
        raise ValueError(f"datasets must name at least one data set of {table.name}; got none")
    possible = _of_profile(chosen, profile)
    if possible and (datasets is None or possible == chosen):
        return possible
    missing = next(column for column in chosen if column not in possible)
    others = " or ".join(name for name in profiles() if changes(name, missing.protocol) is not None)
    raise ValueError(f"profile of {missing.name} in {table.name} must be {others}; got {profile!r}")


def _of_profile(columns: Iterable[TableColumn], profile: str) -> list[TableColumn]:
    return [column for column in columns if changes(profile, column.protocol) is not None]


def _cell(table: PublishedTable, column: TableColumn, row: TableRow, noise: str, seed: int, profile: str) -> Cell:
    kind = parse(noise).kind
    in_blocks = kind == "asym" and plain_kind(kind, column.data) == "asym-blocks"
    note = "; flips inside blocks of five label numbers, which are not the superclasses" if in_blocks else ""
    name, values = f"recipe {table.name}", {"noise": noise, "seed": seed} | table.settings | row.changes
    recipe = Layer(name, values, name, sources={"noise": name + note}, file=f"{FOLDER}/{table.name}.toml")
    name, values = f"profile {profile}", {"profile": profile, **(changes(profile, column.protocol) or {})}
    as_code = deviation(profile, row.loss) or None
    shrunk = Layer(name, values, name, as_code, sources={"profile": table.source}, file=PROFILES_FILE)
    resolved = resolve_layers(column.protocol, column.data, row.loss, recipe, shrunk, source=table.source)
    batch_norm = resolved.settings.scores == "batch-norm" and "scores" not in row.changes
    title, published = row.title + (" (BN)" if batch_norm else ""), table.published(column.name, row.name, noise)
    return Cell(table.name, column.name, row.name, title, noise, resolved, column.evaluate, published)
