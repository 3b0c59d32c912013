"""Corruption: how many labels are flipped, which ones, and by what seed."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from in_turn import in_turn
from noise_helpers import some_labels, transitions
from refusals import refused
from sklearn.datasets import load_digits

from symloss.noise import corrupt, parse, transition_matrix
from symloss.noise.transition import relabel

TEXTS = ["clean", "sym:0", "sym:0.4", "sym-any:0.7", "pair:0.3", "asym:0.45", "asym-blocks:0.25", "prior:0.5"]
METHODS = ["floor", "exact", "sampled"]


def requested(text: str, clean: np.ndarray, classes: int) -> np.ndarray:
    prior = np.bincount(clean, minlength=classes) / len(clean)
    return transition_matrix(parse(text), classes, dataset="mnist", prior=prior)


def balanced(size: int, classes: int) -> np.ndarray:
    return np.random.default_rng(0).permutation(np.repeat(np.arange(classes), size))


@in_turn("text", TEXTS)
def test_how_many_labels_become_which(text):
    for counts, size in (("floor", 777), ("exact", 31), ("exact", 777), ("sampled", 20000)):
        clean = some_labels(size, 10, 1)
        matrix = requested(text, clean, 10)
        noisy = corrupt(clean, text, num_classes=10, seed=2, counts=counts, dataset="mnist").labels
        table, wanted = transitions(clean, noisy, 10), matrix * np.bincount(clean, minlength=10)[:, None]
        others = 1 - np.eye(10, dtype=int)
        assert (table[matrix == 0] == 0).all()
        if counts == "floor":
            np.testing.assert_array_equal(table * others, wanted.astype(int) * others)
        elif counts == "exact":
            assert (np.abs(table - wanted) < 1).all()
            assert abs((noisy != clean).sum() - (wanted * others).sum()) <= 0.5 + 1e-9
        else:
            assert (np.abs(table - wanted) <= 4.5 * np.sqrt(wanted * (1 - matrix)) + 1e-9).all()


def test_what_has_no_probability_is_never_drawn_and_sampled_draws_are_independent():
    """The number of flips varies over seeds as a binomial does; with exact counts it does not vary."""
    matrix = np.array([[0.0, 0.5, 0.5], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])
    lowest = SimpleNamespace(random=np.zeros)  # a generator whose uniform numbers are all 0, the lowest that there are
    assert relabel(np.array([0, 1, 2]), matrix, "sampled", lowest).tolist() == [1, 1, 2]
    clean = balanced(100, 4)
    drawn, exact = (
        [corrupt(clean, "sym:0.5", num_classes=4, seed=seed, counts=counts).manifest.flipped for seed in range(200)]
        for counts in ("sampled", "exact")
    )
    assert np.var(drawn) == pytest.approx(100, rel=0.4)
    assert set(exact) == {200}


def test_exact_does_not_prefer_low_classes():
    """Every remainder is tied: 6 of the 9 others get one more. If the first did, class 0 would have 9 more than 9."""
    extra = np.zeros(10)
    for seed in range(40):
        counts = corrupt(balanced(143, 10), "sym:0.8", num_classes=10, seed=seed).manifest.counts
        extra += (counts * (1 - np.eye(10)) - 12).clip(0).sum(0)
    # Each column has a mean of 240 (and less than a binomial's variance of 360 / 3).
    assert (np.abs(extra - extra.mean()) < 5 * 11).all()


@in_turn("counts", METHODS)
def test_which_labels_are_flipped_is_uniform(counts):
    """Over many seeds, each example is flipped equally often: position must not matter."""
    clean = balanced(10, 4)
    times = sum(
        (corrupt(clean, "sym:0.4", num_classes=4, seed=seed, counts=counts).labels != clean).astype(int)
        for seed in range(600)
    )
    share = times / 600
    assert (np.abs(share - share.mean()) < 4.5 * np.sqrt(0.25 / 600)).all()
    assert share.mean() == pytest.approx({"floor": 0.3, "exact": 0.4, "sampled": 0.4}[counts], abs=0.02)


def test_truncation_in_published_tables():
    """450 of each class of CIFAR-100: 0.8 / 99 * 450 = 3.6, so 3 go to each other class. Digits: 12 or 13 of 9."""
    rates = {}
    for counts in ("floor", "exact"):
        rates[counts] = corrupt(balanced(450, 100), "sym:0.8", num_classes=100, seed=0, counts=counts).manifest.rate
    assert rates == {"floor": pytest.approx(0.66), "exact": pytest.approx(0.8)}
    digits = load_digits().target[:1437]
    assert corrupt(digits, "sym:0.8", num_classes=10, seed=0, counts="floor").manifest.flipped == 1080
    sizes = [148, 147, 142, 144, 142, 143, 143, 143, 142, 143]
    manifest = corrupt(np.repeat(np.arange(10), sizes), "sym:0.8", num_classes=10, seed=0, counts="floor").manifest
    assert (manifest.size, round(manifest.rate, 3)) == (1437, 0.764)


def test_a_prior_or_a_matrix_that_is_given():
    manifest = corrupt(balanced(1000, 3), "prior:0.5", num_classes=3, seed=0, prior=[0.0, 0.2, 0.8]).manifest
    assert manifest.counts.tolist() == [[500, 100, 400], [0, 600, 400], [0, 100, 900]]
    matrix = np.array([[0.5, 0.5, 0], [0.25, 0.5, 0.25], [0, 0, 1]])
    manifest = corrupt(balanced(100, 3), matrix, num_classes=3, seed=0).manifest
    np.testing.assert_array_equal(manifest.rates, matrix)
    assert manifest.spec == "matrix"
    # By largest remainders: quotas of class 0 are 1.75 to 1 and 2.25 to 2. Ties aside, the result is the only one.
    matrix = [[0.6, 0.175, 0.225], [0, 1, 0], [0, 0, 1]]
    manifest = corrupt(np.repeat([0, 1, 2], [10, 3, 3]), matrix, num_classes=3, seed=0).manifest
    assert manifest.counts.tolist() == [[6, 2, 2], [0, 3, 0], [0, 0, 3]]
    for counts in METHODS:  # a class without examples
        manifest = corrupt([0, 2, 2, 0] * 50, "sym:0.5", num_classes=4, seed=0, counts=counts).manifest
        assert (manifest.class_counts.tolist(), manifest.rates[1].tolist()) == ([100, 0, 100, 0], [0, 0, 0, 0])


def random_states() -> list[object]:
    name, keys, *rest = np.random.get_state()
    return [random.getstate(), name, keys.tolist(), rest, torch.get_rng_state().tolist()]


@in_turn("text", [*TEXTS, "instance:0.4"])
@in_turn("counts", METHODS)
def test_the_seed_alone_decides(text, counts):
    clean = some_labels(300, 10)
    inputs = np.random.default_rng(0).random((300, 4))
    options = {"num_classes": 10, "counts": counts, "dataset": "digits", "inputs": inputs}
    before = random_states()
    first = corrupt(clean, text, seed=7, **options).labels
    assert random_states() == before
    np.random.seed(99)
    torch.manual_seed(99)
    random.seed(99)
    np.testing.assert_array_equal(corrupt(clean, text, seed=7, **options).labels, first)
    if text not in ("clean", "sym:0"):
        assert (corrupt(clean, text, seed=8, **options).labels != first).any()


def test_known_labels():
    """A change here would change what every seed in a paper means."""
    clean = np.arange(28) % 4
    labels = {
        counts: "".join(map(str, corrupt(clean, "sym:0.5", num_classes=4, seed=1, counts=counts).labels))
        for counts in METHODS
    }
    assert labels == {
        "floor": "2113303003230102012311230221",
        "exact": "0030012331230313310211232201",
        "sampled": "1303012210230212011121233221",
    }


def test_labels_of_any_kind():
    clean = some_labels(100, 5)
    expected = corrupt(clean, "sym:0.5", num_classes=5, seed=0)
    for given in (clean.astype(np.uint8), clean.astype(np.int32), torch.from_numpy(clean), clean.tolist()):
        actual = corrupt(given, "sym:0.5", num_classes=np.int64(5), seed=np.int32(0))
        assert actual.labels.dtype == np.int64
        np.testing.assert_array_equal(actual.labels, expected.labels)
        assert actual.manifest == expected.manifest
    assert corrupt(clean, parse("sym:0.5"), num_classes=5, seed=0).manifest == expected.manifest
    # What was given is left alone.
    given = torch.from_numpy(clean.copy())
    for counts in METHODS:
        corruption = corrupt(given, "sym:0.5", num_classes=5, seed=0, counts=counts)
        corruption.labels[:] = corruption.clean[:] = 0
        np.testing.assert_array_equal(given.numpy(), clean)


@in_turn(
    "change, exception, ingredients",
    [
        ({"labels": []}, ValueError, ["labels must have shape (N,) with at least one label", "got (0,)"]),
        ({"labels": [[0, 1]]}, ValueError, ["labels must have shape (N,)", "got (1, 2)"]),
        ({"labels": [0.0, 1.0]}, TypeError, ["labels must hold integers", "got float64"]),
        ({"labels": torch.tensor([0.0]).bfloat16()}, TypeError, ["labels must hold integers", "got torch.bfloat16"]),
        ({"labels": [True, False]}, TypeError, ["labels must hold integers", "got bool"]),
        ({"labels": ["cat"]}, TypeError, ["labels must hold integers", "got <U3"]),
        ({"labels": [[0], [1, 2]]}, TypeError, ["labels must be a vector of integers", "got [[0], [1, 2]]"]),
        ({"labels": [0, 3]}, ValueError, ["labels must be 0 to 2 with 3 classes", "got 3"]),
        ({"labels": [0, -1]}, ValueError, ["labels must be 0 to 2 with 3 classes", "got -1"]),
        ({"num_classes": 1}, ValueError, ["num_classes must be a whole number in [2, inf)", "got 1"]),
        ({"num_classes": "3"}, TypeError, ["num_classes must be a whole number in [2, inf)", "got '3'"]),
        ({"seed": -1}, ValueError, ["seed must be a whole number in [0, inf)", "got -1"]),
        ({"seed": None}, TypeError, ["seed must be a whole number in [0, inf)", "got None"]),
        ({"counts": "round"}, ValueError, ["counts must be one of 'floor', 'exact', 'sampled'", "got 'round'"]),
        ({"split": "during"}, ValueError, ["split must be one of None, 'before', 'after'", "got 'during'"]),
        ({"noise": np.eye(4)}, ValueError, ["transition matrix must have shape (3, 3)", "got (4, 4)"]),
        ({"noise": [["a"]]}, TypeError, ["transition matrix must be an array of numbers", "got [['a']]"]),
        ({"noise": "instance:0.3"}, TypeError, ["inputs must be a numpy array or a tensor", "got NoneType"]),
        ({"noise": "human:worst"}, ValueError, ["root must be the folder of CIFAR-10_human.pt", "got None"]),
    ],
)
def test_bad_input(change, exception, ingredients):
    arguments = {"labels": [0, 1, 2], "noise": "sym:0.3", "num_classes": 3, "seed": 0} | change
    with refused(exception, *ingredients):
        corrupt(arguments.pop("labels"), arguments.pop("noise"), **arguments)
