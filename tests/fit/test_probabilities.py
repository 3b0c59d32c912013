"""Probabilities that can be believed: no sharpening, rare classes, and a range for the share of wrong labels."""

import numpy as np
import pytest
import torch
from in_turn import in_turn

from symloss import RobustClassifier
from symloss.fit.choice import nearly_constant
from symloss.fit.correction import explain
from symloss.fit.ensemble import SHARPEST, adjusted, adjustment_for
from symloss.fit.noise_rate import rate_range
from symloss.fit.search import _scaling
from symloss.fit.storage import load_predictor, save_predictor
from symloss.fit.training_data import TrainingData
from symloss.noise import corrupt


def gaussians(distance, rows=600, share=0.5):
    """Two classes, and the logarithms of their true probabilities."""
    rng = np.random.default_rng(0)
    labels = (rng.random(rows) < share).astype(np.int64)
    features = (rng.normal(size=(rows, 4)) + distance * labels[:, None] * [1, 0, 0, 0]).astype(np.float32)
    odds = distance * features[:, 0] - distance**2 / 2 + np.log(share / (1 - share))
    return features, labels, np.stack([np.zeros(rows), odds], 1)


@in_turn("distance, noise", [(6.0, 0.3), (1.5, 0.3), (1.5, 0.1), (6.0, 0.0)])
def test_the_range_covers_the_noise_rate(distance, noise):
    """With classes that are apart, and with classes that overlap: there the range is wide, and its ends are apart."""
    _, labels, scores = gaussians(distance, rows=2000)
    noisy = corrupt(labels, f"sym:{noise}" if noise else "clean", num_classes=2, seed=0).labels
    low, high = rate_range(scores, noisy)
    assert low <= (noisy != labels).mean() <= high
    assert high - low < (0.15 if distance > 2 else 0.4)
    assert high >= (scores.argmax(1) != noisy).mean()


def test_the_range_is_kept_by_a_fit():
    features, labels, _ = gaussians(1.5)
    noisy = corrupt(labels, "sym:0.3", num_classes=2, seed=0).labels
    fitted = RobustClassifier(learners=["lda", "logistic", "closed-form"]).fit(features, noisy)
    low, high = fitted.noise_rate_interval_
    assert low <= fitted.noise_rate_ <= high
    assert low <= 0.3 <= high
    assert not fitted.classes_apart_


def test_predictions_are_never_sharpened():
    """Overlapping classes: certain ones with much noise are as likely, and would be wrong of new rows."""
    features, labels, _ = gaussians(1.0, rows=1200)
    noisy = corrupt(labels[:800], "sym:0.3", num_classes=2, seed=0).labels
    fitted = RobustClassifier(learners=["lda", "logistic", "forest"], budget=5).fit(features[:800], noisy)
    assert fitted.predictor_.temperature >= 1
    assert all(member.temperature >= SHARPEST for member in fitted.predictor_.members)
    chances = fitted.predict_proba(features[800:])[np.arange(400), labels[800:]]
    assert -np.log(chances).mean() < np.log(2)


def test_rare_classes_are_helped_where_labels_are_wrong():
    even = np.log([[0.1, 0.9]])
    rare, frequent = adjustment_for(even, np.array([1]))
    assert rare - frequent == pytest.approx(0.3 * np.log(9))
    empty = np.array([[-np.inf, 0.0]])
    assert adjustment_for(empty, np.array([1]))[0] == pytest.approx(-0.3 * np.log(1e-3)), (
        "an empty class is not infinite"
    )
    _, labels, scores = gaussians(3.0, share=0.2)
    assert explain(scores, labels, 0.0).adjustment == ()
    noisy = corrupt(labels, "sym:0.3", num_classes=2, seed=0).labels
    frequent, rare = explain(scores + np.array([1.5, 0.0]), noisy, 0.0).adjustment
    assert rare > frequent > 0
    plain = torch.zeros(1, 2)
    assert adjusted(plain, ()) is plain
    assert adjusted(plain, (0.0, 1.0)).tolist() == [[0.0, 1.0]]


@pytest.mark.parametrize(("margin", "pull"), [(0.7, 0.3), (0.6, 0.2), (0.3, 0.1), (0.1, None)])
def test_rare_classes_are_helped_as_far_as_noisy_labels_allow(margin, pull):
    """Rows of the frequent class by ``margin`` would be lost to a larger adjustment than ``pull``."""
    probabilities = np.array([1 / (1 + np.exp(margin)), 1 / (1 + np.exp(-margin))])
    scores = np.log(np.stack([probabilities] * 10 + [[0.08, 0.92]] * 90))
    shares = np.exp(scores).mean(0)
    found = adjustment_for(scores, np.ones(100, np.int64))
    assert found == (() if pull is None else pytest.approx(-pull * np.log(shares)))
    gain = adjustment_for(scores, (np.arange(100) >= 10).astype(np.int64))
    assert gain == pytest.approx(-0.3 * np.log(shares)), "the same rows are gained if their label is the rare class"


def test_the_adjustment_is_saved_and_exported(tmp_path):
    features, labels, _ = gaussians(4.0, rows=400, share=0.35)
    noisy = corrupt(labels, "sym:0.2", num_classes=2, seed=0).labels
    fitted = RobustClassifier(learners=["linear"], simple=True, budget=2).fit(features, noisy)
    assert len(fitted.predictor_.adjustment) == 2
    module, _ = fitted.export()
    found = module(torch.from_numpy(features)).exp().detach().numpy()
    np.testing.assert_allclose(found, fitted.predict_proba(features), atol=1e-4)
    description = save_predictor(fitted.predictor_, tmp_path)
    np.testing.assert_array_equal(
        load_predictor(description, tmp_path).probabilities(features), fitted.predict_proba(features)
    )
    for wrong in ([1.0], [-1.0, 0.0], [float("nan"), 0.0], [1e9, 0.0]):
        with pytest.raises(ValueError, match="adjustment must"):
            load_predictor(description | {"adjustment": wrong}, tmp_path)
    del description["adjustment"]
    assert load_predictor(description, tmp_path).adjustment == (), "as models were before"


def test_candidates_that_predict_one_class():
    data = TrainingData(np.zeros((100, 1), np.float32), np.repeat([0, 1], [70, 30]), 2)
    rows = np.arange(100)
    few, some = (np.eye(2)[(rows >= 100 - count).astype(int)] for count in (2, 4))
    assert nearly_constant(few, data, rows)
    assert not nearly_constant(some, data, rows)


def test_networks_take_no_scaling_from_learners_that_say_nothing():
    from symloss.fit.choice import Judged  # noqa: PLC0415
    from symloss.fit.learners import Candidate  # noqa: PLC0415

    def judged(scaling, score, constant=False):
        return Judged(Candidate("k-nn", (), scaling), None, score, np.zeros(1), np.zeros((1, 2)), constant)

    assert _scaling([judged("raw", 0.7, True), judged("standard", 0.6)]) == "standard"
    assert _scaling([judged("raw", 0.7), judged("standard", 0.7)]) == "standard", "a tie says nothing"
    assert _scaling([judged("raw", 0.8), judged("standard", 0.7)]) == "raw"
    assert _scaling([]) == "standard"
