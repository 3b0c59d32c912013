"""Searches with a trainer that trains nothing."""

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import optuna
import pytest
import sqlalchemy
from in_turn import in_turn
from refusals import refused

from symloss.experiments import storage as claiming, tune as tuning
from symloss.experiments.spaces import Dimension, Question, held_out_labels, next_value, search_grids, space_of
from symloss.experiments.storage import Claims, LockFolder, open_storage, sqlite_url, without_password
from symloss.experiments.studies import SAMPLERS, Method, short_name
from symloss.experiments.tune import tune
from symloss.losses.spec import parse
from symloss.training.loop import Diverged
from symloss.training.results import EpochRow, Result
from symloss.training.run_folder import Busy
from symloss.training.settings import Settings


def over_lr(*lrs, loss="alpha-mae", seeds=1, **settings):
    return Question(loss, Settings(loss=loss, noise="sym:0.8", **settings), (Dimension("lr", lrs, log=True),), seeds)


def result(accuracy):
    last = EpochRow(1, validation_accuracy=accuracy, test_accuracy=1 - accuracy)
    return Result(Settings(), 360, 40, "noisy", 360, 0.0, last, last, 1.0)


def lrs(found):
    return [row["settings"]["lr"] for row in found["tried"]]


@pytest.fixture(autouse=True)
def storages(monkeypatch):
    """Studies are kept in this process, by the URL of their storage, unless a test names a storage."""
    opened = {}
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    monkeypatch.setattr(tuning, "POLL", 0.01)

    def opens(url):
        in_memory = url.endswith("/tune.db")
        return opened.setdefault(url, optuna.storages.InMemoryStorage()) if in_memory else open_storage(url)

    monkeypatch.setattr(tuning, "open_storage", opens)
    return opened


def search(runs, accuracy, *questions, more=None, **method):
    """What a search found, and what was trained for it. The accuracy is a function of the settings."""
    trained = []

    def train(settings, folder, which):
        trained.append((settings, folder))
        return result(accuracy(settings))

    return tune(questions, Method(**method), runs=runs, train=train, **more or {}), trained


def test_a_search_ranks_by_validation_and_never_by_test(tmp_path, storages):
    """The test accuracies of the trainer are in the opposite order. Each trial that ends is told, with the best."""
    accuracies, told = {0.1: 0.2, 0.2: 0.4, 0.3: 0.3}, []

    def tell(search, trial):
        told.append((trial.number, trial.value, search.best()))

    (found,), trained = search(tmp_path, lambda s: accuracies[s.lr], over_lr(*accuracies), more={"on_trial": tell})
    assert told == [(0, 0.2, 0.2), (1, 0.4, 0.4), (2, 0.3, 0.4)]
    assert lrs(found) == [0.2, 0.3, 0.1]
    assert [(settings.lr, settings.seed) for settings, _ in trained] == [(0.1, 0), (0.2, 0), (0.3, 0)]
    (storage,) = storages.values()
    assert optuna.load_study(study_name=found["study"], storage=storage).best_params == {"lr": 0.2}


def test_finalists_are_run_with_more_seeds_and_ranked_by_all_of_them(tmp_path):
    """0.1 leads on the first seed alone; 0.3 is no finalist and is not run again."""
    accuracies = {0.1: (0.9, 0.1, 0.2), 0.2: (0.8, 0.6, 0.7), 0.3: (0.7, 1.0, 1.0)}

    def finals(finalists, final_seeds):
        question, method = over_lr(*accuracies), {"finalists": finalists, "final_seeds": final_seeds}
        return search(tmp_path, lambda s: accuracies[s.lr][s.seed], question, **method)

    (found,), trained = finals(2, 3)
    assert [(row["settings"]["lr"], row["seeds"]) for row in found["tried"]] == [(0.2, 3), (0.1, 3), (0.3, 1)]
    assert {settings.seed for settings, _ in trained if settings.lr == 0.3} == {0}
    assert len({folder for _, folder in trained}) == 3 + 2 * 2, "each seed has a folder, the first one that it had"
    assert [row["final"] for row in found["tried"]] == [True, True, False]
    assert finals(2, 3) == ([found], [])
    for none in ((2, 1), (0, 3)):
        assert not any(row["final"] for row in finals(*none)[0][0]["tried"])


def test_another_question_never_mixes_in(tmp_path):
    (first,), _ = search(tmp_path, lambda s: 0.5, over_lr(0.1, 0.2))
    studies = {first["study"]}
    changes = ({"epochs": 7}, {"loss": "unhinged"}, {"clean_validation": True}, {"fingerprint": "another table"})
    others = [over_lr(0.1, 0.3), over_lr(0.1, 0.2, seeds=2), *(over_lr(0.1, 0.2, **change) for change in changes)]
    for other in others:
        (found,), trained = search(tmp_path, lambda s: 0.5, other)
        studies.add(found["study"])
        assert len(trained) == 2 * other.seeds
    assert len(studies) == 1 + len(others)
    assert search(tmp_path, lambda s: 0.5, over_lr(0.1, 0.2))[0] == [first]
    # Nor does another sampler, but more trials go on.
    studies = []
    for sampler, trials, trained in (("random", 3, 3), ("random", 5, 2), ("tpe", 3, 3)):
        (found,), done = search(tmp_path, lambda s: s.lr, over_lr(0.1, 0.2), sampler=sampler, trials=trials)
        assert len(done) == trained
        studies.append(found["study"])
    assert studies[0] == studies[1] != studies[2]


def test_a_point_that_diverges_is_listed_and_the_search_goes_on(tmp_path, storages):
    def accuracy(settings):
        if settings.lr == 0.2:
            raise Diverged("the loss became nan")
        return settings.lr

    (found,), _ = search(tmp_path, accuracy, over_lr(0.1, 0.2, 0.3))
    assert lrs(found) == [0.3, 0.1]
    (diverged,) = found["diverged"]
    assert (diverged["settings"]["lr"], diverged["reason"]) == (0.2, "the loss became nan")
    (storage,) = storages.values()
    study = optuna.load_study(study_name=found["study"], storage=storage)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "COMPLETE"]


@in_turn("sampler", ["random", "tpe", "qmc", "nsgaii"])
def test_cut_off_or_not_a_sampler_proposes_the_same(tmp_path, sampler):
    """14 trials: tpe draws at random for the first ten."""
    question = Question("gce", Settings(loss="gce"), space_of("digits", "gce", {"lr": [0.01, 1.0]}))
    method = {"sampler": sampler, "trials": 14}
    (whole,), trained = search(tmp_path / "whole", lambda s: 1 / (1 + s.lr), question, **method)
    stops = iter(range(1000))

    def cut_off(settings):
        if next(stops) % 4 == 3:
            raise KeyboardInterrupt
        return 1 / (1 + settings.lr)

    for _ in range(4):
        with pytest.raises(KeyboardInterrupt):
            search(tmp_path / "cut", cut_off, question, **method)
    (parts,), _ = search(tmp_path / "cut", lambda s: 1 / (1 + s.lr), question, **method)
    assert parts == whole
    assert len({settings.lr for settings, _ in trained}) == 14


def test_samplers_move_freely_and_learn_but_whole_numbers_stay_whole_and_words_stay_words(tmp_path):
    question = Question("sgce", Settings(loss="sgce"), space_of("cifar10", "sgce"))
    (found,), _ = search(tmp_path, lambda s: 0.5, question, sampler="random", trials=30)
    decays = [row["settings"]["weight_decay"] for row in found["tried"]]
    assert all(1e-4 <= decay <= 1e-2 for decay in decays)
    assert not set(decays) & {1e-4, 5e-4, 1e-3, 5e-3, 1e-2}
    # On a log scale half of them are below the geometric mean; on a linear one a tenth would be.
    assert 8 <= sum(decay < 1e-3 for decay in decays) <= 22
    qs = [float(row["settings"]["loss"].partition("q=")[2]) for row in found["tried"]]
    assert all(0.2 <= q <= 0.8 and len(str(q)) <= len("0.1234") for q in qs)
    # Most of what tpe tries after its random start is on the better half.
    _, trained = search(tmp_path, lambda s: s.lr, over_lr(1e-4, 1.0), sampler="tpe", trials=40)
    assert sum(settings.lr > 1e-2 for settings, _ in trained[20:]) >= 16
    varied = {"t": [1, 9], "normalize": [None, "l2"]}
    question = Question("taylor-ce", Settings(loss="taylor-ce"), space_of("digits", "taylor-ce", varied))
    _, trained = search(tmp_path, lambda s: 0.5, question, sampler="random", trials=12)
    ts, normalize = zip(*(parse(settings.loss)[1].values() for settings, _ in trained), strict=True)
    assert set(normalize) == {None, "l2"}
    assert {type(t) for t in ts} == {int}
    assert len(set(ts)) > 2
    assert set(ts) <= set(range(1, 10))


def test_names_of_samplers_and_what_cannot_be_searched(monkeypatch):
    spelled = {"GridSampler": "grid", "BruteForceSampler": "grid", "TPESampler": "tpe", "NSGA-II": "nsgaii", "GP": "gp"}
    assert {given: short_name(given) for given in spelled} == spelled
    for name, kind in SAMPLERS.items():
        assert kind.__name__.lower() == f"{name}sampler"
    with refused(ValueError, "--sampler must be one of grid, ", *SAMPLERS, "got 'simplex'"):
        short_name("simplex")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with refused(ValueError, "cmaes", "pip install cmaes"):
        short_name("CmaEsSampler")
    # Neither can these be searched.
    with refused(ValueError, "--trials", "every combination", "got 3"):
        Method("grid", 3)
    with refused(ValueError, "validation must be above 0", "got 0"):
        over_lr(0.1, validation=0.0)
    with refused(ValueError, "q must be a number in (0, 1]", "got 3"):
        Question("sgce", Settings(loss="sgce"), space_of("digits", "sgce", {"q": [0.5, 3]}))


def test_a_study_of_another_search_or_program_is_refused(tmp_path, storages):
    def named(question, study="mine", **method):
        return search(tmp_path, lambda s: 0.5, question, more={"study": study}, **method)[0]

    (found,) = named(over_lr(0.1, 0.2))
    assert found["study"] == "mine-alpha-mae"
    for what, other, method in (
        ("space", over_lr(0.1, 0.3), {}),
        ("seeds", over_lr(0.1, 0.2, seeds=2), {}),
        ("batch and epochs", over_lr(0.1, 0.2, epochs=3, batch=7), {}),
        ("space", over_lr(0.1, 0.2), {"sampler": "random", "trials": 3}),
    ):
        with refused(ValueError, "'mine-alpha-mae'", f"another {what})", "`study`"):
            named(other, **method)
    assert named(over_lr(0.1, 0.2)) == [found]
    (storage,) = storages.values()
    for direction, trials in (("minimize", 0), ("maximize", 1)):
        study = optuna.create_study(study_name=f"{direction}-alpha-mae", storage=storage, direction=direction)
        study.add_trials([optuna.create_trial(value=1.0)] * trials)
        with refused(ValueError, f"'{direction}-alpha-mae'", "another program"):
            named(over_lr(0.1), study=direction)


def test_a_run_that_another_process_trains_is_waited_for(tmp_path):
    calls = []

    def accuracy(settings):
        calls.append(settings)
        if len(calls) < 4:
            raise Busy("in use")
        return 0.5

    (found,), _ = search(tmp_path, accuracy, over_lr(0.1))
    assert (lrs(found), len(calls)) == ([0.1], 4)


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
    "mysql+pymysql://me:s/ecret:secret@host:33/x": "me:***@host:33",
    "sqlite://me:secret@/:memory:": "me:***@/",
}


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@in_turn("url, ingredient", UNUSABLE.items())
def test_a_storage_that_cannot_be_opened_is_refused_without_its_password(url, ingredient):
    with refused(ValueError, "`storage` must", ingredient) as caught:
        open_storage(url)
    assert "secret" not in without_password(url) + str(caught.value)


def test_what_a_database_says_is_shown_without_the_password():
    """Drivers quote it as it was given, or as they read it. What holds no password is shown whole."""
    for url in ("sqlite:///a/b.db", "postgresql://me@host:5432/x", "journal:/a/b.log", "nonsense"):
        assert without_password(url) == url
    own = "postgresql://postgres:postgres@db/postgres"  # what stands elsewhere must not give the password away
    assert without_password(own) == "postgresql://postgres:***@db/postgres"
    for said in ("no s%2Fcr t+t for me", "no s/cr t+t for me", "no s/cr t t for me", "no hush"):
        url = "postgresql://me:s%2Fcr t+t@host/x?sslpassword=hush"
        shown = "postgresql://me:***@host/x?sslpassword=***"
        with refused(OSError, shown, "(no ***"), claiming.readable_storage_errors(url):
            raise sqlalchemy.exc.OperationalError("SELECT", {}, Exception(said))


def test_a_file_that_is_no_database_is_one_sentence_and_stays(tmp_path):
    (tmp_path / "x.db").write_text("precious " * 1000)
    with refused(ValueError, "storage", "not a database"):
        open_storage(sqlite_url(tmp_path / "x.db"))
    assert (tmp_path / "x.db").read_text() == "precious " * 1000

    def accuracy(settings):
        (tmp_path / "studies.db").write_bytes(b"gone")
        return 0.5

    with refused(OSError, "studies.db", "failed", "rerun the same command to resume"):
        search(tmp_path, accuracy, over_lr(0.1), more={"storage": sqlite_url(tmp_path / "studies.db")})


def test_a_journal_can_be_shared_too(tmp_path):
    where = {"storage": f"journal:{tmp_path / 'studies.log'}"}
    found, trained = search(tmp_path, lambda s: s.lr, over_lr(0.1, 0.2), more=where)
    assert len(trained) == 2
    assert search(tmp_path, lambda s: s.lr, over_lr(0.1, 0.2), more=where) == (found, [])


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
    """The claims of processes that share a study. Those with the same folder see each other's locks.

    Locks are of open files, so that two claims in one process stand for two processes.
    """
    storage = optuna.storages.InMemoryStorage()
    study = optuna.create_study(storage=storage)
    return lambda folder="runs", wanted=1: Claims(study, storage, LockFolder(tmp_path / folder), wanted)


def test_a_trial_is_one_process_s_until_it_lets_go(claims_of):
    one, two = claims_of(wanted=2), claims_of(wanted=2)
    with two.next() as second:
        with one.next() as first:
            assert {first.number, second.number} == {0, 1}
            assert two.next() is None
            assert not two.are_finished()
        with two.next() as again:
            assert again.number == first.number
            stale = one.trials()
            two.study.tell(again.number, 0.5)
        two.study.tell(second.number, 0.5)
    assert (one.next(), one.are_finished()) == (None, True)
    one.trials = lambda: stale
    assert one.next() is None, "both ended as their locks were tried"


def test_a_trial_of_another_place_is_taken_over_when_its_heart_stands_still(claims_of, monkeypatch):
    now = 0.0
    monkeypatch.setattr(claiming.time, "monotonic", lambda: now)
    ours = claims_of()
    ours.study.ask()  # by a process that is killed as it begins: a trial of no place
    assert ours.next() is None
    now += claiming.GRACE + 1
    with ours.next() as trial:
        assert trial.number == 0
        ours.study.tell(0, 0.5)
    theirs, ours = claims_of("a", wanted=2), claims_of("b", wanted=2)
    with theirs.next() as trial:
        for _ in range(5):
            now += claiming.GRACE - 1
            assert ours.next() is None
            theirs._beat(trial)
        assert ours.next() is None
        now += claiming.GRACE + 1
        with ours.next() as taken:
            assert taken.number == trial.number


def test_a_trial_that_is_one_too_many_waits_for_a_longer_search(claims_of):
    """Two places ask at the same moment for the last trial."""
    here, there = claims_of("a"), claims_of("b")
    with here.next() as first:
        there.trials = list
        assert (first.number, there.next()) == (0, None)
        here.study.tell(0, 0.5)
    assert [trial.state.name for trial in here.study.trials] == ["COMPLETE", "WAITING"]
    assert here.are_finished()
    with claims_of(wanted=2).next() as more:
        assert more.number == 1


def test_places_that_share_a_database_take_no_trial_twice(tmp_path):
    """Each has its own locks and its own connection."""
    storages = [open_storage(sqlite_url(tmp_path / "x.db")) for _ in range(3)]
    optuna.create_study(storage=storages[0], study_name="shared")
    taken = []

    def take(number):
        study = optuna.load_study(study_name="shared", storage=storages[number])
        claims = Claims(study, storages[number], LockFolder(tmp_path / str(number)), 9)
        while not claims.are_finished():
            claim = claims.next()
            with claim or contextlib.nullcontext() as trial:
                if trial is not None:
                    taken.append(trial.number)
                    study.tell(trial.number, 0.5)

    with ThreadPoolExecutor() as threads:
        list(threads.map(take, range(3)))
    assert sorted(taken) == list(range(9))


def test_a_heart_beats_while_a_trial_is_worked_at(claims_of, monkeypatch):
    monkeypatch.setattr(claiming, "BEAT", 0.01)
    claims, beats, until = claims_of(), set(), time.monotonic() + 10
    with claims.next():
        while len(beats) < 3:
            assert time.monotonic() < until
            beats.add(tuple(claims.study.trials[0].user_attrs["beat"]))


def test_whoever_finishes_first_is_heard(tmp_path, storages):
    """A process that was taken for dead, and woke up."""

    def accuracy(settings):
        (storage,) = storages.values()
        study = optuna.load_study(study_name=None, storage=storage)
        trial = optuna.trial.Trial(study, study.trials[0]._trial_id)
        trial.set_user_attr("accuracies", [0.75])
        trial.set_user_attr("held_out", 40)
        study.tell(trial, 0.75)
        return 0.25

    (found,), _ = search(tmp_path, accuracy, over_lr(0.1))
    assert [row["validation"]["mean"] for row in found["tried"]] == [0.75]


def parameter(settings, name):
    return parse(settings.loss)[1][name]


def over_grid(runs, loss, accuracy, *, varied=None, decays=(0.1,), **method):
    """What a search over the default grid of a loss found, and what was trained."""
    space = space_of("digits", loss, {"weight_decay": decays} | (varied or {}))
    (found,), trained = search(runs, accuracy, Question(loss, Settings(loss=loss, noise="sym:0.8"), space), **method)
    return found, [settings for settings, _ in trained]


def test_the_grid_goes_on_where_the_best_value_sits_on_its_edge(tmp_path):
    def accuracy(settings):
        return parameter(settings, "q") - abs(settings.weight_decay - 0.1)

    def found():
        return over_grid(tmp_path, "sgce", accuracy, decays=(0.01, 0.1, 0.2), widen=3)

    answer, trained = found()
    qs = [parameter(settings, "q") for settings in trained]
    assert sorted(set(qs)) == [*search_grids().loss["sgce"]["q"].values, 0.95, 1.0]
    assert all(qs.count(q) == 3 for q in qs), "each new value with every weight decay"
    assert parse(answer["tried"][0]["settings"]["loss"])[1] == {"q": 1.0}
    assert answer["edges"] == []
    assert found() == (answer, [])


def test_as_often_as_is_allowed_and_it_says_so(tmp_path):
    """Finalists come from beyond the grid too."""
    method = {"widen": 2, "finalists": 1, "final_seeds": 3}
    found, trained = over_grid(tmp_path, "alpha-mae", lambda s: 1 / (1 + parameter(s, "alpha")), **method)
    assert sorted({parameter(settings, "alpha") for settings in trained}) == [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0]
    assert found["edges"] == [
        "The best alpha of alpha-mae, 0.0625, is the smallest that was tried: a better one may lie beyond it "
        "(--vary alpha-mae:alpha= tries others)."
    ]
    assert parse(found["tried"][0]["settings"]["loss"])[1] == {"alpha": 0.0625}
    assert [row["final"] for row in found["tried"]] == [True, *[False] * 6]


def test_a_best_value_inside_the_grid_stays(tmp_path):
    def accuracy(settings):
        return 1 - abs(parameter(settings, "q") - 0.5) - settings.weight_decay

    found, trained = over_grid(tmp_path, "sgce", accuracy, decays=(0.01, 0.1), widen=3)
    assert len(trained) == 10
    assert found["edges"] == [
        "The best weight decay of sgce, 0.01, is the smallest that was tried: a better one may lie beyond it "
        "(--vary weight_decay= tries others)."
    ]


def test_nothing_is_widened_that_was_given_or_is_no_grid(tmp_path):
    for given in ({"widen": 0}, {"widen": 3, "varied": {"q": [0.2, 0.8]}}, {"sampler": "random", "trials": 3}):
        _, trained = over_grid(tmp_path, "sgce", lambda s: parameter(s, "q"), **{"widen": 3} | given)
        assert max(parameter(settings, "q") for settings in trained) <= 0.8


def test_ones_own_data_is_judged_by_the_best_epoch(tmp_path):
    """Smoothed; a published data set by its last epoch, as before."""
    for data, accuracy in (("digits", 0.8), ("mine.csv", 0.2)):
        question = over_lr(0.1, data=data)

        def train(settings, folder, which):
            return replace(result(0.8), settings=settings, best=EpochRow(1, validation_accuracy=0.4), smoothed=0.2)

        (found,) = tune([question], Method(), runs=tmp_path, train=train)
        assert found["tried"][0]["validation"]["mean"] == pytest.approx(accuracy)


def test_what_comes_after_an_edge():
    for values, edge, interval, expected in (
        ((0.1, 0.5), 0.1, "[0, 1]", 0.0),
        ((0.1, 0.5), 0.1, "(0, 1]", None),
        ((0.1, 0.9), 0.9, "(0, 1]", 1.0),
        ((0.1, 0.5), 0.5, "(0, 1)", 0.9),
        ((0.1, 0.9), 0.9, "(0, 1)", None),
        ((0.1, 0.3, 0.5), 0.3, "(0, 1]", None),
        ((0.5,), 0.5, "(0, 1]", None),
        (("l2", None), "l2", "(0, 1]", None),
        ((1.0, 2.0), 2.0, None, None),
    ):
        assert next_value(Dimension("q", values), edge, interval) == expected, values
    assert next_value(Dimension("k", (1, 2), whole=True), 2, "[1, 3]") == 3
    assert next_value(Dimension("k", (2, 3), whole=True), 3, "[1, 3]") is None
    assert next_value(Dimension("weight_decay", (0.0, 0.1), log=True), 0.1, "[0, inf)") is None
