"""``symloss recipe`` prints every setting of a run, its source, and the values that it overrides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.options import DATA, DataDir
from symloss.cli.output import AsJson, print_json, print_rows, say

if TYPE_CHECKING:
    from symloss.experiments import Cell
    from symloss.experiments.layers import Resolved

Profile = Annotated[
    str,
    typer.Option(
        help="full: as published. Reduced, and marked so: scale16, a scale model of CIFAR-10; mini, all others."
    ),
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

    NAME is a cell of a table, or a loss. With a loss, --data names the data: the settings are those of `symloss train`
    with both. The name of a table lists its cells. Without a name all tables are listed.
    """
    if data is not None:
        _print_loss(name, data, profile, seed, data_dir, as_json)
    elif name is None:
        _print_tables(as_json)
    elif "/" not in name:
        _print_cells(name, profile, as_json)
    else:
        from symloss.experiments import find_cell

        _print_cell(find_cell(name, seed=seed, profile=profile), as_json)


def _print_loss(loss: str | None, data: str, profile: str, seed: int, data_dir: Any, as_json: bool) -> None:
    from symloss.experiments.layers import explain

    if loss is None:
        raise ValueError(f"--data must come with a loss, as in symloss recipe sgce --data {data}; got none")
    if profile != "full":
        raise ValueError(f"--profile must be left out with --data, as only tables have profiles; got {profile!r}")
    resolved = explain(data, loss, root=data_dir, seed=seed or None)
    if as_json:
        print_json({"loss": loss, "data": data, "run": resolved.settings.key} | _explained(resolved))
    else:
        _print_explained(resolved)


def _print_tables(as_json: bool) -> None:
    from symloss.experiments import list_tables, load_table, plan

    rows = [
        {"table": name, "title": load_table(name).title, "cells": len(plan(name, seeds=1)), "runs": _runs(plan(name))}
        for name in list_tables()
    ]
    if as_json:
        print_json(rows)
    else:
        print_rows(rows)


def _runs(cells: list[Cell]) -> int:
    """The number of runs. Cells share a run if they differ only in the data to test on."""
    return len({cell.settings.key for cell in cells})


def _print_cells(table: str, profile: str, as_json: bool) -> None:
    from symloss import checks
    from symloss.experiments import list_tables, plan

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


def _explained(resolved: Resolved) -> dict[str, Any]:
    """Settings, parameters of the loss and layers, for JSON."""

    def why(values: dict[str, Any]) -> dict[str, Any]:
        return {
            name.removeprefix("loss."): {
                "value": value,
                "source": resolved.source_of(name),
                "layer": resolved.layer_of(name).name,
                "overrides": [vars(each) for each in resolved.overridden(name)],
            }
            for name, value in values.items()
        }

    layers = [{"name": layer.name, "source": layer.source, "file": layer.file} for layer in resolved.layers]
    return {"settings": why(resolved.settings.to_dict()), "parameters": why(resolved.parameters), "layers": layers}


def _with_parameters(resolved: Resolved) -> Iterator[tuple[str, Any]]:
    """Settings and their values. The parameters of the loss come after the loss."""
    for name, value in resolved.settings.to_dict().items():
        yield name, value
        if name == "loss":
            yield from resolved.parameters.items()


def _print_explained(resolved: Resolved) -> None:
    """Print settings and layers as a table."""
    rows = [
        {"setting": name, "value": value, "source": resolved.source_of(name), "overrides": _overrides(resolved, name)}
        for name, value in _with_parameters(resolved)
    ]
    print_rows(rows)
    typer.echo("\nLayers, each overrides those above it:")
    for layer in resolved.layers:
        if layer.values or layer.parameters is not None:
            say(f"  {layer.name}" + ("" if layer.file is None else f" (symloss/{layer.file})"))
    typer.echo("")


def _overrides(resolved: Resolved, setting: str) -> str:
    """The overridden values with their sources. Defaults are left out. A loss is shown by its parameters instead."""
    defaults = [layer.name for layer in resolved.layers[:2]]
    shown = [each for each in resolved.overridden(setting) if each.layer not in defaults and setting != "loss"]
    return "; ".join(f"{each.value} ({each.source})" for each in shown)
