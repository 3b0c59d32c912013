"""``symloss recipe``, ``reproduce`` and ``report``: published tables, their settings, their runs and their results."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss import checks
from symloss.cli.options import DATA, OPTIONS, SETS, TRAINING, WHERE, AsJson, argument, flag, option, with_options
from symloss.cli.output import LiveProgress, print_data, print_json, print_rows, say, show_progress, visible
from symloss.cli.training import percent
from symloss.experiments import FORMATS, Cell, compose, find_cell, list_tables, load_table, plan, read_runs
from symloss.experiments.layers import Resolved, explain
from symloss.experiments.report import duration
from symloss.training import reading
from symloss.training.results import Result, Spread
from symloss.training.settings import FULL, PUBLISHED_CODE, displayed_profile, is_whole
from symloss.writing import clear_write_errors, write_whole

if TYPE_CHECKING:
    from symloss.experiments.run import Event, Events, Survey

Profile = Annotated[
    str,
    option("full (as published), or a reduced protocol: scale16 (CIFAR-10) or mini (other data sets).", panel=TRAINING),
]
SUFFIXES = {".md": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html"}


def recipe(
    name: Annotated[
        str | None,
        argument("Table, cell (table1/cifar10/sgce/sym:0.8), or, with --data, loss (gce:q=0.5).", metavar="[NAME]"),
    ] = None,
    data: Annotated[str | None, option(f"With a loss: {SETS}, or your data.", "--data", "-d", panel=DATA)] = None,
    profile: Profile = "full",
    seed: Annotated[int, option("Seed of the run.", panel=TRAINING, min=0)] = 0,
    as_json: AsJson = False,
) -> None:
    """Print every setting of a run, its source, and the values it overrides.

    NAME is a cell of a table, or a loss. With a loss and --data, the settings are those of `symloss train`. The name of
    a table lists its cells. Without a name, all tables are listed.
    """
    if data is not None:
        _print_loss(name, data, profile, seed, as_json)
    elif name is None:
        _print_tables(as_json)
    elif "/" not in name:
        _print_cells(name, profile, as_json)
    else:
        _print_cell(find_cell(name, seed=seed, profile=profile), as_json)


def _print_loss(loss: str | None, data: str, profile: str, seed: int, as_json: bool) -> None:
    if loss is None:
        raise ValueError(f"`--data` requires a loss: symloss recipe sgce --data {data}")
    if profile != "full":
        raise ValueError(f"`--profile {profile}` applies to tables only; remove it or `--data`.")
    resolved = explain(data, loss, seed=seed or None)
    _print_explained(resolved, as_json, {"loss": loss, "data": data, "run": resolved.settings.key})


def _print_tables(as_json: bool) -> None:
    rows = []
    for name in list_tables():
        runs = {cell.settings.key for cell in plan(name)}  # cells share one if they differ only in the data to test on
        cells = len(plan(name, seeds=1))
        rows.append({"table": name, "title": load_table(name).title, "cells": cells, "runs": len(runs)})
    (print_json if as_json else print_rows)(rows)


def _print_cells(table: str, profile: str, as_json: bool) -> None:
    if table not in list_tables():
        hint = checks.nearest(table, list_tables())
        raise ValueError(f"No table {table!r}; {hint} (for a loss, add --data)")
    rows = []
    for cell in plan(table, seeds=1, profile=profile):
        row = {"cell": cell.name, "published": cell.published and cell.published.text}
        more = {"bold": cell.published and cell.published.bold, "run": cell.settings.key}
        rows.append(row | more if as_json else row)
    (print_json if as_json else print_rows)(rows)


def _print_cell(cell: Cell, as_json: bool) -> None:
    published = cell.published
    about = {"cell": cell.name, "title": cell.title, "run": cell.settings.key, "evaluate": cell.evaluate}
    _print_explained(cell.resolved, as_json, about | {"published": published and vars(published)})
    if as_json:
        return
    if cell.evaluate:
        typer.echo(f"tested on {cell.evaluate}")
    printed = "nothing" if published is None else published.text + (", in bold" if published.bold else "")
    reduced = "" if is_whole(cell.settings.profile) else " by the full recipe, which this is not"
    typer.echo(f"{cell.title} on {cell.dataset}, {cell.noise}; published{reduced}: {printed}")


def _print_explained(resolved: Resolved, as_json: bool, about: dict[str, Any]) -> None:
    """Print settings, parameters of the loss and layers: as JSON after what it is about, or as a table."""
    settings, parameters = (_reasons(resolved, names) for names in (resolved.settings.to_dict(), resolved.parameters))
    if as_json:
        of_loss = {name.removeprefix("loss."): why for name, why in parameters.items()}
        layers = [{"name": layer.name, "source": layer.source, "file": layer.file} for layer in resolved.layers]
        print_json(about | {"settings": settings, "parameters": of_loss, "layers": layers})
        return
    rows = []
    defaults = [layer.name for layer in resolved.layers[:2]]
    for setting, reason in settings.items():
        for name, why in ({setting: reason} | (parameters if setting == "loss" else {})).items():
            # A loss is shown by its parameters.
            told = [each for each in why["overrides"] if each["layer"] not in defaults and name != "loss"]
            overrides = "; ".join(f"{each['value']} ({each['source']})" for each in told)
            rows.append({"setting": name, "value": why["value"], "source": why["source"], "overrides": overrides})
    print_rows(rows)
    typer.echo("\nLayers, each overrides those above it:")
    for layer in resolved.layers:
        if layer.values or layer.parameters is not None:
            say(f"  {layer.name}" + ("" if layer.file is None else f" (symloss/{layer.file})"))
    typer.echo("")


def _reasons(resolved: Resolved, values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the source of each value, and what it overrides."""
    found = {}
    for name, value in values.items():
        first, *overridden = resolved.history(name)
        source = resolved.sources.get(name, first["source"])
        found[name] = {"value": value, "source": source, "layer": first["layer"], "overrides": overridden}
    return found


@with_options(
    *("losses", "noise", "jobs", "ray", "accelerator", "devices", "runs"),
    settings=("data_dir", "nodes", "workers", "cpus", "gpus", "retries"),
    losses=OPTIONS["losses"]._replace(default=None, help="Only these losses, separated by commas.", shown="all"),
    noise=OPTIONS["noise"]._replace(default=None, help="Only this noise, as clean,sym:0.6.", shown="all"),
)
def reproduce(
    table: Annotated[str, argument("Table; `symloss recipe` lists them.")],
    data: Annotated[
        str | None, option("Only these data sets, separated by commas.", "--data", "-d", panel=DATA, shown="all")
    ] = None,
    seeds: Annotated[
        int | None, option("Number of runs per cell.", panel=TRAINING, shown="as published", min=1)
    ] = None,
    profile: Profile = "full",
    as_published_code: Annotated[
        bool,
        flag(
            "Compute the losses as the public implementation does: its clamps and its held focal factor.",
            "--as-published-code",
            panel=TRAINING,
        ),
    ] = False,
    results: Annotated[
        Path | None, option("Results file (.jsonl): its results count as done, and new ones are added.", shown="none")
    ] = None,
    dry_run: Annotated[bool, flag("Print what would be run and the estimated time.", "--dry-run")] = False,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train the cells of a published table, and print the results beside the published figures.

    Finished runs are skipped. Rerun the same command to resume interrupted runs and retry failed cells. Several
    of these commands can share a folder of runs.
    """
    from symloss.experiments.ray import run_on_ray
    from symloss.experiments.run import run_in_processes, survey, with_fingerprints
    from symloss.losses.spec import split

    if as_published_code and profile not in (FULL, PUBLISHED_CODE):
        raise ValueError(f"`--as-published-code` is of the full profile; leave out `--profile {profile}`")
    profile = PUBLISHED_CODE if as_published_code else profile
    runs, root = options["runs"], options["data_dir"]
    where = {name: options[name] for name in WHERE}
    parts = {"datasets": data, "losses": options["losses"], "noise": options["noise"]}
    chosen = {name: None if text is None else split(text) for name, text in parts.items()}
    cells = with_fingerprints(plan(table, **chosen, seeds=seeds, profile=profile), root)
    if profile == PUBLISHED_CODE and not any("deviation=" in cell.settings.loss for cell in cells):
        rows = ", ".join(dict.fromkeys(cell.row for cell in cells))
        raise ValueError(f"`--as-published-code` changes none of {rows} in {table}; leave it out")
    kept: dict[str, Result] = {}
    if results is not None:
        reading.require_writable(results)
        kept = reading.read_kept(results)
    surveyed = survey(cells, runs, root, where, kept)
    on_ray = options["ray"] is not None and not dry_run
    _announce(f"{table}, {displayed_profile(profile)}", surveyed, options["jobs"], root, on_ray)
    if dry_run:
        return
    todo, ray = surveyed.todo, [options[name] for name in ("ray", "cpus", "gpus", "retries")]
    try:
        events = run_in_processes(todo, options["jobs"]) if ray[0] is None else run_on_ray(todo, *ray)
        failed = _follow(events, len(todo)) if todo else []
    finally:  # what was finished before an interruption is kept too
        if results is not None:
            found = (work.result() for work in (*surveyed.done, *surveyed.todo) if not work.evaluate)
            reading.keep(results, [result for result in found if result is not None])
    _print_outcome(cells, runs, kept, table, as_json)
    for sentence, works in surveyed.missing.items():
        say(f"{len(works)} runs cannot start: {sentence}", err=True)
    for event in failed:
        say(f"{'failed' if event.kind == 'failed' else 'missing'}: {event.work.name}: {event.reason}", err=True)
    if failed or surveyed.missing:
        raise typer.Exit(1)


def _announce(what: str, surveyed: Survey, jobs: int, root: Path | None, on_ray: bool) -> None:
    """Say what is done, what is left to do, and how long that takes."""
    from symloss.experiments.cost import expected_seconds
    from symloss.experiments.run import threads_of

    cannot = sum(len(works) for works in surveyed.missing.values())
    begun = f" ({surveyed.begun} of them begun)" if surveyed.begun else ""
    lacking = f", {cannot} without data" if cannot else ""
    done = len(surveyed.done) + surveyed.kept
    say(f"{what}: {done} runs done, {len(surveyed.todo)} to do{begun}{lacking}", err=True)
    if not surveyed.todo:
        return
    seconds = expected_seconds([*surveyed.done, *surveyed.todo], threads_of(jobs), root)
    total = sum(seconds[work.name] for work in surveyed.todo)
    at_once = min(jobs, len(surveyed.todo))
    here = f"about {duration(total / at_once)} here, {at_once} at a time (a few steps of each model were timed)"
    shared = f"about {duration(total)} of this machine's time, to be shared by the cluster"
    say(shared if on_ray else here, err=True)


def _follow(events: Events, total: int) -> list[Event]:
    """Show the events as they happen. Return those of runs that have no result in the end."""
    failed: list[Event] = []
    started, over = time.perf_counter(), 0
    with show_progress(quiet=True) as progress:
        for event in events:
            name = event.work.name
            if event.kind == "epoch":
                epoch = getattr(event.row, "epoch", 0)
                progress.step("runs", over, total, f"{name}, epoch {epoch} of {event.work.settings.epochs}")
            elif event.kind == "waiting":
                say(f"waiting for {name}: {event.reason}", err=True)
            elif event.kind in ("finished", "failed", "elsewhere"):
                over += 1
                progress.step("runs", over, total)
                failed += [event] if event.kind != "finished" else []
                if event.kind != "finished" or not isinstance(progress, LiveProgress):
                    outcome = event.kind + (f": {event.reason}" if event.reason else "")
                    say(f"{over}/{total} {name}: {outcome} ({time.perf_counter() - started:.0f} s)", err=True)
    return failed


def _print_outcome(cells: list[Cell], runs: Path, kept: dict[str, Result], table: str, as_json: bool) -> None:
    from symloss.experiments.run import outcome

    rows = outcome(cells, runs, kept)
    if as_json:
        print_json(rows)
        return
    profile = displayed_profile(rows[0]["profile"])
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        typer.echo(f"{table}, {dataset}, {profile}: accuracy in %, last epoch, mean(standard deviation) | published")
        shown: dict[str, dict[str, Any]] = {}  # one row for each loss, one column for each noise
        for cell in (row for row in rows if row["dataset"] == dataset):
            ours = percent(None if cell["mean"] is None else Spread(cell["mean"], cell["std"]))
            text = ours if cell["published"] is None else f"{ours} | {cell['published']}"
            shown.setdefault(cell["loss"], {"loss": cell["loss"]})[cell["noise"]] = text
        print_rows(list(shown.values()))
    typer.echo(f"{table}: runs are in {runs}; `symloss report {runs}` shows them as a table or a page")


def report(
    runs: Annotated[Path, argument("Folder of runs.")],
    format: Annotated[
        str | None,
        option("markdown, latex, csv or html.", "--format", "-f", shown="the suffix of --out, else markdown"),
    ] = None,
    out: Annotated[
        Path | None, option("File (.md, .tex, .csv, .html), or a folder for all of them.", "--out", "-o")
    ] = None,
    table: Annotated[
        list[str] | None, option("Only this table, such as table1 or digits; repeatable.", "--table", "-t")
    ] = None,
) -> None:
    """Show the results of runs beside the published figures, as tables or as a page with curves and noise.

    Runs of a recipe are shown as its table. Other runs are grouped by the settings they share. Runs without a result
    are listed.
    """
    targets = _targets(format, out)
    words = ["symloss", "report", str(runs)]
    words += ["--format", format] if format else []
    for name in table or []:
        words += ["--table", name]
    composed = compose(read_runs(runs), table or None, shlex.join(words))
    # All formats are rendered before the first file is written, so that an error leaves no part of a report.
    # A file name that is no valid Unicode must not stop it.
    texts = {name: FORMATS[name](composed).encode(errors="replace") for name in targets}
    for name, path in targets.items():
        if path is None:
            print_data(texts[name].decode())
            continue
        with clear_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, texts[name])
        say(f"written to {path}", err=True)
    for line in composed.missing:
        say(f"without a figure: {visible(line)}", err=True)


def _targets(format: str | None, out: Path | None) -> dict[str, Path | None]:
    """Return the formats to write, and the file of each; None is the standard output."""
    if format is not None:
        checks.choice("--format", format, FORMATS)
    if out is None:
        return {format or "markdown": None}
    if out.is_dir() or not out.suffix:
        return {name: out / f"report{suffix}" for suffix, name in SUFFIXES.items() if format in (None, name)}
    by_suffix = SUFFIXES.get(out.suffix.lower(), format)
    if by_suffix is None:
        raise ValueError(
            f"`--out` must end in {', '.join(SUFFIXES)}, be a folder, or come with `--format`; got {str(out)!r}"
        )
    if format not in (None, by_suffix):
        raise ValueError(f"`--format {format}` does not match `--out {out}`, which is {by_suffix}.")
    return {by_suffix: out}
