"""``symloss tune`` searches for the best loss and its settings, by the accuracy on held-out examples."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.announce import Announcement
from symloss.cli.options import HOW, OFF, SETTINGS, WHAT, WHERE, shared
from symloss.cli.output import AsJson, console, print_json, say
from symloss.cli.training import Losses, default_noise, open_from, percent, settings_for, train_shown

if TYPE_CHECKING:
    from symloss.data.dataset import DataSet
    from symloss.experiments.spaces import Question, Space
    from symloss.experiments.tune import Method, Progress
    from symloss.training import Settings

TUNED = {name: option for name, option in (WHAT | HOW | WHERE).items() if name not in ("lr", "weight_decay", "log")}
NOISE = "sym:0.8"
FIXED_BY_PAPER = (
    "noise", "counts", "validation", "clean_validation", "lrs", "weight_decays", "vary", "sampler", "trials", "subset",
    "model", "epochs", "batch", "optimizer", "momentum", "penalty", "schedule", "scores", "clip", "augment",
)  # fmt: skip
WIDEN = 2
"""How often a default grid of a loss's parameter is widened by a value, if the best one sits on its edge."""
SHOWN = 20
"""The most rows that the table shows; --json has all."""


@shared(TUNED, runs=Path("runs/tune"))
def tune(
    ctx: typer.Context,
    losses: Losses = "ce,gce,sgce,alpha-mae",
    noise: Annotated[
        str | None,
        typer.Option(
            "--noise", "-n", help="As in train (default: sym:0.8, the paper's; your own data is left as it is)."
        ),
    ] = None,
    paper: Annotated[
        bool,
        typer.Option(
            "--paper",
            help="The paper's search, on cifar10 or cifar100: its grids and protocol, symmetric noise 0.8 with counts "
            "rounded down, a tenth held out with true labels.",
            show_default=OFF,
        ),
    ] = False,
    lrs: Annotated[
        str | None, typer.Option(help="Learning rates to try (default: that of the protocol alone).")
    ] = None,
    weight_decays: Annotated[
        str | None, typer.Option(help="Weight decays to try (default: the paper's for CIFAR, ours for others).")
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            help="Values of a loss's parameter to try, as sgce:q=0.2,0.5,0.8; repeatable.", show_default="by loss"
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each trial.")] = 1,
    sampler: Annotated[
        str, typer.Option(help="grid: every combination; or one of Optuna's: random, tpe, cmaes, qmc, gp, nsgaii ...")
    ] = "grid",
    trials: Annotated[
        int | None, typer.Option(min=1, help="Trials of each loss, for samplers other than grid (default: 20).")
    ] = None,
    finalists: Annotated[int, typer.Option(min=0, help="How many of the best of each loss to run more often.")] = 4,
    final_seeds: Annotated[int, typer.Option(min=0, help="Runs of each of those.")] = 0,
    storage: Annotated[
        str | None, typer.Option(help="Where Optuna keeps studies, as a URL (default: a SQLite file, RUNS/tune.db).")
    ] = None,
    study: Annotated[
        str | None, typer.Option(help="How the names of the studies begin (default: made of what is searched).")
    ] = None,
    as_json: AsJson = False,
    *,
    options: dict[str, Any],
) -> None:
    """Search for the settings of each loss with Optuna, by the accuracy on held-out examples with noisy labels.

    A choice by noisy labels is sound under symmetric noise, and needs no clean labels. The paper chose by true labels,
    as --paper does. The test set plays no part. If the command was interrupted, the same command continues. If it is
    started several times at once, its processes share the work.
    """
    from symloss.experiments.spaces import search_grids
    from symloss.experiments.tune import Method, tune
    from symloss.losses.spec import split

    if options["nodes"] > 1:
        raise ValueError(
            "--nodes must be 1 for a search, whose processes share its trials: start the same command on each "
            f"machine; got {options['nodes']}"
        )
    method = Method(sampler, trials, finalists, final_seeds, widen=0 if paper else WIDEN)
    options["noise"] = noise or default_noise(options["data"], of_known=NOISE)
    names = list(dict.fromkeys(split(losses)))
    if paper:
        fixed = dict(search_grids().paper)
        _refuse_what_paper_fixes(ctx, fixed)
        spaces = _papers_spaces(names, options["data"])
        options |= fixed
    else:
        spaces = _spaces(names, lrs, weight_decays, vary or [], options["data"])
    opened = open_from(options)
    questions = _questions(spaces, seeds, options, opened)
    announcement = Announcement(_planned(questions, method, options["runs"]), opened)
    answers = tune(
        questions,
        method,
        runs=options["runs"],
        train=lambda settings, folder, which: train_shown(
            settings, folder, options, opened, announcement, which, hide=("test_accuracy",)
        ),
        storage=storage,
        study=study,
        on_trial=_say,
        on_wait=_say_waiting,
    )
    _report(answers, questions[0].base, options, as_json)


def _planned(questions: list[Question], method: Method, runs: Path) -> list[tuple[Settings, Path]]:
    """The runs of a search. A sampler other than the grid draws its points later, so others stand for them."""
    from symloss.experiments.studies import TRIALS
    from symloss.training.run_folder import run_path
    from symloss.training.settings import with_seeds

    planned = []
    for question in questions:
        if method.every_combination:
            points = map(question.settings, question.space.points())
            planned += [each for point in points for each in with_seeds(point, question.seeds)]
        else:
            planned += with_seeds(question.base, question.seeds * (method.trials or TRIALS))
    return [(each, run_path(runs, each)) for each in planned]


def _refuse_what_paper_fixes(ctx: typer.Context, fixed: dict[str, Any]) -> None:
    for name in FIXED_BY_PAPER:
        source, value = ctx.get_parameter_source(name), ctx.params[name]
        if source is not None and source.name == "COMMANDLINE" and value != fixed.get(name):
            raise ValueError(f"--{name.replace('_', '-')} must be left out with --paper, which fixes it; got {value}")


def _papers_spaces(losses: list[str], data: str) -> dict[str, Space]:
    from symloss.experiments.spaces import papers_space

    return {loss: papers_space(data, loss) for loss in losses}


def _spaces(
    losses: list[str], lrs: str | None, weight_decays: str | None, vary: list[str], data: str
) -> dict[str, Space]:
    from symloss.experiments.spaces import space_of, variations
    from symloss.losses.spec import parse

    varied = variations(vary, losses)
    grids = {"lrs": _numbers("lrs", lrs), "weight_decays": _numbers("weight-decays", weight_decays)}
    return {loss: space_of(data, loss, varied=varied.get(parse(loss)[0]), **grids) for loss in losses}


def _questions(spaces: dict[str, Space], seeds: int, options: dict[str, Any], opened: DataSet) -> list[Question]:
    from symloss.experiments.spaces import Question

    settings = options | {"lr": None, "weight_decay": None}
    return [Question(loss, settings_for(loss, settings, opened), space, seeds) for loss, space in spaces.items()]


def _numbers(argument: str, text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise ValueError(f"--{argument} must be numbers, separated by commas; got {text!r}") from None


def _say(progress: Progress) -> None:
    """Print one line about a trial."""
    settings = progress.settings
    loss = progress.loss + {"first": "", "beyond": ", beyond the grid", "finals": ", finalists"}[progress.kind]
    best = "" if progress.best is None else f"; best so far {100 * progress.best:.2f} %"
    outcome = (
        f"validation {percent(progress.validation)} %" if progress.reason is None else f"diverged ({progress.reason})"
    )
    where = f"{settings.loss}, lr {settings.lr:.4g}, weight decay {settings.weight_decay:.4g}"
    _to_people(f"{loss}, trial {progress.number} of {progress.total}: {where}: {outcome}{best}")


def _say_waiting() -> None:
    _to_people("waiting for the trials of other processes")


def _to_people(line: str) -> None:
    say(line, err=True)


def _report(answers: list[dict[str, Any]], base: Settings, options: dict[str, Any], as_json: bool) -> None:
    from symloss.experiments.spaces import held_out_labels
    from symloss.experiments.studies import as_toml, leaders, ranked, remark

    rows = ranked([row for each in answers for row in each["tried"]])
    diverged = [row for each in answers for row in each["diverged"]]
    if not rows:
        raise ValueError(f"each of the {len(diverged)} trials diverged, the last as {diverged[-1]['reason']}")
    labels, winner = held_out_labels(base), _command_line(rows[0]["settings"], options)
    if as_json:
        print_json(
            {"data": base.data, "noise": base.noise, "labels": labels, "found": answers, "best": rows[0],
             "leaders": leaders(rows), "remark": remark(rows), "train": winner}
        )  # fmt: skip
        return
    _print_table(rows, base, labels)
    for row in diverged:
        say(f"diverged: {_where(row['settings'])} ({row['reason']})")
    typer.echo(remark(rows))
    for sentence in (sentence for each in answers for sentence in each["edges"]):
        say(sentence)
    typer.echo("\nThe best of each loss, as lines of protocols.toml:\n")
    for line in as_toml(base.data, rows):
        typer.echo(line)
    typer.echo(f"\nTo train with the first:\n\n{winner}")


def _print_table(rows: list[dict[str, Any]], base: Settings, labels: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    from symloss.experiments.spaces import judged_epoch
    from symloss.training.results import Spread
    from symloss.training.settings import displayed_noise

    noise = displayed_noise(base.data, base.noise)
    more = f"; {len(rows) - SHOWN} more are in --json" if len(rows) > SHOWN else ""
    table = Table(
        title=escape(
            f"{base.data}, noise {noise}: accuracy in % on held-out examples, by {labels}; "
            f"mean(standard deviation) of {judged_epoch(base)}"
        ),
        caption=escape(
            f"{base.model}, {base.epochs} epochs, {rows[0]['held_out']} examples held out of each run; the test set "
            f"played no part{more}"
        ),
        title_justify="left",
        caption_justify="left",
    )
    for heading in ("loss", "parameters", "lr", "weight decay", "validation", "seeds"):
        table.add_column(heading, justify="left" if heading in ("loss", "parameters") else "right")
    for row in rows[:SHOWN]:
        settings = row["settings"]
        loss, _, parameters = settings["loss"].partition(":")
        numbers = f"{settings['lr']:.4g}", f"{settings['weight_decay']:.4g}"
        figures = (*numbers, percent(Spread(**row["validation"])), str(row["seeds"]))
        table.add_row(escape(loss), escape(parameters) or "-", *figures)
    console().print(table)


def _where(settings: dict[str, Any]) -> str:
    return f"{settings['loss']}, lr {settings['lr']:.4g}, weight decay {settings['weight_decay']:.4g}"


def _command_line(settings: dict[str, Any], options: dict[str, Any]) -> str:
    """The command ``symloss train`` with the best settings, and with every option that is not the default."""
    chosen = {"loss": settings["loss"], "lr": settings["lr"], "weight_decay": settings["weight_decay"]}
    words = ["symloss", "train", "--data", options["data"]]
    for name in SETTINGS:
        default = (WHAT | HOW)[name][1]
        if name not in ("data", *chosen) and options[name] != default:
            words += _words(name, options[name])
    for name, value in chosen.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _words(name: str, value: Any) -> list[str]:
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    return [f"--{flag}", str(value)]
