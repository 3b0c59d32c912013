"""Kinds and sizes of input: precision, sparse matrices, tensors, weights, any unit; and what cannot be right."""

import functools
import itertools

import numpy as np
import pytest
import scipy.sparse
import torch
from closed_form_helpers import blobs, peak_bytes, relative
from in_turn import in_turn
from refusals import all_refused, refused

from symloss.closed_form import KernelUnhingedClassifier, UnhingedClassifier, refit_head, sums

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
    assert peak_bytes(lambda: sums.class_sums(x, labels, 2)) < x.nbytes / 3


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


# Features of any size.

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
        np.testing.assert_allclose(sums.class_sums(features, codes, classes, weight).sums, expected, atol=1e-4)


# What cannot be right.


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
        (ValueError, "do not differ in the feature space of the kernel", fit(1e-200)),
    )


def test_a_layer_in_half_precision_that_cannot_hold_its_weights_is_left_alone():
    x, y = blobs()
    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).to(torch.float16)
    before = model[0].weight.clone()
    batch = torch.from_numpy(x).to(torch.float16), torch.from_numpy(y)
    with refused(ValueError, "finite in torch.float16", "too large"):
        refit_head(model, [batch], radius=1e6)
    assert torch.equal(model[0].weight, before)
