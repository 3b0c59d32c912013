"""Features of any size: the classifiers do not care about the unit they are measured in, or say that they cannot."""

import numpy as np
import pytest
import scipy.sparse
import torch
from closed_form_helpers import blobs, relative
from in_turn import in_turn
from refusals import refused

from symloss.closed_form import KernelUnhingedClassifier, UnhingedClassifier, refit_head
from symloss.closed_form.sums import class_sums

CLASSIFIERS = {
    "direct": lambda **options: UnhingedClassifier(fit_intercept=False, **options),
    "kernel": lambda **options: KernelUnhingedClassifier(kernel="linear", block_size=40, **options),
}
linear = pytest.mark.parametrize("make", CLASSIFIERS.values(), ids=CLASSIFIERS)

SCALES = [(np.float64, factor) for factor in (2.0**1000, 1e160, 1e-160, 1e-200, 2.0**-1000)]
SCALES += [(np.float32, 1e20), (np.float32, 1e-25)]


@linear
@in_turn("center", [True, False])
@in_turn(("dtype", "factor"), SCALES)
def test_the_unit_of_the_features_only_scales_the_scores(make, center, dtype, factor):
    x, y = blobs()
    plain = make(center=center).fit(x, y)
    scaled = (factor * x).astype(dtype)
    model = make(center=center).fit(scaled, y)
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    assert relative(model.decision_function(scaled).astype(float) / factor, plain.decision_function(x)) < tolerance
    assert model.centroid_norm_ / factor == pytest.approx(plain.centroid_norm_, rel=tolerance)
    np.testing.assert_array_equal(model.predict(scaled), plain.predict(x))


@in_turn(
    ("name", "kind"),
    [("direct", scipy.sparse.csr_array), ("direct", torch.from_numpy), ("kernel", scipy.sparse.csr_array)],
)
def test_every_kind_of_features(name, kind):
    make = CLASSIFIERS[name]
    x, y = blobs()
    x[x < 1] = 0
    for factor in (1e160, 1e-200):
        found = make().fit(kind(factor * x), y).decision_function(kind(factor * x))
        assert relative(np.asarray(found) / factor, make().fit(x, y).decision_function(x)) < 1e-12
    # Examples of another size than those of the fit.
    plain, large = make(center=False).fit(x, y), make(center=False).fit(kind(1e160 * x), y)
    found = 1e160 * np.asarray(large.decision_function(kind(1e-160 * x)))
    assert relative(found, plain.decision_function(x)) < 1e-12
    if name == "direct":  # subnormal features lose their own digits only
        np.testing.assert_array_equal(make().fit(1e-320 * x, y).predict(1e-320 * x), make().fit(x, y).predict(x))


@pytest.mark.parametrize("make", [UnhingedClassifier, KernelUnhingedClassifier])
def test_rounding_of_the_frequencies_does_not_outweigh_small_features(make):
    """Three classes of one weight: as the weights were summed, their shares differ from 1/3 by rounding."""
    x, y = 1e-30 * blobs()[0], np.arange(90) % 3
    random, weights = np.random.default_rng(0), np.linspace(0.1, 1, 30)
    weights = np.stack([random.permutation(weights) for _ in range(3)], 1).ravel()
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
        np.testing.assert_allclose(class_sums(features, codes, classes, weight).sums, expected, atol=1e-4)


# What cannot be held is said.


def test_sums_weights_and_norms_that_overflow():
    x, y = blobs(offset=0.0)
    too_large = ("X", "sample_weight", "finite", "too large")
    with refused(ValueError, *too_large):
        UnhingedClassifier().fit(x, y, np.full(len(x), 1e307))
    model = UnhingedClassifier().fit(1e306 * x, y)
    with refused(ValueError, *too_large):
        for _ in range(1000):
            model.partial_fit(1e306 * x, y)
    heavy = UnhingedClassifier().fit(x, y, np.full(len(x), 1e306))
    with refused(ValueError, *too_large):
        heavy.merge(heavy).merge(heavy)
    corners = 1.7e308 * np.array([[1.0] * 4, [-1.0] * 4])
    with refused(ValueError, "X and radius", "finite in float64", "radius = 1"):
        UnhingedClassifier(center=False).fit(corners, [0, 1])


def test_weights_and_scores_that_the_precision_cannot_hold():
    x, y = blobs(dtype=np.float32)
    with refused(ValueError, "radius", "finite in float32", "radius = 1e+40"):
        UnhingedClassifier(radius=1e40).fit(x, y)
    model = UnhingedClassifier(radius=1e20).fit(x, y)
    for features in (1e20 * x, torch.from_numpy(1e20 * x)):
        with refused(ValueError, "X", "scores are finite", "float32", "too large"):
            model.predict(features)
    kernel = KernelUnhingedClassifier(kernel="linear", radius=1e20).fit(x, y)
    with refused(ValueError, "X", "scores are finite", "float32", "too large"):
        kernel.predict(1e20 * x)
    for factor in (np.float32(3e37), np.float32(1e-41)):
        with refused(ValueError, "X and radius", "weights of the examples that float32 can hold", "scale"):
            KernelUnhingedClassifier(kernel="linear").fit(factor * x, y)


def test_kernels_of_features_that_do_not_suit_them():
    x, y = blobs()
    for kernel in ("rbf", "poly"):
        with refused(ValueError, "kernel must be finite", "too large"):
            KernelUnhingedClassifier(kernel=kernel).fit(1e160 * x, y)
    with refused(ValueError, "kernel must be above 0 in float64", "too small"):
        KernelUnhingedClassifier(kernel="poly", coef0=0).fit(1e-200 * x, y)
    with refused(ValueError, "do not differ in the feature space of the kernel"):
        KernelUnhingedClassifier().fit(1e-200 * x, y)


def test_a_layer_in_half_precision_that_cannot_hold_its_weights_is_left_alone():
    x, y = blobs()
    model = torch.nn.Sequential(torch.nn.Linear(4, 3)).to(torch.float16)
    before = model[0].weight.clone()
    batch = torch.from_numpy(x).to(torch.float16), torch.from_numpy(y)
    with refused(ValueError, "finite in torch.float16", "too large"):
        refit_head(model, [batch], radius=1e6)
    assert torch.equal(model[0].weight, before)
