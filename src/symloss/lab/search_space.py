"""What a search may choose between: learning rate, weight decay and the parameters of a loss.

The grids that nobody has to give are in search.toml, each with its source.
"""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from symloss import checks
from symloss.data.names import KNOWN
from symloss.losses.catalogue import find
from symloss.losses.create import describe
from symloss.losses.spec import parse

Point = dict[str, Any]
"""A value for each dimension, by its name."""

INTERVALS = {"lr": "(0, inf)", "weight_decay": "[0, inf)"}
OTHER = "other"
"""Under which name search.toml holds the weight decays of data that has no grid of its own."""


@dataclass(frozen=True)
class Dimension:
    """One thing to choose: ``lr``, ``weight_decay``, or a parameter or option of the loss."""

    name: str
    values: tuple[Any, ...]
    log: bool = False
    """Whether the values between are seen on a logarithmic scale, by samplers that may take any of them."""
    whole: bool = False
    source: str = "given"

    def __post_init__(self) -> None:
        if not self.values:
            raise ValueError(f"the grid of {self.name} must hold at least one value; got none")
        if len(set(self.values)) < len(self.values):
            raise ValueError(f"the grid of {self.name} must hold each value once; got {_listed(self.values)}")

    @property
    def is_the_papers(self) -> bool:
        return self.source.startswith("the paper")

    @property
    def numeric(self) -> bool:
        return all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in self.values)

    def between(self) -> tuple[float, float] | None:
        """The ends, where any number between them may be tried; None where the values are all there is."""
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
class Space:
    """Every combination of some dimensions' values.

    >>> space = Space((Dimension("q", (0.2, 0.5)), Dimension("lr", (0.1,))))
    >>> list(space.points())
    [{'q': 0.2, 'lr': 0.1}, {'q': 0.5, 'lr': 0.1}]
    """

    dimensions: tuple[Dimension, ...]

    def points(self) -> Iterator[Point]:
        names = [dimension.name for dimension in self.dimensions]
        for values in itertools.product(*(dimension.values for dimension in self.dimensions)):
            yield dict(zip(names, values, strict=True))


def space_of(
    data: str,
    loss: str,
    *,
    lrs: Sequence[float] | None = None,
    weight_decays: Sequence[float] | None = None,
    varied: Mapping[str, Sequence[Any]] | None = None,
) -> Space:
    """The space of a loss on a data set.

    The weight decay is searched, and the loss's own parameter, both as the paper did where it did; the learning rate
    is not, unless ``lrs`` is given. What the spec fixes (``sgce:q=0.5``) is not searched, unless ``varied`` says so.

    >>> [(dimension.name, len(dimension.values)) for dimension in space_of("cifar10", "alpha-mae").dimensions]
    [('alpha', 5), ('weight_decay', 5)]
    >>> [dimension.name for dimension in space_of("cifar10", "sgce:q=0.5", lrs=[0.1, 0.01]).dimensions]
    ['lr', 'weight_decay']
    """
    found = {dimension.name: dimension for dimension in _of_loss(loss)}
    for name, values in (varied or {}).items():
        found[name] = _varied(loss, name, values)
    for name, given in (("lr", lrs), ("weight_decay", weight_decays)):
        if given is not None:
            numbers = tuple(checks.number(name, value, INTERVALS[name]) for value in given)
            found[name] = Dimension(name, numbers, log=True)
    if weight_decays is None:
        grids = grids_of_search()["weight-decay"]
        found["weight_decay"] = grids.get(data.removesuffix("-imagenet"), grids[OTHER])
    return Space(tuple(found.values()))


def papers_space(data: str, loss: str) -> Space:
    """What the paper searched: the weight decay of every loss, and the parameters of its own.

    >>> [dimension.name for dimension in papers_space("cifar10", "sgce").dimensions]
    ['q', 'weight_decay']
    >>> [dimension.name for dimension in papers_space("cifar10", "gce").dimensions]
    ['weight_decay']
    """
    decays = {name: grid for name, grid in grids_of_search()["weight-decay"].items() if grid.is_the_papers}
    if data not in decays:
        raise ValueError(f"--paper must go with {' or '.join(decays)}, where the paper searched; got {data!r}")
    return Space((*(grid for grid in _of_loss(loss) if grid.is_the_papers), decays[data]))


def _of_loss(loss: str) -> Iterable[Dimension]:
    name, fixed = parse(loss)
    grids = grids_of_search()["loss"].get(describe(name).name, {})
    return [] if "preset" in fixed else [grid for parameter, grid in grids.items() if parameter not in fixed]


def _varied(loss: str, name: str, values: Sequence[Any]) -> Dimension:
    """Values of the user's own; how a parameter is scaled, and whether it is whole, is known of it."""
    record = describe(parse(loss)[0])
    known = grids_of_search()["loss"].get(record.name, {}).get(name)
    whole = any(parameter.name == name and parameter.whole for parameter in record.parameters)
    return Dimension(name, tuple(values), log=known is not None and known.log, whole=whole)


def variations(lines: Iterable[str], losses: Iterable[str]) -> dict[str, dict[str, list[Any]]]:
    """Lines such as ``sgce:q=0.2,0.5`` as values by loss and parameter; the losses are those that are searched.

    >>> variations(["sgce:q=0.2,0.5", "sgce:normalize=none,l2"], ["ce", "sgce"])
    {'sgce': {'q': [0.2, 0.5], 'normalize': [None, 'l2']}}
    """
    searched = {describe(parse(loss)[0]).name for loss in losses}
    found: dict[str, dict[str, list[Any]]] = {}
    for line in lines:
        loss, _, rest = line.partition(":")
        parameter, equals, values = rest.partition("=")
        if not parameter or not equals or not all(part.strip() for part in values.split(",")):
            raise ValueError(f"--vary must read loss:parameter=value,value,...; got {line!r}")
        name = find(loss).name
        if name not in searched:
            raise ValueError(f"--vary must name a loss of --losses ({', '.join(sorted(searched))}); got {line!r}")
        if parameter in found.setdefault(name, {}):
            raise ValueError(f"--vary gives {name}:{parameter} twice; all its values must stand in one")
        found[name][parameter] = [parse(f"{name}:{parameter}={part}")[1][parameter] for part in values.split(",")]
    return found


@functools.cache
def grids_of_search() -> dict[str, dict[str, Any]]:
    """search.toml, checked: ``weight-decay`` by data set, ``loss`` by loss and parameter."""
    return read_grids(resources.files("symloss.lab").joinpath("search.toml").read_text())


def read_grids(text: str) -> dict[str, dict[str, Any]]:
    """Grids written as in search.toml; one that cannot be meant is refused, by its name."""
    raw = tomllib.loads(text)
    _only("search.toml", raw, ("weight-decay", "loss"))
    decays = raw.get("weight-decay", {})
    _only("weight-decay", decays, (*KNOWN, OTHER))
    if OTHER not in decays:
        raise ValueError(f"search.toml must hold [weight-decay.{OTHER}], for data that has no grid of its own")
    found: dict[str, dict[str, Any]] = {"weight-decay": {}, "loss": {}}
    for data, grid in decays.items():
        where = f"weight-decay.{data}"
        found["weight-decay"][data] = _dimension(where, "weight_decay", grid, INTERVALS["weight_decay"])
    for loss, grids in raw.get("loss", {}).items():
        parameters = {parameter.name: parameter for parameter in find(loss).parameters}
        _only(f"loss.{loss}", grids, parameters)
        found["loss"][loss] = {
            name: _dimension(f"loss.{loss}.{name}", name, grid, parameters[name].interval, parameters[name].whole)
            for name, grid in grids.items()
        }
    return found


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
    found = Dimension(name, numbers, log=grid["scale"] == "log", whole=whole, source=source)
    found.between()
    return found


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, values))
