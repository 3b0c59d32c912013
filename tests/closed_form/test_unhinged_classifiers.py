"""Both classifiers: scikit-learn's checks, any kernel, the statements of appendix C, and every kind of input."""

import functools
import itertools

import numpy as np
import pyarrow
import pytest
import scipy.optimize
import scipy.sparse
import scipy.special
import torch
from closed_form_helpers import blobs, peak_bytes, relative
from conftest import assert_close
from estimator_checks import assert_is_an_estimator
from in_turn import in_turn
from refusals import all_refused, refused
from sklearn.kernel_approximation import Nystroem, RBFSampler
from sklearn.metrics.pairwise import pairwise_kernels, polynomial_kernel, rbf_kernel
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline

import symloss
from symloss import closed_form
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


SIZES = np.array([0, 1, 1, 2, 2, 2])


@in_turn("name", ["linear", "kernel"])
@in_turn(
    ("x", "settings", "equal"),
    [
        # All features are equal: the means are, and with classes of one, two and three examples the sums are not.
        (np.full((6, 2), 3.0), {}, "the same mean in every class"),
        (np.full((6, 2), 3.0), {"center": False}, None),
        (np.full((6, 2), 3.0), {"center": False, "prior": "frequencies"}, "the same mean in every class"),
        (np.full((6, 2), 3.0), {"center": False, "prior": [1 / 6, 1 / 3, 1 / 2]}, "the same mean in every class"),
        # Each class has the sum 6, or a quarter, a quarter and a half of the whole: the means are 6, 3, 2 or 4.
        (np.array([[6.0], [3], [3], [2], [2], [2]]), {"center": False}, "the same sum in every class"),
        (np.array([[6.0], [3], [3], [2], [2], [2]]), {}, None),
        (
            np.array([[6.0], [3], [3], [4], [4], [4]]),
            {"center": False, "prior": [0.25, 0.25, 0.5]},
            "sums in the ratio of the prior in every class",
        ),
        (np.array([[6.0], [3], [3], [4], [4], [4]]), {"center": False}, None),
    ],
)
def test_a_zero_centroid_is_explained_by_what_is_equal(name, x, settings, equal):
    make = UnhingedClassifier if name == "linear" else functools.partial(KernelUnhingedClassifier, kernel="linear")
    model = make(fit_intercept=False, **settings)
    if equal is None:
        assert model.fit(x, SIZES).centroid_norm_ > 0.1
        return
    with refused(ValueError, "must not be zero", equal):
        model.fit(x, SIZES)
    if "sum" in equal:
        with refused(ValueError, "center=True compares means"):
            model.fit(x, SIZES)


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


# --- Kinds and sizes of input: precision, sparse matrices, tensors, weights, any unit --------------------------------

both = in_turn("make", [UnhingedClassifier, KernelUnhingedClassifier])


@in_turn("given", [np.float64, np.float32, np.float16, np.int64])
def test_float32_stays_float32(given):
    x, y = blobs()
    x, kept = (10 * x).astype(given), np.float32 if given in (np.float32, np.float16) else np.float64
    model, exact = UnhingedClassifier().fit(x, y), UnhingedClassifier().fit(x.astype(np.float64), y)
    assert model.coef_.dtype == model.intercept_.dtype == kept
    assert model.decision_function(x).dtype == model.predict_proba(x).dtype == kept
    assert relative(model.coef_, exact.coef_) < 2e-7
    for layout in (np.asfortranarray, lambda x: x[::-1][::-1], lambda x: np.repeat(x, 2, 1)[:, ::2]):
        np.testing.assert_allclose(UnhingedClassifier().fit(layout(x), y).coef_, model.coef_)


@in_turn("offset", [0.0, 1.0, 1e4])
@in_turn("center", [True, False])
def test_float32_features_far_from_zero_lose_no_accuracy(offset, center):
    """A plain sum of 60,000 such numbers in float32 is wrong by far more than the classes differ."""
    x, y = blobs(60_000, offset=offset, flipped=0.9, dtype=np.float32)
    model = UnhingedClassifier(center=center).fit(x, y)
    exact = UnhingedClassifier(center=center).fit(x.astype(np.float64), y)
    assert relative(model.coef_, exact.coef_) < 1e-6
    if offset == 1e4:
        naive = np.stack([np.add.accumulate(x[y == k], axis=0, dtype=np.float32)[-1] for k in range(3)])
        assert np.abs((naive - exact.sums_.sums) / exact.sums_.weights[:, None]).max() > 0.1


def test_float32_features_that_are_large_or_rare():
    x, y = blobs(5000, dtype=np.float32)
    plain, overflowing = (UnhingedClassifier(fit_intercept=False).fit(np.float32(f) * x, y) for f in (1, 1e36))
    assert relative(overflowing.coef_, plain.coef_) < 1e-6  # though their sums overflow in float32
    rare = np.zeros((10_000, 2), np.float32)
    rare[0, 0] = 1e-3  # a small centroid is not mistaken for zero
    assert UnhingedClassifier(fit_intercept=False).fit(rare, np.arange(10_000) % 2).coef_[0, 0] > 0.5
    same = np.column_stack([x, np.full(len(x), 1234.567, np.float32)])  # features that are all the same add nothing
    assert np.abs(UnhingedClassifier().fit(same, y).coef_[:, -1]).max() < 1e-9


@in_turn("kind", ["csr_array", "csr_matrix", "csc_array", "coo_array"])
@in_turn("dtype", [np.float32, np.float64])
@both
def test_sparse_matrices_are_like_dense_ones(make, kind, dtype):
    x, y = blobs(dtype=dtype)
    x[x < 1] = 0
    sparse, tolerance = getattr(scipy.sparse, kind)(x), 1e-6 if dtype == np.float32 else 1e-12
    for weights in (None, np.linspace(0.5, 2, len(x))):
        found = make().fit(sparse, y, weights).decision_function(sparse)
        np.testing.assert_allclose(found, make().fit(x, y, weights).decision_function(x), atol=tolerance)
        assert found.dtype == dtype


def test_centring_does_not_fill_a_sparse_matrix_and_memory_does_not_grow_with_the_examples():
    wide = scipy.sparse.random_array((2000, 20_000), density=1e-4, format="csr", rng=np.random.default_rng(0))
    labels = np.arange(40_000) % 2
    assert peak_bytes(lambda: UnhingedClassifier().fit(wide, labels[:2000]).predict(wide)) < 0.05 * 2000 * 20_000 * 8
    x = np.ones((40_000, 64), np.float32)
    x[::2] = 2
    UnhingedClassifier().fit(x[:100], labels[:100])
    assert peak_bytes(lambda: closed_form.sums.class_sums(x, labels, 2)) < x.nbytes / 3


@in_turn("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.uint8])
def test_tensors_are_like_arrays(dtype):
    x, y = blobs()
    features, weights = torch.from_numpy(10 * abs(x)).to(dtype), torch.linspace(0.1, 2, len(x), dtype=torch.float64)
    array = features.float().numpy() if dtype == torch.bfloat16 else features.numpy()
    model, same = UnhingedClassifier().fit(features, torch.from_numpy(y)), UnhingedClassifier().fit(array, y)
    np.testing.assert_array_equal(model.coef_, same.coef_)
    for method in ("decision_function", "predict_proba", "predict"):
        found = getattr(model, method)(features)
        assert isinstance(found, torch.Tensor)
        np.testing.assert_allclose(found, getattr(same, method)(array), rtol=1e-4, atol=1e-5)
    assert model.predict(features).dtype == torch.int64
    single = same.coef_.dtype == np.float32
    assert model.decision_function(features).dtype == (torch.float32 if single else torch.float64)
    if dtype == torch.float64:
        named = model.fit(features.requires_grad_(), np.array(["a", "b", "c"])[y], weights)
        np.testing.assert_allclose(named.coef_, same.fit(array, y, weights.numpy()).coef_)
        assert set(named.predict(features)) <= {"a", "b", "c"}


# --- Features of any size --------------------------------------------------------------------------------------------

direct = functools.partial(UnhingedClassifier, fit_intercept=False)
of_kernel = functools.partial(KernelUnhingedClassifier, kernel="linear", block_size=40)
SCALES = [(np.float64, factor) for factor in (2.0**1000, 1e160, 1e-160, 1e-200, 2.0**-1000)]
SCALES += [(np.float32, 1e30), (np.float32, 1e-30)]


@in_turn("make", [direct, of_kernel])
@in_turn("center", [True, False])
@in_turn(("dtype", "factor"), SCALES)
def test_the_unit_of_the_features_only_scales_the_scores(make, center, dtype, factor):
    x, y = blobs()
    scaled, tolerance = (factor * x).astype(dtype), 1e-5 if dtype == np.float32 else 1e-12
    plain, model = make(center=center).fit(x, y), make(center=center).fit(scaled, y)
    assert relative(model.decision_function(scaled).astype(float) / factor, plain.decision_function(x)) < tolerance
    assert model.centroid_norm_ / factor == pytest.approx(plain.centroid_norm_, rel=tolerance)
    np.testing.assert_array_equal(model.predict(scaled), plain.predict(x))


CSR = scipy.sparse.csr_array


@in_turn(("make", "kind"), [(direct, CSR), (direct, torch.from_numpy), (of_kernel, CSR)])
def test_every_kind_of_features(make, kind):
    x, y = blobs()
    x[x < 1] = 0
    for factor in (1e160, 1e-200):
        found = make().fit(kind(factor * x), y).decision_function(kind(factor * x))
        assert relative(np.asarray(found) / factor, make().fit(x, y).decision_function(x)) < 1e-12
    # Examples of another size than those of the fit.
    plain, large = make(center=False).fit(x, y), make(center=False).fit(kind(1e160 * x), y)
    found = 1e160 * np.asarray(large.decision_function(kind(1e-160 * x)))
    assert relative(found, plain.decision_function(x)) < 1e-12
    if make is direct:  # subnormal features lose their own digits only
        np.testing.assert_array_equal(make().fit(1e-320 * x, y).predict(1e-320 * x), make().fit(x, y).predict(x))


@both
def test_rounding_of_the_frequencies_does_not_outweigh_small_features(make):
    """Three classes of one weight: as the weights were summed, their shares differ from 1/3 by rounding."""
    x, y, random = 1e-30 * blobs()[0], np.arange(90) % 3, np.random.default_rng(0)
    weights = np.stack([random.permutation(np.linspace(0.1, 1, 30)) for _ in range(3)], 1).ravel()
    linear = {} if make is UnhingedClassifier else {"kernel": "linear"}
    with_intercept, without = (make(fit_intercept=on, **linear).fit(x, y, weights) for on in (True, False))
    assert relative(with_intercept.decision_function(x), without.decision_function(x)) < 1e-9


@in_turn("classes", [7, 1023, 1024, 1025, 50_000])
def test_sums_for_fewer_and_for_more_classes_than_a_block_has_rows(classes):
    rng = np.random.default_rng(0)
    features = rng.standard_normal((3000, 2)).astype(np.float32)
    codes, weights = rng.integers(classes, size=3000), rng.uniform(size=3000)
    for weight in (None, weights):
        expected = np.zeros((classes, 2))
        np.add.at(expected, codes, features if weight is None else weight[:, None] * features)
        found = closed_form.sums.class_sums(features, codes, classes, weight).sums
        np.testing.assert_allclose(found, expected, atol=1e-4)


# --- What cannot be right --------------------------------------------------------------------------------------------


@both
def test_labels_weights_and_settings_that_cannot_be_right(make):
    x, y = blobs()
    weights = np.ones(len(x))

    def fit(**options):
        return lambda: make(**options).fit(x, y)

    all_refused(
        (ValueError, "y ... at least 2 classes ... 1 class ... 0", lambda: make().fit(x, 0 * y)),
        (ValueError, "positive sample_weight ... at least 2 classes ... 2", lambda: make().fit(x, y, 1.0 * (y == 2))),
        (ValueError, "sample_weight ... positive sum ... zero", lambda: make().fit(x, y, 0 * weights)),
        (ValueError, "Negative values", lambda: make().fit(x, y, -weights)),
        (ValueError, "radius ... (0, inf) ... 0", fit(radius=0)),
        (ValueError, "prior ... 'frequencies' ... 'uniform'", fit(prior="uniform")),
        (ValueError, "prior ... 3 classes ... [0.5, 0.5]", fit(prior=[0.5, 0.5])),
        (ValueError, "prior ... sum to 1 ... [0.5, 0.5, 0.5]", fit(prior=[0.5, 0.5, 0.5])),
        (ValueError, "prior ... probabilities ... -0.5", fit(prior=[1.5, -0.5, 0])),
        (ValueError, "prior ... probabilities ... nan", fit(prior=[float("nan"), 0.5, 0.5])),
        (ValueError, "prior ... vector ... {'a': 1}", fit(prior={"a": 1})),
    )


@both
def test_features_that_are_not_finite_are_refused(make):
    for bad, dtype in itertools.product((np.nan, np.inf, -np.inf), (np.float32, np.float64)):
        x, y = blobs(dtype=dtype)
        x[np.flatnonzero(y == 0)[::2], 1] = bad
        if make is UnhingedClassifier:  # of which infinities of both signs do not hide each other
            x[np.flatnonzero(y == 0)[1::2], 1] = -bad
        kinds = [x, scipy.sparse.csr_array(x)] + ([torch.from_numpy(x)] if make is UnhingedClassifier else [])
        for features, weights in itertools.product(kinds, (None, np.linspace(0, 1, len(y)))):
            with pytest.raises(ValueError, match=r"Input X contains (NaN|infinity)"):
                make().fit(features, y, weights)


def test_features_to_predict_are_checked_too():
    x, y = blobs()
    model = UnhingedClassifier().fit(x, y)
    bad = x.copy()
    bad[0, 0] = np.nan
    for kind in (np.asarray, torch.from_numpy):
        with pytest.raises(ValueError, match="NaN"):
            model.predict(kind(bad))
        with pytest.raises(ValueError, match="X has 2 features, but UnhingedClassifier is expecting 4"):
            model.predict(kind(x[:, :2]))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(torch.from_numpy(x), y[:5])
    all_refused(
        (ValueError, "X ... (N, d) ... (90,)", lambda: model.fit(torch.from_numpy(x[:, 0]), y)),
        (ValueError, "X ... real ... complex", lambda: model.fit(torch.from_numpy(x).to(torch.complex64), y)),
        (ValueError, "X ... finite ... too large", lambda: model.fit(np.full((4, 2), 1e308), [0, 0, 1, 1])),
    )


@in_turn("dtype", [np.float32, np.float64])
@in_turn("offset", [0.0, 0.1, 1e3])
@both
def test_a_centroid_of_nothing_but_rounding_is_refused(make, dtype, offset):
    """Both classes have the same examples, in different orders: sums differ by rounding at most."""
    count = 3000 if make is UnhingedClassifier else 300
    half = (np.random.default_rng(0).standard_normal((count, 3)) + offset).astype(dtype)
    x, y = np.concatenate([half, half[::-1]]), np.repeat([0, 1], count)
    with refused(ValueError, "centroid", "zero"):
        make(fit_intercept=False).fit(x, y)


def test_sums_weights_and_norms_that_overflow():
    x, y = blobs(offset=0.0)
    model = UnhingedClassifier().fit(1e306 * x, y)
    heavy = UnhingedClassifier().fit(x, y, np.full(len(x), 1e306))
    corners, raw = 1.7e308 * np.array([[1.0] * 4, [-1.0] * 4]), UnhingedClassifier(center=False)

    def stream():
        for _ in range(1000):
            model.partial_fit(1e306 * x, y)

    too_large = "X and sample_weight ... finite ... too large"
    all_refused(
        (ValueError, too_large, lambda: UnhingedClassifier().fit(x, y, np.full(len(x), 1e307))),
        (ValueError, too_large, stream),
        (ValueError, too_large, lambda: heavy.merge(heavy).merge(heavy)),
        (ValueError, "X and radius ... finite in float64 ... radius = 1", lambda: raw.fit(corners, [0, 1])),
    )


def test_weights_and_scores_that_the_precision_cannot_hold():
    x, y = blobs(dtype=np.float32)
    large = 1e20 * x
    plain, kernel = UnhingedClassifier(radius=1e20), KernelUnhingedClassifier(kernel="linear", radius=1e20)
    for model, features in ((plain, large), (plain, torch.from_numpy(large)), (kernel, large)):
        with refused(ValueError, "X", "scores are finite", "float32", "too large"):
            model.fit(x, y).predict(features)
    with refused(ValueError, "radius", "finite in float32", "radius = 1e+40"):
        UnhingedClassifier(radius=1e40).fit(x, y)
    for factor in (np.float32(3e37), np.float32(1e-41)):
        with refused(ValueError, "X and radius", "weights of the examples that float32 can hold", "scale"):
            KernelUnhingedClassifier(kernel="linear").fit(factor * x, y)


def test_kernels_of_features_that_do_not_suit_them():
    x, y = blobs()

    def fit(factor, **options):
        return lambda: KernelUnhingedClassifier(**options).fit(factor * x, y)

    all_refused(
        (ValueError, "kernel must be finite ... too large", fit(1e160, kernel="rbf")),
        (ValueError, "kernel must be finite ... too large", fit(1e160, kernel="poly")),
        (ValueError, "kernel must be above 0 in float64 ... too small", fit(1e-200, kernel="poly", coef0=0)),
        (ValueError, "the same mean in every class ... in the feature space of the kernel", fit(1e-200)),
    )


def test_a_layer_in_half_precision_that_cannot_hold_its_weights_is_left_alone():
    x, y = blobs()
    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).to(torch.float16)
    before = model[0].weight.clone()
    batch = torch.from_numpy(x).to(torch.float16), torch.from_numpy(y)
    with refused(ValueError, "finite in torch.float16", "too large"):
        closed_form.refit_head(model, [batch], radius=1e6)
    assert torch.equal(model[0].weight, before)
