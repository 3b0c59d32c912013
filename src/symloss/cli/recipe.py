"""``symloss recipe``: every setting of a run, where it comes from, and what it overrides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.options import DATA, DataDir
from symloss.cli.output import AsJson, print_json, print_rows, say

if TYPE_CHECKING:
    from symloss.lab import Cell
    from symloss.recipes.resolve import Resolved

Profile = Annotated[
    str, typer.Option(help="full: as published; mini: model, data and schedule shrunk for a CPU, and marked so.")
]


def recipe(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="A table; a cell, as table1/cifar10/sgce/sym:0.8; or, with --data, a loss, as sgce or gce:q=0.5.",
            show_default=False,
        ),
    ] = None,
    data: Annotated[str | None, typer.Option("--data", "-d", help=f"With a loss: {DATA}", show_default="none")] = None,
    profile: Profile = "full",
    seed: Annotated[int, typer.Option(min=0, help="Of which run.")] = 0,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Print every setting of a run, where it comes from, and the values that it overrides.

    NAME is a cell of a table, or with --data a loss: what `symloss train` does with both. A table's name lists its
    cells; without a name all tables are listed.
    """
    if data is not None:
        _print_loss(name, data, profile, seed, data_dir, as_json)
    elif name is None:
        _print_tables(as_json)
    elif "/" not in name:
        _print_cells(name, profile, as_json)
    else:
        from symloss.lab import find_cell

        _print_cell(find_cell(name, seed=seed, profile=profile), as_json)


def _print_loss(loss: str | None, data: str, profile: str, seed: int, data_dir: Any, as_json: bool) -> None:
    from symloss.training.plan import explain

    if loss is None:
        raise ValueError(f"--data must come with a loss, as in symloss recipe sgce --data {data}; got none")
    if profile != "full":
        raise ValueError(f"--profile must be left out with --data, as only tables have profiles; got {profile!r}")
    found = explain(data, loss, root=data_dir, seed=seed or None)
    if as_json:
        print_json({"loss": loss, "data": data, "run": found.settings.key} | _explained(found))
    else:
        _print_explained(found)


def _print_tables(as_json: bool) -> None:
    from symloss.lab import list_tables, load_table, plan

    rows = [
        {"table": name, "title": load_table(name).title, "cells": len(plan(name, seeds=1)), "runs": _runs(plan(name))}
        for name in list_tables()
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows)


def _runs(cells: list[Cell]) -> int:
    """How many are trained: cells that are only tested on something else share a run."""
    return len({cell.settings.key for cell in cells})


def _print_cells(table: str, profile: str, as_json: bool) -> None:
    from symloss import checks
    from symloss.lab import list_tables, plan

    if table not in list_tables():
        hint = checks.nearest(table, list_tables())
        raise ValueError(f"there is no table {table!r}; {hint} (a loss must come with --data)")
    rows = [
        {
            "cell": cell.name,
            "published": None if cell.published is None else cell.published.text,
            "bold": None if cell.published is None else cell.published.bold,
            "run": cell.settings.key,
        }
        for cell in plan(table, seeds=1, profile=profile)
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows([{key: row[key] for key in ("cell", "published")} for row in rows])


def _print_cell(cell: Cell, as_json: bool) -> None:
    published = cell.published
    if as_json:
        about = {"cell": cell.name, "title": cell.title, "run": cell.settings.key, "evaluate": cell.evaluate}
        figure = None if published is None else vars(published)
        print_json(about | _explained(cell.resolved) | {"published": figure})
        return
    _print_explained(cell.resolved)
    if cell.evaluate:
        typer.echo(f"tested on {cell.evaluate}")
    printed = "nothing" if published is None else published.text + (", in bold" if published.bold else "")
    reduced = "" if cell.settings.profile == "full" else " by the full recipe, which this is not"
    typer.echo(f"{cell.title} on {cell.dataset}, {cell.noise}; published{reduced}: {printed}")


def _explained(found: Resolved) -> dict[str, Any]:
    """Settings, parameters of the loss and layers, for other programs."""

    def why(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name.removeprefix("loss."): {
                "value": value,
                "source": found.source_of(name),
                "layer": found.layer_of(name).name,
                "overrides": [vars(each) for each in found.overridden(name)],
            }
            for name, value in values.items()
        }

    layers = [{"name": layer.name, "source": layer.source, "file": layer.file} for layer in found.layers]
    return {"settings": why(found.settings.to_dict()), "parameters": why(found.parameters), "layers": layers}


def _with_parameters(found: Resolved) -> Iterator[tuple[str, Any]]:
    """Settings and their values, with the parameters of the loss behind it."""
    for name, value in found.settings.to_dict().items():
        yield name, value
        if name == "loss":
            yield from found.parameters.items()


def _print_explained(found: Resolved) -> None:
    """Settings and layers, for people."""
    rows = [
        {"setting": name, "value": value, "source": found.source_of(name), "overrides": _overrides(found, name)}
        for name, value in _with_parameters(found)
    ]
    print_rows(rows)
    typer.echo("\nLayers, each overrides those above it:")
    for layer in found.layers:
        if layer.values or layer.parameters is not None:
            say(f"  {layer.name}" + ("" if layer.file is None else f" (symloss/recipes/{layer.file})"))
    typer.echo("")


def _overrides(found: Resolved, setting: str) -> str:
    """Overridden values with their sources. Defaults say nothing to people, and a loss shows in its parameters."""
    defaults = [layer.name for layer in found.layers[:2]]
    told = [each for each in found.overridden(setting) if each.layer not in defaults and setting != "loss"]
    return "; ".join(f"{each.value} ({each.source})" for each in told)
