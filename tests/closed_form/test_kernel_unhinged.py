"""The classifier in the feature space of a kernel."""

import numpy as np
import pytest
from closed_form_helpers import blobs, c_vectors, peak_bytes
from in_turn import in_turn
from refusals import refused
from sklearn.metrics.pairwise import pairwise_kernels, polynomial_kernel, rbf_kernel

from symloss.closed_form import KernelUnhingedClassifier, UnhingedClassifier

KERNELS = ["linear", "rbf", "laplacian", "poly", "cosine", "chi2"]


def by_the_formula(kernel, y, test_kernel, center=False, prior=None, radius=1.0):
    """Scores of the whole kernel matrix at once, centred as in kernel PCA; with the intercept's kernel, 1."""
    n = len(y)
    alpha = c_vectors(y, 3, prior) / n
    if center:
        mean = kernel.mean(0)
        test_kernel = test_kernel - mean[None] - test_kernel.mean(1, keepdims=True) + mean.mean()
        kernel = kernel - mean[None] - mean[:, None] + mean.mean()
    norm = np.sqrt(np.trace(alpha.T @ (kernel + 1) @ alpha))
    return radius * (test_kernel + 1) @ alpha / norm, norm


@in_turn("kernel", KERNELS)
@in_turn("center", [True, False])
@in_turn("block", [7, 1000])
def test_any_kernel_of_scikit_learn_in_blocks_of_any_size(kernel, center, block):
    x, y = blobs()
    x = abs(x)
    test = x[:20] + 0.1
    expected, norm = by_the_formula(
        pairwise_kernels(x, metric=kernel), y, pairwise_kernels(test, x, metric=kernel), center, radius=2.0
    )
    model = KernelUnhingedClassifier(
        kernel=kernel, center=center, radius=2.0, block_size=block, fit_intercept=True
    ).fit(x, y)
    np.testing.assert_allclose(model.decision_function(test), expected, rtol=1e-9, atol=1e-10)
    assert model.centroid_norm_ == pytest.approx(norm)


def test_a_function_and_a_matrix_may_be_kernels():
    x, y = blobs()
    named = KernelUnhingedClassifier(gamma=0.4).fit(x, y)
    own = KernelUnhingedClassifier(
        kernel=lambda a, b, width: np.exp(-width * ((a - b) ** 2).sum()), kernel_params={"width": 0.4}
    ).fit(x, y)
    by_degree = {"gamma": 0.3, "degree": 2, "coef0": 0.7}
    model = KernelUnhingedClassifier(kernel="poly", center=False, fit_intercept=True, **by_degree).fit(x, y)
    k = polynomial_kernel(x, **by_degree)
    np.testing.assert_allclose(model.decision_function(x), by_the_formula(k, y, k)[0], atol=1e-10)
    single = KernelUnhingedClassifier(gamma=0.4).fit(x.astype(np.float32), y)
    assert single.dual_coef_.dtype == single.decision_function(x.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(single.decision_function(x), named.decision_function(x), atol=2e-6)
    matrix = KernelUnhingedClassifier(kernel="precomputed", block_size=11).fit(rbf_kernel(x, gamma=0.4), y)
    expected = named.decision_function(x[:9])
    np.testing.assert_allclose(own.decision_function(x[:9]), expected, atol=1e-12)
    np.testing.assert_allclose(matrix.decision_function(rbf_kernel(x[:9], x, gamma=0.4)), expected, atol=1e-12)
    assert matrix.X_fit_ is None
    with refused(ValueError, "precomputed", "square", "(90, 4)"):
        KernelUnhingedClassifier(kernel="precomputed").fit(x, y)


@in_turn("center", [True, False])
@in_turn("intercept", [True, False])
@in_turn("prior", [None, "frequencies", (0.2, 0.2, 0.6)])
def test_the_linear_kernel_is_the_linear_classifier(center, intercept, prior):
    x, y = blobs()
    weights = np.linspace(0.5, 2, len(x))
    options = {"center": center, "fit_intercept": intercept, "prior": prior, "radius": 3.0}
    for given in (None, weights):
        linear = UnhingedClassifier(**options).fit(x, y, given)
        model = KernelUnhingedClassifier(kernel="linear", block_size=13, **options).fit(x, y, given)
        np.testing.assert_allclose(model.decision_function(x), linear.decision_function(x), atol=1e-10)
        assert model.centroid_norm_ == pytest.approx(linear.centroid_norm_)


def test_there_is_never_a_whole_kernel_matrix_in_memory():
    x, y = blobs(3000)
    assert peak_bytes(lambda: KernelUnhingedClassifier(block_size=200).fit(x, y).predict(x)) < 3000 * 3000 * 8 / 20


def test_a_constant_feature_outweighs_small_differences_between_unequal_classes():
    """Why the intercept is off."""
    random = np.random.default_rng(0)
    y = np.repeat([0, 1], [260, 140])
    x = random.standard_normal((400, 6)) + 1.0 * y[:, None]
    model = KernelUnhingedClassifier(gamma=0.5).fit(x, y)
    assert model.score(x, y) > 0.8
    assert KernelUnhingedClassifier(gamma=0.5, fit_intercept=True).fit(x, y).score(x, y) < 0.7


def test_a_kernel_that_gives_no_length_is_refused():
    x, y = blobs()
    with refused(ValueError, "kernel", "positive semi-definite"):
        KernelUnhingedClassifier(kernel=lambda a, b: -float(a @ b)).fit(x, y)
    with refused(ValueError, "block_size", "[1, inf)", "0"):
        KernelUnhingedClassifier(block_size=0).fit(x, y)
