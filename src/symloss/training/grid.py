"""A search over a grid, by accuracy on held-out examples: noisy ones, unless the settings say otherwise."""

from __future__ import annotations

import itertools
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


def search(loss: str, plans: list[Settings], seeds: int, runs: Path, train: Train) -> dict[str, Any]:
    """Train every plan, and rank them by their last epoch on validation; the test set plays no part."""
    tried = []
    for number, plan in enumerate(plans):
        results = [
            train(settings, runs / folder_name(settings), f"{number + 1}/{len(plans)} ")
            for settings in with_seeds(plan, seeds)
        ]
        found = spread([result["last"]["validation_accuracy"] for result in results])
        if found is None:
            raise ValueError("validation must be above 0 to choose by it; got 0")
        tried.append({"settings": plan.to_dict(), "validation": found})
    tried.sort(key=lambda row: -row["validation"]["mean"])
    return {"loss": loss, "tried": tried}


def as_toml(data: str, found: list[dict[str, Any]]) -> Iterator[str]:
    """The best of each loss as lines of protocols.toml, with what it beat."""
    yield f"[{data}.losses]"
    for search_ in found:
        best, *others = search_["tried"]
        settings = best["settings"]
        name, parameters = parse(settings["loss"])
        inner = ", ".join(f"{key} = {value}" for key, value in parameters.items())
        loss = f", loss = {{ {inner} }}" if inner else ""
        comment = f"# validation {best['validation']['mean']:.4f}"
        comment += f", next {others[0]['validation']['mean']:.4f}, of {len(others) + 1}" if others else ""
        yield f'"{name}" = {{ lr = {settings["lr"]:g}, weight_decay = {settings["weight_decay"]:g}{loss} }}  {comment}'
