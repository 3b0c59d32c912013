"""``symloss tune``: what it searches and finds, alone and in processes that share a search, one of which is killed."""

import collections
import contextlib
import json
import math
import re
import shlex
import statistics
import sys
import time
import tomllib
from dataclasses import replace

import optuna
import pytest
from in_turn import in_turn
from refusals import refused
from run_helpers import small_cifar10
from training.training_helpers import command, ended, metrics, one_sentence, same_weights, start_command, without_time
from typer.testing import CliRunner

from symloss.cli import app
from symloss.cli.options import OPTIONS
from symloss.cli.tune import _command_line
from symloss.experiments import find_cell, resolve, tune as tuning
from symloss.experiments.spaces import Dimension, Question, papers_settings, papers_space, space_of, variations
from symloss.experiments.storage import sqlite_url
from symloss.experiments.studies import as_toml, leaders, remark, standard_error
from symloss.extras import MissingExtraError
from symloss.losses.catalogue import RECORDS
from symloss.losses.spec import parse, write
from symloss.training import Settings, train
from symloss.training.results import EpochRow, Result
from symloss.training.run_folder import RunFolder

QUICK = ("--epochs", "1", "--settings", "subset=400", "--accelerator", "cpu", "--model", "mlp:hidden=8")


def toml_of(stdout):
    lines = stdout.splitlines()
    start = lines.index('["digits".losses]')
    return tomllib.loads("\n".join(lines[start : lines.index("", start)]))["digits"]["losses"]


def tunes(folder, *arguments):
    done = command(folder, "tune", *QUICK, *arguments)
    assert done.code == 0, done.stderr
    return done


def runs(folder):
    return sorted(path.parent for path in (folder / "runs" / "tune").glob("*/settings.json"))


@pytest.mark.slow
def test_tune_prints_a_table_presets_and_a_command(tmp_path):
    grid = ("--losses", "ce,sgce", "--vary", "lr=0.1,0.01", "--vary", "weight_decay=0", "--vary", "sgce:q=0.2,0.5")
    done = tunes(tmp_path, *grid)
    losses = toml_of(done.stdout)
    assert losses["ce"]["lr"] in (0.1, 0.01)
    assert losses["sgce"]["loss"]["q"] in (0.2, 0.5)
    assert losses["sgce"]["weight_decay"] == 0
    assert len(runs(tmp_path)) == 2 + 4
    text = " ".join(done.stdout.split())
    for part in ("noise sym:0.8", "noisy labels", "test set was not used", "40 examples held out", "standard error"):
        assert part in text
    header = next(line for line in done.stdout.splitlines() if "weight decay" in line)
    assert all(name in header for name in ("loss", "parameters", "lr", "validation", "seeds"))
    for line in ("ce, trial 1 of 2", "sgce, trial 4 of 4", "best so far"):
        assert line in done.stderr
    assert "Warning" not in done.stderr
    assert tunes(tmp_path, *grid).stdout == done.stdout


@pytest.mark.slow
def test_the_command_trains_what_won(tmp_path):
    """With options of every kind, it ends in the folder of the winner's run: the settings are the same."""
    own = ["--losses", "sgce:temperature=2", "--vary", "weight_decay=0.001,0.01", "--batch", "50", "--seed", "3"]
    for setting in ("augment=none", "clean_validation=true", "clip=0", "validation=0.2"):
        own += ["--settings", setting]
    own += ["--settings", "final_seeds=2", "--settings", "finalists=1"]
    found = json.loads(tunes(tmp_path, *own, "--json", "--sampler", "random", "--trials", "2").stdout)
    (sgce,) = found["found"]
    assert [row["seeds"] for row in sgce["tried"]] == [2, 1]
    assert (found["best"], found["labels"]) == (sgce["tried"][0], "true labels")
    assert "test_accuracy" not in json.dumps(found)
    words = shlex.split(found["train"])
    assert words[:2] == ["symloss", "train"]
    before = runs(tmp_path)
    done = command(tmp_path, *words[1:], "--runs", "runs/tune", "--json")
    assert done.code == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["settings"] == found["best"]["settings"]
    assert runs(tmp_path) == before
    every = [json.loads(path.read_text()) for path in tmp_path.glob("runs/tune/*/result.json")]
    both = [each["last"] for each in every if each["settings"] | {"seed": 3} == result["settings"]]
    seeds = [last["validation_accuracy"] for last in both]
    assert len(seeds) == 2
    assert statistics.fmean(seeds) == pytest.approx(found["best"]["validation"]["mean"])
    assert result["last"]["validation_accuracy"] in seeds


def test_labels_of_one_s_own_are_left_as_they_are_unless_noise_is_asked_for(tmp_path):
    path, rows = tmp_path / "mine.csv", "".join(f"{i % 7},{i % 5},{('even', 'odd')[i % 2]}\n" for i in range(60))
    path.write_text("a,b,label\n" + rows)
    quick = ("--epochs", "1", "--accelerator", "cpu")
    search = ("tune", "--data", "mine.csv", *quick, "--vary", "weight_decay=0.01", "--losses")
    done = command(tmp_path, *search, "ce,alpha-mae:alpha=2")
    assert done.code == 0, done.stderr
    assert "your labels as they are" in " ".join(done.stdout.split())
    assert "symloss train --data mine.csv --epochs 1 --loss" in done.stdout
    settings = [RunFolder(path).settings() for path in (tmp_path / "runs" / "tune").glob("mine-*")]
    assert [each.noise for each in settings] == ["clean"] * 2
    path.write_text(path.read_text() + "1,1,odd\n")
    second = json.loads(command(tmp_path, *search, "ce", "--noise", "sym:0.2", "--json").stdout)
    assert (second["noise"], second["labels"]) == ("sym:0.2", "noisy labels")
    assert second["best"]["settings"]["fingerprint"] not in {each.fingerprint for each in settings}, "it has changed"


@pytest.mark.slow
def test_what_diverges_is_listed_and_nobody_sees_the_test_set(tmp_path):
    """Two devices, as their progress is in lines."""
    search = ("--model", "mlp:hidden=8,norm=none", "--losses", "ce", "--vary", "weight_decay=0.01", "--devices", "2")
    done = tunes(tmp_path, *search, "--vary", "lr=0.01,1e30")
    assert "diverged: ce, lr 1e+30, weight decay 0.01 (" in done.stdout
    assert toml_of(done.stdout)["ce"]["lr"] == 0.01
    assert "validation 0." in done.stderr
    assert "test" not in done.stderr
    alone = command(tmp_path, "tune", *QUICK, *search, "--vary", "lr=1e30")
    assert alone.code == 2
    assert "each of the 1 trials diverged" in alone.stderr.splitlines()[-1]


def test_bad_input_is_one_sentence_and_exit_code_2(tmp_path):
    for setting, *said in (
        ("storage=nonsense", "`storage` must be a URL", "'nonsense'"),
        ("nodes=2", "`nodes` must be 1", "got 2"),
    ):
        one_sentence(command(tmp_path, "tune", *QUICK, "--losses", "sgce", "--settings", setting), *said)
    assert not list(tmp_path.glob("runs/tune/*/checkpoint.pt"))


def test_without_optuna_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in ("tune", "studies", "storage"):
        monkeypatch.delitem(sys.modules, f"symloss.experiments.{name}")
    with refused(MissingExtraError, "Tuning needs optuna, which is not installed: pip install 'symloss[optuna]'"):
        CliRunner().invoke(app, ["tune", "--epochs", "1"], catch_exceptions=False)
    assert not list(tmp_path.iterdir())


@pytest.fixture
def asked(tmp_path, monkeypatch):
    """What ``symloss tune`` would search on a CIFAR-10 of sixty pictures: the settings of each loss."""
    small_cifar10(tmp_path)

    def stop(questions, method, **more):
        raise StopIteration({question.loss: question for question in questions})

    monkeypatch.setattr(tuning, "tune", stop)

    def ask(*arguments):
        words = ["tune", "--data", "cifar10", "--settings", f"data_dir={tmp_path}", *arguments]
        raised = CliRunner().invoke(app, words).exception
        return raised.args[0] if isinstance(raised, StopIteration) else raised

    return ask


def test_the_papers_search(asked):
    found = asked("--paper", "--losses", "sgce,gce")
    for question in found.values():
        settings = question.base
        assert (settings.noise, settings.counts) == ("sym:0.8", "floor")
        assert (settings.validation, settings.clean_validation) == (0.1, True)
        assert (settings.model, settings.epochs, settings.schedule) == ("cnn8", 120, "cosine")
    searched = {loss: [each.name for each in question.space] for loss, question in found.items()}
    assert searched == {"sgce": ["q", "weight_decay"], "gce": ["weight_decay"]}
    assert found["gce"].base.loss == "gce:q=0.7"


def test_what_the_papers_search_fixes_may_be_said_but_not_changed(asked):
    settings = asked("--losses", "gce")["gce"].base
    assert (settings.noise, settings.counts, settings.clean_validation) == ("sym:0.8", "exact", False), "another search"
    same = ("--settings", "counts=floor", "--noise", "sym:0.8", "--settings", "clean_validation=true")
    assert asked("--paper", "--losses", "gce", *same) == asked("--paper", "--losses", "gce")
    for option, value, said in (
        ("--settings", "counts=exact", "`counts` is fixed by `--paper` and must be left out; got exact"),
        ("--noise", "sym:0.4", "`noise` is fixed by"),
        ("--vary", "weight_decay=0.1", "`--vary` must be left out"),
    ):
        assert str(asked("--paper", "--losses", "gce", option, value)).startswith(said)


TABLE4 = ("--paper", "--table", "table4")


def test_the_papers_search_for_table_4():
    """One step of the learning rate; Euclidean against batch normalisation of the scores. It holds what won."""
    decays = (1e-5, 5e-5, 1e-4, 5e-4, 1e-3)
    for loss, parameter in {"unhinged": {}, "sgce": {"q": 5}, "alpha-mae": {"alpha": 5}}.items():
        space = papers_space("cifar100", loss, "table4")
        assert {name: len(of) for name, of in values(space).items()} == {**parameter, "scores": 2, "weight_decay": 5}
        assert all(dimension.is_the_papers for dimension in space)
        question = Question(loss, resolve("cifar100", loss, **papers_settings("cifar100", "table4")), space)
        cell = find_cell(f"table4/cifar100/{loss}/sym:0.8").settings
        tuned = replace(cell, validation=0.1, clean_validation=True)
        assert tuned in [question.settings(point) for point in question.points()]
        assert not any(each.name == "scores" for each in papers_space("cifar100", loss))
    assert values(papers_space("cifar100", "gce", "table4")) == {"weight_decay": decays}
    assert papers_settings("cifar100") == papers_settings("cifar10")
    for data, table, said in (
        ("cifar10", "table4", "--table table4 must go with cifar100; got 'cifar10'"),
        ("cifar100", "table3", "--table must be one of 'table1', 'table4'; got 'table3'"),
    ):
        with refused(ValueError, said):
            papers_space(data, "sgce", table)


def test_the_table_of_the_papers_search(asked):
    assert str(asked(*TABLE4, "--losses", "sgce")) == "--table table4 must go with cifar100; got 'cifar10'"
    assert str(asked("--table", "table1")) == "`--table` requires `--paper`, whose search it chooses; got table1"
    assert asked("--paper", "--losses", "gce", "--table", "table1") == asked("--paper", "--losses", "gce")


def test_what_won_by_its_normalization_is_trained_again_with_it(tmp_path):
    space = (Dimension("scores", ("loss", "batch-norm")), Dimension("weight_decay", (0.01,)))
    question = Question("sgce", resolve("digits", "sgce", noise="sym:0.8"), space)
    accuracy = {"loss": 0.2, "batch-norm": 0.4}

    def train(settings, folder, which):
        last = EpochRow(1, validation_accuracy=accuracy[settings.scores])
        return Result(settings, 360, 40, "noisy", 360, 0.0, last, last, 1.0)

    (found,) = tuning.tune([question], tuning.Method(), runs=tmp_path, train=train)
    assert [row["settings"]["scores"] for row in found["tried"]] == ["batch-norm", "loss"]
    lines = "\n".join(as_toml("digits", found["tried"]))
    assert tomllib.loads(lines)["digits"]["losses"]["sgce"]["scores"] == "batch-norm"
    best, other = (row["settings"] for row in found["tried"])
    options = {name: option.default for name, option in OPTIONS.items()}
    assert "--settings scores=batch-norm" in _command_line(best, options)
    assert "scores" not in _command_line(other, options)


def test_a_dry_run_counts_the_runs_and_trains_nothing(tmp_path):
    search = ("--losses", "ce,sgce", "--vary", "weight_decay=0.1,0.01", "--seeds", "2", "-s", "final_seeds=5")
    done = tunes(tmp_path, *search, "--dry-run")
    assert not list(tmp_path.rglob("settings.json"))
    assert "digits: 24 runs (ce 4, sgce 20), 0 done, 24 to do" in done.stderr
    assert "up to 24 runs of finalists" in done.stderr
    assert "sits on the edge of its grid" in done.stderr
    assert re.search(r"about [\d.]+ (s|min) here", done.stderr)
    tunes(tmp_path, "--losses", "ce", "--vary", "weight_decay=0.1", "--seeds", "2", "-s", "finalists=0")
    assert "24 runs (ce 4, sgce 20), 2 done, 22 to do" in tunes(tmp_path, *search, "--dry-run").stderr
    random = tunes(tmp_path, "--losses", "ce", "--sampler", "random", "--trials", "7", "--dry-run").stderr
    assert "digits: 7 runs (ce 7)" in random
    assert "finalists" not in random
    assert "edge" not in random


def test_a_dry_run_without_the_data_counts_too(tmp_path):
    done = command(tmp_path, "tune", "--data", "cifar100", *TABLE4, "--losses", "sgce,ce", "--dry-run")
    assert done.code == 0
    assert "cifar100: 55 runs (sgce 50, ce 5), 0 done, 55 to do" in done.stderr
    assert "no time estimate: cifar100 must have its files in" in done.stderr


STEPS = 6
"""Batches of an epoch: 360 training examples by 64."""
SEARCH = (
    "tune", "--losses", "sgce", "--vary", "sgce:q=0.2,0.8", "--vary", "weight_decay=0.001,0.01", "--vary", "lr=0.1",
    "--model", "fatal_model:logged", "--epochs", "2", "-s", "subset=400", "--batch", "64", "--accelerator", "cpu",
)  # fmt: skip
POINTS = 4


def search(folder, name, *more, hold_run=0):
    """The search in a process of its own; the run of this number stands still in its second epoch."""
    held = {"HOLD_RUN": str(hold_run), "HOLD_STEP": str(STEPS + 1)}
    return start_command(folder, *SEARCH, *more, name=name, **held)


def wait_for(path, text=""):
    until = time.monotonic() + 120
    while not path.exists() or text not in path.read_text():
        assert time.monotonic() < until, f"{path} did not come"
        time.sleep(0.05)


def states(folder):
    storage = sqlite_url(folder / "runs" / "tune" / "tune.db")
    (name,) = optuna.get_all_study_names(storage)
    trials = optuna.load_study(study_name=name, storage=storage).trials
    return collections.Counter(trial.state.name for trial in trials)


def built(folder):
    return collections.Counter((folder / "built").read_text().split())


def assert_whole(folder):
    """Every point is one trial and one run, and each epoch was written down once."""
    assert states(folder) == {"COMPLETE": POINTS}
    assert len(runs(folder)) == POINTS
    for run in runs(folder):
        assert [row["epoch"] for row in metrics(run)] == [1, 2]


def assert_as_in_one_go(run, folder):
    settings = {k: v for k, v in json.loads((run / "settings.json").read_text()).items() if k != "format"}
    with contextlib.chdir(folder):
        train(Settings.from_dict(settings), folder / "one-go", accelerator="cpu")
    assert same_weights(run, folder / "one-go")
    assert without_time(metrics(run)) == without_time(metrics(folder / "one-go"))


def held_run(folder):
    (run,) = (run for run in runs(folder) if not (run / "result.json").exists())
    return run


@pytest.mark.slow
def test_processes_share_a_search_and_finish_what_a_killed_one_left(tmp_path):
    """The first is held in the middle of its second run; the others do the rest, wait for it, and it is killed."""
    first = search(tmp_path, "first", hold_run=2)
    wait_for(tmp_path / "held")
    others = [search(tmp_path, name) for name in ("second", "third")]
    for name in ("second", "third"):
        wait_for(tmp_path / f".{name}stderr", "waiting for the trials of other processes")
    assert states(tmp_path) == {"COMPLETE": POINTS - 1, "RUNNING": 1}
    assert all(process.is_alive() for process in others)
    cut_off = held_run(tmp_path)
    assert len(metrics(cut_off)) == 1
    first.kill()
    assert [ended(process) for process in (first, *others)] == [-9, 0, 0]
    assert_whole(tmp_path)
    # One model for each point, and one more for the run that was gone on with.
    assert built(tmp_path).total() == POINTS + 1
    second, third = ((tmp_path / f".{name}stdout").read_text() for name in ("second", "third"))
    assert second == third != ""
    assert_as_in_one_go(cut_off, tmp_path)


@pytest.mark.slow
def test_the_same_command_after_a_kill_finishes_the_rest_and_repeats_nothing(tmp_path):
    first = search(tmp_path, "first", hold_run=3)
    wait_for(tmp_path / "held")
    first.kill()
    assert ended(first) == -9
    cut_off = held_run(tmp_path)
    written = {path: path.stat().st_mtime_ns for run in runs(tmp_path) if run != cut_off for path in run.iterdir()}
    assert ended(search(tmp_path, "again")) == 0
    assert_whole(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in written} == written != {}
    assert built(tmp_path).total() == POINTS + 1
    assert_as_in_one_go(cut_off, tmp_path)


@pytest.mark.slow
@in_turn("sampler", [(), ("--sampler", "random", "--trials", str(POINTS))])
def test_processes_that_start_at_once_do_not_stumble(tmp_path, sampler):
    """Nothing is there yet: no database, no study, no folder."""
    names = "one", "two", "three"
    processes = [search(tmp_path, name, *sampler) for name in names]
    assert [ended(process) for process in processes] == [0, 0, 0]
    assert_whole(tmp_path)
    assert built(tmp_path).total() == POINTS
    assert len({(tmp_path / f".{name}stdout").read_text() for name in names}) == 1
    assert all("Traceback" not in (tmp_path / f".{name}stderr").read_text() for name in names)


def values(space):
    return {dimension.name: dimension.values for dimension in space}


def test_the_grids_of_the_paper():
    """Section Experiments, Method."""
    assert values(space_of("cifar10", "sgce")) == {
        "q": (0.2, 0.35, 0.5, 0.65, 0.8),
        "weight_decay": (1e-4, 5e-4, 1e-3, 5e-3, 1e-2),
    }
    assert values(space_of("cifar100", "alpha-mae")) == {
        "alpha": (0.25, 0.5, 1.0, 2.0, 4.0),
        "weight_decay": (1e-5, 5e-5, 1e-4, 5e-4, 1e-3),
    }
    assert values(space_of("cifar10", "unhinged")).keys() == {"weight_decay"}
    # The paper's search has the paper's grids alone.
    assert papers_space("cifar100", "sgce") == space_of("cifar100", "sgce")
    assert values(space_of("cifar10", "gce")).keys() == {"q", "weight_decay"}
    assert values(papers_space("cifar10", "gce")).keys() == {"weight_decay"}
    with refused(ValueError, "--paper must go with cifar10 or cifar100", "got 'digits'"):
        papers_space("digits", "gce")


@in_turn("loss", RECORDS)
def test_there_is_a_space_for_every_loss_and_any_data(loss):
    for data in ("digits", "mnist", "webvision-mini-imagenet", "my data/table.csv"):
        space = space_of(data, loss)
        assert space[-1].name == "weight_decay"
        assert "lr" not in values(space)
        assert all(dimension.between() for dimension in space), data


def test_what_the_user_fixes_or_gives_wins():
    for loss in ("sgce:q=0.5", "sgce:preset=cifar10"):
        assert "q" not in values(space_of("cifar10", loss)), loss
    given = {"weight_decay": [0.0, 0.3], "q": [0.3], "lr": [0.1], "scale": ["a"]}
    space = values(space_of("cifar10", "sgce:q=0.5", given))
    assert list(space.items()) == [("q", (0.3,)), ("scale", ("a",)), ("lr", (0.1,)), ("weight_decay", (0.0, 0.3))]
    # Kappa stands for alpha.
    assert values(space_of("cifar10", "alpha-mae:kappa=2")).keys() == {"weight_decay"}
    assert values(space_of("cifar10", "alpha-mae", {"kappa": [1.0, 3.0]})).keys() == {"kappa", "weight_decay"}


def test_points_are_all_combinations_in_order():
    space = space_of("digits", "sgce", {"q": [0.2, 0.5], "lr": [0.1, 0.2], "weight_decay": [0.0]})
    found = [tuple(point.values()) for point in Question("sgce", Settings(loss="sgce"), space).points()]
    assert found == [(0.2, 0.1, 0.0), (0.2, 0.2, 0.0), (0.5, 0.1, 0.0), (0.5, 0.2, 0.0)]
    assert Question("ce", Settings(), ()).points() == [{}]


def test_between_the_ends_of_a_grid():
    assert Dimension("q", (0.5, 0.2, 0.4)).between() == (0.2, 0.5)
    assert Dimension("normalize", (None, "l2")).between() is None
    assert Dimension("weight_decay", (0.0,), log=True).between() is None
    with refused(ValueError, "weight_decay", "above 0", "log scale", "0.0, 0.1"):
        Dimension("weight_decay", (0.0, 0.1), log=True).between()
    # A varied parameter keeps its scale.
    alpha, _ = space_of("x.csv", "alpha-mae", {"alpha": [1, 8]})
    t, _ = space_of("x.csv", "taylor-ce", {"t": [1, 8]})
    assert [(each.log, each.whole) for each in (alpha, t)] == [(True, False), (False, True)]


def test_variations_that_cannot_be_meant_are_refused():
    for line in ("sgce", "sgce:", "sgce:q", "sgce:q=", "sgce:q=0.2,", "sgce:=1", "q=0.2", "lr=", "lr"):
        with refused(ValueError, "--vary must read lr=value,", "loss:parameter=value,", f"got {line!r}"):
            variations([line], ["sgce"])
    for lines, *said in (
        (["mae:scale=1"], "--vary must name a loss of --losses (ce, sgce)", "'mae:scale=1'"),
        (["sgec:q=1"], "no loss named 'sgec'", "'sgce'"),
        (["sgce:q=1", "sgce:q=0.5"], "sgce:q twice"),
        (["lr=1", "lr=0.5"], "lr twice"),
        (["lr=0.1,fast"], "`--vary lr=` must be numbers", "'0.1,fast'"),
    ):
        with refused(ValueError, *said):
            variations(lines, ["sgce:q=0.5", "ce"])


@in_turn(
    "name, given, said",
    [
        ("lr", [0.0], "lr must be a number in (0, inf); got 0"),
        ("lr", [], "lr must hold at least one value, each once; got none"),
        ("weight_decay", [-1.0], "weight_decay must be a number in [0, inf); got -1"),
        ("q", [0.5, 0.5], "q must hold at least one value, each once; got 0.5, 0.5"),
    ],
)
def test_bad_grids_are_refused(name, given, said):
    with refused(ValueError, said):
        space_of("cifar10", "sgce", {name: given})


def row(mean, std=None, seeds=1, held_out=100, final=False, **settings):
    found = {"settings": Settings(**settings).to_dict(), "validation": {"mean": mean, "std": std}}
    return found | {"seeds": seeds, "held_out": held_out, "final": final}


def test_the_standard_error_is_that_of_the_seeds_or_of_counting():
    for std, seeds, expected in ((0.4, 16, 0.1), (0.0, 16, math.sqrt(0.5 * 0.5 / (16 * 100))), (None, 1, 0.05)):
        assert standard_error(row(0.5, std=std, seeds=seeds)) == pytest.approx(expected)


def test_leaders_are_those_within_one_standard_error_of_the_difference():
    """Both have the standard error 0.01, the difference sqrt(2) of it."""
    for lead, expected in ((0.99, 2), (1.01, 1)):
        means = 0.5, 0.5 - lead * math.sqrt(2) * 0.01
        assert leaders([row(mean, std=0.02, seeds=4, held_out=10**6) for mean in means]) == expected
    assert leaders([row(0.5, final=True), row(0.5, final=True), row(0.5)]) == 2, "only finalists contend"
    assert "cannot tell them apart" in remark([row(0.5), row(0.49), row(0.1)])
    assert "first 2" in remark([row(0.5), row(0.49), row(0.1)])
    assert "leads by more than one standard error (its own is 5.00)" in remark([row(0.5), row(0.1)])
    assert "nothing to choose" in remark([row(0.5)])


@in_turn(
    "data, loss",
    [
        ("digits", "ce"),
        ("fashion-mnist", "sgce:q=0.5"),
        ("my data/table.csv", "nce+agce:alpha=1,beta=4"),
        ("digits", "alpha-mae:normalize=none"),
    ],
)
def test_what_was_found_can_be_read_as_toml(data, loss):
    rows = [row(mean, loss=loss, lr=1e-5, weight_decay=1e-3, seeds=3) for mean in (0.6, 0.7)]
    text = "\n".join(as_toml(data, rows))
    name, parameters = parse(loss)
    found = tomllib.loads(text)[data]["losses"][name]
    assert (found["lr"], found["weight_decay"]) == (1e-5, 1e-3)
    assert parse(write(name, found.get("loss", {}))) == (name, parameters)
    assert "0.7000 of 3 seeds, next 0.6000, of 2" in text
    # One loss searched twice, as with --losses sgce:q=0.5,sgce:q=0.8, has one line.
    rows = [row(0.1, loss="sgce:q=0.5"), row(0.2, loss="sgce:q=0.8"), row(0.15, loss="ce")]
    found = tomllib.loads("\n".join(as_toml("digits", rows)))["digits"]["losses"]
    assert found["sgce"]["loss"] == {"q": 0.8}
    assert list(found) == ["sgce", "ce"]
