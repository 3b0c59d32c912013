"""Scaling of features: as before for ordinary ones, and the same for those that are tiny or huge."""

from __future__ import annotations

import numpy as np
from in_turn import in_turn
from scipy import sparse

from symloss import RobustClassifier
from symloss.fit.training_data import SCALINGS, Scaler, TrainingData

RNG = np.random.default_rng(0)
ROWS, WIDTH = 50, 6
ORDINARY = RNG.normal(3.0, 2.0, (ROWS, WIDTH)) * [1e-6, 1e-3, 1.0, 10.0, 1e5, 1e9]
FAR = (-1040, -996, -500, 500, 664, 980)
"""Powers of two: the first brings the numbers below the smallest normal ones."""


def plainly(features, scaling, channels=1):
    """By the formulas, which are right as long as nothing overflows or vanishes."""
    if scaling == "raw":
        return (features / np.sqrt(float(np.mean(np.square(features, dtype=np.float64))))).astype(np.float32)
    mean, deviation = features.mean(0, dtype=np.float64), features.std(0, dtype=np.float64)
    if scaling == "channels":
        means, deviations = mean.reshape(channels, -1), deviation.reshape(channels, -1)
        spread = np.sqrt(np.mean(deviations**2, 1) + means.var(1))
        mean, deviation = (np.repeat(each, means.shape[1]) for each in (means.mean(1), spread))
    return ((features - mean) / deviation).astype(np.float32)


@in_turn("scaling", SCALINGS)
@in_turn("channels", [1, 2, 3])
@in_turn("dtype", [np.float32, np.float64])
@in_turn("order", ["C", "F"])
def test_ordinary_features_are_scaled_by_the_formulas_bit_for_bit(scaling, channels, dtype, order):
    features = np.asarray(ORDINARY, dtype=dtype, order=order)
    found = Scaler(features, channels)(features, scaling)
    assert found.tobytes() == plainly(features, scaling, channels).tobytes()


@in_turn("scaling", SCALINGS)
@in_turn("channels", [1, 3])
def test_tiny_and_huge_features_are_scaled_like_ordinary_ones(scaling, channels):
    for power in FAR[1:]:
        features = np.ldexp(ORDINARY, power)
        assert Scaler(features, channels)(features, scaling).tobytes() == plainly(ORDINARY, scaling, channels).tobytes()
    ordinary = RNG.normal(size=(ROWS, WIDTH))
    features = np.ldexp(ordinary, FAR[0])  # below the smallest normal number
    np.testing.assert_allclose(Scaler(features)(features, scaling), plainly(ordinary, scaling), rtol=1e-4, atol=1e-6)


def test_columns_may_differ_as_much_as_they_like():
    features = np.ldexp(ORDINARY, FAR)
    expected = plainly(ORDINARY, "standard")
    found = Scaler(features)(features, "standard")
    assert found[:, 1:].tobytes() == expected[:, 1:].tobytes()
    np.testing.assert_allclose(found[:, 0], expected[:, 0], rtol=1e-3, atol=1e-3)
    for scaling in SCALINGS:
        assert np.isfinite(Scaler(features)(features, scaling)).all()


@in_turn("scaling", SCALINGS)
def test_the_largest_numbers_of_both_signs(scaling):
    largest = np.finfo(np.float64).max
    features = np.where(np.arange(ROWS) % 2 == 0, largest, -largest)[:, None]
    np.testing.assert_allclose(np.abs(Scaler(features)(features, scaling)), 1.0, rtol=1e-6)


@in_turn("power", [0, *FAR])
def test_sparse_features(power):
    ordinary = sparse.random(ROWS, WIDTH, 0.3, format="csr", random_state=0)
    features = ordinary.copy()
    features.data = np.ldexp(features.data, power)
    expected = ordinary.toarray() / np.sqrt(np.mean(ordinary.toarray() ** 2))
    np.testing.assert_allclose(Scaler(features)(features, "raw").toarray(), expected, rtol=1e-4)
    nothing = sparse.csr_matrix((ROWS, WIDTH))
    assert Scaler(nothing)(nothing, "raw").nnz == 0


@in_turn("value", [0.0, 0.1, 5.3, -1e5 / 3, 1e-13, 1e-300, 1e-310, 1e200, -1.7e308])
def test_constant_columns_are_zero(value):
    """Of so many rows that the mean is not exactly the value."""
    features = np.full((100_000, 2), value)
    features[:, 1] = np.arange(len(features)) % 2
    found = Scaler(features)(features, "standard")
    assert np.abs(found[:, 0]).max() < 1e-6
    assert np.abs(found[:, 1]).tolist() == [1.0] * len(features)


def test_columns_that_differ_by_rounding_only_are_constant_and_small_columns_count():
    features = np.where(np.arange(ROWS) % 2 == 0, 0.3, 0.1 + 0.2)[:, None]
    for power in (0, *FAR[1:]):
        column = np.ldexp(features, power)
        assert np.abs(Scaler(column)(column, "standard")).max() < 1e-6
    for size in (1e-13, 1e-300):
        column = np.where(np.arange(ROWS) % 2 == 0, size, 2 * size)[:, None]
        np.testing.assert_allclose(np.abs(Scaler(column)(column, "standard")), 1.0, rtol=1e-6)
    # Nor do kernel widths depend on the size.
    expected = TrainingData(ORDINARY, np.arange(ROWS) % 2, 2).kernel_width("raw")
    for power in FAR[1:]:
        assert TrainingData(np.ldexp(ORDINARY, power), np.arange(ROWS) % 2, 2).kernel_width("raw") == expected


@in_turn("power", [-996, 664])
def test_a_classifier_learns_from_tiny_and_huge_features(power):
    labels = np.arange(120) % 2
    features = np.ldexp(RNG.normal(size=(120, 3)) + 4.0 * labels[:, None], power)
    model = RobustClassifier(learners=["closed-form", "logistic"], rounds=1).fit(features, labels)
    assert model.score(features, labels) > 0.95
