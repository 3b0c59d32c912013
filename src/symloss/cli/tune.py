"""``symloss tune`` searches for the best loss and its settings, by the accuracy on held-out examples."""

from __future__ import annotations

import itertools
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.options import OPTIONS, RUN, TRAINING, WHERE, AsJson, Chosen, flag, option, with_options
from symloss.cli.output import print_json, print_rows, say
from symloss.cli.training import (
    SHOWN as TRAINS,
    Announcement,
    default_noise,
    open_from,
    percent,
    settings_for,
    train_shown,
)
from symloss.data.source import KNOWN
from symloss.experiments.report import number
from symloss.training.results import Spread, spread
from symloss.training.run_folder import RunFolder, run_path
from symloss.training.settings import Settings, displayed_noise, with_seeds

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    from symloss.data.dataset import DataSet
    from symloss.experiments.spaces import Question
    from symloss.experiments.tune import Method, Search

NOISE = "sym:0.8"
FIXED_BY_PAPER = (
    "noise", "counts", "validation", "clean_validation", "sampler", "trials", "subset", "model", "epochs",
    "batch", "optimizer", "momentum", "penalty", "schedule", "scores", "clip", "augment",
)  # fmt: skip
WIDEN = 2  # how often a default grid of a loss's parameter is widened by a value, if the best one sits on its edge
SHOWN = 20  # the most rows that the table shows; --json has all
NUMBERS = ("lr", "weight decay", "validation", "seeds")
GRIDS = ("lr", "weight_decay")  # settings that --vary takes besides the parameters of losses


@with_options(
    "losses", "seeds", "sampler", "trials", *TRAINS,
    settings=(*(name for name in RUN if name not in GRIDS), *WHERE, "finalists", "final_seeds", "storage", "study"),
    noise=OPTIONS["noise"]._replace(default=None, shown="sym:0.8, as in the paper; clean for your own data"),
    runs=OPTIONS["runs"]._replace(default=Path("runs/tune")),
)  # fmt: skip
def tune(
    paper: Annotated[
        bool,
        flag(
            "Repeat the paper's search on cifar10 or cifar100, with its grids and settings, and with the flip counts "
            "and true validation labels of the code that it was run in.",
            "--paper",
            panel=TRAINING,
        ),
    ] = False,
    table: Annotated[
        str | None,
        option(
            "With --paper: the table to search for, table1 or table4 (CIFAR-100 with one step of the learning rate).",
            panel=TRAINING,
            shown="table1",
        ),
    ] = None,
    vary: Annotated[
        list[str] | None,
        option(
            "Values to try: lr=0.1,0.01, weight_decay=0,1e-4 or sgce:q=0.2,0.5; repeatable.",
            panel=TRAINING,
            shown="by data and loss",
        ),
    ] = None,
    dry_run: Annotated[bool, flag("Print what would be run and the estimated time.", "--dry-run")] = False,
    as_json: AsJson = False,
    *,
    options: Chosen,
) -> None:
    """Search for the best settings of each loss with Optuna, by accuracy on held-out noisy labels.

    Selection by noisy labels is sound under symmetric noise and needs no clean labels. The paper held out 10 % of
    the training data and does not say by which labels it selected. --paper takes true labels, as did the public code
    that the paper was run in (Ye 2023). The test set is not used. Rerun the same command to resume; run it several
    times at once to share the work.
    """
    from symloss.experiments.spaces import PAPERS_TABLES, Question, papers_settings, papers_space, space_of, variations
    from symloss.experiments.tune import Method, tune
    from symloss.losses.spec import split

    if options["nodes"] > 1:
        raise ValueError(
            "`nodes` must be 1 for a search: run the same command on each machine to share the trials; "
            f"got {options['nodes']}"
        )
    chosen = {name: options[name] for name in ("sampler", "trials", "finalists", "final_seeds")}
    method = Method(**chosen, widen=0 if paper else WIDEN)
    names = list(dict.fromkeys(split(options["losses"])))
    if paper:
        table = table or PAPERS_TABLES[0]
        spaces = {loss: papers_space(options["data"], loss, table) for loss in names}
        fixed = papers_settings(options["data"], table)
        if vary:
            raise ValueError(f"`--vary` must be left out with `--paper`, which fixes the grids; got {vary[0]}")
        for name in FIXED_BY_PAPER:
            if name in options.given and options[name] != fixed.get(name):
                raise ValueError(f"`{name}` is fixed by `--paper` and must be left out; got {options[name]}")
        options |= fixed
    elif table is not None:
        raise ValueError(f"`--table` requires `--paper`, whose search it chooses; got {table}")
    else:
        options["noise"] = options["noise"] or default_noise(options["data"], of_known=NOISE)
        spaces = {
            loss: space_of(options["data"], loss, varied) for loss, varied in variations(vary or [], names).items()
        }
    opened = None if dry_run and options["data"] in KNOWN else open_from(options)
    base = options | {"lr": None, "weight_decay": None}
    questions = [Question(loss, settings_for(loss, base, opened), spaces[loss], options["seeds"]) for loss in spaces]
    planned = {question.loss: _planned(question, method, options["runs"]) for question in questions}
    if dry_run:
        _say_cost(planned, method, options, opened)
        return
    assert opened is not None
    announcement = Announcement([*itertools.chain.from_iterable(planned.values())], opened)
    answers = tune(
        questions,
        method,
        runs=options["runs"],
        train=lambda settings, folder, which: train_shown(
            settings, folder, options, opened, announcement, which, hide=("test_accuracy",), quiet=True
        ),
        storage=options["storage"],
        study=options["study"],
        on_trial=_say,
        on_wait=lambda: say("waiting for the trials of other processes", err=True),
    )
    _report(answers, questions[0].base, options, as_json)


def _planned(question: Question, method: Method, runs: Path) -> list[tuple[Settings, Path]]:
    """Return the runs of a search. A sampler other than the grid draws its points later, so others stand for them."""
    from symloss.experiments.studies import TRIALS

    if method.every_combination:
        points = map(question.settings, question.points())
        planned = [each for point in points for each in with_seeds(point, question.seeds)]
    else:
        planned = with_seeds(question.base, question.seeds * (method.trials or TRIALS))
    return [(each, run_path(runs, each)) for each in planned]


def _say_cost(
    planned: dict[str, list[tuple[Settings, Path]]], method: Method, options: dict[str, Any], opened: DataSet | None
) -> None:
    """Say how many runs the search of each loss has, and how long those that are left take on this machine."""
    runs = list(itertools.chain.from_iterable(planned.values()))
    done = sum(RunFolder(folder).result() is not None for _, folder in runs)
    each = ", ".join(f"{loss} {len(of_loss)}" for loss, of_loss in planned.items())
    say(f"{options['data']}: {number(len(runs), 'run')} ({each}), {done} done, {len(runs) - done} to do", err=True)
    again = method.finalists * max(0, method.final_seeds - options["seeds"]) * len(planned)
    if again:
        say(f"not in the estimate: up to {number(again, 'run')} of finalists", err=True)
    if method.widen and method.every_combination:
        say("not in the estimate: more runs where a best value sits on the edge of its grid", err=True)
    try:
        Announcement(runs, opened or open_from(options))()
    except FileNotFoundError as error:
        say(f"no time estimate: {error}", err=True)


def _say(search: Search, trial: FrozenTrial) -> None:
    """Print one line about a trial that has ended."""
    loss = search.question.loss + {"first": "", "beyond": ", beyond the grid", "finals": ", finalists"}[search.kind]
    reason, best = trial.user_attrs.get("diverged"), search.best()
    validation = percent(spread(trial.user_attrs.get("accuracies", ())))
    outcome = f"validation {validation} %" if reason is None else f"diverged ({reason})"
    outcome += "" if best is None else f"; best so far {100 * best:.2f} %"
    where = _where(search.settings(trial).to_dict())
    say(f"{loss}, trial {trial.number + 1} of {search.claims.wanted}: {where}: {outcome}", err=True)


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
    judged = "the last epoch" if base.data_is_published else "the best epoch, smoothed over up to five"
    noise = displayed_noise(base.data, base.noise)
    more = f"; {len(rows) - SHOWN} more are in --json" if len(rows) > SHOWN else ""
    shown = []
    for row in rows[:SHOWN]:
        settings = row["settings"]
        loss, _, parameters = settings["loss"].partition(":")
        figures = percent(Spread(**row["validation"])), row["seeds"]
        if settings["scores"] != "loss":
            parameters = ", ".join(filter(None, (parameters, f"scores {settings['scores']}")))
        values = (loss, parameters or None, f"{settings['lr']:.4g}", f"{settings['weight_decay']:.4g}", *figures)
        shown.append(dict(zip(("loss", "parameters", *NUMBERS), values, strict=True)))
    print_rows(
        shown,
        f"{base.data}, noise {noise}: accuracy in % on held-out examples, by {labels}; "
        f"mean(standard deviation) of {judged}",
        f"{base.model}, {base.epochs} epochs, {rows[0]['held_out']} examples held out of each run; the test set was "
        f"not used{more}",
        dict.fromkeys(NUMBERS, "right"),
    )


def _where(settings: dict[str, Any]) -> str:
    scores = "" if settings["scores"] == "loss" else f", scores {settings['scores']}"
    return f"{settings['loss']}{scores}, lr {settings['lr']:.4g}, weight decay {settings['weight_decay']:.4g}"


def _command_line(settings: dict[str, Any], options: dict[str, Any]) -> str:
    """Return the command ``symloss train`` with the best settings, and every option that is not the default."""
    chosen = {name: settings[name] for name in ("loss", *GRIDS)}
    options = options | {"scores": options["scores"] or (None if settings["scores"] == "loss" else settings["scores"])}
    words = ["symloss", "train", "--data", options["data"]]
    for name in (name for name in RUN if name not in ("data", *chosen)):
        value = options[name]
        if value != OPTIONS[name].default:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            typed = name in TRAINS and OPTIONS[name].kind is not bool
            words += [f"--{name.replace('_', '-')}", text] if typed else ["--settings", f"{name}={text}"]
    for name, value in chosen.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)
