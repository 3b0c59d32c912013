"""The cells of a table: each is one run for every seed, with settings that resolve from its recipe."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symloss import checks
from symloss.lab.tables import Column, Published, Row, Table, list_tables, load_table, profiles
from symloss.noise.asymmetric import plain_kind
from symloss.noise.noise_spec import parse
from symloss.runs.folder_names import run_path
from symloss.runs.settings import Settings
from symloss.training.protocols import GIVEN, resolved


@dataclass(frozen=True)
class Cell:
    """One run of a table."""

    table: str
    dataset: str
    row: str
    title: str
    noise: str
    settings: Settings
    sources: dict[str, str]
    evaluate: str | None
    published: Published | None

    @property
    def name(self) -> str:
        """Of all its seeds together, as in "table1/cifar10/sgce/sym:0.8"."""
        return f"{self.table}/{self.dataset}/{self.row}/{self.noise}"

    @property
    def seed(self) -> int:
        return self.settings.seed

    def folder(self, runs: Path) -> Path:
        return run_path(runs, self.settings)


def plan(
    table: str,
    *,
    datasets: Iterable[str] | None = None,
    losses: Iterable[str] | None = None,
    noise: Iterable[str] | None = None,
    seeds: int | None = None,
    profile: str = "full",
) -> list[Cell]:
    """Every run of a table, seed by seed, so that a first figure for each cell comes soon; or of a part of it.

    >>> [cell.name for cell in plan("table1", datasets=["cifar10"], losses=["sgce"], noise=["sym:0.8"], seeds=1)]
    ['table1/cifar10/sgce/sym:0.8']
    """
    found = load_table(table)
    checks.choice("profile", profile, profiles())
    if seeds is not None:
        checks.number("seeds", seeds, "[1, inf)", whole=True)
    columns = _chosen("data set", datasets, {column.name: column for column in found.datasets}, table)
    rows = _chosen("loss", losses, {row.name: row for row in found.rows}, table)
    every_noise = {spec: spec for column in columns for spec in column.noise}
    wanted = set(_chosen("noise", noise, every_noise, table))
    return [
        _cell(found, column, row, spec, seed, profile)
        for seed in range(found.seeds if seeds is None else seeds)
        for column in columns
        for row in rows
        for spec in column.noise
        if spec in wanted
    ]


def find_cell(name: str, *, seed: int = 0, profile: str = "full") -> Cell:
    """A cell by its name, such as "table1/cifar10/sgce/sym:0.8"."""
    parts = name.split("/", 3)
    if len(parts) != 4:
        raise ValueError(f"a cell must read table/data set/loss/noise, as table1/cifar10/sgce/sym:0.8; got {name!r}")
    table, dataset, row, spec = parts
    cells = plan(table, datasets=[dataset], losses=[row], noise=[spec], seeds=seed + 1, profile=profile)
    return cells[seed]


def _chosen(what: str, wanted: Iterable[str] | None, known: dict[str, Any], table: str) -> list[Any]:
    if wanted is None:
        return list(known.values())
    wanted = list(wanted)
    for name in wanted:
        if name not in known:
            raise ValueError(f"{table} has no {what} {name!r}; {checks.nearest(name, known)}")
    return [value for name, value in known.items() if name in wanted]


def _cell(table: Table, column: Column, row: Row, noise: str, seed: int, profile: str) -> Cell:
    shrunk = profiles()[profile].get(column.protocol, {})
    recipe = {"noise": noise, "seed": seed} | table.settings | row.changes
    given = recipe | shrunk | {"profile": profile}
    found = resolved(column.protocol, column.data, row.loss, given)
    named = {**dict.fromkeys(recipe, f"recipe {table.name}"), **dict.fromkeys(shrunk, f"profile {profile}")}
    named["noise"] += _what_it_flips(noise, column.data)
    sources = {
        key: named.get(key, table.source if source == GIVEN else source) for key, source in found.sources.items()
    }
    title = row.title + (" (BN)" if found.settings.scores == "batch-norm" and "scores" not in row.changes else "")
    return Cell(
        table.name, column.name, row.name, title, noise, found.settings, sources, column.evaluate,
        table.published(column.name, row.name, noise),
    )  # fmt: skip


def _what_it_flips(noise: str, data: str) -> str:
    """What a reader would take for something else."""
    kind = parse(noise).kind
    in_blocks = kind == "asym" and plain_kind(kind, data) == "asym-blocks"
    return "; flips inside blocks of five label numbers, which are not the superclasses" if in_blocks else ""


@functools.cache
def cells_by_key() -> dict[str, tuple[Cell, ...]]:
    """Every cell of every table and profile, by the key of its settings: whose run a folder is."""
    found: dict[str, list[Cell]] = {}
    for table in list_tables():
        for profile in profiles():
            for cell in plan(table, profile=profile):
                found.setdefault(cell.settings.key, []).append(cell)
    return {key: tuple(cells) for key, cells in found.items()}
