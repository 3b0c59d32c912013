"""A best value on the edge of its grid is named, and the default grid of a loss is widened within its range."""

import optuna
import pytest
from in_turn import in_turn

from symloss.checks import Interval
from symloss.experiments import tune as tuning
from symloss.experiments.spaces import Dimension, Question, at_an_edge, next_value, range_of, search_grids, space_of
from symloss.experiments.studies import Method
from symloss.experiments.tune import tune
from symloss.losses.spec import parse
from symloss.training.results import EpochRow, Result
from symloss.training.settings import Settings


@pytest.fixture(autouse=True)
def _in_memory(monkeypatch):
    """Studies that are kept in this process."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storages = {}
    monkeypatch.setattr(tuning, "open_storage", lambda url: storages.setdefault(url, optuna.storages.InMemoryStorage()))


def parameter(settings, name):
    return parse(settings.loss)[1][name]


def search(runs, loss, accuracy, *, data="digits", varied=None, decays=(0.1,), **method):
    """Searches with a trainer that answers by a function of the settings; what it found, and what was trained."""
    trained = []

    def train(settings, folder, which):
        trained.append(settings)
        value = accuracy(settings)
        last, best = (EpochRow(1, validation_accuracy=each) for each in (value, value / 2))
        return Result(settings, 360, 40, "noisy", 360, 0.0, last, best, 1.0, smoothed=value / 4)

    space = space_of(data, loss, varied=varied, weight_decays=decays)
    question = Question(loss, Settings(loss=loss, noise="sym:0.8", data=data), space)
    (found,) = tune([question], Method(**method), runs=runs, train=train)
    return found, trained


def test_the_grid_goes_on_where_the_best_value_sits_on_its_edge(tmp_path):
    def accuracy(settings):
        return parameter(settings, "q") - abs(settings.weight_decay - 0.1)

    found, trained = search(tmp_path, "sgce", accuracy, decays=(0.01, 0.1, 0.2), widen=3)
    grid = list(search_grids().loss["sgce"]["q"].values)
    qs = [parameter(settings, "q") for settings in trained]
    assert sorted(set(qs)) == [*grid, 0.95, 1.0]
    assert all(qs.count(q) == 3 for q in qs), "each new value with every weight decay"
    assert parse(found["tried"][0]["settings"]["loss"])[1] == {"q": 1.0}
    assert found["edges"] == []
    again, trained = search(tmp_path, "sgce", accuracy, decays=(0.01, 0.1, 0.2), widen=3)
    assert (again, trained) == (found, [])


def test_as_often_as_is_allowed_and_it_says_so(tmp_path):
    found, trained = search(tmp_path, "alpha-mae", lambda s: 1 / (1 + parameter(s, "alpha")), widen=2)
    assert sorted({parameter(settings, "alpha") for settings in trained}) == [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0]
    assert found["edges"] == [
        "The best alpha of alpha-mae, 0.0625, is the smallest that was tried: a better one may lie beyond it "
        "(--vary alpha-mae:alpha= tries others)."
    ]


def test_a_best_value_inside_the_grid_stays(tmp_path):
    def accuracy(settings):
        return 1 - abs(parameter(settings, "q") - 0.5) - settings.weight_decay

    found, trained = search(tmp_path, "sgce", accuracy, decays=(0.01, 0.1), widen=3)
    assert len(trained) == 10
    assert found["edges"] == [
        "The best weight decay of sgce, 0.01, is the smallest that was tried: a better one may lie beyond it "
        "(--vary weight_decay= tries others)."
    ]


@in_turn(
    "given", [{"widen": 0}, {"widen": 3, "varied": {"q": [0.2, 0.8]}}, {"widen": 3, "sampler": "random", "trials": 3}]
)
def test_nothing_is_widened_that_was_given_or_is_no_grid(tmp_path, given):
    _, trained = search(tmp_path, "sgce", lambda s: parameter(s, "q"), **given)
    assert max(parameter(settings, "q") for settings in trained) <= 0.8


def test_finalists_come_from_beyond_the_grid_too(tmp_path):
    method = {"widen": 1, "finalists": 1, "final_seeds": 3}
    found, _ = search(tmp_path, "alpha-mae", lambda s: parameter(s, "alpha") / 100, **method)
    assert parse(found["tried"][0]["settings"]["loss"])[1] == {"alpha": 8.0}
    assert [row["final"] for row in found["tried"]].count(True) == 1


@in_turn("data, share", [("digits", 1.0), ("mine.csv", 0.25)])
def test_ones_own_data_is_judged_by_the_best_epoch(tmp_path, data, share):
    """Smoothed; a published data set by its last epoch, as before."""
    found, _ = search(tmp_path, "ce", lambda s: 0.8, data=data)
    assert found["tried"][0]["validation"]["mean"] == pytest.approx(0.8 * share)


@in_turn("loss, name", [(loss, name) for loss, grids in search_grids().loss.items() for name in grids])
def test_a_new_value_lies_in_the_range_and_beyond_the_grid(loss, name):
    dimension, interval = search_grids().loss[loss][name], range_of(loss, name)
    low, high = min(dimension.values), max(dimension.values)
    above, below = (next_value(dimension, edge, interval) for edge in (high, low))
    assert above is None or (above > high and above in Interval(interval))
    assert below is None or (below < low and below in Interval(interval))


def test_grids_without_an_edge():
    assert not at_an_edge(Dimension("normalize", ("l2", None)), "l2")
    assert not at_an_edge(Dimension("weight_decay", (0.0, 0.1), log=True), 0.1)
    assert not at_an_edge(Dimension("q", (0.5,)), 0.5)
    assert next_value(Dimension("q", (0.1, 0.5)), 0.1, "[0, 1]") == 0.0
    assert next_value(Dimension("q", (0.1, 0.5)), 0.1, "(0, 1]") is None
    assert next_value(Dimension("k", (1, 2), whole=True), 2, "[1, 3]") == 3
    assert next_value(Dimension("k", (2, 3), whole=True), 3, "[1, 3]") is None
    assert next_value(Dimension("temperature", (1.0, 2.0)), 2.0, None) is None
