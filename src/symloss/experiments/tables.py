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
from symloss.noise.spec import parse
from symloss.training.settings import Settings

FOLDER = "experiments/recipes/tables"
SPREADS = {"standard deviation": "std", "standard error": "s.e.", "none": ""}
"""The kinds of the number in brackets, each with its short name."""
TITLES = {"alpha-mae": "alpha-MAE", "unhinged": "Unhinged", "phuber-ce": "PHuber-CE", "phuber-gce": "PHuber-GCE"}
"""The titles of losses that are not written in capitals."""
LOSS_NAME = re.compile(r"[a-z0-9+-]+")
"""The name of a loss of the catalogue. A composed loss does not match."""
_FIGURE = re.compile(r"(?P<bold>\*?)(?P<value>\d+\.\d+)(\((?P<spread>\d+\.\d+)\))?")


@dataclass(frozen=True)
class Published:
    """A published figure, in percent."""

    value: float
    """The accuracy."""
    spread: float | None
    """The number in brackets; None if there is none."""
    bold: bool
    """Whether it is printed in bold."""
    text: str
    """The text as printed, without the star for bold."""

    @classmethod
    def parse(cls, text: str) -> Published:
        """Read a figure: an optional star for bold, the value, and an optional spread in brackets.

        >>> Published.parse("*88.17(0.15)")
        Published(value=88.17, spread=0.15, bold=True, text='88.17(0.15)')
        """
        match = _FIGURE.fullmatch(text)
        if match is None:
            raise ValueError(f"a published cell must read 88.17(0.15), 88.17 or *88.17(0.15) if bold; got {text!r}")
        spread = match["spread"]
        value = float(match["value"])
        return cls(value, None if spread is None else float(spread), bool(match["bold"]), text.removeprefix("*"))


@dataclass(frozen=True)
class TableRow:
    """A row of a table: a loss, and the settings that differ from its usual ones."""

    name: str
    loss: str
    changes: dict[str, Any] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name of the row in a report.

        >>> TableRow("ce-clipped", "ce", {"clip": 0.1}).title, TableRow("alpha-mae", "alpha-mae:alpha=2").title
        ('CE (clip 0.1)', 'alpha-MAE')
        """
        if "=" in self.name:  # rows of a grid are told apart by their values
            return self.name
        name = self.simple_loss
        written = self.loss if name is None else TITLES.get(name, name.upper())
        changed = ", ".join(f"{key} {value}" for key, value in self.changes.items())
        return written + (f" ({changed})" if changed else "")

    @property
    def simple_loss(self) -> str | None:
        """The name of the loss in the catalogue; None if the loss is composed."""
        name = self.loss.partition(":")[0]
        return name if LOSS_NAME.fullmatch(name) else None


@dataclass(frozen=True)
class TableColumn:
    """A data set of a table, with its protocol and its published figures."""

    name: str
    data: str
    protocol: str
    noise: tuple[str, ...]
    evaluate: str | None
    """A data set to test the finished model on, instead of the one it was trained on."""
    published: dict[str, tuple[Published, ...]]


@dataclass(frozen=True)
class PublishedTable:
    """A published table. Rows are losses, columns are data sets with their noise."""

    name: str
    """The name of its file."""
    title: str
    """A short description."""
    source: str
    """The publication."""
    rows: tuple[TableRow, ...]
    """The rows, one for each loss."""
    datasets: tuple[TableColumn, ...]
    """The data sets."""
    seeds: int
    """The number of runs behind each figure."""
    spread: str
    """The kind of the numbers in brackets, a key of ``SPREADS``."""
    settings: dict[str, Any]
    """Settings of all runs of the table that differ from the protocols."""

    def published(self, dataset: str, row: str, noise: str) -> Published | None:
        """Return the published figure of a cell; None if there is none."""
        column = next(column for column in self.datasets if column.name == dataset)
        cells = column.published.get(row)
        return None if cells is None else cells[column.noise.index(noise)]


def _files() -> dict[str, Any]:
    folder = resources.files("symloss").joinpath(FOLDER)
    return {file.name.removesuffix(".toml"): file for file in folder.iterdir() if file.name.endswith(".toml")}


def list_tables() -> list[str]:
    """Return the names of all tables.

    >>> list_tables()[:3]
    ['ablation', 'digits', 'mnist-lenet5']
    """
    return sorted(_files())


@functools.cache
def load_table(name: str) -> PublishedTable:
    """Return a table by its name.

    >>> load_table("table1").published("cifar10", "sgce", "sym:0.8").value
    61.06
    """
    if name not in list_tables():
        raise ValueError(f"there is no table {name!r}; {checks.nearest(name, list_tables())}")
    return read_table(name, _files()[name].read_text())


def read_table(name: str, text: str) -> PublishedTable:
    """Read a table from its TOML. A wrong table raises an error of one sentence.

    Names of losses are not checked here, because that would need torch. ``plan`` checks them.
    """
    try:
        return _table(name, tomllib.loads(text))
    except (ValueError, TypeError) as error:
        raise ValueError(f"recipe {name}: {error}") from None


def _table(name: str, fields: dict[str, Any]) -> PublishedTable:
    _only(fields, required=("title", "source", "rows", "seeds", "spread", "datasets"), allowed=_OF_A_TABLE)
    checks.choice("spread", fields["spread"], SPREADS)
    variants = fields.get("variants", {})
    rows = tuple(_row(row, variants.get(row, {"loss": row})) for row in _distinct("rows", fields["rows"]))
    rows += _grid_rows(fields.get("grids", {}))
    unused = set(variants) - {row.name for row in rows}
    if unused:
        raise ValueError(f"a variant must be one of the rows; got {sorted(unused)[0]!r}")
    datasets = tuple(
        _column(key, value, fields.get("noise", []), {row.name for row in rows})
        for key, value in fields["datasets"].items()
    )
    seeds = int(checks.number("seeds", fields["seeds"], "[1, inf)", whole=True))
    title, source, settings = str(fields["title"]), str(fields["source"]), fields.get("settings", {})
    return PublishedTable(name, title, source, rows, datasets, seeds, fields["spread"], settings)


_OF_A_TABLE = ("title", "source", "rows", "noise", "seeds", "spread", "settings", "variants", "grids", "datasets")
_OF_A_DATASET = ("data", "protocol", "noise", "evaluate", "published")


def _only(fields: dict[str, Any], required: tuple[str, ...], allowed: tuple[str, ...], where: str = "it") -> None:
    for key in required:
        if key not in fields:
            raise ValueError(f"{where} must have {key}; got {', '.join(fields) or 'nothing'}")
    for key in fields:
        if key not in allowed:
            raise ValueError(f"{where} has no {key!r}; {checks.nearest(key, allowed)}")


def _distinct(what: str, values: list[str]) -> list[str]:
    if not values or len(set(values)) != len(values):
        raise ValueError(f"{what} must be different from one another, and at least one; got {checks.brief(values)}")
    return values


def _row(name: str, variant: dict[str, Any]) -> TableRow:
    changes = dict(variant)
    if "loss" not in changes:
        raise ValueError(f"variant {name} must have a loss; got {', '.join(changes) or 'nothing'}")
    loss = changes.pop("loss")
    return TableRow(name, loss, changes)


def _grid_rows(grids: dict[str, dict[str, Any]]) -> tuple[TableRow, ...]:
    """Return a row for every combination of the values in a grid. A row that several grids share is there once.

    >>> [row.name for row in _grid_rows({"a": {"loss": "sgce", "q": [0.5, 1], "weight_decay": [0]}})]
    ['sgce q=0.5 weight_decay=0', 'sgce q=1 weight_decay=0']
    """
    settings = {each.name for each in dataclasses.fields(Settings)}
    rows: dict[str, TableRow] = {}
    for name, grid in grids.items():
        axes = {key: values for key, values in grid.items() if key != "loss"}
        if "loss" not in grid or not axes or not all(isinstance(values, list) and values for values in axes.values()):
            raise ValueError(f"grid {name} must have a loss, and a list of values for each axis; got {sorted(grid)}")
        for values in itertools.product(*axes.values()):
            point = dict(zip(axes, values, strict=True))
            title = " ".join((grid["loss"], *(f"{key}={value:g}" for key, value in point.items())))
            of_the_loss = ",".join(f"{key}={value:g}" for key, value in point.items() if key not in settings)
            changes = {key: value for key, value in point.items() if key in settings}
            rows[title] = TableRow(title, f"{grid['loss']}:{of_the_loss}".rstrip(":"), changes)
    return tuple(rows.values())


def _column(name: str, fields: dict[str, Any], usual: list[str], rows: set[str]) -> TableColumn:
    _only(fields, (), _OF_A_DATASET, f"data set {name}")
    data = fields.get("data", name)
    columns = tuple(_distinct(f"the noise of {name}", fields.get("noise", usual)))
    for spec in columns:
        parse(spec)
    published = {}
    for row, line in fields.get("published", {}).items():
        if row not in rows:
            raise ValueError(f"published figures of {name} must be of its rows; got {row!r}")
        cells = tuple(Published.parse(cell) for cell in line.split())
        if len(cells) != len(columns):
            raise ValueError(f"{name} must have {len(columns)} published cells a row; {row} has {len(cells)}")
        published[row] = cells
    return TableColumn(name, data, fields.get("protocol", data), columns, fields.get("evaluate"), published)
