"""What a search tries: grids of learning rates, weight decays and parameters of a loss, and the question it answers.

The default grids are in search.toml. A grid whose best point sits on an edge can be widened beyond it.
"""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from symloss import checks
from symloss.data.source import KNOWN, VOUCHED
from symloss.experiments.layers import load_protocol, trained_as
from symloss.experiments.tables import load_table
from symloss.losses.spec import describe, find, parse, write
from symloss.training.settings import Settings
from symloss.training.task import build_loss

FILE = "experiments/recipes/search.toml"
INTERVALS = {"lr": "(0, inf)", "weight_decay": "[0, inf)"}
"""The dimensions that are training settings with a range, not parameters of the loss."""
OF_TRAINING = (*INTERVALS, "scores")  # and all that are training settings
PAPERS_TABLES = ("table1", "table4")
"""The tables that the paper searched for: with the cosine schedule, and with one step of the learning rate."""
DIGITS = 4  # the number of digits of a value that is drawn or added, so that a command with it can be read
OTHER, OWN = "other", "own"
"""The names, in search.toml, of the weight decays for other published data, and for data of the user's own."""


@dataclass(frozen=True)
class Dimension:
    """A dimension of a search: ``lr``, ``weight_decay``, or a parameter or option of the loss."""

    name: str
    values: tuple[Any, ...]
    log: bool = False  # whether samplers draw values between these on a logarithmic scale
    whole: bool = False
    source: str = "given"

    def __post_init__(self) -> None:
        if not self.values or len(set(self.values)) < len(self.values):
            values = ", ".join(map(str, self.values)) or "none"
            raise ValueError(f"the grid of {self.name} must hold at least one value, each once; got {values}")

    @property
    def is_the_papers(self) -> bool:
        """Whether the paper searched this grid."""
        return self.source.startswith("the paper")

    @property
    def numeric(self) -> bool:
        """Whether all values are numbers."""
        return all(type(value) in (int, float) for value in self.values)

    def between(self) -> tuple[float, float] | None:
        """Return the smallest and the largest value, if any number between them may be tried; else None."""
        if not self.numeric or len(self.values) == 1:
            return None
        low, high = min(self.values), max(self.values)
        if self.log and low <= 0:
            raise ValueError(
                f"the grid of {self.name} must be above 0 for a sampler that searches it on a log scale; "
                f"got {', '.join(map(str, self.values))} (the sampler grid takes it)"
            )
        return low, high


@dataclass(frozen=True)
class SearchGrids:
    """The content of search.toml: weight decays by data set, parameters by loss, and settings of the paper's search.

    ``scores`` has how the paper normalised the scores, by protocol and loss.
    """

    weight_decay: Mapping[str, Dimension]
    loss: Mapping[str, Mapping[str, Dimension]]
    paper: Mapping[str, Any]
    scores: Mapping[str, Mapping[str, Dimension]]


@functools.cache
def search_grids() -> SearchGrids:
    """Return the grids of search.toml."""
    raw = tomllib.loads(resources.files("symloss").joinpath(FILE).read_text())
    by_data = {data: _dimension("weight_decay", grid) for data, grid in raw["weight-decay"].items()}
    by_loss = {}
    for loss, grids in raw["loss"].items():
        whole = {parameter.name: parameter.whole for parameter in find(loss).parameters}
        by_loss[loss] = {name: _dimension(name, grid, whole[name]) for name, grid in grids.items()}
    scores = {
        protocol: dict.fromkeys(grid["losses"], Dimension("scores", tuple(grid["values"]), source=grid["source"]))
        for protocol, grid in raw["scores"].items()
    }
    paper = {name: value for name, value in raw["paper"].items() if name != "source"}
    return SearchGrids(by_data, by_loss, paper, scores)


def _dimension(name: str, grid: Mapping[str, Any], whole: bool = False) -> Dimension:
    values = tuple(map(int if whole else float, grid["values"]))
    return Dimension(name, values, grid["scale"] == "log", whole, grid["source"])


Point = dict[str, Any]  # a value for each dimension, by the name of the dimension
Space = tuple[Dimension, ...]


def space_of(data: str, loss: str, varied: Mapping[str, Sequence[Any]] | None = None) -> Space:
    """Return the space of a loss on a data set: its parameter and the weight decay, on the grids of search.toml.

    A parameter in the text of the loss is not searched, nor the learning rate. Values of ``varied``, by ``lr``,
    ``weight_decay`` or parameter, are tried instead of those of search.toml and of the text.
    """
    asked = {name: _varied(loss, name, values) for name, values in (varied or {}).items()}
    of_training = {name: asked.pop(name) for name in INTERVALS if name in asked}
    if "weight_decay" not in of_training:
        decays = search_grids().weight_decay
        of_training["weight_decay"] = decays.get(trained_as(data) if data in KNOWN else OWN, decays[OTHER])
    of_loss = {dimension.name: dimension for dimension in _of_loss(loss)}
    return (*describe(parse(loss)[0]).overridden(of_loss, asked).values(), *of_training.values())


def papers_space(data: str, loss: str, table: str = PAPERS_TABLES[0]) -> Space:
    """Return the space of the paper's search: the weight decay of every loss, and the parameters of its new losses.

    For table 4, the new losses are tried with Euclidean and with batch normalisation of the scores.
    """
    decays = {name: grid for name, grid in search_grids().weight_decay.items() if grid.is_the_papers}
    if data not in decays:
        raise ValueError(f"--paper must go with {' or '.join(decays)}, where the paper searched; got {data!r}")
    of_scores = search_grids().scores.get(papers_protocol(data, table), {}).get(describe(parse(loss)[0]).name)
    of_loss = (grid for grid in _of_loss(loss) if grid.is_the_papers)
    return (*of_loss, *([] if of_scores is None else [of_scores]), decays[data])


def papers_settings(data: str, table: str = PAPERS_TABLES[0]) -> dict[str, Any]:
    """Return the settings that the paper's search fixes. For table 4 they have the schedule of its protocol.

    >>> papers_settings("cifar100", "table4")["schedule"]
    'step:190,0.1'
    """
    protocol = papers_protocol(data, table)
    own = {} if protocol == data else {"schedule": load_protocol(protocol).values["schedule"]}
    return {**search_grids().paper, **own}


def papers_protocol(data: str, table: str) -> str:
    """Return the protocol of a data set in one of the tables that the paper searched for."""
    checks.choice("--table", table, PAPERS_TABLES)
    protocols = {column.data: column.protocol for column in load_table(table).datasets}
    if data not in protocols:
        raise ValueError(f"--table {table} must go with {' or '.join(protocols)}; got {data!r}")
    return protocols[data]


def _of_loss(loss: str) -> Iterable[Dimension]:
    name, fixed = parse(loss)
    record = describe(name)
    grids = search_grids().loss.get(record.name, {})
    searched = record.overridden(grids, fixed).keys() - fixed.keys()
    return [] if "preset" in fixed else [grid for parameter, grid in grids.items() if parameter in searched]


def _varied(loss: str, name: str, values: Sequence[Any]) -> Dimension:
    """Return a dimension with the user's values. The scale of a parameter is that of search.toml."""
    if name in INTERVALS:
        return Dimension(name, tuple(checks.number(name, value, INTERVALS[name]) for value in values), log=True)
    record = describe(parse(loss)[0])
    known = search_grids().loss.get(record.name, {}).get(name)
    whole = any(parameter.name == name and parameter.whole for parameter in record.parameters)
    return Dimension(name, tuple(values), log=known is not None and known.log, whole=whole)


def variations(lines: Iterable[str], losses: Iterable[str]) -> dict[str, dict[str, list[Any]]]:
    """Read lines such as ``lr=0.1,0.2``, for all losses, and ``sgce:q=0.2,0.5`` into values by loss and name.

    >>> variations(["lr=0.1", "sgce:normalize=none,l2"], ["ce", "sgce:q=0.3"])
    {'ce': {'lr': [0.1]}, 'sgce:q=0.3': {'lr': [0.1], 'normalize': [None, 'l2']}}
    """
    names = {loss: describe(parse(loss)[0]).name for loss in losses}
    varied: dict[str, dict[str, list[Any]]] = {loss: {} for loss in names}
    for line in lines:
        key, _, text = line.partition("=")
        loss, _, parameter = key.rpartition(":")
        parts = text.split(",")
        if not parameter or not all(map(str.strip, parts)) or not (loss or parameter in INTERVALS):
            raise ValueError(
                f"--vary must read lr=value,..., weight_decay=value,... or loss:parameter=value,...; "
                f"got {checks.brief(line)}"
            )
        meant = [each for each, name in names.items() if not loss or name == find(loss).name]
        if not meant:
            searched = ", ".join(sorted(set(names.values())))
            raise ValueError(f"--vary must name a loss of --losses ({searched}); got {checks.brief(line)}")
        if parameter in varied[meant[0]]:
            raise ValueError(f"--vary gives {key} twice; all its values must stand in one")
        try:
            values = [parse(f"{key}={part}")[1][parameter] if loss else float(part) for part in parts]
        except ValueError:
            if loss:
                raise
            raise ValueError(f"`--vary {key}=` must be numbers, separated by commas; got {text!r}") from None
        for each in meant:
            varied[each][parameter] = values
    return varied


@dataclass(frozen=True)
class Question:
    """Which point of the space has the best validation accuracy with this loss? A study answers it."""

    loss: str  # as the user wrote it
    base: Settings  # those that are not searched
    space: Space
    seeds: int = 1  # runs of each point, whose mean counts

    def __post_init__(self) -> None:
        if self.base.validation == 0:
            raise ValueError("validation must be above 0 to choose by it; got 0")
        for dimension in self.space:
            for value in dimension.values:
                build_loss(self.settings({dimension.name: value}))

    def points(self) -> list[Point]:
        """Return every combination of the values of the dimensions. The last dimension changes fastest."""
        names = [dimension.name for dimension in self.space]
        values = itertools.product(*(dimension.values for dimension in self.space))
        return [dict(zip(names, each, strict=True)) for each in values]

    def settings(self, point: Point) -> Settings:
        """Return the settings of a point: those of the base, with the values of the point."""
        name, parameters = parse(self.base.loss)
        of_loss = {key: value for key, value in point.items() if key not in OF_TRAINING}
        of_training = {key: value for key, value in point.items() if key in OF_TRAINING}
        return replace(self.base, loss=write(name, describe(name).overridden(parameters, of_loss)), **of_training)

    def to_dict(self) -> dict[str, Any]:
        """Return all that the answer depends on, without the settings that are searched."""
        searched = {dimension.name for dimension in self.space}
        name, parameters = parse(self.base.loss)
        fixed = {key: value for key, value in parameters.items() if key not in searched}
        settings = {key: value for key, value in self.base.used().items() if key not in searched}
        return {"settings": settings | {"loss": write(name, fixed)}, "seeds": self.seeds}


def held_out_labels(settings: Settings) -> str:
    """Describe the labels that the choice is made by."""
    known = settings.data in KNOWN
    if settings.noise == "clean" and settings.data in VOUCHED:
        return "true labels (no noise was added)"
    if settings.noise == "clean":
        return "labels as given" if known else "your labels as they are"
    if settings.clean_validation:
        return "true labels" if known else "your labels, before noise was added"
    return "noisy labels"


def next_value(dimension: Dimension, edge: Any, interval: str | None) -> Any:
    """Return the value after one that is the smallest or largest of a grid, in the step or ratio of the last two.

    None for a value inside the grid, and beyond the range of the parameter.
    """
    ordered = sorted(dimension.values) if dimension.numeric else []
    on_edge = len(ordered) > 1 and edge in (ordered[0], ordered[-1])
    # A grid on a log scale that begins at 0 has no ratio to go on with.
    if interval is None or not on_edge or (dimension.log and ordered[0] <= 0):
        return None
    before = ordered[1] if edge == ordered[0] else ordered[-2]
    value = float(f"{edge * edge / before if dimension.log else 2 * edge - before:.{DIGITS}g}")
    if value not in checks.Interval(interval):
        low, high = (float(end) for end in interval[1:-1].split(","))
        value = low if edge < before else high
    value = round(value) if dimension.whole else value
    return value if value in checks.Interval(interval) and value not in dimension.values else None


def _beyond(loss: str, grid: Mapping[str, Dimension], best: Point) -> Iterator[tuple[Dimension, Any]]:
    """Yield each dimension whose best value sits on an edge that the loss allows to cross, and the next value."""
    parameters = {parameter.name: parameter.interval for parameter in describe(parse(loss)[0]).parameters}
    for name, dimension in grid.items():
        value = next_value(dimension, best[name], (INTERVALS | parameters).get(name))  # None for an option of the loss
        if value is not None:
            yield dimension, value


def widened(question: Question, grid: Mapping[str, Dimension], best: Point) -> tuple[Question, Dimension] | None:
    """Return the points beyond the edge that the best point sits on, as a question, and the grid with the new value.

    Only parameters of the loss are widened, and no grid that the user gave. None if there is nothing beyond.
    """
    for dimension, value in _beyond(question.loss, grid, best):
        if dimension.name not in INTERVALS and dimension.source != "given":
            space = tuple({**grid, dimension.name: replace(dimension, values=(value,))}.values())
            return replace(question, space=space), replace(dimension, values=(*dimension.values, value))
    return None


def edge_remarks(loss: str, grid: Mapping[str, Dimension], best: Point) -> list[str]:
    """Return a sentence for each value of the best point that sits on an edge of its grid and could go on."""
    found = []
    for dimension, _ in _beyond(loss, grid, best):
        name, value = dimension.name, best[dimension.name]
        end = "largest" if value == max(dimension.values) else "smallest"
        option = f"--vary {name}=" if name in INTERVALS else f"--vary {parse(loss)[0]}:{name}="
        found.append(
            f"The best {name.replace('_', ' ')} of {loss}, {value:g}, is the {end} that was tried: a better "
            f"one may lie beyond it ({option} tries others)."
        )
    return found
