"""Searches with a trainer that trains nothing."""

import time
from dataclasses import replace

import optuna
import pytest
import sqlalchemy
from in_turn import in_turn
from refusals import refused

from symloss.checks import Interval
from symloss.experiments import storage as claiming, tune as tuning
from symloss.experiments.spaces import (
    Dimension,
    Question,
    held_out_labels,
    next_value,
    search_grids,
    space_of,
)
from symloss.experiments.storage import (
    Claims,
    LockFolder,
    open_storage,
    readable_storage_errors,
    sqlite_url,
    without_password,
)
from symloss.experiments.studies import SAMPLERS, Method, short_name
from symloss.experiments.tune import tune
from symloss.losses.catalogue import RECORDS
from symloss.losses.spec import parse
from symloss.training.loop import Diverged
from symloss.training.results import EpochRow, Result
from symloss.training.run_folder import Busy
from symloss.training.settings import Settings

COMPLETE, PRUNED = optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED


def over_lr(*lrs, loss="alpha-mae", seeds=1, **settings):
    space = (Dimension("lr", lrs, log=True),)
    return Question(loss, Settings(loss=loss, noise="sym:0.8", **settings), space, seeds)


def result(accuracy):
    last = EpochRow(1, validation_accuracy=accuracy, test_accuracy=1 - accuracy)
    return Result(Settings(), 360, 40, "noisy", 360, 0.0, last, last, 1.0)


class Trainer:
    """Answers by a function of the settings, and remembers what it was asked."""

    def __init__(self, accuracy):
        self.accuracy, self.trained, self.folders = accuracy, [], []

    def __call__(self, settings, folder, which):
        self.trained.append((settings.lr, settings.seed))
        self.folders.append(folder)
        return result(self.accuracy(settings))


def lrs(found):
    return [row["settings"]["lr"] for row in found["tried"]]


def study_of(runs, found):
    return optuna.load_study(study_name=found["study"], storage=sqlite_url(runs / "tune.db"))


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    monkeypatch.setattr(tuning, "POLL", 0.01)


@pytest.fixture
def in_memory(monkeypatch):
    """Studies that are kept in this process, for searches of many trials."""
    storages = {}
    monkeypatch.setattr(tuning, "open_storage", lambda url: storages.setdefault(url, optuna.storages.InMemoryStorage()))


def search(runs, accuracy, *questions, **method):
    trainer = Trainer(accuracy)
    return tune(questions, Method(**method), runs=runs, train=trainer), trainer


def test_a_search_ranks_by_validation_and_never_by_test(tmp_path):
    """The test accuracies of the trainer are in the opposite order. Progress says which of how many, and the best."""
    accuracies, told = {0.1: 0.2, 0.2: 0.4, 0.3: 0.3}, []
    trainer = Trainer(lambda s: accuracies[s.lr])

    def tell(search, trial):
        told.append((trial.number, trial.value, search.best()))

    (found,) = tune([over_lr(*accuracies)], Method(), runs=tmp_path, train=trainer, on_trial=tell)
    assert told == [(0, 0.2, 0.2), (1, 0.4, 0.4), (2, 0.3, 0.4)]
    assert lrs(found) == [0.2, 0.3, 0.1]
    assert trainer.trained == [(0.1, 0), (0.2, 0), (0.3, 0)]
    assert study_of(tmp_path, found).best_params == {"lr": 0.2}


@pytest.mark.usefixtures("in_memory")
def test_the_mean_over_seeds_counts_in_folders_of_their_own(tmp_path):
    accuracies = {(0.1, 0): 0.9, (0.1, 1): 0.1, (0.2, 0): 0.6, (0.2, 1): 0.6}
    (found,), trainer = search(tmp_path, lambda s: accuracies[s.lr, s.seed], over_lr(0.1, 0.2, seeds=2))
    assert [row["validation"]["mean"] for row in found["tried"]] == pytest.approx([0.6, 0.5])
    assert len(set(trainer.folders)) == 4
    assert all(folder.parent == tmp_path for folder in trainer.folders)


@pytest.mark.usefixtures("in_memory")
def test_finalists_are_run_with_more_seeds_and_ranked_by_all_of_them(tmp_path):
    """0.1 leads on the first seed alone; 0.3 is no finalist and is not run again."""
    accuracies = {0.1: (0.9, 0.1, 0.2), 0.2: (0.8, 0.6, 0.7), 0.3: (0.7, 1.0, 1.0)}
    method = {"finalists": 2, "final_seeds": 3}
    (found,), trainer = search(tmp_path, lambda s: accuracies[s.lr][s.seed], over_lr(*accuracies), **method)
    assert [(row["settings"]["lr"], row["seeds"]) for row in found["tried"]] == [(0.2, 3), (0.1, 3), (0.3, 1)]
    assert {seed for lr, seed in trainer.trained if lr == 0.3} == {0}
    assert [row["final"] for row in found["tried"]] == [True, True, False]
    again, trainer = search(tmp_path, lambda s: accuracies[s.lr][s.seed], over_lr(*accuracies), **method)
    assert (again, trainer.trained) == ([found], [])
    for none in ({"finalists": 2, "final_seeds": 1}, {"finalists": 0, "final_seeds": 3}):
        (found,), _ = search(tmp_path, lambda s: accuracies[s.lr][s.seed], over_lr(*accuracies), **none)
        assert not any(row["final"] for row in found["tried"])


@pytest.mark.usefixtures("in_memory")
def test_another_question_never_mixes_in(tmp_path):
    (first,), _ = search(tmp_path, lambda s: 0.5, over_lr(0.1, 0.2))
    studies = {first["study"]}
    changes = ({"epochs": 7}, {"loss": "unhinged"}, {"clean_validation": True}, {"fingerprint": "another table"})
    others = [over_lr(0.1, 0.3), over_lr(0.1, 0.2, seeds=2), *(over_lr(0.1, 0.2, **change) for change in changes)]
    for other in others:
        (found,), trainer = search(tmp_path, lambda s: 0.5, other)
        studies.add(found["study"])
        assert len(trainer.trained) == 2 * other.seeds
    assert len(studies) == 1 + len(others)
    assert search(tmp_path, lambda s: 0.5, over_lr(0.1, 0.2))[0] == [first]


@pytest.mark.usefixtures("in_memory")
def test_another_sampler_is_another_study_but_more_trials_go_on(tmp_path):
    (three,), _ = search(tmp_path, lambda s: s.lr, over_lr(0.1, 0.2), sampler="random", trials=3)
    (five,), trainer = search(tmp_path, lambda s: s.lr, over_lr(0.1, 0.2), sampler="random", trials=5)
    assert five["study"] == three["study"]
    assert len(trainer.trained) == 2
    (other,), trainer = search(tmp_path, lambda s: s.lr, over_lr(0.1, 0.2), sampler="tpe", trials=3)
    assert other["study"] != three["study"]
    assert len(trainer.trained) == 3


def test_a_point_that_diverges_is_listed_and_the_search_goes_on(tmp_path):
    def accuracy(settings):
        if settings.lr == 0.2:
            raise Diverged("the loss became nan")
        return settings.lr

    (found,), _ = search(tmp_path, accuracy, over_lr(0.1, 0.2, 0.3))
    assert lrs(found) == [0.3, 0.1]
    (diverged,) = found["diverged"]
    assert (diverged["settings"]["lr"], diverged["reason"]) == (0.2, "the loss became nan")
    assert [trial.state for trial in study_of(tmp_path, found).trials] == [COMPLETE, PRUNED, COMPLETE]


@pytest.mark.usefixtures("in_memory")
@in_turn("sampler", ["random", "tpe", "qmc", "nsgaii"])
def test_cut_off_or_not_a_sampler_proposes_the_same(tmp_path, sampler):
    """14 trials: tpe draws at random for the first ten."""
    questions = Question("gce", Settings(loss="gce"), space_of("digits", "gce", {"lr": [0.01, 1.0]}))
    method = {"sampler": sampler, "trials": 14}
    (whole,), trainer = search(tmp_path / "whole", lambda s: 1 / (1 + s.lr), questions, **method)
    stops = iter(range(1000))

    def cut_off(settings):
        if next(stops) % 4 == 3:
            raise KeyboardInterrupt
        return 1 / (1 + settings.lr)

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            search(tmp_path / "cut", cut_off, questions, **method)
    (parts,), _ = search(tmp_path / "cut", lambda s: 1 / (1 + s.lr), questions, **method)
    assert parts == whole
    assert len(set(trainer.trained)) == 14


@pytest.mark.usefixtures("in_memory")
def test_samplers_move_freely_between_the_ends(tmp_path):
    question = Question("sgce", Settings(loss="sgce"), space_of("cifar10", "sgce"))
    (found,), _ = search(tmp_path, lambda s: 0.5, question, sampler="random", trials=30)
    decays = [row["settings"]["weight_decay"] for row in found["tried"]]
    assert all(1e-4 <= decay <= 1e-2 for decay in decays)
    assert not set(decays) & {1e-4, 5e-4, 1e-3, 5e-3, 1e-2}
    # On a log scale half of them are below the geometric mean; on a linear one a tenth would be.
    assert 8 <= sum(decay < 1e-3 for decay in decays) <= 22
    qs = [float(row["settings"]["loss"].partition("q=")[2]) for row in found["tried"]]
    assert all(0.2 <= q <= 0.8 for q in qs)
    assert all(len(str(q)) <= len("0.1234") for q in qs)


@pytest.mark.usefixtures("in_memory")
def test_tpe_learns(tmp_path):
    """Most of what it tries after its random start is on the better half."""
    _, trainer = search(tmp_path, lambda s: s.lr, over_lr(1e-4, 1.0), sampler="tpe", trials=40)
    assert sum(lr > 1e-2 for lr, _ in trainer.trained[20:]) >= 16


@pytest.mark.usefixtures("in_memory")
def test_whole_numbers_stay_whole_and_words_stay_words(tmp_path):
    varied = {"t": [1, 9], "normalize": [None, "l2"]}
    question = Question("taylor-ce", Settings(loss="taylor-ce"), space_of("digits", "taylor-ce", varied))
    (found,), _ = search(tmp_path, lambda s: 0.5, question, sampler="random", trials=12)
    parts = [row["settings"]["loss"].partition(":")[2].split(",") for row in found["tried"]]
    assert {normalize for _, normalize in parts} == {"normalize=None", "normalize=l2"}
    assert {int(t.removeprefix("t=")) for t, _ in parts} <= set(range(1, 10))
    assert len({t for t, _ in parts}) > 2


def test_names_of_samplers(monkeypatch):
    spelled = {"GridSampler": "grid", "BruteForceSampler": "grid", "TPESampler": "tpe", "NSGA-II": "nsgaii", "GP": "gp"}
    for given, name in spelled.items():
        assert short_name(given) == name
    for name, kind in SAMPLERS.items():
        assert kind.__name__.lower() == f"{name}sampler"
    with refused(ValueError, "--sampler must be one of grid, ", *SAMPLERS, "got 'simplex'"):
        short_name("simplex")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused(ValueError, "cmaes", "pip install cmaes"):
        short_name("CmaEsSampler")


def test_what_cannot_be_searched_is_refused_before_anything_is_trained():
    with refused(ValueError, "--trials", "every combination", "got 3"):
        Method("grid", 3)
    with refused(ValueError, "validation must be above 0", "got 0"):
        over_lr(0.1, validation=0.0)
    with refused(ValueError, "q must be a number in (0, 1]", "got 3"):
        Question("sgce", Settings(loss="sgce"), space_of("digits", "sgce", {"q": [0.5, 3]}))


@pytest.mark.usefixtures("in_memory")
def test_a_study_of_another_search_is_refused(tmp_path):
    def named(question, method=None):
        return tune([question], method or Method(), runs=tmp_path, train=Trainer(lambda s: 0.5), study="mine")

    (found,) = named(over_lr(0.1, 0.2))
    assert found["study"] == "mine-alpha-mae"
    for other, what in (
        (over_lr(0.1, 0.3), "space"),
        (over_lr(0.1, 0.2, seeds=2), "seeds"),
        (over_lr(0.1, 0.2, epochs=3, batch=7), "batch and epochs"),
    ):
        with refused(ValueError, "'mine-alpha-mae'", f"another {what}", "`study`"):
            named(other)
    with refused(ValueError, "'mine-alpha-mae'", "another space"):
        named(over_lr(0.1, 0.2), Method("random", 3))
    assert named(over_lr(0.1, 0.2)) == [found]


def test_a_study_of_another_program_is_refused(tmp_path):
    url = sqlite_url(tmp_path / "tune.db")
    for direction, trials in (("minimize", 0), ("maximize", 1)):
        study = optuna.create_study(study_name=f"{direction}-alpha-mae", storage=url, direction=direction)
        study.add_trials([optuna.create_trial(value=1.0)] * trials)
        with refused(ValueError, f"'{direction}-alpha-mae'", "another program"):
            tune([over_lr(0.1)], Method(), runs=tmp_path, train=Trainer(lambda s: 0.5), study=direction)


@pytest.mark.usefixtures("in_memory")
def test_a_run_that_another_process_trains_is_waited_for(tmp_path):
    calls = []

    def train(settings, folder, which):
        calls.append(folder)
        if len(calls) < 4:
            raise Busy("in use")
        return result(0.5)

    (found,) = tune([over_lr(0.1)], Method(), runs=tmp_path, train=train)
    assert lrs(found) == [0.1]
    assert len(calls) == 4


UNUSABLE = {
    "nonsense": "'nonsense'",
    "nosuch://host/x": "'nosuch://host/x'",
    "sqlite:////no/such/folder/x.db": "unable to open",
    "sqlite://": "must name a file",
    "sqlite:///:memory:": "must name a file",
    "journal:/no/such/folder/x.log": "x.log",
    "nosuch://me:secret@host/x": "me:***@host",
    "nosuch://me@corp:secret@host/x": "***@host",
    "nosuch://:secret@host": "***@host",
    "nosuch://host/x?user=me&password=secret": "user=me&password=***",
    "nosuch:/me:secret@host": "***@host",
    "me:secret@host": "me:***@host",
    "postgresql://me:secret@host:no-number/x": "me:***@host",
    "redis://me:secret/secret@host": "me:***@host",
    "sqlite://me:secret@/:memory:": "me:***@/",
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@in_turn("url, ingredient", UNUSABLE.items())
def test_a_storage_that_cannot_be_opened_is_refused_without_its_password(url, ingredient):
    with refused(ValueError, "`storage` must", ingredient) as caught:
        open_storage(url)
    assert "secret" not in without_password(url, url) + str(caught.value)


def test_what_a_database_says_is_shown_without_the_password():
    """Drivers quote it as it was given, or as they read it. What holds no password is shown whole."""
    assert "secret" not in without_password(
        "mysql+pymysql://me:s/ecret:secret@host:33/x", "mysql+pymysql://me:s/ecret:secret@host:33/x"
    )
    for url in ("sqlite:///a/b.db", "postgresql://me@host:5432/x", "journal:/a/b.log", "nonsense"):
        assert without_password(url, url) == url
    for said in ("no s%2Fcr t+t for me", "no s/cr t+t for me", "no s/cr t t for me", "no hush"):
        url = "postgresql://me:s%2Fcr t+t@host/x?sslpassword=hush"
        with refused(OSError, "postgresql://me:***@host/x?sslpassword=***", "(no ***"), readable_storage_errors(url):
            raise sqlalchemy.exc.OperationalError("SELECT", {}, Exception(said))


def test_a_file_that_is_no_database_is_one_sentence_and_stays(tmp_path):
    (tmp_path / "x.db").write_text("precious " * 1000)
    with refused(ValueError, "storage", "not a database"):
        open_storage(sqlite_url(tmp_path / "x.db"))
    assert (tmp_path / "x.db").read_text() == "precious " * 1000

    def train(settings, folder, which):
        (tmp_path / "tune.db").write_bytes(b"gone")
        return result(0.5)

    with refused(OSError, "tune.db", "failed", "rerun the same command to resume"):
        tune([over_lr(0.1)], Method(), runs=tmp_path, train=train)


def test_a_journal_can_be_shared_too(tmp_path):
    found = []
    for _ in range(2):
        trainer = Trainer(lambda s: s.lr)
        where = f"journal:{tmp_path / 'studies.log'}"
        answers = tune([over_lr(0.1, 0.2)], Method(), runs=tmp_path, train=trainer, storage=where)
        found.append((answers, len(trainer.trained)))
    assert found == [(answers, 2), (answers, 0)]
    assert not (tmp_path / "tune.db").exists()


def test_which_labels_are_said():
    for data, noise, clean, said in (
        ("digits", "sym:0.8", False, "noisy labels"),
        ("digits", "sym:0.8", True, "true labels"),
        ("digits", "clean", False, "true labels (no noise was added)"),
        ("my.csv", "clean", False, "your labels as they are"),
        ("webvision-mini", "clean", False, "labels as given"),
        ("my.csv", "sym:0.2", True, "your labels, before noise was added"),
    ):
        assert held_out_labels(Settings(data=data, noise=noise, clean_validation=clean)) == said


@pytest.fixture
def claims_of(tmp_path):
    """The claims of processes that share a study. Those with the same folder see each other's locks."""
    storage = open_storage(sqlite_url(tmp_path / "x.db"))
    study = optuna.create_study(storage=storage)
    return lambda folder="runs", wanted=1: Claims(study, storage, LockFolder(tmp_path / folder), wanted)


def test_a_trial_is_one_process_s_until_it_lets_go(claims_of):
    """Locks are of open files, so that two places in one process stand for two processes."""
    one, two = claims_of(wanted=2), claims_of(wanted=2)
    with two.next() as second:
        with one.next() as first:
            assert {first.number, second.number} == {0, 1}
            assert two.next() is None
            assert len(two.unfinished()) == 2
        with two.next() as again:
            assert again.number == first.number
            two.study.tell(again.number, 0.5)
        two.study.tell(second.number, 0.5)
    assert one.next() is None
    assert not one.unfinished()


def test_a_trial_that_ends_as_its_lock_is_tried_is_not_taken(claims_of):
    one, two = claims_of(), claims_of()
    with one.next() as trial:
        (stale,) = two.unfinished()
        one.study.tell(trial.number, 0.5)
    two.unfinished = lambda: [stale]
    assert two.next() is None


def test_a_trial_of_another_place_is_taken_over_when_its_heart_stands_still(claims_of, monkeypatch):
    now = 0.0
    monkeypatch.setattr(claiming.time, "monotonic", lambda: now)
    theirs, ours = claims_of("a"), claims_of("b")
    with theirs.next() as trial:
        for _ in range(5):
            now += claiming.GRACE - 1
            assert ours.next() is None
            theirs._beat(trial)
        assert ours.next() is None
        now += claiming.GRACE + 1
        with ours.next() as taken:
            assert taken.number == trial.number


def test_places_that_begin_at_once_share_the_trials_and_leave_what_is_too_many(claims_of, monkeypatch):
    """Each place asks how many trials there are before the other has queued its own; the storage gives each to one."""
    here, there = claims_of("a"), claims_of("b")
    here.study.enqueue_trial({})
    with here.next() as first:
        assert (first.number, there.next()) == (0, None)
    assert [trial.state.name for trial in here.study.trials] == ["RUNNING", "WAITING"]
    more = claims_of("a", wanted=2)
    (_, waiting) = more.unfinished()
    with more.next(), more.next() as second:
        assert second.number == 1
        there.wanted, there.unfinished = 2, lambda: [waiting]
        assert there.next() is None, "it no longer waits"


def test_a_process_that_is_killed_as_it_begins_leaves_a_trial_of_no_place(claims_of, monkeypatch):
    now = 0.0
    monkeypatch.setattr(claiming.time, "monotonic", lambda: now)
    claims = claims_of()
    claims.study.ask()
    assert claims.next() is None
    now += claiming.GRACE + 1
    with claims.next() as trial:
        assert trial.number == 0


def test_a_heart_beats_while_a_trial_is_worked_at(claims_of, monkeypatch):
    monkeypatch.setattr(claiming, "BEAT", 0.01)
    claims = claims_of()
    with claims.next():
        beats = set()
        until = time.monotonic() + 10
        while len(beats) < 3 and time.monotonic() < until:
            beats.add(tuple(claims.study.trials[0].user_attrs["beat"]))
    assert len(beats) >= 3


def test_whoever_finishes_first_is_heard(tmp_path):
    """A process that was taken for dead, and woke up."""
    question = over_lr(0.1)

    def train(settings, folder, which):
        storage = sqlite_url(tmp_path / "tune.db")
        (name,) = optuna.get_all_study_names(storage)
        study = optuna.load_study(study_name=name, storage=storage)
        trial = optuna.trial.Trial(study, study.trials[0]._trial_id)
        trial.set_user_attr("accuracies", [0.75])
        trial.set_user_attr("held_out", 40)
        study.tell(trial, 0.75)
        return result(0.25)

    (found,) = tune([question], Method(), runs=tmp_path, train=train)
    assert [row["validation"]["mean"] for row in found["tried"]] == [0.75]


def parameter(settings, name):
    return parse(settings.loss)[1][name]


def over_grid(runs, loss, accuracy, *, data="digits", varied=None, decays=(0.1,), **method):
    """What a search over the default grid of a loss found, and what was trained."""
    trained = []

    def train(settings, folder, which):
        trained.append(settings)
        value = accuracy(settings)
        best = EpochRow(1, validation_accuracy=value / 2)
        return replace(result(value), settings=settings, best=best, smoothed=value / 4)

    space = space_of(data, loss, {"weight_decay": decays} | (varied or {}))
    question = Question(loss, Settings(loss=loss, noise="sym:0.8", data=data), space)
    (found,) = tune([question], Method(**method), runs=runs, train=train)
    return found, trained


@pytest.mark.usefixtures("in_memory")
def test_the_grid_goes_on_where_the_best_value_sits_on_its_edge(tmp_path):
    def accuracy(settings):
        return parameter(settings, "q") - abs(settings.weight_decay - 0.1)

    found, trained = over_grid(tmp_path, "sgce", accuracy, decays=(0.01, 0.1, 0.2), widen=3)
    grid = list(search_grids().loss["sgce"]["q"].values)
    qs = [parameter(settings, "q") for settings in trained]
    assert sorted(set(qs)) == [*grid, 0.95, 1.0]
    assert all(qs.count(q) == 3 for q in qs), "each new value with every weight decay"
    assert parse(found["tried"][0]["settings"]["loss"])[1] == {"q": 1.0}
    assert found["edges"] == []
    again, trained = over_grid(tmp_path, "sgce", accuracy, decays=(0.01, 0.1, 0.2), widen=3)
    assert (again, trained) == (found, [])


@pytest.mark.usefixtures("in_memory")
def test_as_often_as_is_allowed_and_it_says_so(tmp_path):
    found, trained = over_grid(tmp_path, "alpha-mae", lambda s: 1 / (1 + parameter(s, "alpha")), widen=2)
    assert sorted({parameter(settings, "alpha") for settings in trained}) == [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0]
    assert found["edges"] == [
        "The best alpha of alpha-mae, 0.0625, is the smallest that was tried: a better one may lie beyond it "
        "(--vary alpha-mae:alpha= tries others)."
    ]


@pytest.mark.usefixtures("in_memory")
def test_a_best_value_inside_the_grid_stays(tmp_path):
    def accuracy(settings):
        return 1 - abs(parameter(settings, "q") - 0.5) - settings.weight_decay

    found, trained = over_grid(tmp_path, "sgce", accuracy, decays=(0.01, 0.1), widen=3)
    assert len(trained) == 10
    assert found["edges"] == [
        "The best weight decay of sgce, 0.01, is the smallest that was tried: a better one may lie beyond it "
        "(--vary weight_decay= tries others)."
    ]


@pytest.mark.usefixtures("in_memory")
def test_nothing_is_widened_that_was_given_or_is_no_grid(tmp_path):
    for given in ({"widen": 0}, {"widen": 3, "varied": {"q": [0.2, 0.8]}}, {"sampler": "random", "trials": 3}):
        _, trained = over_grid(tmp_path, "sgce", lambda s: parameter(s, "q"), **{"widen": 3} | given)
        assert max(parameter(settings, "q") for settings in trained) <= 0.8


@pytest.mark.usefixtures("in_memory")
def test_finalists_come_from_beyond_the_grid_too(tmp_path):
    method = {"widen": 1, "finalists": 1, "final_seeds": 3}
    found, _ = over_grid(tmp_path, "alpha-mae", lambda s: parameter(s, "alpha") / 100, **method)
    assert parse(found["tried"][0]["settings"]["loss"])[1] == {"alpha": 8.0}
    assert [row["final"] for row in found["tried"]].count(True) == 1


@pytest.mark.usefixtures("in_memory")
def test_ones_own_data_is_judged_by_the_best_epoch(tmp_path):
    """Smoothed; a published data set by its last epoch, as before."""
    for data, accuracy in (("digits", 0.8), ("mine.csv", 0.2)):
        found, _ = over_grid(tmp_path, "ce", lambda s: 0.8, data=data)
        assert found["tried"][0]["validation"]["mean"] == pytest.approx(accuracy)


@in_turn("loss, name", [(loss, name) for loss, grids in search_grids().loss.items() for name in grids])
def test_a_new_value_lies_in_the_range_and_beyond_the_grid(loss, name):
    dimension = search_grids().loss[loss][name]
    (interval,) = (each.interval for each in RECORDS[loss].parameters if each.name == name)
    low, high = min(dimension.values), max(dimension.values)
    above, below = (next_value(dimension, edge, interval) for edge in (high, low))
    assert above is None or (above > high and above in Interval(interval))
    assert below is None or (below < low and below in Interval(interval))


def test_what_comes_after_an_edge():
    for values, edge, interval, expected in (
        ((0.1, 0.5), 0.1, "[0, 1]", 0.0),
        ((0.1, 0.5), 0.1, "(0, 1]", None),
        ((0.1, 0.3, 0.5), 0.3, "(0, 1]", None),
        ((0.5,), 0.5, "(0, 1]", None),
        (("l2", None), "l2", "(0, 1]", None),
        ((1.0, 2.0), 2.0, None, None),
    ):
        assert next_value(Dimension("q", values), edge, interval) == expected, values
    assert next_value(Dimension("k", (1, 2), whole=True), 2, "[1, 3]") == 3
    assert next_value(Dimension("k", (2, 3), whole=True), 3, "[1, 3]") is None
    assert next_value(Dimension("weight_decay", (0.0, 0.1), log=True), 0.1, "[0, inf)") is None
