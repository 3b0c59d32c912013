"""Published tables: the losses and data sets of each, and the published figures. Each is a file in tables/."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import re
import tomllib
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from symloss import checks
from symloss.training.settings import Settings

FOLDER = "experiments/recipes/tables"
SPREADS = {"standard deviation": "std", "standard error": "s.e.", "none": ""}
"""The kinds of the number in brackets, each with its short name."""
TITLES = {"alpha-mae": "alpha-MAE", "unhinged": "Unhinged", "phuber-ce": "PHuber-CE", "phuber-gce": "PHuber-GCE"}
"""The titles of losses that are not written in capitals."""
LOSS_NAME = re.compile(r"[a-z0-9+-]+")  # the name of a loss of the catalogue. A composed loss does not match.


@dataclass(frozen=True)
class Published:
    """A published figure, in percent.

    Args:
        value: the accuracy.
        spread: the number in brackets; None if there is none.
        bold: whether it is printed in bold.
        text: as printed, without the star for bold.
    """

    value: float
    spread: float | None
    bold: bool
    text: str

    @classmethod
    def parse(cls, text: str) -> Published:
        """Read a figure: an optional star for bold, the value, and an optional spread in brackets."""
        plain = text.removeprefix("*")
        value, _, spread = plain.rstrip(")").partition("(")
        return cls(float(value), float(spread) if spread else None, plain != text, plain)


@dataclass(frozen=True)
class TableRow:
    """A row of a table: a loss, and the settings that differ from its usual ones."""

    name: str
    loss: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name of the row in a report."""
        if "=" in self.name:  # rows of a grid are told apart by their values
            return self.name
        name = self.loss.partition(":")[0]
        written = TITLES.get(name, name.upper()) if LOSS_NAME.fullmatch(name) else self.loss
        changed = ", ".join(f"{key} {value}" for key, value in self.changes.items())
        return written + (f" ({changed})" if changed else "")


@dataclass(frozen=True)
class TableColumn:
    """A data set of a table, with its protocol and its published figures."""

    name: str
    data: str
    protocol: str
    noise: tuple[str, ...]
    evaluate: str | None  # a data set to test the finished model on, instead of the one it was trained on
    published: dict[str, tuple[Published, ...]]


@dataclass(frozen=True)
class PublishedTable:
    """A published table. Rows are losses, columns are data sets with their noise.

    Args:
        name: that of its file.
        title: a short description.
        source: the publication.
        rows: the losses.
        datasets: the data sets.
        seeds: the number of runs behind each figure.
        spread: the kind of the numbers in brackets, a key of ``SPREADS``.
        settings: of all runs of the table, where they differ from the protocols.
    """

    name: str
    title: str
    source: str
    rows: tuple[TableRow, ...]
    datasets: tuple[TableColumn, ...]
    seeds: int
    spread: str
    settings: dict[str, Any] = field(default_factory=dict)

    def published(self, dataset: str, row: str, noise: str) -> Published | None:
        """Return the published figure of a cell; None if there is none."""
        column = next(column for column in self.datasets if column.name == dataset)
        cells = column.published.get(row)
        return None if cells is None else cells[column.noise.index(noise)]


RECIPES = resources.files("symloss").joinpath(FOLDER)


def list_tables() -> list[str]:
    """Return the names of all tables.

    >>> list_tables()[:3]
    ['ablation', 'digits', 'mnist-lenet5']
    """
    return sorted(file.name.removesuffix(".toml") for file in RECIPES.iterdir() if file.name.endswith(".toml"))


@functools.cache
def load_table(name: str) -> PublishedTable:
    """Return a table by its name.

    >>> load_table("table1").published("cifar10", "sgce", "sym:0.8").value
    61.06
    """
    if name not in list_tables():
        raise ValueError(f"there is no table {name!r}; {checks.nearest(name, list_tables())}")
    fields = tomllib.loads(RECIPES.joinpath(f"{name}.toml").read_text())
    variants, noise, grids, columns = (fields.pop(key, {}) for key in ("variants", "noise", "grids", "datasets"))
    rows = [TableRow(row, variants.get(row, {}).pop("loss", row), variants.get(row, {})) for row in fields.pop("rows")]
    datasets = tuple(_column(key, value, noise) for key, value in columns.items())
    return PublishedTable(name=name, rows=(*rows, *_grid_rows(grids)), datasets=datasets, **fields)


def _grid_rows(grids: dict[str, dict[str, Any]]) -> list[TableRow]:
    """Return a row for every combination of the values in a grid. A row that several grids share is there once."""
    settings = {each.name for each in dataclasses.fields(Settings)}
    rows: dict[str, TableRow] = {}
    for grid in grids.values():
        axes = {key: values for key, values in grid.items() if key != "loss"}
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            title = " ".join((grid["loss"], *(f"{key}={value:g}" for key, value in point.items())))
            of_the_loss = ",".join(f"{key}={value:g}" for key, value in point.items() if key not in settings)
            changes = {key: value for key, value in point.items() if key in settings}
            rows[title] = TableRow(title, f"{grid['loss']}:{of_the_loss}".rstrip(":"), changes)
    return list(rows.values())


def _column(name: str, fields: dict[str, Any], usual: list[str]) -> TableColumn:
    data, noise = fields.get("data", name), tuple(fields.get("noise", usual))
    published = {row: tuple(map(Published.parse, line.split())) for row, line in fields.get("published", {}).items()}
    return TableColumn(name, data, fields.get("protocol", data), noise, fields.get("evaluate"), published)
