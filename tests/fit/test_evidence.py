"""Whether held-out predictions say anything about labels."""

from itertools import permutations

import numpy as np

from symloss.fit.evidence import agreement, something_learnt
from symloss.fit.training_data import Split, folds


def halves(rows):
    first, second = np.array_split(np.arange(rows), 2)
    return Split(second, first), Split(first, second)


def neighbours(features, labels, splits, width):
    """Held-out predictions (n, C): means over training rows, with weights that fall with the distance."""
    distance = ((features[:, None] - features) ** 2).sum(2)
    weights = np.exp(-distance / width)
    found = [
        weights[np.ix_(one.held_out, one.train)] @ np.eye(2)[labels[one.train]]
        / weights[np.ix_(one.held_out, one.train)].sum(1, keepdims=True)
        for one in splits
    ]  # fmt: skip
    return np.concatenate(found)


def claims(rng):
    """Whether something is learnt from 60 rows of noise by five learners."""
    features, labels = rng.normal(size=(60, 3)), rng.permutation(np.arange(60) % 2)
    splits = folds(labels, 5, 0)
    found = [neighbours(features, labels, splits, width) for width in (0.3, 1, 3, 10, 30)]
    return something_learnt(found, labels, splits, np.arange(60))


def test_chance_is_rarely_taken_for_evidence():
    """The level is 5 %; without the factor for learners that learn from each other's folds it would be 7 %."""
    rng = np.random.default_rng(0)
    assert 0.005 < np.mean([claims(rng) for _ in range(400)]) < 0.05


def test_mean_and_variance_are_those_of_all_orders():
    """In one fold, by enumeration."""
    rng = np.random.default_rng(1)
    predictions, labels, rows = rng.dirichlet(np.ones(3), 6), np.array([0, 0, 1, 1, 1, 2]), np.arange(6)
    split = (Split(rows, rows),)
    totals = [predictions[rows, list(order)].sum() for order in permutations(labels)]
    expected = (predictions[rows, labels].sum() - np.mean(totals)) / np.std(totals)
    assert np.isclose(agreement(predictions, labels, split, rows), expected)


def test_a_rare_class_that_is_never_the_most_probable():
    """Accuracy would say nothing; and predictions that say the opposite are no evidence."""
    rng = np.random.default_rng(2)
    labels = (rng.random(400) < 0.2).astype(np.int64)
    rare = 0.2 + 0.1 * labels + 0.05 * rng.normal(size=400)
    predictions, splits, rows = np.stack([1 - rare, rare], 1), halves(400), np.arange(400)
    assert not predictions.argmax(1).any()
    assert something_learnt([predictions], labels, splits, rows)
    assert not something_learnt([1 - predictions], labels, splits, rows)
    assert not something_learnt([np.full((400, 2), 0.5)], labels, splits, rows)


def test_one_candidate_of_many_that_sees_it():
    """The mean of all says nothing."""
    rng = np.random.default_rng(3)
    labels, splits, rows = np.arange(300) % 2, halves(300), np.arange(300)
    blind = [rng.dirichlet([1, 1], 300) for _ in range(60)]
    seeing = 0.5 + 0.02 * (np.eye(2)[labels] - 0.5) + 0.02 * rng.normal(size=(300, 1)) * np.array([1, -1])
    assert not something_learnt(blind, labels, splits, rows)
    assert not something_learnt([np.mean([*blind, seeing], 0)], labels, splits, rows)
    assert something_learnt([*blind, seeing], labels, splits, rows)


def test_rows_without_weight_do_not_count():
    """And folds that no prediction is for."""
    labels = np.arange(100) % 2
    predictions, splits = np.full((100, 2), 0.5), halves(100)
    predictions[:20] = predictions[-20:] = np.array([[0.8, 0.2], [0.2, 0.8]])[labels[:20]]
    assert something_learnt([predictions], labels, splits, np.arange(100))
    assert not something_learnt([predictions], labels, splits, np.arange(20, 80))
    assert something_learnt([predictions[:50]], labels, splits, np.arange(100))
    assert np.isclose(
        agreement(predictions[:50], labels, splits, np.arange(100)),
        agreement(predictions, labels, splits, np.arange(100)),
    )
