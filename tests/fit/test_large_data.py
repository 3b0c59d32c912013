"""More rows than can choose: a sample does, all rows are judged and learnt from, and nothing else is different."""

import numpy as np
import pytest

from symloss import RobustClassifier
from symloss.fit import large_data
from symloss.fit.choice import Judged
from symloss.fit.large_data import affordable, labels_to_learn, sample_of
from symloss.fit.learners import Candidate, Shape
from symloss.noise import corrupt

LEARNERS = ["closed-form", "lda", "linear"]


@pytest.fixture
def many(monkeypatch):
    """1,200 rows are many, and 400 choose."""
    monkeypatch.setattr(large_data, "MOST", 900)
    monkeypatch.setattr(large_data, "SAMPLE", 400)
    rng = np.random.default_rng(0)
    true = rng.integers(3, size=1200)
    features = (rng.normal(size=(1200, 5)) + 4 * np.eye(5)[true]).astype(np.float32)
    return features, corrupt(true, "sym:0.3", num_classes=3, seed=0).labels, true


def test_the_sample_has_the_shares_of_the_classes_and_all_of_a_rare_one(monkeypatch):
    monkeypatch.setattr(large_data, "MOST", 1000)
    monkeypatch.setattr(large_data, "SAMPLE", 500)
    labels = np.repeat([0, 1, 2], [3000, 1000, 7])
    sample = sample_of(labels, 0)
    assert np.bincount(labels[sample]).tolist() == [375, 125, 7]
    assert (np.diff(sample) > 0).all()
    assert np.array_equal(sample, sample_of(labels, 0))
    assert not np.array_equal(sample, sample_of(labels, 1))
    assert sample_of(labels[:1000], 0) is None


def test_all_rows_are_judged_and_learnt_from(many, capsys):
    features, noisy, true = many
    fitted = RobustClassifier(learners=LEARNERS, budget=5, verbose=1).fit(features, noisy)
    told = capsys.readouterr().err + capsys.readouterr().out
    assert "400 of 1,200 rows choose the learners" in told
    assert "learn from all 1,200 rows" in told
    wrong = noisy != true
    assert len(fitted.label_scores_) == len(fitted.posterior_) == len(fitted.oof_probabilities_) == 1200
    flagged = fitted.label_issues()["row"].to_numpy()
    assert wrong[flagged].mean() > 0.9
    assert len(flagged) == pytest.approx(wrong.sum(), rel=0.15)
    assert fitted.noise_rate_interval_[0] <= 0.3 <= fitted.noise_rate_interval_[1]
    assert (fitted.trained_labels_ == true).mean() > 0.95, "rows outside of the sample are corrected too"
    assert fitted.score(features, true) > 0.95
    assert any(member.candidate.learner == "lda" for member in fitted.predictor_.members)
    alone = next(member for member in fitted.predictor_.members if member.candidate.learner == "lda").estimator
    shares = np.bincount(fitted.trained_labels_) / 1200
    np.testing.assert_allclose(alone.priors_, shares, atol=1e-6, err_msg="it has learnt from all rows")


def test_the_same_seed_gives_the_same_fit(many):
    features, noisy, _ = many
    one, other = (RobustClassifier(learners=LEARNERS, budget=5, random_state=3).fit(features, noisy) for _ in range(2))
    np.testing.assert_array_equal(one.predict_proba(features), other.predict_proba(features))
    np.testing.assert_array_equal(one.label_scores_, other.label_scores_)


def test_weights_go_with_their_rows(many):
    features, noisy, true = many
    weights = np.where(noisy == true, 1.0, 1e-6)
    fitted = RobustClassifier(learners=["closed-form"], budget=5).fit(features, noisy, sample_weight=weights)
    assert fitted.score(features, true) > 0.95


def test_labels_that_the_sample_did_not_correct_are_not_corrected_elsewhere():
    class Whole:
        noisy = np.array([0, 1, 1, 0])
        posterior = np.array([[0.1, 0.9], [0.1, 0.9], [0.9, 0.1], [0.1, 0.9]])

    sample = np.array([0, 1])
    assert labels_to_learn(Whole, sample, np.array([0, 1])).tolist() == [0, 1, 1, 0]
    assert labels_to_learn(Whole, sample, np.array([1, 1])).tolist() == [1, 1, 0, 1]


def test_learners_that_take_too_long_keep_what_they_know():
    def judged(learner, *settings):
        return Judged(Candidate(learner, settings), None, 0.5, np.zeros(1), np.zeros((1, 2)))

    leaders = [judged("svc", ("C", 1.0), ("gamma", 1.0)), judged("lda"), judged("unhinged")]
    assert affordable(leaders, Shape(1_000_000, 20, 2), 45) == [1, 2]
    assert affordable(leaders[:1], Shape(1_000_000, 20, 2), 45) == []
