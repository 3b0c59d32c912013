"""``symloss reproduce`` trains the cells of a published table."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.options import OFF, WHAT, WHERE, shared
from symloss.cli.output import AsJson, bar, print_json, print_rows, say
from symloss.cli.recipe import Profile
from symloss.cli.training import percent

if TYPE_CHECKING:
    from symloss.experiments import Cell
    from symloss.experiments.run import Event, Events, Survey, Work
    from symloss.training.results import Result

Datasets = Annotated[
    str | None, typer.Option("--dataset", help="Only these data sets of the table, by commas.", show_default="all")
]
Losses = Annotated[
    str | None, typer.Option("--losses", "-l", help="Only these rows, separated by commas.", show_default="all")
]
Noises = Annotated[
    str | None, typer.Option("--noise", "-n", help="Only these columns, as clean,sym:0.6.", show_default="all")
]


@shared({name: WHAT[name] for name in ("data_dir",)}, {name: WHERE[name] for name in WHERE if name != "log"})
def reproduce(
    table: Annotated[str, typer.Argument(help="A table; `symloss recipe` lists them.", show_default=False)],
    dataset: Datasets = None,
    losses: Losses = None,
    noise: Noises = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each cell (default: the table's).")] = None,
    profile: Profile = "full",
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Cells at a time, each in its own process.")] = 1,
    ray: Annotated[
        str | None,
        typer.Option(help="Address of a Ray cluster to train the cells on, or auto.", show_default="this machine"),
    ] = None,
    cpus: Annotated[float, typer.Option(help="Cores of each cell, on Ray.", min=0)] = 1,
    gpus: Annotated[float, typer.Option(help="GPUs of each cell, on Ray.", min=0)] = 0,
    retries: Annotated[int, typer.Option(help="How often a cell that lost its machine is tried again.", min=0)] = 3,
    keep: Annotated[
        Path | None,
        typer.Option(
            help="A file (.jsonl) of results: what is in it counts as done, and new results are added to it.",
            show_default="none",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say what would be done, and what it would take.", show_default=OFF)
    ] = False,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train the cells of a published table, and print their results beside the published figures.

    Finished runs are skipped. Interrupted runs continue. A cell that fails is listed at the end, and the same command
    tries it again. Several of these commands may work on one folder of runs at the same time.
    """
    from symloss.experiments import plan
    from symloss.experiments.run import survey, with_fingerprints

    runs, root = options["runs"], options["data_dir"]
    where = {name: options[name] for name in ("accelerator", "devices", "nodes", "workers")}
    chosen = plan(
        table, datasets=_names(dataset), losses=_names(losses), noise=_names(noise), seeds=seeds, profile=profile
    )
    cells = with_fingerprints(chosen, root)
    kept = _kept(keep)
    surveyed = survey(cells, runs, root, where, kept)
    _announce(table, profile, surveyed)
    _say_cost(surveyed, jobs, root, on_ray=ray is not None and not dry_run)
    if dry_run:
        return
    try:
        failed = _follow(_events(surveyed.todo, jobs, ray, (cpus, gpus, retries)), len(surveyed.todo))
    finally:  # what was finished before an interruption is kept too
        _keep([*surveyed.done, *surveyed.todo], keep)
    _print_outcome(cells, runs, kept, table, as_json)
    for sentence, works in surveyed.missing.items():
        _say(f"{len(works)} runs cannot start: {sentence}")
    for event in failed:
        _say(f"{'failed' if event.kind == 'failed' else 'missing'}: {event.work.name}: {event.reason}")
    if failed or surveyed.missing:
        raise typer.Exit(1)


def _kept(file: Path | None) -> dict[str, Result]:
    from symloss.training.reading import read_kept, require_writable

    if file is None:
        return {}
    require_writable(file)
    return read_kept(file)


def _keep(works: list[Work], file: Path | None) -> None:
    from symloss.training.reading import keep

    if file is None:
        return
    results = (work.result() for work in works if not work.evaluate)
    keep(file, [result for result in results if result is not None])


def _names(text: str | None) -> list[str] | None:
    from symloss.losses.spec import split

    return None if text is None else split(text)


def _say(text: str) -> None:
    say(text, err=True)


def _announce(table: str, profile: str, surveyed: Survey) -> None:
    from symloss.training.settings import displayed_profile

    cannot = sum(len(works) for works in surveyed.missing.values())
    begun = f" ({surveyed.begun} of them begun)" if surveyed.begun else ""
    _say(
        f"{table}, {displayed_profile(profile)}: {len(surveyed.done) + surveyed.kept} runs are done, "
        f"{len(surveyed.todo)} to do{begun}" + (f", {cannot} without data" if cannot else "")
    )


def _say_cost(surveyed: Survey, jobs: int, root: Path | None, on_ray: bool) -> None:
    from symloss.experiments.cost import expected_seconds
    from symloss.experiments.report import duration
    from symloss.experiments.run import threads_of

    if not surveyed.todo:
        return
    seconds = expected_seconds([*surveyed.done, *surveyed.todo], threads_of(jobs), root)
    total = sum(seconds[work.name] for work in surveyed.todo)
    if on_ray:
        _say(f"about {duration(total)} of this machine's time, to be shared by the cluster")
    else:
        at_once = min(jobs, len(surveyed.todo))
        _say(f"about {duration(total / at_once)} here, {at_once} at a time (a few steps of each model were timed)")


def _events(todo: list[Work], jobs: int, ray: str | None, resources: tuple[float, float, int]) -> Events:
    from symloss.experiments.ray import Resources, run_on_ray
    from symloss.experiments.run import run_in_processes

    if not todo:
        return iter(())
    return run_in_processes(todo, jobs) if ray is None else run_on_ray(todo, ray, Resources(*resources))


def _follow(events: Events, total: int) -> list[Event]:
    """Show the events as they happen. Return those of runs that have no result in the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

    failed, started, over = [], time.perf_counter(), 0
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    lines: dict[str, Any] = {}
    with bar(*columns) as progress:
        every = progress.add_task("runs", total=total)
        for event in events:
            name = event.work.name
            if event.kind == "epoch":
                if name not in lines:
                    lines[name] = progress.add_task(name, total=event.work.settings.epochs)
                progress.update(lines[name], completed=getattr(event.row, "epoch", 0))
            if event.kind == "waiting":
                say(f"{name} is waited for: {event.reason}", err=True)
            if event.kind in ("started", "epoch", "waiting"):
                continue
            over += 1
            progress.advance(every)
            if name in lines:
                progress.remove_task(lines.pop(name))
            if event.kind in ("failed", "elsewhere"):
                failed.append(event)
            if progress.disable or event.kind != "finished":
                outcome = event.kind if not event.reason else f"{event.kind}: {event.reason}"
                elapsed = time.perf_counter() - started
                _say(f"{over}/{total} {name}: {outcome} ({elapsed:.0f} s)")
    return failed


def _print_outcome(cells: list[Cell], runs: Path, kept: dict[str, Result], table: str, as_json: bool) -> None:
    from symloss.experiments.run import outcome
    from symloss.training.settings import displayed_profile

    rows = outcome(cells, runs, kept)
    if as_json:
        print_json(rows)
        return
    profile = displayed_profile(rows[0]["profile"])
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        typer.echo(f"{table}, {dataset}, {profile}: accuracy in %, last epoch, mean(standard deviation) | published")
        print_rows(_pivoted([row for row in rows if row["dataset"] == dataset]))
    typer.echo(f"{table}: runs are in {runs}; `symloss report {runs}` shows them as a table or a page")


def _pivoted(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each loss, one column for each noise."""
    from symloss.training.results import Spread

    rows: dict[str, dict[str, Any]] = {}
    for cell in cells:
        ours = percent(None if cell["mean"] is None else Spread(cell["mean"], cell["std"]))
        text = ours if cell["published"] is None else f"{ours} | {cell['published']}"
        rows.setdefault(cell["loss"], {"loss": cell["loss"]})[cell["noise"]] = text
    return list(rows.values())
