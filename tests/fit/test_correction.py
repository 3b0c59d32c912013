"""Rounds of correction: when labels are corrected, how boldly, and when they are left as they are."""

from dataclasses import replace

import numpy as np
import pytest
from noisy_cells import open_cell
from scipy.stats import spearmanr

from symloss.fit import correction
from symloss.fit.choice import Judged, judged
from symloss.fit.correction import explain, first_round, label_scores, last_round, predictions_without
from symloss.fit.held_out import Trainer
from symloss.fit.learners import Candidate, Shape
from symloss.fit.search import within_budget
from symloss.fit.training_data import TrainingData, folds, rows_held_out
from symloss.noise import corrupt


def start(features, noisy):
    """The first round by two learners that take no time, what trains them, and the folds."""
    splits = folds(noisy, 5, seed=0)
    trainer = Trainer(TrainingData(features, noisy, int(noisy.max()) + 1), seed=0)
    tried = [Candidate("k-nn", (("neighbours", many),), "raw") for many in (15, 30)]
    predictions = trainer.predictions(tried, splits)
    rows = rows_held_out(splits)
    members = [judged(one, found, trainer.data, rows) for one, found in zip(tried, predictions, strict=True)]
    return first_round(members, trainer, splits), trainer, splits


def rounds(features, noisy, count=3):
    """The first round and the last."""
    first, trainer, splits = start(features, noisy)
    return first, last_round(first, count, trainer, splits)


def accuracy(found, labels):
    return (found.explanation.scores.argmax(1) == labels).mean()


def test_symmetric_noise_is_not_corrected_boldly():
    cell = open_cell("digits", "sym:0.6", seed=5)
    first, last = rounds(cell.features, cell.noisy)
    once, same = rounds(cell.features, cell.noisy, count=1)
    assert same is once, "one round corrects nothing"
    assert last.explanation.separation < correction.BOLD
    assert (last.labels == cell.clean).mean() > 0.9
    assert accuracy(last, cell.clean) > accuracy(first, cell.clean)


def test_noise_that_depends_on_the_features_is_corrected_boldly():
    cell = open_cell("digits", "instance:0.4", seed=6)
    first, last = rounds(cell.features, cell.noisy)
    assert last.explanation.separation == correction.BOLD
    assert first.explanation.calibration.noise_rate < 0.2
    assert last.explanation.calibration.noise_rate == pytest.approx(0.4, abs=0.03)
    assert (last.labels == cell.clean).mean() > 0.9
    _, timid = rounds(cell.features, cell.noisy, count=2)
    assert timid.explanation.separation < correction.BOLD


def hardly_separable(rows, classes):
    """Classes of which neighbours tell a fifth, as of pixels of photos."""
    rng = np.random.default_rng(0)
    labels = rng.integers(classes, size=rows)
    return (0.2 * rng.normal(size=(classes, 20))[labels] + rng.normal(size=(rows, 20))).astype(np.float32), labels


def test_classes_that_overlap_are_left_as_they_are():
    features, labels = hardly_separable(rows=600, classes=6)
    noisy = corrupt(labels, "pair:0.1", num_classes=6, seed=0).labels
    first, last = rounds(features, noisy)
    np.testing.assert_array_equal(last.labels, noisy)
    assert last.leaders is first.leaders
    assert last.explanation.separation == correction.REPORTED


def test_a_correction_is_checked_by_rows_that_it_has_not_seen():
    """Other labels for the rows of a split change nothing that is learnt where it is held out."""
    features, noisy = hardly_separable(rows=300, classes=3)
    first, trainer, splits = start(features, noisy)
    held_out = splits[1].held_out
    changed = noisy.copy()
    changed[held_out] = (noisy[held_out] + 1) % 3
    before, after = (
        predictions_without(first.leaders, trainer.with_labels(labels), splits, 2) for labels in (noisy, changed)
    )
    np.testing.assert_array_equal(before[1], after[1])
    assert (before[0] != after[0]).any()
    assert not before[1][held_out].any()
    assert before[1][splits[1].train].any(1).all()


def test_networks_of_each_split_can_have_their_own_labels():
    features, labels = hardly_separable(rows=200, classes=3)
    _, trainer, splits = start(features, labels)
    other = (labels + 1) % 3
    member = Judged(Candidate("network", (("decay", 0.1),), "raw", "ce"), 2, 0.0, np.zeros(1), np.zeros((1, 3)))
    for model in (None, "mlp:hidden=8"):
        one = replace(member, candidate=replace(member.candidate, model=model))
        plain, turned, mixed = (
            trainer.with_labels(numbers).learn([one], splits[:2])[0][0]
            for numbers in (labels, other, np.stack([labels, other]))
        )
        half = len(splits[0].held_out)
        np.testing.assert_allclose(mixed[:half], plain[:half], rtol=1e-5)
        np.testing.assert_allclose(mixed[half:], turned[half:], rtol=1e-5)
        assert (plain[half:] != turned[half:]).any()


def test_margins_rank_labels_where_features_tell_little():
    features, labels = hardly_separable(rows=300, classes=3)
    noisy = corrupt(labels, "sym:0.3", num_classes=3, seed=0).labels
    first, trainer, _ = start(features, noisy)
    found = first.explanation
    network = Candidate("network", (("decay", 0.1),), "raw", "ce")
    assert found.confidence < correction.OPEN or not found.says_something
    np.testing.assert_array_equal(label_scores(found, [], trainer), found.label_scores)
    ranked = label_scores(found, [network], trainer)
    np.testing.assert_array_equal(np.sort(ranked), np.sort(found.label_scores))
    margins = correction.audit_margins(network, trainer)
    assert spearmanr(ranked, margins)[0] > spearmanr(found.label_scores, margins)[0] + 0.1
    sure = explain(20 * np.eye(3)[labels], noisy, 0.0)
    assert sure.confidence > correction.OPEN
    assert sure.says_something
    np.testing.assert_array_equal(label_scores(sure, [network], trainer), sure.label_scores)


def test_large_data_have_fewer_leaders_and_rounds():
    found = [
        Judged(Candidate("k-nn", (("neighbours", k),)), None, 0.5, np.zeros(1), np.zeros((1, 3))) for k in range(5)
    ]
    small, large, larger = (Shape(rows, 20, 3) for rows in (1000, 60_000, 200_000))
    assert within_budget(found, 3, 5, small, 45) == (found, 3)
    assert within_budget(found, 1, 5, small, 45) == (found, 1)
    few, rounds = within_budget(found, 3, 5, large, 45)
    assert 1 <= len(few) < 5
    assert rounds > 1
    assert within_budget(found, 3, 5, larger, 45) == (found[:1], 1)
