"""The numbered statements of appendix C, each by the formula of the paper."""

import numpy as np
import pytest
import scipy.optimize
import torch
from closed_form_helpers import blobs, c_vectors, centroid, extended, relative, unhinged
from conftest import assert_close
from in_turn import in_turn

import symloss
from symloss.closed_form import KernelUnhingedClassifier, UnhingedClassifier, squared_error_centroid, unhinged_centroid


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
