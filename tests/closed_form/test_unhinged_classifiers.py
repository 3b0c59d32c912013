"""Both classifiers among scikit-learn's own estimators, any kernel, and the numbered statements of appendix C."""

import numpy as np
import pyarrow
import pytest
import scipy.optimize
import scipy.special
import torch
from closed_form_helpers import blobs, peak_bytes, relative
from conftest import assert_close
from estimator_checks import assert_is_an_estimator
from in_turn import in_turn
from refusals import all_refused
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.metrics.pairwise import pairwise_kernels, polynomial_kernel, rbf_kernel
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import symloss
from symloss.closed_form import KernelUnhingedClassifier, UnhingedClassifier, squared_error_centroid, unhinged_centroid

LINEAR = KernelUnhingedClassifier(kernel="linear", block_size=64, prior="frequencies")


@pytest.mark.parametrize("estimator", [UnhingedClassifier(), KernelUnhingedClassifier(), LINEAR])
def test_checks_of_scikit_learn(estimator):
    assert_is_an_estimator(estimator)


def c_vectors(labels, classes, prior=None):
    """c_y: (C-1)/C at the label, -1/C elsewhere; or e_y - prior."""
    found = np.full((len(labels), classes), -1 / classes) if prior is None else -np.tile(prior, (len(labels), 1))
    for row, label in zip(found, labels, strict=True):
        row[label] += 1
    return found


def centroid(x, labels, classes, weights=None, prior=None):
    """mu = 1/N sum_i w_i c_{y_i} x_i^T, one outer product at a time."""
    weights = np.ones(len(x)) if weights is None else np.asarray(weights, float)
    found = np.zeros((classes, x.shape[1]))
    for w, c, row in zip(weights, c_vectors(labels, classes, prior), np.asarray(x, float), strict=True):
        found += w * np.outer(c, row)
    return found / weights.sum()


def extended(x):
    return np.column_stack([x, np.ones(len(x))])


def unhinged(scores, labels):
    """mean_k z_k - z_y of each example."""
    return scores.mean(1) - scores[np.arange(len(labels)), labels]


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


# --- The numbered statements of appendix C, each by the formula of the paper -----------------------------------------


def design(x, fit_intercept, center):
    """psi(x): centred or not, extended or not."""
    psi = x - x.mean(0) if center else x
    return extended(psi) if fit_intercept else psi


def weights_on(design_width, model, x, center):
    """The W of the paper: the intercept as its last column, for features that are already centred."""
    bias = model.intercept_ + (model.coef_ @ x.mean(0) if center else 0)
    whole = np.column_stack([model.coef_, bias])
    return whole[:, :design_width]


def test_eq_trace_the_loss_is_minus_the_trace_of_mu_and_w():
    """And its gradient is minus the centroid, everywhere."""
    x, y = blobs()
    for seed in range(3):
        w = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        loss = symloss.Unhinged(normalize=None)(torch.from_numpy(x) @ w.T, torch.from_numpy(y))
        assert float(loss.detach()) == pytest.approx(-np.trace(centroid(x, y, 3) @ w.detach().numpy().T), abs=1e-12)
        loss.backward()
        np.testing.assert_allclose(w.grad, -centroid(x, y, 3), atol=1e-12)


@in_turn("fit_intercept", [True, False])
@in_turn("center", [True, False])
def test_w_is_r_mu_over_the_norm_of_mu(fit_intercept, center):
    """The least loss is -r |mu|, and an iterative solver finds the same weights."""
    x, y = blobs()
    psi, radius = design(x, fit_intercept, center), 2.5
    mu, shape = centroid(psi, y, 3), (3, psi.shape[1])
    model = UnhingedClassifier(radius=radius, fit_intercept=fit_intercept, center=center).fit(x, y)
    w = weights_on(psi.shape[1], model, x, center)
    np.testing.assert_allclose(w, radius * mu / np.linalg.norm(mu), atol=1e-12)
    assert np.linalg.norm(w) == pytest.approx(radius)
    assert model.centroid_norm_ == pytest.approx(np.linalg.norm(mu))
    assert (np.abs(model.intercept_).max() > 0) == (fit_intercept or center)
    # The scores of centred examples: those that the classifier gives the examples as they are.
    assert unhinged(model.decision_function(x), y).mean() == pytest.approx(-radius * model.centroid_norm_, abs=1e-12)
    ball = {"type": "ineq", "fun": lambda flat: radius**2 - flat @ flat, "jac": lambda flat: -2 * flat}
    start = np.random.default_rng(0).standard_normal(np.prod(shape)) / 10
    options = {"method": "SLSQP", "constraints": [ball], "options": {"ftol": 1e-15, "maxiter": 500}}
    found = scipy.optimize.minimize(lambda flat: unhinged(psi @ flat.reshape(shape).T, y).mean(), start, **options)
    np.testing.assert_allclose(w, found.x.reshape(shape), atol=1e-6)


def test_a_zero_centroid_is_degenerate_all_weights_have_the_same_loss():
    x = np.array([[1.0, 2.0], [-1.0, 0.5], [1.0, 2.0], [-1.0, 0.5]])
    y = np.array([0, 0, 1, 1])
    for seed in range(3):
        w = np.random.default_rng(seed).standard_normal((2, 2))
        assert unhinged(x @ w.T, y).mean() == pytest.approx(0, abs=1e-15)
    for classifier in (UnhingedClassifier(), KernelUnhingedClassifier(kernel="linear")):
        with pytest.raises(ValueError, match="centroid of the data must not be zero"):
            classifier.fit(x, y)


@in_turn("classes", [3, 5])
def test_mu_sq_and_mu_unh_by_the_formula(classes):
    """One outer product at a time; classes may have no examples. mu^unh = mu^sq - 1/C 1 (1/N sum_i psi(x_i)^T)."""
    x, y = blobs()
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    square = sum(np.outer(np.eye(classes)[label], row) for row, label in zip(x, y, strict=True)) / len(x)
    np.testing.assert_allclose(squared_error_centroid(features, labels, classes), square, atol=1e-12)
    np.testing.assert_allclose(unhinged_centroid(features, labels, classes), centroid(x, y, classes), atol=1e-12)
    corrected = square - np.outer(np.ones(classes), x.mean(0)) / classes
    np.testing.assert_allclose(centroid(x, y, classes), corrected, atol=1e-12)
    # 1/N sum_i |W psi_i - y_i|^2 is 1 - 2 <W, mu^sq> and a term that reads no label (Ding et al. 2022).
    w = np.random.default_rng(1).standard_normal((classes, 4))
    mean_squared = np.square(x @ w.T - np.eye(classes)[y]).sum(1).mean()
    assert mean_squared == pytest.approx(1 - 2 * (w * square).sum() + np.square(x @ w.T).sum(1).mean())


def test_uniform_noise_shrinks_mu_unh_and_turns_mu_sq():
    """In expectation, by examples that stand for every label with its probability."""
    x, y = blobs(flipped=0.0)
    clean, rate = (torch.from_numpy(x), torch.from_numpy(y)), 0.75
    # A quarter of the copies keep the label; the others have each of the three labels as often.
    noisy = clean[0].repeat(4, 1), torch.cat([clean[1], *(torch.full_like(clean[1], k) for k in range(3))])
    assert_close(unhinged_centroid(*noisy), (1 - rate) * unhinged_centroid(*clean))
    drift = rate / 3 * clean[0].mean(0)
    assert_close(squared_error_centroid(*noisy), (1 - rate) * squared_error_centroid(*clean) + drift)
    cosine = torch.cosine_similarity(squared_error_centroid(*noisy).ravel(), squared_error_centroid(*clean).ravel(), 0)
    assert float(cosine) < 0.95


def test_prop_c_1_the_squared_norm_of_the_centroid_is_a_double_sum_over_the_kernel():
    x, y = blobs()
    products = np.where(y[:, None] == y, 2 / 3, -1 / 3)
    np.testing.assert_allclose(c_vectors(y, 3) @ c_vectors(y, 3).T, products, atol=1e-15)
    total = (products * (x @ x.T)).sum() / len(x) ** 2
    assert np.linalg.norm(centroid(x, y, 3)) ** 2 == pytest.approx(total)
    for model in (UnhingedClassifier, lambda **o: KernelUnhingedClassifier(kernel="linear", block_size=7, **o)):
        fitted = model(fit_intercept=False, center=False).fit(x, y)
        assert fitted.centroid_norm_**2 == pytest.approx(total)


@in_turn("center", [True, False])
def test_a_prior_replaces_one_over_c(center):
    """That of the frequencies centres the weights, and leaves no intercept."""
    (x, y), prior = blobs(), np.array([0.5, 0.2, 0.3])
    mu = centroid(design(x, True, center), y, 3, prior=prior)
    model = UnhingedClassifier(prior=prior, center=center).fit(x, y)
    np.testing.assert_allclose(weights_on(5, model, x, center), mu / np.linalg.norm(mu), atol=1e-12)
    by_shares = UnhingedClassifier(prior="frequencies", center=False).fit(x, y)
    centred = UnhingedClassifier(fit_intercept=False, center=True).fit(x, y)
    np.testing.assert_allclose(by_shares.coef_, centred.coef_, atol=1e-12)
    np.testing.assert_allclose(by_shares.intercept_, 0, atol=1e-15)


def test_noise_that_mixes_in_the_prior_shrinks_the_centroid_and_does_not_turn_it():
    """In expectation: every label counted by its probability under the noise. With another prior it turns."""
    x, y = blobs(flipped=0.0)
    rows, labels = np.repeat(x, 3, axis=0), np.tile(np.arange(3), len(x))
    uniform, skewed = np.full(3, 1 / 3), np.array([0.6, 0.3, 0.1])
    for mixed, prior in ((uniform, None), (skewed, skewed), (skewed, None)):
        model = UnhingedClassifier(center=False, fit_intercept=False, prior=prior)
        clean = model.fit(x, y).centroid_norm_ * model.coef_
        noisy = model.fit(rows, labels, (0.3 * np.eye(3)[y] + 0.7 * mixed).ravel()).centroid_norm_ * model.coef_
        off = relative(noisy, 0.3 * clean)
        assert off > 0.01 if mixed is skewed and prior is None else off < 1e-12
