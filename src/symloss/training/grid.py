"""A search over a grid, by accuracy on held-out examples: noisy ones, unless the settings say otherwise."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symloss.losses.catalogue import find
from symloss.losses.create import parse
from symloss.training.comparison import folder_name, spread, with_seeds
from symloss.training.protocols import spec
from symloss.training.settings import Settings

Train = Callable[[Settings, Path, str], dict[str, Any]]


@dataclass(frozen=True)
class Point:
    loss: str
    lr: float
    weight_decay: float


def points(loss: str, lrs: list[float], weight_decays: list[float], vary: list[str]) -> list[Point]:
    """Every combination; vary holds lines such as ``sgce:q=0.2,0.5``.

    >>> [point.loss for point in points("sgce", [0.1], [0.0], ["sgce:q=0.2,0.5", "mae:scale=1"])]
    ['sgce:q=0.2', 'sgce:q=0.5']
    """
    name, fixed = parse(loss)
    name = find(name).name
    grids = dict(_grid(line) for line in vary if line.partition(":")[0] == name)
    combinations = itertools.product(*grids.values())
    losses = [spec(name, fixed | dict(zip(grids, values, strict=True))) for values in combinations]
    return [Point(*point) for point in itertools.product(losses, lrs, weight_decays)]


def _grid(line: str) -> tuple[str, list[str]]:
    parameter, equals, values = line.partition(":")[2].partition("=")
    if not equals or not values:
        raise ValueError(f"--vary must read loss:parameter=value,value,...; got {line!r}")
    return parameter, values.split(",")


@dataclass(frozen=True)
class Effort:
    """How often each combination is run, and how often those that came out best."""

    seeds: int
    finalists: int = 0
    final_seeds: int = 0


def search(loss: str, plans: list[Settings], effort: Effort, runs: Path, train: Train) -> dict[str, Any]:
    """Rank the plans by their last epoch on validation; the test set plays no part.

    Noisy labels measure little: the best few are run again with more seeds, and ranked by all of them.
    """
    tried = _ranked(plans, effort.seeds, runs, train)
    finalists = [Settings.from_dict(row["settings"]) for row in tried[: effort.finalists]]
    if effort.final_seeds > effort.seeds and finalists:
        tried[: len(finalists)] = _ranked(finalists, effort.final_seeds, runs, train)
    return {"loss": loss, "tried": tried}


def _ranked(plans: list[Settings], seeds: int, runs: Path, train: Train) -> list[dict[str, Any]]:
    rows = []
    for number, plan in enumerate(plans):
        results = [
            train(settings, runs / folder_name(settings), f"{number + 1}/{len(plans)} ")
            for settings in with_seeds(plan, seeds)
        ]
        found = spread([result["last"]["validation_accuracy"] for result in results])
        if found is None:
            raise ValueError("validation must be above 0 to choose by it; got 0")
        rows.append({"settings": plan.to_dict(), "validation": found, "seeds": seeds})
    return sorted(rows, key=lambda row: -row["validation"]["mean"])


def as_toml(data: str, found: list[dict[str, Any]]) -> Iterator[str]:
    """The best of each loss as lines of protocols.toml, with what it beat."""
    yield f"[{_quoted(data)}.losses]"
    for search_ in found:
        best, *others = search_["tried"]
        settings = best["settings"]
        name, parameters = parse(settings["loss"])
        inner = ", ".join(f"{key} = {_quoted(value)}" for key, value in parameters.items())
        loss = f", loss = {{ {inner} }}" if inner else ""
        comment = f"# validation {best['validation']['mean']:.4f} of {best['seeds']} seeds"
        comment += f", next {others[0]['validation']['mean']:.4f}, of {len(others) + 1} settings" if others else ""
        yield f'"{name}" = {{ lr = {settings["lr"]:g}, weight_decay = {settings["weight_decay"]:g}{loss} }}  {comment}'


def _quoted(value: object) -> str:
    """As TOML has it; there is no None, but "None" is read as one in a loss."""
    return str(value) if isinstance(value, (int, float)) else json.dumps(str(value), ensure_ascii=False)
