"""``symloss train``, ``compare``, ``tune`` and ``predict``."""

from __future__ import annotations

import contextlib
import dataclasses
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.options import HOW, SETTINGS, WHAT, WHERE, shared
from symloss.cli.output import AsJson, console, print_json

if TYPE_CHECKING:
    from symloss.training import Settings

Losses = Annotated[str, typer.Option("--losses", "-l", help="Losses, separated by commas.")]


@shared(WHAT, HOW, WHERE)
def train(
    loss: Annotated[str, typer.Option("--loss", "-l", help="A loss, such as sgce or gce:q=0.5.")] = "alpha-mae",
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The run's folder [RUNS/a name made for it].")] = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train with one loss. The same command again goes on where it was cut off, or prints what it found."""
    from symloss.training.comparison import folder_name

    settings = _settings(loss, options)
    folder = out or options["runs"] / folder_name(settings)
    result = _train(settings, folder, options)
    if as_json:
        print_json(result | {"folder": str(folder)})
        return
    _print_table([[result]], settings)
    typer.echo(f"written to {folder}")


@shared(WHAT, HOW, WHERE, noise="sym:0.6")
def compare(
    losses: Losses = "ce,gce,sgce,alpha-mae",
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each loss.")] = 3,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train with several losses on the same noisy labels, and print what came out, side by side."""
    from symloss.training import comparison

    plans = [comparison.with_seeds(_settings(spec, options), seeds) for spec in _split_losses(losses)]
    total, done = seeds * len(plans), 0
    results: list[list[dict[str, Any]]] = []
    for plan in plans:
        results.append([])
        for settings in plan:
            done += 1
            folder = options["runs"] / comparison.folder_name(settings)
            results[-1].append(_train(settings, folder, options, f"{done}/{total} "))
    if as_json:
        print_json({"rows": comparison.rows(results), "runs": results})
    else:
        _print_table(results, plans[0][0])
        typer.echo(f"runs are in {options['runs']}")


@shared({name: WHAT[name] for name in ("image", "data_dir", "skip_bad")})
def predict(
    run: Annotated[Path, typer.Argument(help="Folder of a run.", show_default=False)],
    data: Annotated[str, typer.Argument(help="Data as in train; labels are not needed.", show_default=False)],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="A CSV file [standard output].")] = None,
    best: Annotated[bool, typer.Option("--best", help="The epoch that was best on validation, not the last.")] = False,
    *,
    options: dict[str, Any],
) -> None:
    """Write the predicted class of every example, and its probability, as CSV."""
    import csv
    import io

    from symloss.training.prediction import predictions
    from symloss.writing import write_whole

    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(["example", "prediction", "probability"])
    root, skip_bad = options["data_dir"], options["skip_bad"]
    found = predictions(run, data, best=best, image=options["image"], root=root, skip=skip_bad)
    for name, prediction, probability in found:
        writer.writerow([name, prediction, f"{probability:.6f}"])
    if out is None:
        typer.echo(table.getvalue(), nl=False)
    else:
        write_whole(out, table.getvalue().encode())


TUNED = {name: option for name, option in (WHAT | HOW | WHERE).items() if name not in ("lr", "weight_decay", "log")}


@shared(TUNED, noise="sym:0.8", runs=Path("runs/tune"))
def tune(
    losses: Losses = "alpha-mae",
    lrs: Annotated[str, typer.Option(help="Learning rates to try.")] = "0.01,0.05,0.1",
    weight_decays: Annotated[str, typer.Option(help="Weight decays to try.")] = "0.0001,0.0005,0.001,0.005,0.01",
    vary: Annotated[
        list[str] | None, typer.Option(help="Values of a loss's parameter to try, as sgce:q=0.2,0.5,0.8; repeatable.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each combination.")] = 1,
    finalists: Annotated[int, typer.Option(min=0, help="How many of the best to run more often.")] = 4,
    final_seeds: Annotated[int, typer.Option(min=0, help="Runs of each of those.")] = 0,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Search a grid for the settings of each loss, by accuracy on held-out examples with noisy labels.

    Choosing by noisy labels is sound under symmetric noise, and needs nothing that a practitioner has not got. The
    test set is never looked at.
    """
    from symloss.training import grid

    found = []
    for spec in _split_losses(losses):
        points = grid.points(spec, _numbers("lrs", lrs), _numbers("weight-decays", weight_decays), vary or [])
        plans = [_settings(p.loss, options | {"lr": p.lr, "weight_decay": p.weight_decay}) for p in points]
        folder = options["runs"]
        effort = grid.Effort(seeds, finalists, final_seeds)
        found.append(grid.search(spec, plans, effort, folder, lambda s, where, which: _train(s, where, options, which)))
    if as_json:
        print_json(found)
    else:
        for line in grid.as_toml(options["data"], found):
            typer.echo(line)


def _numbers(argument: str, text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--{argument} must be numbers, separated by commas; got {text!r}") from None


def _split_losses(text: str) -> list[str]:
    """Losses between commas; a comma before key=value belongs to the loss.

    >>> _split_losses("ce,nce+agce:alpha=1,beta=4,gce")
    ['ce', 'nce+agce:alpha=1,beta=4', 'gce']
    """
    found: list[str] = []
    for part in text.split(","):
        if "=" in part and ":" not in part and found:
            found[-1] += "," + part
        else:
            found.append(part.strip())
    return found


def _settings(loss: str, options: dict[str, Any]) -> Settings:
    """Of one loss, from the options of a command and the protocol of the data set."""
    from symloss.training import resolve
    from symloss.training.task import kind, opened

    given = {name: options[name] for name in SETTINGS if name not in ("data", "data_dir", "skip_bad", "clip")}
    where = {name: options[name] for name in ("label", "image", "test")}
    data = opened(options["data"], root=options["data_dir"], skip_bad=options["skip_bad"], **where)
    settings = resolve(options["data"], loss, kind(data), **given)
    clip = options["clip"]
    return settings if clip is None else dataclasses.replace(settings, clip=clip or None)


def _train(settings: Settings, folder: Path, options: dict[str, Any], which: str = "") -> dict[str, Any]:
    from symloss.training import train as run
    from symloss.training.logs import TensorBoard

    log = options.get("log")
    if log not in (None, "tensorboard"):
        raise ValueError(f"--log must be tensorboard; got {log!r}")
    board = TensorBoard(folder) if log else None
    where = {name: options[name] for name in ("accelerator", "devices", "nodes", "workers", "skip_bad")}
    with _shown(settings, which, where["devices"] * where["nodes"] > 1) as show:
        on_epoch = show if board is None else _Both(show, board)
        return run(settings, folder, root=options["data_dir"], on_epoch=on_epoch, **where)


class _Both:
    """Two listeners as one, that can be sent to other processes."""

    def __init__(self, *listeners: Callable[[dict[str, Any]], None]):
        self.listeners = listeners

    def __call__(self, row: dict[str, Any]) -> None:
        for listener in self.listeners:
            listener(row)


class _Line:
    """A line for each epoch, for processes that cannot share a progress bar."""

    def __init__(self, title: str, epochs: int):
        self.title, self.epochs = title, epochs

    def __call__(self, row: dict[str, Any]) -> None:
        print(f"{self.title}: epoch {row['epoch']}/{self.epochs} {_status(row)}", file=sys.stderr, flush=True)


def _status(row: dict[str, Any]) -> str:
    names = {"loss": "loss", "validation_accuracy": "validation", "test_accuracy": "test", "memorised": "memorised"}
    return ", ".join(f"{short} {row[name]:.3f}" for name, short in names.items() if row[name] is not None)


@contextlib.contextmanager
def _shown(settings: Settings, which: str, several: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    title = f"{which}{settings.loss.partition(':')[0]}, seed {settings.seed}"
    if several:
        yield _Line(title, settings.epochs)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    status = TextColumn("{task.fields[status]}")
    terminal = Console(stderr=True)
    # Into a file it would write an empty line.
    with Progress(*columns, status, console=terminal, transient=True, disable=not terminal.is_terminal) as progress:
        task = progress.add_task(title, total=settings.epochs, status="")

        def show(row: dict[str, Any]) -> None:
            progress.update(task, completed=row["epoch"], status=_status(row))

        yield show


def _print_table(results: list[list[dict[str, Any]]], settings: Settings) -> None:
    from rich.markup import escape
    from rich.table import Table

    from symloss.training.comparison import rows

    first = results[0][0]
    rate = "unknown" if first["noise_rate"] is None else f"{100 * first['noise_rate']:.1f} %"
    where = "clean test set" if first["test"] else f"{first['validation_labels']} validation labels"
    best = f"best epoch by {first['validation_labels']} validation labels" if first["validation"] else "no validation"
    table = Table(
        title=escape(
            f"{settings.data}, noise {settings.noise} ({rate} of the training labels are wrong): "
            f"accuracy in % on the {where}"
        ),
        caption=escape(f"{settings.model}, {settings.epochs} epochs, {first['train']} training examples; {best}"),
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("loss", "weight decay", "lr", "last epoch", "best epoch", "noise memorised", "runs", "s a run"):
        table.add_column(heading, justify="left" if heading == "loss" else "right")
    for row in rows(results):
        table.add_row(
            escape(row["loss"]), f"{row['weight_decay']:g}", f"{row['lr']:g}", _percent(row["last"]),
            _percent(row["best"]), _percent(row["memorised"]), str(row["runs"]), f"{row['seconds']:.1f}",
        )  # fmt: skip
    console().print(table)


def _percent(value: dict[str, float | None] | None) -> str:
    """mean(standard deviation)."""
    if value is None or value["mean"] is None:
        return "-"
    std = "" if value["std"] is None else f"({100 * value['std']:.2f})"
    return f"{100 * value['mean']:.2f}{std}"
