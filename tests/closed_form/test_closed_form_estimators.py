"""The estimators among scikit-learn's own."""

import pickle

import numpy as np
import pyarrow
import pytest
import scipy.special
import torch
from closed_form_helpers import blobs
from estimator_checks import assert_is_an_estimator
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from symloss.closed_form import KernelUnhingedClassifier, UnhingedClassifier

ESTIMATORS = [
    UnhingedClassifier(),
    KernelUnhingedClassifier(),
    KernelUnhingedClassifier(kernel="linear", block_size=64, prior="frequencies"),
]
both = pytest.mark.parametrize("make", [UnhingedClassifier, KernelUnhingedClassifier])


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_checks_of_scikit_learn(estimator):
    assert_is_an_estimator(estimator)


@both
def test_clone_and_pickle(make):
    x, y = blobs()
    model = make(radius=2.0, center=False, prior=[0.2, 0.3, 0.5]).fit(x, y)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "classes_")
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_allclose(again.decision_function(x), model.decision_function(x), atol=1e-14)


def test_what_was_pickled_goes_on():
    x, y = blobs()
    half = pickle.loads(pickle.dumps(UnhingedClassifier().partial_fit(x[:50], y[:50], classes=[0, 1, 2])))
    np.testing.assert_allclose(half.partial_fit(x[50:], y[50:]).coef_, UnhingedClassifier().fit(x, y).coef_, atol=1e-12)


@both
def test_grid_search_and_cross_validation(make):
    x, y = blobs(200)
    search = GridSearchCV(make(), {"center": [True, False], "radius": [0.5, 2.0]}, cv=3).fit(x, y)
    assert set(search.best_params_) == {"center", "radius"}
    assert cross_val_score(make(), x, y, cv=3).mean() > 0.4


def test_cross_validation_cuts_rows_and_columns_of_a_precomputed_kernel():
    x, y = blobs(120)
    whole = cross_val_score(KernelUnhingedClassifier(gamma=0.5), x, y, cv=3)
    cut = cross_val_score(KernelUnhingedClassifier(kernel="precomputed"), rbf_kernel(x, gamma=0.5), y, cv=3)
    np.testing.assert_array_equal(whole, cut)


@pytest.mark.parametrize("make_map", [RBFSampler, Nystroem])
def test_feature_maps_in_a_pipeline_approach_the_kernel(make_map):
    x, y = blobs(300, features=2)
    exact = KernelUnhingedClassifier(gamma=0.5).fit(x, y)
    model = make_pipeline(
        make_map(gamma=0.5, n_components=2000 if make_map is RBFSampler else 250, random_state=0),
        UnhingedClassifier(fit_intercept=False),
    )
    model.fit(x, y)
    assert (model.predict(x) == exact.predict(x)).mean() > 0.96


def test_sample_weight_goes_through_a_pipeline():
    x, y = blobs()
    weights = np.linspace(0.1, 2, len(x))
    model = make_pipeline(StandardScaler(), UnhingedClassifier())
    weighted = model.fit(x, y, unhingedclassifier__sample_weight=weights)[-1].coef_
    assert np.abs(weighted - clone(model).fit(x, y)[-1].coef_).max() > 1e-3


def test_set_output_and_names_of_features():
    x, y = blobs()
    names = ["a", "b", "c", "d"]
    table = pyarrow.table(dict(zip(names, x.T, strict=True)))
    model = UnhingedClassifier().fit(table, y)
    assert model.feature_names_in_.tolist() == names
    np.testing.assert_array_equal(model.predict(table), model.predict(table.select(names)))
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(table.rename_columns(["b", "a", "c", "d"]))
    assert not hasattr(model.fit(x, y), "feature_names_in_")
    assert not hasattr(model.fit(table, y).fit(torch.from_numpy(x), y), "feature_names_in_")
    pipeline = make_pipeline(StandardScaler(), UnhingedClassifier()).set_output(transform="default")
    assert pipeline.fit(table, y).feature_names_in_.tolist() == names
    assert (pipeline.predict(table) == y).mean() > 0.4


@both
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_the_softmax_of_the_scores(make, classes):
    x, y = blobs(classes=classes)
    model = make(radius=5.0).fit(x, y)
    scores = model.decision_function(x)
    if classes == 2:
        assert scores.shape == (len(x),)
        expected = np.column_stack([scipy.special.expit(-scores), scipy.special.expit(scores)])
        assert (model.predict(x) == (scores > 0)).all()
    else:
        expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        assert (model.predict(x) == scores.argmax(1)).all()
    np.testing.assert_allclose(model.predict_proba(x), expected, atol=1e-12)


def test_calibration_moves_probabilities_towards_frequencies():
    x, y = blobs(600, classes=2, flipped=0.0)
    raw = UnhingedClassifier(radius=0.01).fit(x, y)
    calibrated = CalibratedClassifierCV(UnhingedClassifier(radius=0.01), cv=3).fit(x, y)
    brier = [((model.predict_proba(x)[:, 1] - y) ** 2).mean() for model in (raw, calibrated)]
    assert brier[1] < 0.8 * brier[0]


def test_labels_may_be_text():
    x, y = blobs()
    names = np.array(["crow", "ant", "bee"])
    model = UnhingedClassifier().fit(x, names[y])
    assert model.classes_.tolist() == ["ant", "bee", "crow"]
    numbers = UnhingedClassifier().fit(x, y)
    np.testing.assert_array_equal(model.predict(x), names[numbers.predict(x)])
