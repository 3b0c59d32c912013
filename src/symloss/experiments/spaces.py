"""The space of a search: values of the learning rate, the weight decay and the parameters of a loss."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from symloss import checks
from symloss.experiments.search_grids import INTERVALS, Dimension, search_grids
from symloss.losses.spec import describe, find, parse

Point = dict[str, Any]
"""A value for each dimension, by the name of the dimension."""


@dataclass(frozen=True)
class Space:
    """Every combination of the values of some dimensions.

    >>> space = Space((Dimension("q", (0.2, 0.5)), Dimension("lr", (0.1,))))
    >>> list(space.points())
    [{'q': 0.2, 'lr': 0.1}, {'q': 0.5, 'lr': 0.1}]
    """

    dimensions: tuple[Dimension, ...]

    def points(self) -> Iterator[Point]:
        """All points, in order. The last dimension changes fastest."""
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

    The weight decay and the parameter of the loss are searched, on the grids of search.toml.

    Args:
        data: name or path of the data.
        loss: a loss as text. A parameter in the text (``sgce:q=0.5``) is not searched.
        lrs: learning rates to try; None: the learning rate is not searched.
        weight_decays: weight decays to try, instead of those of search.toml.
        varied: values of parameters to try, by name, instead of those of search.toml and of the text.

    >>> [(dimension.name, len(dimension.values)) for dimension in space_of("cifar10", "alpha-mae").dimensions]
    [('alpha', 5), ('weight_decay', 5)]
    >>> [dimension.name for dimension in space_of("cifar10", "sgce:q=0.5", lrs=[0.1, 0.01]).dimensions]
    ['lr', 'weight_decay']
    """
    dimensions = {dimension.name: dimension for dimension in _of_loss(loss)}
    asked = {name: _varied(loss, name, values) for name, values in (varied or {}).items()}
    dimensions = describe(parse(loss)[0]).overridden(dimensions, asked)
    for name, wanted in (("lr", lrs), ("weight_decay", weight_decays)):
        if wanted is not None:
            numbers = tuple(checks.number(name, value, INTERVALS[name]) for value in wanted)
            dimensions[name] = Dimension(name, numbers, log=True)
    if weight_decays is None:
        dimensions["weight_decay"] = search_grids().weight_decay_of(data)
    return Space(tuple(dimensions.values()))


def papers_space(data: str, loss: str) -> Space:
    """The space of the paper's search: the weight decay of every loss, and the parameters of its new losses.

    >>> [dimension.name for dimension in papers_space("cifar10", "sgce").dimensions]
    ['q', 'weight_decay']
    >>> [dimension.name for dimension in papers_space("cifar10", "gce").dimensions]
    ['weight_decay']
    """
    decays = {name: grid for name, grid in search_grids().weight_decay.items() if grid.is_the_papers}
    if data not in decays:
        raise ValueError(f"--paper must go with {' or '.join(decays)}, where the paper searched; got {data!r}")
    return Space((*(grid for grid in _of_loss(loss) if grid.is_the_papers), decays[data]))


def _of_loss(loss: str) -> Iterable[Dimension]:
    name, fixed = parse(loss)
    record = describe(name)
    grids = search_grids().loss.get(record.name, {})
    searched = record.overridden(grids, fixed).keys() - fixed.keys()
    return [] if "preset" in fixed else [grid for parameter, grid in grids.items() if parameter in searched]


def _varied(loss: str, name: str, values: Sequence[Any]) -> Dimension:
    """A dimension with the user's values. Its scale is that of search.toml."""
    record = describe(parse(loss)[0])
    known = search_grids().loss.get(record.name, {}).get(name)
    whole = any(parameter.name == name and parameter.whole for parameter in record.parameters)
    return Dimension(name, tuple(values), log=known is not None and known.log, whole=whole)


def variations(lines: Iterable[str], losses: Iterable[str]) -> dict[str, dict[str, list[Any]]]:
    """Read lines such as ``sgce:q=0.2,0.5`` into values by loss and parameter.

    Args:
        lines: as users write them.
        losses: the losses of the search. A line must name one of them.

    >>> variations(["sgce:q=0.2,0.5", "sgce:normalize=none,l2"], ["ce", "sgce"])
    {'sgce': {'q': [0.2, 0.5], 'normalize': [None, 'l2']}}
    """
    searched = {describe(parse(loss)[0]).name for loss in losses}
    by_loss: dict[str, dict[str, list[Any]]] = {}
    for line in lines:
        loss, _, rest = line.partition(":")
        parameter, equals, values = rest.partition("=")
        if not parameter or not equals or not all(part.strip() for part in values.split(",")):
            raise ValueError(f"--vary must read loss:parameter=value,value,...; got {checks.brief(line)}")
        name = find(loss).name
        if name not in searched:
            raise ValueError(
                f"--vary must name a loss of --losses ({', '.join(sorted(searched))}); got {checks.brief(line)}"
            )
        if parameter in by_loss.setdefault(name, {}):
            raise ValueError(f"--vary gives {name}:{parameter} twice; all its values must stand in one")
        by_loss[name][parameter] = [parse(f"{name}:{parameter}={part}")[1][parameter] for part in values.split(",")]
    return by_loss
