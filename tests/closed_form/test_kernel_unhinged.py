"""The classifier in the feature space of a kernel; and both classifiers among scikit-learn's own estimators."""

import numpy as np
import pyarrow
import pytest
import scipy.special
import torch
from closed_form_helpers import blobs, c_vectors, peak_bytes
from estimator_checks import assert_is_an_estimator
from in_turn import in_turn
from refusals import all_refused
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.metrics.pairwise import pairwise_kernels, polynomial_kernel, rbf_kernel
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

from symloss.closed_form import KernelUnhingedClassifier, UnhingedClassifier

LINEAR = KernelUnhingedClassifier(kernel="linear", block_size=64, prior="frequencies")


@pytest.mark.parametrize("estimator", [UnhingedClassifier(), KernelUnhingedClassifier(), LINEAR])
def test_checks_of_scikit_learn(estimator):
    assert_is_an_estimator(estimator)


def by_the_formula(kernel, y, test_kernel, center=False, radius=1.0):
    """Scores of the whole kernel matrix at once, centred as in kernel PCA; with the intercept's kernel, 1."""
    alpha = c_vectors(y, 3) / len(y)
    if center:
        mean = kernel.mean(0)
        test_kernel = test_kernel - mean[None] - test_kernel.mean(1, keepdims=True) + mean.mean()
        kernel = kernel - mean[None] - mean[:, None] + mean.mean()
    norm = np.sqrt(np.trace(alpha.T @ (kernel + 1) @ alpha))
    return radius * (test_kernel + 1) @ alpha / norm, norm


@in_turn("kernel", ["linear", "rbf", "laplacian", "poly", "cosine", "chi2"])
@in_turn("center", [True, False])
@in_turn("block", [7, 1000])
def test_any_kernel_of_scikit_learn_in_blocks_of_any_size(kernel, center, block):
    x, y = abs(blobs()[0]), blobs()[1]
    test = x[:20] + 0.1
    whole, across = pairwise_kernels(x, metric=kernel), pairwise_kernels(test, x, metric=kernel)
    expected, norm = by_the_formula(whole, y, across, center, radius=2.0)
    options = {"kernel": kernel, "center": center, "block_size": block}
    model = KernelUnhingedClassifier(radius=2.0, fit_intercept=True, **options).fit(x, y)
    np.testing.assert_allclose(model.decision_function(test), expected, rtol=1e-9, atol=1e-10)
    assert model.centroid_norm_ == pytest.approx(norm)


def test_a_function_and_a_matrix_may_be_kernels():
    x, y = blobs()
    named = KernelUnhingedClassifier(gamma=0.4).fit(x, y)
    options = {"kernel": lambda a, b, width: np.exp(-width * ((a - b) ** 2).sum()), "kernel_params": {"width": 0.4}}
    own = KernelUnhingedClassifier(**options).fit(x, y)
    matrix = KernelUnhingedClassifier(kernel="precomputed", block_size=11).fit(rbf_kernel(x, gamma=0.4), y)
    assert matrix.X_fit_ is None
    expected = named.decision_function(x[:9])
    np.testing.assert_allclose(own.decision_function(x[:9]), expected, atol=1e-12)
    np.testing.assert_allclose(matrix.decision_function(rbf_kernel(x[:9], x, gamma=0.4)), expected, atol=1e-12)
    by_degree = {"gamma": 0.3, "degree": 2, "coef0": 0.7}
    model = KernelUnhingedClassifier(kernel="poly", center=False, fit_intercept=True, **by_degree).fit(x, y)
    k = polynomial_kernel(x, **by_degree)
    np.testing.assert_allclose(model.decision_function(x), by_the_formula(k, y, k)[0], atol=1e-10)
    single = KernelUnhingedClassifier(gamma=0.4).fit(x.astype(np.float32), y)
    assert single.dual_coef_.dtype == single.decision_function(x.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.decision_function(x), named.decision_function(x), atol=2e-6)

    def fit(**options):
        return lambda: KernelUnhingedClassifier(**options).fit(x, y)

    all_refused(
        (ValueError, "precomputed ... square ... (90, 4)", fit(kernel="precomputed")),
        (ValueError, "kernel ... positive semi-definite", fit(kernel=lambda a, b: -float(a @ b))),
        (ValueError, "block_size ... [1, inf) ... 0", fit(block_size=0)),
    )


@in_turn("center", [True, False])
@in_turn("intercept", [True, False])
@in_turn("prior", [None, "frequencies", (0.2, 0.2, 0.6)])
def test_the_linear_kernel_is_the_linear_classifier(center, intercept, prior):
    x, y = blobs()
    options = {"center": center, "fit_intercept": intercept, "prior": prior, "radius": 3.0}
    for weights in (None, np.linspace(0.5, 2, len(x))):
        linear = UnhingedClassifier(**options).fit(x, y, weights)
        model = KernelUnhingedClassifier(kernel="linear", block_size=13, **options).fit(x, y, weights)
        np.testing.assert_allclose(model.decision_function(x), linear.decision_function(x), atol=1e-10)
        assert model.centroid_norm_ == pytest.approx(linear.centroid_norm_)


def test_there_is_never_a_whole_kernel_matrix_in_memory():
    x, y = blobs(3000)
    assert peak_bytes(lambda: KernelUnhingedClassifier(block_size=200).fit(x, y).predict(x)) < 3000 * 3000 * 8 / 20


def test_a_constant_feature_outweighs_small_differences_between_unequal_classes():
    """Why the intercept is off."""
    y = np.repeat([0, 1], [260, 140])
    x = np.random.default_rng(0).standard_normal((400, 6)) + y[:, None]
    assert KernelUnhingedClassifier(gamma=0.5).fit(x, y).score(x, y) > 0.8
    assert KernelUnhingedClassifier(gamma=0.5, fit_intercept=True).fit(x, y).score(x, y) < 0.7


def test_cross_validation_cuts_rows_and_columns_of_a_precomputed_kernel_and_feature_maps_approach_it():
    x, y = blobs(300, features=2)
    whole = cross_val_score(KernelUnhingedClassifier(gamma=0.5), x, y, cv=3)
    cut = cross_val_score(KernelUnhingedClassifier(kernel="precomputed"), rbf_kernel(x, gamma=0.5), y, cv=3)
    np.testing.assert_array_equal(whole, cut)
    exact = KernelUnhingedClassifier(gamma=0.5).fit(x, y).predict(x)
    for features in (RBFSampler(gamma=0.5, n_components=2000, random_state=0), Nystroem(gamma=0.5, n_components=250)):
        model = make_pipeline(features, UnhingedClassifier(fit_intercept=False)).fit(x, y)
        assert (model.predict(x) == exact).mean() > 0.96


def test_names_of_features():
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


@in_turn("make", [UnhingedClassifier, KernelUnhingedClassifier])
@in_turn("classes", [2, 3])
def test_probabilities_are_the_softmax_of_the_scores(make, classes):
    x, y = blobs(classes=classes)
    model = make(radius=5.0).fit(x, y)
    scores = model.decision_function(x)
    assert scores.shape == ((len(x),) if classes == 2 else (len(x), 3))
    every = np.column_stack([np.zeros(len(x)), scores]) if classes == 2 else scores
    assert (model.predict(x) == every.argmax(1)).all()
    np.testing.assert_allclose(model.predict_proba(x), scipy.special.softmax(every, axis=1), atol=1e-12)
