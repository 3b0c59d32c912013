"""Noise that depends on the input."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from in_turn import in_turn
from noise_helpers import some_labels
from refusals import refused

from symloss.noise import corrupt
from symloss.noise.labels import flip_rates

SIZE, CLASSES = 4000, 5


def random_inputs(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).normal(size=shape)


def noisy(inputs, labels=None, rate=0.4, **options):
    labels = some_labels(SIZE, CLASSES) if labels is None else labels
    return corrupt(labels, f"instance:{rate}", inputs=inputs, **({"num_classes": CLASSES, "seed": 0} | options))


@in_turn("rate", [0.0, 0.05, 0.2, 0.3334, 0.7])
def test_the_rate(rate):
    inputs = random_inputs(SIZE, 6)
    assert noisy(inputs, rate=rate).manifest.flipped == round(rate * SIZE)
    assert noisy(inputs, rate=rate, counts="floor").manifest.flipped == int(rate * SIZE)
    bound = 4.5 * np.sqrt(rate * (1 - rate) / SIZE)
    assert noisy(inputs, rate=rate, counts="sampled").manifest.rate == pytest.approx(rate, abs=bound)


@in_turn("rate", [0.0, 0.001, 0.1, 0.5, 0.85, 0.999])
def test_flip_rates_of_examples(rate):
    rates = flip_rates(20000, rate, np.random.default_rng(0))
    reach = min(rate, 1 - rate)
    assert (np.abs(rates - rate) <= reach + 1e-12).all()
    assert rates.mean() == pytest.approx(rate, abs=4.5 * 0.1 / np.sqrt(20000))
    if reach >= 0.5:
        assert rates.std() == pytest.approx(0.1, rel=0.02)
    if reach == 0.001:  # a narrow cut leaves next to a uniform distribution
        assert rates.std() == pytest.approx(reach / np.sqrt(3), rel=0.02)


def share_of_agreement(corruption, first, second) -> float:
    """How often two examples that are both flipped are flipped to the same class."""
    both = corruption.flipped[first] & corruption.flipped[second]
    assert both.sum() > 100
    return float((corruption.labels[first] == corruption.labels[second])[both].mean())


def test_what_an_example_is_mistaken_for_depends_on_input_and_class():
    """Neighbours of a class are mistaken for the same one; unrelated examples and equal ones of two classes are not."""
    half, same = random_inputs(SIZE // 2, 20), np.tile(some_labels(SIZE // 2, CLASSES), 2)
    first, second = np.arange(SIZE // 2), np.arange(SIZE // 2, SIZE)
    assert share_of_agreement(noisy(np.concatenate([half, half + 1e-3]), same), first, second) > 0.75
    assert share_of_agreement(noisy(random_inputs(SIZE, 20), same), first, second) < 0.45
    different = np.repeat([0, 1], SIZE // 2)  # each true class has a projection of its own
    assert share_of_agreement(noisy(np.tile(half, (2, 1)), different), first, second) < 0.45
    # Other inputs, other labels; and no class keeps or takes all.
    one, two = noisy(random_inputs(SIZE, 6)), noisy(random_inputs(SIZE, 6)[::-1])
    np.testing.assert_array_equal(one.flipped, two.flipped)
    assert (one.labels != two.labels).mean() > 0.1
    assert (one.manifest.counts > 0).all()


def test_units_and_types_do_not_matter():
    inputs = random_inputs(SIZE, 6)
    shifted = inputs * np.array([1, 2, 4, 8, 16, 1024]) + 3
    assert (noisy(shifted).labels != noisy(inputs).labels).mean() < 1e-3
    with_constant = np.concatenate([inputs, np.full((SIZE, 1), 0.1)], 1)
    assert np.isfinite(noisy(with_constant).manifest.rate)
    images = np.random.default_rng(2).integers(0, 256, (SIZE, 1, 4, 4), dtype=np.uint8)
    for same in (torch.from_numpy(images), images.reshape(SIZE, 16).astype(np.float32)):
        np.testing.assert_array_equal(noisy(same).labels, noisy(images).labels)


@in_turn(
    "inputs, exception, ingredients",
    [
        ([[1.0], [2.0]], TypeError, ["inputs must be a numpy array or a tensor", "got list"]),
        *((np.zeros(bad), ValueError, ["shape (2, ...)", f"got {bad}"]) for bad in ((2,), (3, 1), (2, 0))),
        (np.array([["a"], ["b"]]), TypeError, ["a tensor of real numbers", "got <U1"]),
        (torch.zeros(2, 1, dtype=torch.complex64), TypeError, ["a tensor of real numbers", "complex64"]),
        *((np.array([[bad], [1.0]]), ValueError, ["inputs must be finite numbers"]) for bad in (np.nan, np.inf)),
    ],
)
def test_bad_inputs(inputs, exception, ingredients):
    with refused(exception, *ingredients):
        corrupt([0, 1], "instance:0.3", num_classes=2, seed=0, inputs=inputs)
