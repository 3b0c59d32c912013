"""The numbered statements of appendix C, each by the formula of the paper."""

import numpy as np
import pytest
import scipy.optimize
import torch
from closed_form_helpers import blobs, c_vectors, centroid, extended, relative, unhinged
from conftest import assert_close

import symloss
from symloss.closed_form import (
    KernelUnhingedClassifier,
    UnhingedClassifier,
    centroid_alignment,
    squared_error_centroid,
    unhinged_centroid,
)

OPTIONS = [{"fit_intercept": intercept, "center": center} for intercept in (True, False) for center in (True, False)]
every_option = pytest.mark.parametrize("options", OPTIONS, ids=str)


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
    x, y = blobs()
    w = np.random.default_rng(1).standard_normal((3, 4))
    assert unhinged(x @ w.T, y).mean() == pytest.approx(-np.trace(centroid(x, y, 3) @ w.T), abs=1e-12)


def test_the_gradient_of_the_loss_is_minus_the_centroid_everywhere():
    x, y = blobs()
    for seed in range(3):
        w = torch.randn(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).requires_grad_()
        symloss.Unhinged(normalize=None)(torch.from_numpy(x) @ w.T, torch.from_numpy(y)).backward()
        np.testing.assert_allclose(w.grad, -centroid(x, y, 3), atol=1e-12)


@every_option
def test_w_is_r_mu_over_the_norm_of_mu(options):
    x, y = blobs()
    psi = design(x, **options)
    mu = centroid(psi, y, 3)
    model = UnhingedClassifier(radius=2.5, **options).fit(x, y)
    w = weights_on(psi.shape[1], model, x, options["center"])
    np.testing.assert_allclose(w, 2.5 * mu / np.linalg.norm(mu), atol=1e-12)
    assert np.linalg.norm(w) == pytest.approx(2.5)
    assert model.centroid_norm_ == pytest.approx(np.linalg.norm(mu))
    assert (np.abs(model.intercept_).max() > 0) == (options["fit_intercept"] or options["center"])


@every_option
def test_the_least_loss_is_minus_r_times_the_norm_of_mu(options):
    x, y = blobs()
    model = UnhingedClassifier(radius=3.0, **options).fit(x, y)
    # The scores of centred examples: those that the classifier gives the examples as they are.
    assert unhinged(model.decision_function(x), y).mean() == pytest.approx(-3 * model.centroid_norm_, abs=1e-12)


@every_option
def test_the_closed_form_is_what_an_iterative_solver_finds(options):
    x, y = blobs()
    psi, radius = design(x, **options), 1.5
    shape = (3, psi.shape[1])

    def loss(flat):
        return unhinged(psi @ flat.reshape(shape).T, y).mean()

    ball = {"type": "ineq", "fun": lambda flat: radius**2 - flat @ flat, "jac": lambda flat: -2 * flat}
    start = np.random.default_rng(0).standard_normal(np.prod(shape)) / 10
    found = scipy.optimize.minimize(
        loss, start, method="SLSQP", constraints=[ball], options={"ftol": 1e-15, "maxiter": 500}
    )
    model = UnhingedClassifier(radius=radius, **options).fit(x, y)
    w = weights_on(psi.shape[1], model, x, options["center"])
    assert loss(w.ravel()) == pytest.approx(found.fun, abs=1e-6)
    np.testing.assert_allclose(w, found.x.reshape(shape), atol=1e-6)


def test_the_closed_form_is_where_gradient_descent_with_weight_decay_ends():
    """The Lagrangian's stationary point W = mu / (2 lambda), rescaled."""
    x, y = blobs()
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    w = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.5, weight_decay=1.0)
    for _ in range(40):
        optimizer.zero_grad()
        symloss.Unhinged(normalize=None)(features @ w.T, labels).backward()
        optimizer.step()
    model = UnhingedClassifier(fit_intercept=False, center=False).fit(x, y)
    np.testing.assert_allclose(model.coef_, (w / w.norm()).detach(), atol=1e-6)


def test_the_radius_changes_no_prediction_and_scales_the_scores():
    x, y = blobs()
    one, ten = (UnhingedClassifier(radius=r).fit(x, y) for r in (1, 10))
    assert (one.predict(x) == ten.predict(x)).all()
    np.testing.assert_allclose(10 * one.decision_function(x), ten.decision_function(x), atol=1e-12)


def test_a_zero_centroid_is_degenerate_all_weights_have_the_same_loss():
    x = np.array([[1.0, 2.0], [-1.0, 0.5], [1.0, 2.0], [-1.0, 0.5]])
    y = np.array([0, 0, 1, 1])
    for seed in range(3):
        w = np.random.default_rng(seed).standard_normal((2, 2))
        assert unhinged(x @ w.T, y).mean() == pytest.approx(0, abs=1e-15)
    for classifier in (UnhingedClassifier(), KernelUnhingedClassifier(kernel="linear")):
        with pytest.raises(ValueError, match="centroid of the data must not be zero"):
            classifier.fit(x, y)


def test_data_sets_with_the_same_centroid_have_the_same_loss_up_to_a_constant():
    x, y = blobs()
    other = np.repeat(x, 2, axis=0)  # each example once moved up, once down
    other[::2] += 0.3
    other[1::2] -= 0.3
    twice = np.repeat(y, 2)
    np.testing.assert_allclose(centroid(x, y, 3), centroid(other, twice, 3), atol=1e-12)
    random = np.random.default_rng(0)
    gaps = [
        unhinged(x @ w.T, y).mean() - unhinged(other @ w.T, twice).mean() for w in random.standard_normal((4, 3, 4))
    ]
    np.testing.assert_allclose(gaps, gaps[0], atol=1e-12)


@pytest.mark.parametrize("classes", [3, 5])
def test_mu_sq_and_mu_unh_by_the_formula(classes):
    """One outer product at a time; classes may have no examples."""
    x, y = blobs()
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    square = sum(np.outer(np.eye(classes)[label], row) for row, label in zip(x, y, strict=True)) / len(x)
    np.testing.assert_allclose(squared_error_centroid(features, labels, classes), square, atol=1e-12)
    np.testing.assert_allclose(unhinged_centroid(features, labels, classes), centroid(x, y, classes), atol=1e-12)


def test_mu_unh_is_mu_sq_corrected_by_the_mean():
    """mu^unh = mu^sq - 1/C 1 (1/N sum_i psi(x_i)^T)."""
    x, y = blobs()
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    corrected = squared_error_centroid(features, labels).numpy() - np.outer(np.ones(3), x.mean(0)) / 3
    np.testing.assert_allclose(unhinged_centroid(features, labels), corrected, atol=1e-12)
    model = UnhingedClassifier(fit_intercept=False, center=False).fit(x, y)
    np.testing.assert_allclose(model.coef_ * model.centroid_norm_, corrected, atol=1e-12)
    still = features - features.mean(0)  # features of mean 0 need no correction
    assert_close(unhinged_centroid(still, labels), squared_error_centroid(still, labels))


def test_mu_sq_decomposes_the_squared_error():
    """1/N sum_i |W psi_i - y_i|^2 is 1 - 2 <W, mu^sq> and a term that reads no label (Ding et al. 2022)."""
    x, y = blobs()
    w = np.random.default_rng(1).standard_normal((3, 4))
    mean_squared = np.square(x @ w.T - np.eye(3)[y]).sum(1).mean()
    mu = squared_error_centroid(torch.from_numpy(x), torch.from_numpy(y)).numpy()
    assert mean_squared == pytest.approx(1 - 2 * (w * mu).sum() + np.square(x @ w.T).sum(1).mean())


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
    total = 0.0
    for i in range(len(x)):
        for j in range(len(x)):
            total += ((2 / 3) if y[i] == y[j] else (-1 / 3)) * (x[i] @ x[j])
    total /= len(x) ** 2
    assert np.linalg.norm(centroid(x, y, 3)) ** 2 == pytest.approx(total)
    assert float(centroid_alignment(torch.from_numpy(x), torch.from_numpy(y))) == pytest.approx(total)
    for model in (UnhingedClassifier, lambda **o: KernelUnhingedClassifier(kernel="linear", block_size=7, **o)):
        fitted = model(fit_intercept=False, center=False).fit(x, y)
        assert fitted.centroid_norm_**2 == pytest.approx(total)


def test_proof_of_prop_c_1_products_of_c_vectors():
    for classes in (2, 3, 7):
        c = c_vectors(np.arange(classes), classes)
        products = c @ c.T
        expected = np.where(np.eye(classes, dtype=bool), (classes - 1) / classes, -1 / classes)
        np.testing.assert_allclose(products, expected, atol=1e-15)


@pytest.mark.parametrize("center", [True, False])
def test_a_prior_replaces_one_over_c(center):
    x, y = blobs()
    prior = np.array([0.5, 0.2, 0.3])
    psi = design(x, True, center)
    mu = centroid(psi, y, 3, prior=prior)
    model = UnhingedClassifier(prior=prior, center=center).fit(x, y)
    np.testing.assert_allclose(weights_on(5, model, x, center), mu / np.linalg.norm(mu), atol=1e-12)
    plain = UnhingedClassifier(center=center).fit(x, y)
    assert relative(plain.coef_ * plain.centroid_norm_, model.coef_ * model.centroid_norm_) < 1e-12 or not center


def test_the_prior_of_frequencies_centres_the_weights_and_leaves_no_intercept():
    x, y = blobs()
    model = UnhingedClassifier(prior="frequencies", center=False).fit(x, y)
    centred = UnhingedClassifier(fit_intercept=False, center=True).fit(x, y)
    np.testing.assert_allclose(model.coef_, centred.coef_, atol=1e-12)
    np.testing.assert_allclose(model.intercept_, 0, atol=1e-15)


def test_noise_that_mixes_in_the_prior_shrinks_the_centroid_and_does_not_turn_it():
    """In expectation: every label counted by its probability under the noise."""
    x, y = blobs(flipped=0.0)
    for prior in (None, np.array([0.6, 0.3, 0.1])):
        mixed = np.full(3, 1 / 3) if prior is None else prior
        rows, labels = np.repeat(x, 3, axis=0), np.tile(np.arange(3), len(x))
        weights = (0.3 * np.eye(3)[y] + 0.7 * mixed).ravel()
        clean = UnhingedClassifier(center=False, fit_intercept=False, prior=prior).fit(x, y)
        noisy = UnhingedClassifier(center=False, fit_intercept=False, prior=prior).fit(rows, labels, weights)
        np.testing.assert_allclose(noisy.coef_, clean.coef_, atol=1e-12)
        assert noisy.centroid_norm_ == pytest.approx(0.3 * clean.centroid_norm_)
    wrong = UnhingedClassifier(center=False, fit_intercept=False).fit(rows, labels, weights)
    assert relative(wrong.coef_, UnhingedClassifier(center=False, fit_intercept=False).fit(x, y).coef_) > 0.01
