"""The estimators among scikit-learn's own."""

import numpy as np
import pyarrow
import pytest
import scipy.special
import torch
from closed_form_helpers import blobs
from estimator_checks import assert_is_an_estimator
from in_turn import in_turn
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

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


def test_cross_validation_cuts_rows_and_columns_of_a_precomputed_kernel_and_feature_maps_approach_it():
    x, y = blobs(300, features=2)
    whole = cross_val_score(KernelUnhingedClassifier(gamma=0.5), x, y, cv=3)
    cut = cross_val_score(KernelUnhingedClassifier(kernel="precomputed"), rbf_kernel(x, gamma=0.5), y, cv=3)
    np.testing.assert_array_equal(whole, cut)
    exact = KernelUnhingedClassifier(gamma=0.5).fit(x, y).predict(x)
    for features in (RBFSampler(gamma=0.5, n_components=2000, random_state=0), Nystroem(gamma=0.5, n_components=250)):
        model = make_pipeline(features, UnhingedClassifier(fit_intercept=False)).fit(x, y)
        assert (model.predict(x) == exact).mean() > 0.96


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


@both
@in_turn("classes", [2, 3])
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
