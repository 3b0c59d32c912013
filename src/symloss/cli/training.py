"""``symloss train``, ``symloss compare`` and ``symloss predict``."""

from __future__ import annotations

import contextlib
import csv
import io
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.data import encoding, say_columns
from symloss.cli.options import OPTIONS, RUN, SOURCE, WHERE, AsJson, Encoder, Model, Trained, flag, option, with_options
from symloss.cli.output import LiveProgress, print_data, print_json, print_rows, say, show_progress
from symloss.data.source import KNOWN, DataSource, warn
from symloss.data.tables import check_source
from symloss.experiments.layers import resolve
from symloss.experiments.report import duration
from symloss.experiments.sections import measured_on
from symloss.fit.folder import holds_fit
from symloss.training.progress import ProgressLines
from symloss.training.results import EpochRow, Result, Spread, summarize
from symloss.training.run_folder import COLUMNS, RunFolder, run_path
from symloss.training.settings import Settings, displayed_noise, with_seeds
from symloss.writing import without_formula, write_whole

if TYPE_CHECKING:
    from symloss.data.dataset import DataSet
    from symloss.training.prediction import Predictions
    from symloss.training.run import OnEpoch

METRICS = {"loss": "loss", "validation_accuracy": "validation", "test_accuracy": "test", "memorised": "memorised"}
PATIENCE = 2.0  # seconds after which a command that still opens its data says so
SHOWN = (*SOURCE, "noise", "model", "epochs", "batch", "seed", "accelerator", "devices", "runs")
"""The options of every command that trains. ``--settings`` takes the others."""


@with_options("loss", *SHOWN, "lr", "weight_decay", settings=(*RUN, *WHERE, "log"))
def train(
    out: Annotated[Path | None, option("Run folder.", "--out", "-o", shown="a new folder in RUNS")] = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Train a network with one loss. Rerun the same command to resume, or to print a finished result.

    A default "by data and loss" comes from the protocol of the data set: published or tuned settings, each with its
    source. `symloss recipe LOSS --data DATA` prints all of them.
    """
    data = open_from(options | {"encoder": _encoder_used(out)})
    settings = settings_for(options["loss"], options, data)
    folder = out or run_path(options["runs"], settings)
    result = train_shown(settings, folder, options, data, Announcement([(settings, folder)], data), quiet=as_json)
    if not _speaks(options):
        return
    if as_json:
        print_json(result.to_json() | {"folder": str(folder)})
        return
    _print_table([[result]], settings)
    say(f"written to {folder}")


@with_options(
    *("losses", "seeds", *SHOWN, "lr", "weight_decay"),
    settings=(*RUN, *WHERE, "log"),
    seeds=OPTIONS["seeds"]._replace(default=3),
    noise=OPTIONS["noise"]._replace(default=None, shown="sym:0.6; clean for your own data"),
)
def compare(as_json: AsJson = False, *, options: dict[str, Any]) -> None:
    """Train with several losses on the same noisy labels, and compare their results."""
    options["noise"] = options["noise"] or default_noise(options["data"], of_known="sym:0.6")
    data, seeds = open_from(options), options["seeds"]

    from symloss.losses.spec import split

    plans = [with_seeds(settings_for(spec, options, data), seeds) for spec in split(options["losses"])]
    announcement = Announcement([(each, run_path(options["runs"], each)) for plan in plans for each in plan], data)
    results: list[list[Result]] = [[] for _ in plans]
    for number, (settings, folder) in enumerate(announcement.runs):
        which = f"{number + 1}/{len(announcement.runs)} "
        result = train_shown(settings, folder, options, data, announcement, which, quiet=as_json)
        results[number // seeds].append(result)
    if not _speaks(options):
        return
    if as_json:
        rows = [summarize(runs).to_json() for runs in results]
        print_json({"rows": rows, "runs": [[result.to_json() for result in runs] for runs in results]})
    else:
        _print_table(results, plans[0][0])
        say(f"runs are in {options['runs']}")


@with_options(
    *("data", "image", "skip_bad", "jobs"),
    data=OPTIONS["data"]._replace(default=..., help="Data to classify; no labels needed."),
)
def predict(
    run: Trained,
    out: Annotated[Path | None, option("CSV file.", "--out", "-o", shown="standard output")] = None,
    best: Annotated[
        bool | None,
        option(
            "Use the epoch with the best validation accuracy, or the last one.",
            "--best/--last",
            shown="best, if examples were held out",
            metavar="",
        ),
    ] = None,
    probabilities: Annotated[bool, flag("Add a column with the probability of each class.", "--probabilities")] = False,
    model: Model = None,
    encoder: Encoder = None,
    *,
    options: dict[str, Any],
) -> None:
    """Predict the class of every example, with its calibrated probability, as CSV.

    At its end, a run fits a temperature on its held-out labels to calibrate its probabilities.
    """
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    found = _predictions(run, best, model, options | {"encoder": encoder})
    each_class = [f"p({name})" for name in found.class_names] if probabilities else []
    writer.writerow(["example", "prediction", "probability", *each_class])
    for name, values in found.rows:
        largest = max(values)
        figures = [largest, *values] if probabilities else [largest]
        named = name, found.class_names[values.index(largest)]
        writer.writerow([*map(without_formula, named), *(f"{figure:.6f}" for figure in figures)])
    if not found.calibrated:
        say(f"{run} has no fitted temperature: probabilities are not calibrated", err=True)
    # A file name that is no valid Unicode must not stop the other rows.
    written = table.getvalue().encode(errors="backslashreplace")
    if out is None:
        print_data(written.decode())
    else:
        write_whole(out, written)


def _predictions(run: Path, best: bool | None, model: str | None, options: dict[str, Any]) -> Predictions:
    where: dict[str, Any] = {"image": options["image"], "skip": options["skip_bad"], "encoder": options["encoder"]}
    data, fit = options["data"], holds_fit(run)
    check_source(DataSource(data), labelled=False)
    if not fit:
        from symloss.training.prediction import predict as predict_with

        return predict_with(run, data, best=best, model=model, **where)
    from symloss.fit.storage import predict_with_fit

    if best is not None or model is not None:
        raise ValueError(f"`--best`, `--last` and `--model` do not apply to {run}, the folder of a `fit`.")
    return predict_with_fit(run, data, **where, n_jobs=options["jobs"], progress=encoding("images"))


def _encoder_used(run: Path | None) -> str:
    """Return the encoder of free text that the run in a folder was begun with, or "auto"."""
    if run is None or not (run / COLUMNS).exists():
        return "auto"
    from symloss.training.prediction import encoder_used

    return encoder_used(RunFolder(run))


def open_from(options: dict[str, Any]) -> DataSet:
    """Open the data that the options of a command name. Errors in the data are raised before anything is written."""
    check_source(DataSource.of(options))
    with opening(options["data"]):
        from symloss.data.opening import open_data  # with torch, which takes seconds

        device = "auto" if options["accelerator"] == "gpu" else options["accelerator"]  # Lightning's word for any GPU
        where: dict[str, Any] = {"root": options["data_dir"], "on_bad": warn, "device": device}
        data = open_data(DataSource.of(options), **where, progress=encoding() if _speaks(options) else None)
    if data.encoder is not None and _speaks(options):
        say_columns(data.encoder.columns_)
    return data


def settings_for(loss: str, options: dict[str, Any], data: DataSet | None) -> Settings:
    """Return the settings of one loss, from the options of a command and the recipes for the data set."""
    passed = {name: options[name] for name in RUN if name not in ("data", "data_dir")}
    return resolve(options["data"], loss, root=options["data_dir"], opened=data, **passed)


def _speaks(options: dict[str, Any]) -> bool:
    """Whether this process prints the result: only one of the processes of a command does."""
    from symloss.training.run import is_first

    return options["devices"] * options["nodes"] == 1 or is_first()


def default_noise(data: str, of_known: str) -> str:
    """Return the noise that is added by default: ``of_known`` for a known data set, none for the user's data."""
    return of_known if data in KNOWN else "clean"


def train_shown(
    settings: Settings,
    folder: Path,
    options: dict[str, Any],
    data: DataSet,
    on_start: Announcement,
    which: str = "",
    hide: tuple[str, ...] = (),
    quiet: bool = False,
) -> Result:
    """Train and show the progress, without the metrics in ``hide``; no lines if ``quiet`` and not on a terminal."""
    from symloss.losses.spec import parse
    from symloss.training import train as run
    from symloss.training.run import TensorBoard

    log = options.get("log")
    if log not in (None, "tensorboard"):
        raise ValueError(f"`log` must be tensorboard; got {log!r}")
    board = TensorBoard(folder) if log else None
    where = {name: options[name] for name in (*WHERE, "skip_bad")}
    several = where["devices"] * where["nodes"] > 1
    title = f"{which}{parse(settings.loss)[0]}, seed {settings.seed}, epoch"
    # Processes cannot share a live line, and get no copy of the data.
    with contextlib.nullcontext(ProgressLines()) if several else show_progress(quiet=quiet) as progress:
        inside = progress.inside if isinstance(progress, LiveProgress) else None
        if inside is not None:
            progress.step(title, 0, settings.epochs)
        on_epoch = _Listener(progress, title, settings.epochs, board, hide)
        listeners: dict[str, Any] = {"on_step": inside, "on_start": None if several else on_start}
        try:
            return run(settings, folder, root=options["data_dir"], data=data, on_epoch=on_epoch, **listeners, **where)
        except KeyboardInterrupt:
            typer.echo("stopped; rerun the same command to resume after the last finished epoch", err=True)
            raise


@dataclass
class _Listener:
    """Shows the metrics of each epoch but hidden ones, also on a board. It can be sent to other processes."""

    progress: ProgressLines
    title: str
    epochs: int
    board: OnEpoch | None
    hidden: tuple[str, ...]

    def __call__(self, row: EpochRow) -> None:
        metrics = row.to_json() | dict.fromkeys(self.hidden)
        shown = {name: value for name in METRICS if (value := metrics[name]) is not None}
        status = ", ".join(f"{METRICS[name]} {value:.3f}" for name, value in shown.items())
        self.progress.step(self.title, row.epoch, self.epochs, status)
        if self.board is not None:
            self.board(EpochRow.from_json(metrics))


def _print_table(results: list[list[Result]], settings: Settings) -> None:
    """Print a table of results that fits into 80 columns."""
    first = results[0][0]
    noise = displayed_noise(settings.data, settings.noise)
    rate = first.noise_rate
    wrong = "label noise unknown" if rate is None else f"{100 * rate:.1f} % of the labels are wrong"
    runs = f"mean(standard deviation) of {len(results[0])} runs" if len(results[0]) > 1 else "one run"
    smoothed = "" if first.smoothed is None else ", smoothed over up to five epochs; predict uses it"
    choice = f"best epoch by {first.validation_labels} validation labels{smoothed}"
    epochs = ("best", "last") if first.best_first else ("last", "best")
    numbers = ("weight\ndecay", "lr", *(f"{epoch}\nepoch" for epoch in epochs), "noise\nmemorised", "s a\nrun")
    rows = []
    for row in map(summarize, results):
        figures = (percent(figure) for figure in (*(getattr(row, epoch) for epoch in epochs), row.memorised))
        values = (row.loss, f"{row.weight_decay:g}", f"{row.lr:g}", *figures, f"{row.seconds:.1f}")
        rows.append(dict(zip(("loss", *numbers), values, strict=True)))
    print_rows(
        rows,
        f"{settings.data}, noise {noise} ({wrong}): accuracy in % on {measured_on(first)}",
        f"{settings.model}, {settings.epochs} epochs, {first.train} training examples; {runs}; "
        f"{choice if first.validation else 'no validation'}",
        dict.fromkeys(numbers, "right"),
    )


def percent(share: Spread | None) -> str:
    """Return the spread of shares of 1 as a text: mean(standard deviation), in per cent."""
    return "-" if share is None else Spread(100 * share.mean, share.std and 100 * share.std).text


@contextlib.contextmanager
def opening(data: str) -> Iterator[None]:
    """Say that data is being opened if that takes longer than a moment."""
    word = threading.Timer(PATIENCE, say, [f"opening {data}"], {"err": True})
    word.daemon = True
    word.start()
    try:
        yield
    finally:
        word.cancel()


class Announcement:
    """Prints one line before the first run starts: what will be trained, and the estimated time.

    Nothing is printed for a run that is refused. Finished runs do not count.
    """

    def __init__(self, runs: Sequence[tuple[Settings, Path]], data: DataSet):
        self.runs, self.data, self.told = runs, data, False

    def __call__(self) -> None:
        if self.told:
            return
        self.told = True
        todo = {settings: RunFolder(folder) for settings, folder in self.runs if RunFolder(folder).result() is None}
        if not todo:
            return
        from symloss.training.models import is_built_in

        settings, data = next(iter(todo)), self.data
        shape = " x ".join(map(str, data.input_shape))
        examples = settings.subset or len(data.train)
        number = f"{len(todo)} runs" if len(self.runs) > 1 else settings.loss
        what = f"{settings.data}, {number}: {settings.model}, {settings.epochs} epochs of {examples} examples ({shape})"
        if is_built_in(settings.model):
            from symloss.experiments.cost import quick_estimates

            left = [1 - len(folder.metrics()) / settings.epochs for settings, folder in todo.items()]
            seconds = sum(each * share for each, share in zip(quick_estimates(todo, data), left, strict=True))
            say(f"{what}: about {duration(seconds)} here (a few steps were timed)", err=True)
        else:
            say(f"{what}: no time estimate for a model of your own", err=True)
