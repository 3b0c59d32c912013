"""The default grids of ``symloss tune``. The file is search.toml."""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from symloss import checks
from symloss.data.source import KNOWN
from symloss.experiments.protocols import list_protocols, trained_as

FILE = "experiments/recipes/search.toml"
INTERVALS = {"lr": "(0, inf)", "weight_decay": "[0, inf)"}
OTHER, OWN = "other", "own"
"""The names, in search.toml, of the weight decays for other published data, and for data of the user's own."""


@dataclass(frozen=True)
class Dimension:
    """A dimension of a search: ``lr``, ``weight_decay``, or a parameter or option of the loss.

    >>> Dimension("q", (0.2, 0.5, 0.8)).between()
    (0.2, 0.8)
    """

    name: str
    values: tuple[Any, ...]
    log: bool = False
    """Whether samplers draw values between these on a logarithmic scale."""
    whole: bool = False
    source: str = "given"

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"the grid of {self.name} must hold at least one value; got none")
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"the grid of {self.name} must hold each value once; got {_listed(self.values)}")

    @property
    def is_the_papers(self) -> bool:
        """Whether the paper searched this grid."""
        return self.source.startswith("the paper")

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values)

    def between(self) -> tuple[float, float] | None:
        """The smallest and the largest value, if any number between them may be tried; else None."""
        if not self.numeric or len(self.values) == 1:
            return None
        low, high = min(self.values), max(self.values)
        if self.log and low <= 0:
            raise ValueError(
                f"the grid of {self.name} must be above 0 for a sampler that searches it on a log scale; "
                f"got {_listed(self.values)} (the sampler grid takes it)"
            )
        return low, high


@dataclass(frozen=True)
class SearchGrids:
    """The content of search.toml."""

    weight_decay: Mapping[str, Dimension]
    """Grids of the weight decay, by data set."""
    loss: Mapping[str, Mapping[str, Dimension]]
    """Grids of parameters, by loss and parameter."""
    paper: Mapping[str, Any]
    """Settings of the paper's search."""

    def weight_decay_of(self, data: str) -> Dimension:
        """The weight decays for a data set, by name or path."""
        return self.weight_decay.get(trained_as(data) if data in KNOWN else OWN, self.weight_decay[OTHER])


@functools.cache
def search_grids() -> SearchGrids:
    """The grids of search.toml, checked.

    >>> search_grids().loss["sgce"]["q"].values
    (0.2, 0.35, 0.5, 0.65, 0.8)
    """
    return read_grids(resources.files("symloss").joinpath(FILE).read_text())


def read_grids(text: str) -> SearchGrids:
    """Read grids from the text of search.toml. A wrong grid raises an error that names it."""
    from symloss.losses.spec import find  # noqa: PLC0415 (with the losses comes torch)

    raw = tomllib.loads(text)
    _only(FILE, raw, ("weight-decay", "loss", "paper"))
    decays = raw.get("weight-decay", {})
    _only("weight-decay", decays, (*list_protocols(), OTHER, OWN))
    if OTHER not in decays:
        raise ValueError(f"{FILE} must hold [weight-decay.{OTHER}], for data that has no grid of its own")
    by_data = {
        data: _dimension(f"weight-decay.{data}", "weight_decay", grid, INTERVALS["weight_decay"])
        for data, grid in decays.items()
    }
    by_loss = {}
    for loss, grids in raw.get("loss", {}).items():
        parameters = {parameter.name: parameter for parameter in find(loss).parameters}
        _only(f"loss.{loss}", grids, parameters)
        by_loss[loss] = {
            name: _dimension(f"loss.{loss}.{name}", name, grid, parameters[name].interval, parameters[name].whole)
            for name, grid in grids.items()
        }
    paper = {name: value for name, value in raw.get("paper", {}).items() if name != "source"}
    return SearchGrids(by_data, by_loss, paper)


def _only(where: str, table: Mapping[str, Any], allowed: Iterable[str]) -> None:
    for name in table:
        if name not in allowed:
            raise ValueError(f"[{where}] holds {name!r}; allowed are {', '.join(allowed) or 'none'}")


def _dimension(where: str, name: str, grid: Mapping[str, Any], interval: str, whole: bool = False) -> Dimension:
    _only(where, grid, ("values", "scale", "source"))
    values, source = grid.get("values"), grid.get("source")
    checks.choice(f"scale of [{where}]", grid.get("scale"), ("linear", "log"))
    if not isinstance(source, str) or not source.strip():
        raise ValueError(f"[{where}] must name its source; got {checks.brief(source)}")
    if not isinstance(values, list) or not values:
        raise ValueError(f"[{where}] must hold a list of values; got {checks.brief(values)}")
    numbers = tuple(checks.number(f"a value of [{where}]", value, interval, whole) for value in values)
    if any(after <= before for before, after in itertools.pairwise(numbers)):
        raise ValueError(f"the values of [{where}] must rise; got {_listed(numbers)}")
    dimension = Dimension(name, numbers, log=grid["scale"] == "log", whole=whole, source=source)
    dimension.between()
    return dimension


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))
