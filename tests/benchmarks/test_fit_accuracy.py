"""fit_accuracy.py: what it learns from, how rivals are chosen, what it keeps. How good they are is not judged."""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import fit_accuracy
import fit_rivals
import noisy_cells
import numpy as np
import pytest
import torch
from fit_accuracy import METHODS, calibration_error, measure_all, planned, read_rows, row_file
from fit_rivals import RIVALS, StoppedNetwork, Tuning, best_stopped_network, with_probabilities
from in_turn import in_turn
from noisy_cells import SOURCES, NoisyCell, Place, open_cell
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import PredefinedSplit, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from symloss.fit import RobustClassifier
from symloss.noise import corrupt


@pytest.fixture(scope="module")
def wine():
    return open_cell("wine", "sym:0.3", seed=1)


@in_turn(
    ("data", "noise", "rows", "test", "rate"),
    [
        ("digits", "asym:0.4", (1437, 64), (360, 64), None),
        ("digits", "instance:0.4", (1437, 64), (360, 64), 0.4),
        ("digits", "clean", (1437, 64), (360, 64), 0.0),
        ("wine", "sym:0.3", (133, 13), (45, 13), 0.3),
        ("breast-cancer", "sym:0.3", (426, 30), (143, 30), 0.3),
        # 20 numbers, as many marks of missing values, and categories of 4, 6 and 8 values.
        ("table", "pair:0.3", (3000, 58), (1000, 58), 0.3),
    ],
)
def test_the_seed_draws_the_noise(data, noise, rows, test, rate):
    cell, again, other = (open_cell(data, noise, seed) for seed in (0, 0, 1))
    assert (cell.features.shape, cell.test.shape) == (rows, test)
    assert np.isfinite(cell.features).all()
    assert np.isfinite(cell.test).all()
    np.testing.assert_array_equal(cell.noisy, again.noisy)
    assert noise == "clean" or (cell.noisy != other.noisy).any()
    if rate is not None:
        assert cell.noise_rate == pytest.approx(rate, abs=1 / len(cell.noisy))
    assert (data == "digits") == bool((cell.test == other.test).all())


def test_some_rows_are_kept_with_their_share_of_each_class_and_their_own_human_label(monkeypatch, tmp_path):
    labels = np.repeat(np.arange(10), [60, *[60] * 8, 20])
    people = corrupt(labels, "sym:0.5", num_classes=10, seed=3).labels
    torch.save({"clean_label": labels, "worse_label": people}, tmp_path / "CIFAR-10_human.pt")
    features = np.arange(len(labels), dtype=np.float32)[:, None]
    part = features, labels
    source = replace(SOURCES["cifar10n"], open=lambda seed, root: (part, part), rows=56)
    monkeypatch.setitem(noisy_cells.SOURCES, "cifar10n", source)
    cell, other = (open_cell("cifar10n", "human:worst", seed, tmp_path) for seed in (0, 1))
    places = cell.features[:, 0].astype(int)
    np.testing.assert_array_equal(cell.noisy, people[places])
    np.testing.assert_array_equal(cell.clean, labels[places])
    assert np.bincount(cell.clean).tolist() == [6] * 9 + [2]
    assert (cell.features != other.features).any()


def test_rivals_are_chosen_by_the_folds_of_robust_classifier(wine):
    tuning = Tuning(wine)
    ours = RobustClassifier(random_state=wine.seed, learners=["closed-form"], rounds=1).fit(wine.features, wine.noisy)
    fold = np.empty(len(wine.noisy), int)
    for number, (split, same) in enumerate(zip(tuning.splits, ours.folds_, strict=True)):
        np.testing.assert_array_equal(split.held_out, same.held_out)
        fold[split.held_out] = number
    mean, deviation = wine.features.mean(0, dtype=float), wine.features.std(0, dtype=float)
    accuracy = {}
    for count in (5, 15, 30, 60):
        model = KNeighborsClassifier(count, weights="distance")
        scaled = ((wine.features - mean) / deviation).astype(np.float32)
        found = cross_val_predict(model, scaled, wine.noisy, cv=PredefinedSplit(fold))
        accuracy[count] = (found == wine.noisy).mean()
    chosen = tuning.choose("k-nn")
    assert chosen.noisy_accuracy == max(accuracy.values())
    assert accuracy[chosen.setting["neighbours"]] == chosen.noisy_accuracy
    assert ((chosen.held_out.argmax(1) == wine.noisy).mean()) == chosen.noisy_accuracy
    few = replace(wine, features=wine.features[:40], noisy=wine.noisy[:40], clean=wine.clean[:40])
    assert Tuning(few).choose("k-nn").setting["neighbours"] <= 30  # others need more rows


def test_the_truth_is_not_looked_at(wine, monkeypatch):
    monkeypatch.setattr(fit_rivals, "SETTINGS", ((3e-3, 0.1),))
    wrong = replace(wine, clean=np.roll(wine.clean, 1))
    for rival in ("k-nn", "ce"):
        one, other = (Tuning(cell).choose(rival) for cell in (wine, wrong))
        assert one.setting == other.setting
        np.testing.assert_array_equal(one.held_out, other.held_out)


def test_a_network_stops_where_the_folds_say(wine, monkeypatch):
    monkeypatch.setattr(fit_rivals, "SETTINGS", ((3e-3, 0.1), (3e-5, 0.1)))
    tuning = Tuning(wine)
    best = best_stopped_network(
        "gce", tuning.features("gce"), wine.noisy, tuning.splits, tuning.seed, settings=fit_rivals.SETTINGS
    )
    chosen = tuning.choose("gce")
    assert chosen.setting == {"rate": best.candidate["rate"], "decay": best.candidate["decay"], "epochs": best.epoch}
    rows = np.concatenate([split.held_out for split in tuning.splits])
    np.testing.assert_array_equal(chosen.held_out[rows], best.predictions)
    made = tuning.estimator("gce", chosen.setting)
    assert (made.loss, made.rate, made.epochs) == ("gce", 3e-3, best.epoch)


def test_rivals_see_images_as_robust_classifier_does(monkeypatch):
    """Images in which a bright row or column tells the class."""
    labels = np.arange(60) % 2
    features = np.random.default_rng(0).normal(size=(60, 1, 12, 12)).astype(np.float32)
    features[labels == 0, :, 5] += 3
    features[labels == 1, :, :, 5] += 3
    monkeypatch.setattr(fit_rivals, "SETTINGS", ((3e-3, 0.1),))
    monkeypatch.setattr(fit_rivals, "LARGE", 100)
    tuning = Tuning(NoisyCell(features, labels, labels, features, labels, "raw", 0))
    chosen = tuning.choose("ce")
    made = tuning.estimator("ce", chosen.setting)
    assert (made.model, made.input_shape) == ("cnn4:width=0.5", (1, 12, 12))
    fitted = made.fit(tuning.features("ce"), labels)
    assert fitted.predict_proba(tuning.test("ce")).shape == (60, 2)
    assert fitted.margins_.shape == (60,)
    assert tuning.features("k-nn").shape == (60, 144)
    chosen = tuning.choose("forest")  # one fold chooses where data are large
    known = np.isfinite(chosen.held_out).all(1)
    np.testing.assert_array_equal(np.flatnonzero(known), np.sort(tuning.splits[0].held_out))
    assert chosen.setting in fit_rivals.CLASSICAL["forest"].settings[:2]


def test_calibration_error():
    assert calibration_error(np.eye(2)[[0, 0, 1, 1]], np.array([0, 0, 1, 1])) == 0
    # Too certain in one bin and too careful in another do not cancel.
    mixed = np.array([[0.95, 0.05]] * 2 + [[0.55, 0.45]] * 2)
    assert calibration_error(mixed, np.array([0, 1, 0, 0])) == pytest.approx((0.45 + 0.45) / 2)


def test_a_stopped_network_is_an_estimator():
    x, y = load_iris(return_X_y=True)
    names = np.array(["setosa", "versicolor", "virginica"])[y]
    model = StoppedNetwork(epochs=15)
    slow, longer = clone(model).set_params(rate=1e-5), clone(model).set_params(epochs=30)
    fitted = model.fit(x, names)
    assert fitted.score(x, names) > 0.9 > slow.fit(x, names).score(x, names)
    np.testing.assert_allclose(fitted.predict_proba(x).sum(1), 1, rtol=1e-5)
    np.testing.assert_array_equal(fitted.predict_proba(x), clone(model).fit(x, names).predict_proba(x))
    assert (fitted.predict_proba(x) != longer.fit(x, names).predict_proba(x)).any()
    wrong = np.arange(150) % 5 == 0
    noisy = StoppedNetwork("gce", epochs=10).fit(x, np.where(wrong, (y + 1) % 3, y))
    assert noisy.margins_[wrong].mean() < noisy.margins_[~wrong].mean()
    np.testing.assert_allclose(with_probabilities(SVC()).fit(x, y).predict_proba(x).sum(1), 1)
    neighbours = KNeighborsClassifier()
    assert with_probabilities(neighbours) is neighbours


def test_rows_are_kept_as_they_come(monkeypatch, tmp_path):
    quick = partial(RobustClassifier, learners=["closed-form", "k-nn"], rounds=1)
    monkeypatch.setattr(fit_accuracy, "RobustClassifier", quick)
    places = [Place("wine", "sym:0.3", 0, method) for method in ("symloss", "logistic", "k-nn", "cleanlab")]
    work = measure_all(tmp_path, places)
    first = next(work)
    assert [path.name for path in tmp_path.rglob("*.json")] == ["sym-0.3-0-symloss.json"]
    ours, logistic, neighbours, cleanlab = [first, *work]
    assert read_rows(tmp_path, places) == [ours, logistic, neighbours, cleanlab]
    for row in (ours, logistic, neighbours, cleanlab):
        assert row["noise_rate"] == pytest.approx(0.3, abs=0.01)
        assert all(0.6 < row[column] <= 1 for column in ("accuracy", "average_precision"))
        assert row["seconds"] > 0
        assert row["environment"]["scikit-learn"]
    assert cleanlab["setting"]["over"] in ("logistic", "k-nn")
    assert cleanlab["noisy_accuracy"] == max(logistic["noisy_accuracy"], neighbours["noisy_accuracy"])
    assert ours["noise_rate_interval"][0] <= ours["noise_rate_estimate"] <= ours["noise_rate_interval"][1]
    assert 0 < cleanlab["noise_rate_estimate"] < 1
    (clean,) = measure_all(tmp_path, [Place("wine", "clean", 0, "k-nn")])
    assert clean["average_precision"] is None
    assert clean["accuracy"] > 0.9


def test_a_plan():
    places = planned(["wine", "digits"], ["sym:0.3", "clean"], [0, 1, 4], ["svc", "symloss"]).places
    assert places[:2] == [Place("wine", "sym:0.3", 0, "symloss"), Place("wine", "sym:0.3", 0, "svc")]
    assert {place.seed for place in places} == {0, 1, 4}
    assert len(places) == len(set(places)) == 2 * 2 * 3 * 2
    assert len(planned(["digits"]).places) == 8 * 5 * len(METHODS)
    with pytest.raises(ValueError, match="loud"):
        planned(["wine"], ["loud:0.3"])
    methods = [place.method for place in planned(["wine"], seeds=[0], methods=["cleanlab"]).places]
    assert methods == [*RIVALS, "cleanlab"]  # which it builds on
    path = row_file(Place("cifar10n", "human:worst@../../people.pt", 0, "k-nn"), Path("rows"))
    assert path.parent == Path("rows/cifar10n")


def test_what_is_not_there_is_left_out_with_a_line(monkeypatch, tmp_path):
    monkeypatch.setattr(fit_accuracy, "has_cleanlab", lambda: False)
    plan = planned(["mnist", "photos", "wine"], seeds=[0], methods=["k-nn", "cleanlab"], root=tmp_path)
    assert plan.places == [Place("wine", "sym:0.3", 0, "k-nn")]
    mnist, photos, cleanlab = plan.left_out
    assert mnist.startswith("mnist is left out: ")
    assert photos.startswith("photos is left out: ")
    assert "symloss[cleanlab]" in cleanlab
    monkeypatch.setattr(fit_accuracy, "open_data", lambda name, root: None)
    (line,) = planned(["photos", "cifar10n"], seeds=[0], methods=["k-nn"], root=tmp_path).left_out
    assert line.startswith("cifar10n is left out: path of human labels must be a file")
    (tmp_path / "CIFAR-10_human.pt").touch()
    assert planned(["cifar10n"], seeds=[0], methods=["k-nn"], root=tmp_path).left_out == []


def test_the_script_goes_on_where_it_was(tmp_path, monkeypatch, capsys):
    def run(*more):
        wanted = ("--data", "wine", "--methods", "k-nn", "--rows", str(tmp_path / "rows"))
        monkeypatch.setattr(sys, "argv", ["fit_accuracy.py", *wanted, *more])
        fit_accuracy.main()
        return capsys.readouterr()

    with pytest.raises(SystemExit):
        run("--only-show")
    assert "no finished row of these measurements" in capsys.readouterr().err
    assert "2/2 wine sym:0.3, seed 1, k-nn" in run("--seeds", "0", "1").err
    more = run()
    assert "1/1 wine sym:0.3, seed 2, k-nn" in more.err
    assert "| wine sym:0.3 |" in more.out
    assert run().err == ""
