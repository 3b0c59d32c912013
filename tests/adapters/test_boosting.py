"""Boosting with any loss: gradient and Hessian against 100 digits, the libraries' own loss, and scikit-learn."""

from __future__ import annotations

import functools
import pickle
import sys

import numpy as np
import pytest
import reference
import torch
from conftest import every_loss
from estimator_checks import assert_is_an_estimator
from in_turn import in_turn
from refusals import all_refused, refused
from sklearn.datasets import load_digits, load_iris
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV

import symloss
from symloss import RobustClassifier
from symloss.adapters import boosting
from symloss.adapters.boosting import FLOOR, RobustLGBMClassifier, RobustXGBClassifier
from symloss.extras import MissingExtraError
from symloss.fit import learners
from symloss.fit.learners import Shape
from symloss.fit.storage import load_predictor, save_predictor
from symloss.losses.potentials import CEPotential
from symloss.noise import corrupt

SILENT = {"n_jobs": 1, "verbosity": -1}
SCORES = torch.tensor([[0.0, 0.0, 0.0], [1.0, -0.5, 0.3], [4.0, -3.0, 1.0], [-2.0, 5.0, 0.0]], dtype=torch.float64)
LABELS = torch.tensor([0, 1, 0, 2])
IRIS, SPECIES = load_iris(return_X_y=True)
NAMES = np.array(["setosa", "versicolor", "virginica"])
TRAIN, TEST = (IRIS[::2], SPECIES[::2]), (IRIS[1::2], SPECIES[1::2])


def xgb(loss="gce:q=0.7", **options):
    pytest.importorskip("xgboost", reason="XGBoost is not installed")
    return RobustXGBClassifier(loss=loss, **{"n_jobs": 1, "n_estimators": 5} | options)


def lgbm(loss="gce:q=0.7", **options):
    pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    return RobustLGBMClassifier(loss=loss, **SILENT | {"n_estimators": 5} | options)


both = pytest.mark.parametrize("make", [xgb, lgbm])


@pytest.fixture(scope="module")
def digits():
    features, true = load_digits(return_X_y=True)
    train, test = np.split(np.random.default_rng(0).permutation(len(true)), [600])
    return features[train], true[train], features[test], true[test]


# Gradient and Hessian


def derivatives(loss, scores=SCORES, labels=LABELS):
    return boosting.gradient_and_hessian(boosting.criterion_of_trees(loss), scores, labels)


def softmax(z):
    return [float(each) for each in reference.softmax(tuple(map(reference.mpf, z)))]


@pytest.mark.parametrize("name", ["ce", "gce", "mae", "sgce", "unhinged", "nce+rce", "anl-ce"])
def test_gradient_and_hessian_against_plain_formulas(name):
    for z, y, g, h in zip(SCORES.tolist(), LABELS.tolist(), *derivatives(name), strict=True):
        exact, p = reference.gradient(name, z, y), softmax(z)
        w = -exact[y] / (1 - p[y])
        assert g.tolist() == pytest.approx(exact, rel=1e-9, abs=1e-12)
        assert h.tolist() == pytest.approx([w * each * (1 - each) for each in p], rel=1e-9)


def test_hessians():
    """Cross-entropy has its exact one, GCE one that is not negative, and one that would be negative is cut."""

    def exact(loss):
        hessian = torch.autograd.functional.hessian
        pairs = zip(SCORES, LABELS, strict=True)
        return torch.stack([hessian(functools.partial(loss, target=y), z).diagonal() for z, y in pairs])

    of_ce, of_gce, cut = (derivatives(loss)[1] for loss in ("ce", "gce", -1.0 * CEPotential()))
    torch.testing.assert_close(of_ce, exact(symloss.CE()))
    assert (exact(symloss.GCE()) < 0).any()
    assert (of_gce > exact(symloss.GCE()).mul(0.999).clamp_min(1e-6)).all()
    assert (cut == FLOOR).all()


def test_a_certain_label_keeps_its_digits():
    """In float32, p_y is 1 here, and 1 - p_y would be 0."""
    scores, p = torch.tensor([[30.0, 0.0, 1.0]]), softmax((30, 0, 1))
    assert scores.softmax(1)[0, 0] == 1
    _, hessian = derivatives("ce", scores, LABELS[:1])
    assert hessian[0].tolist() == pytest.approx([p[0] * (p[1] + p[2]), p[1], p[2]], rel=1e-5)
    _, hessian = derivatives("unhinged", 10 * scores, LABELS[:1])
    assert hessian[0].tolist() == pytest.approx([2 / 3, 2 / 3 * np.exp(-10), 2 / 3], rel=1e-4)


@every_loss
def test_every_loss_of_the_catalogue_can_be_boosted(name):
    draw = torch.Generator().manual_seed(0)
    for classes in (2, 3, 10):
        scores = torch.randn(40, classes, generator=draw) * torch.tensor([0.0, 1, 10, 100]).repeat(10)[:, None]
        gradient, hessian = derivatives(name, scores, torch.randint(classes, (40,), generator=draw))
        assert torch.cat([gradient, hessian]).isfinite().all()
        assert gradient.any()
        assert (hessian >= FLOOR).all()


def test_an_objective_weighs_examples_and_has_one_score_for_two_classes():
    objective = boosting.Objective(boosting.criterion_of_trees("gce"), curvature=2.0)
    labels, margins, weights = np.array([0.0, 1.0]), np.array([0.5, -1.5]), np.array([1.0, 3.0], np.float32)
    gradient, hessian = objective(labels, margins, weights)
    p = 1 / (1 + np.exp(-margins))
    at_label = np.where(labels == 1, p, 1 - p)
    w = weights * at_label**0.7
    np.testing.assert_allclose(gradient, w * (p - labels))
    np.testing.assert_allclose(hessian, 2 * w * p * (1 - p))
    values = (1 - at_label**0.7) / 0.7
    assert objective.loss(labels, margins) == pytest.approx(values.mean())
    assert objective.loss(labels, margins, weights) == pytest.approx((weights * values).sum() / 4)


# The libraries


@pytest.mark.parametrize("classes", [10, 2])
@both
def test_cross_entropy_is_the_librarys_own_loss(make, classes, digits):
    features, labels, test, _ = digits
    ours, robust = (make(loss, n_estimators=20).fit(features, labels % classes) for loss in ("ce", "mae"))
    if make is xgb:
        theirs = ours._library().XGBClassifier(n_estimators=20, n_jobs=1, base_score=0.5)
    else:
        same = {"n_estimators": 20, "boost_from_average": False, "feature_pre_filter": False}
        theirs = ours._library().LGBMClassifier(**same, **SILENT)
    found = theirs.fit(features, labels % classes).predict_proba(test)
    np.testing.assert_allclose(ours.predict_proba(test), found, atol=1e-5 if make is xgb else 1e-9)
    assert np.abs(robust.predict_proba(test) - found).max() > 0.01


@pytest.mark.slow
@both
def test_wrong_labels_do_less_harm(make, digits):
    features, true, test, known = digits
    noisy = corrupt(true, "sym:0.4", num_classes=10, seed=0, dataset="digits").labels
    scores = {
        (loss, kind): make(loss, n_estimators=40, max_depth=3).fit(features, labels).score(test, known)
        for loss in ("ce", "mae")
        for kind, labels in (("noisy", noisy), ("clean", true))
    }
    assert scores["mae", "noisy"] > scores["ce", "noisy"] + 0.02
    assert scores["mae", "clean"] > scores["ce", "clean"] - 0.02
    assert scores["ce", "clean"] > 0.92


# scikit-learn

OTHERWISE = {
    "check_no_attributes_set_in_init": "the parameters of the library are one attribute",
    "check_fit2d_predict1d": "the message has other words",
}
OF_XGBOOST = {
    "check_estimators_empty_data_messages": "the message is XGBoost's",
    "check_sample_weight_equivalence_on_dense_data": "it computes in float32: 2e-8 apart",
    "check_sample_weight_equivalence_on_sparse_data": "it computes in float32: 2e-8 apart",
}


@pytest.mark.parametrize(
    "estimator", [RobustXGBClassifier(n_estimators=3, n_jobs=1), RobustLGBMClassifier(n_estimators=3, **SILENT)]
)
def test_contract_of_scikit_learn(estimator):
    pytest.importorskip(estimator.library, reason=f"{estimator.library} is not installed")
    assert_is_an_estimator(estimator, OTHERWISE | (OF_XGBOOST if estimator.library == "xgboost" else {}))


@both
def test_a_loss_and_parameters_can_be_searched(make):
    """The contract of scikit-learn has tried text labels, clones and pickles."""
    model = make(symloss.GCE(q=0.5), max_depth=2).fit(IRIS, NAMES[SPECIES])
    assert model.score(IRIS, NAMES[SPECIES]) > 0.9
    assert model.feature_importances_.shape == (4,)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(IRIS), model.predict_proba(IRIS))
    search = GridSearchCV(make(), {"loss": ["ce", "nnce"], "max_depth": [1, 2]}, cv=3, scoring="neg_log_loss")
    search.fit(IRIS, NAMES[SPECIES])
    assert search.best_params_["loss"] == "ce"
    assert search.best_estimator_.model_.get_params()["max_depth"] == search.best_params_["max_depth"]


@both
def test_weights_of_rows_and_classes(make):
    def fitted(*labels_and_weights, **options):
        return make("ce", **options).fit(IRIS, *labels_and_weights).predict_proba(IRIS)

    right = np.arange(150) % 3 > 0
    noisy = np.where(right, SPECIES, (SPECIES + 1) % 3)
    np.testing.assert_allclose(fitted(noisy, right), fitted(SPECIES, right))
    assert np.abs(fitted(noisy, right) - fitted(noisy)).max() > 0.1
    by_class = fitted(NAMES[SPECIES], right, class_weight={"setosa": 1, "versicolor": 4, "virginica": 1})
    np.testing.assert_array_equal(by_class, fitted(SPECIES, np.where(SPECIES == 1, 4, 1) * right))


def assert_stopped_by_the_loss(model, losses, **first_round):
    """Before the last round, where the loss of what was held out was least."""
    assert len(losses) < 200
    p = model.predict_proba(TEST[0])
    assert np.mean((1 - p[np.arange(75), TEST[1]] ** 0.7) / 0.7) == pytest.approx(min(losses), rel=1e-5)
    assert np.abs(model.predict_proba(TEST[0], **first_round) - p).max() > 0.01


def test_xgboost_stops_early_by_the_loss():
    model = xgb("gce:q=0.7", n_estimators=200, learning_rate=1.0, early_stopping_rounds=3)
    model.fit(TRAIN[0], NAMES[TRAIN[1]], eval_set=[(TEST[0], NAMES[TEST[1]])], verbose=False)
    assert_stopped_by_the_loss(model, model.model_.evals_result()["validation_0"]["loss"], iteration_range=(0, 1))
    by_log_loss = xgb(eval_metric="mlogloss").fit(*TRAIN, eval_set=[TRAIN], verbose=False)
    shown = by_log_loss.model_.evals_result()["validation_0"]["mlogloss"][-1]
    assert shown == pytest.approx(log_loss(TRAIN[1], by_log_loss.predict_proba(TRAIN[0])), rel=1e-5)


def test_lightgbm_stops_early_by_the_loss():
    lightgbm = pytest.importorskip("lightgbm", reason="LightGBM is not installed")
    model, stop = lgbm("gce:q=0.7", n_estimators=200, learning_rate=1.0), lightgbm.early_stopping(3, verbose=False)
    model.fit(TRAIN[0], NAMES[TRAIN[1]], eval_set=[(TEST[0], NAMES[TEST[1]])], callbacks=[stop])
    assert_stopped_by_the_loss(model, model.model_.evals_result_["valid_0"]["loss"], num_iteration=1)
    own = [lambda labels, scores: ("wrong", np.mean(scores.argmax(1) != labels), False)]
    model.fit(*TRAIN, eval_set=[TEST], eval_metric=own)
    assert model.model_.evals_result_["valid_0"]["wrong"][-1] == pytest.approx(1 - model.score(*TEST))


# What cannot be


def test_what_cannot_be_boosted():
    def fit(loss="ce", **options):
        return lambda: RobustLGBMClassifier(loss=loss, **options).fit(IRIS, SPECIES)

    metric = "eval_metric must be a function of (labels, scores)"
    all_refused(
        (ValueError, "there is no loss named 'gze'", fit("gze:q=0.7")),
        (ValueError, "loss must have normalize=None ... 'l2'", fit("sgce:normalize=l2")),
        (ValueError, "loss must have normalize=None ... symmetrize(GCE(q=0.7))", fit(symloss.SGCE())),
        (TypeError, "loss must be a spec such as ... 0.7", fit(0.7)),
        (ValueError, metric, fit(metric="multi_logloss")),
        (ValueError, metric, lambda: lgbm().fit(IRIS, SPECIES, eval_metric=[lambda y, z: ("", 0, 0), "auc"])),
    )


@both
def test_bad_input(make):
    own, fitted, unseen = make(objective="multi:softmax"), make().fit(IRIS, SPECIES), [(IRIS[:1], ["daisy"])]
    all_refused(
        (ValueError, "objective must be left out ... 'multi:softmax'", lambda: own.fit(IRIS, SPECIES)),
        (ValueError, "two classes or more ... 1 class", lambda: make().fit(IRIS, 0 * SPECIES)),
        (ValueError, "previously unseen labels ... daisy", lambda: fitted.fit(IRIS, NAMES[SPECIES], eval_set=unseen)),
    )
    assert fitted.predict(IRIS[:1]) == [0]


@in_turn("estimator", [RobustXGBClassifier(), RobustLGBMClassifier()])
def test_a_library_that_is_missing(estimator, monkeypatch):
    name = estimator.library
    monkeypatch.setitem(sys.modules, name, None)
    with refused(MissingExtraError, type(estimator).__name__, "pip install 'symloss[boosting]'"):
        estimator.fit(IRIS, SPECIES)
    with refused(ValueError, f"'{name}' needs {name}, which is not installed", f"pip install {name}"):
        RobustClassifier(learners=["k-nn", name]).fit(IRIS, SPECIES)


# As learners of RobustClassifier


def test_they_are_not_tried_by_default():
    tried = {one.learner for one in learners.candidates(Shape(1000, 10, 3), learners.KINDS)}
    assert tried
    assert not tried & {"xgboost", "lightgbm"}


@pytest.mark.slow
@both
def test_a_robust_classifier_takes_them_by_name(make, tmp_path):
    kind, flowers = make().library, IRIS.astype(np.float32)
    noisy = corrupt(SPECIES, "sym:0.3", num_classes=3, seed=0).labels
    model = RobustClassifier(learners=[kind], rounds=1, folds=2, budget=10).fit(flowers, noisy)
    assert model.learner_ == kind
    assert f"{kind} q=1 rounds=40 (raw)" in model.candidates_["candidate"]
    assert model.score(flowers, SPECIES) > 0.85
    assert (pickle.loads(pickle.dumps(model)).predict(flowers) == model.predict(flowers)).all()
    loaded = load_predictor(save_predictor(model.predictor_, tmp_path), tmp_path)
    np.testing.assert_array_equal(loaded.probabilities(flowers), model.predict_proba(flowers))
