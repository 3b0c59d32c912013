"""The audit of a fitted estimator, against what the estimator says of its labels."""

import numpy as np
import pytest
from refusals import refused
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

from symloss import RobustClassifier
from symloss.fit import audit_fit

NAMES = np.array(["white", "red", "rosé"])  # not in the order of the alphabet


@pytest.fixture(scope="module")
def fitted():
    """Wine with every fourth label wrong; labels, truth, and a model that saw the labels."""
    features, numbers = load_wine(return_X_y=True)
    noisy = numbers.copy()
    noisy[::4] = (noisy[::4] + 1) % 3
    model = RobustClassifier(learners=["closed-form", "logistic"], budget=1).fit(features, NAMES[noisy])
    return model, NAMES[noisy], NAMES[numbers]


def test_it_says_what_the_model_says(fitted):
    model, noisy, truth = fitted
    audit = audit_fit(model, truth=truth)
    names = np.array(audit.class_names)
    assert audit.class_names == ("red", "rosé", "white")
    assert np.array_equal(names[audit.given], noisy)
    assert np.array_equal(model.given_labels_, noisy)
    assert np.array_equal(audit.label_scores, model.label_scores_)
    assert audit.n_wrong == audit.flagged.sum() == model.n_wrong_
    assert audit.really_wrong == (noisy != truth).sum()
    low, high = (share * len(noisy) for share in model.noise_rate_interval_)
    assert audit.n_wrong_interval == (round(low), round(high))
    sure = audit.flagged & (model.suggested_labels_ != noisy)
    assert sure.sum() > 20
    assert np.array_equal(names[audit.suggested][sure], model.suggested_labels_[sure])
    # The posterior knows the label: it would tell cleanlab that a label is right because it was given.
    assert np.allclose(audit.pred_probs, model.oof_probabilities_)
    assert not np.allclose(audit.pred_probs, model.posterior_, atol=0.05)
    places = np.arange(len(noisy)) + 7
    audit = audit_fit(model, class_names=["r", "o", "w"], positions=places)
    assert audit.class_names == ("r", "o", "w")
    assert np.array_equal(audit.positions, places)


def test_bad_input_is_one_sentence(fitted):
    with refused(ValueError, "truth must hold classes of the model; got 'green'"):
        audit_fit(fitted[0], truth=["green"] * len(fitted[1]))
    with pytest.raises(NotFittedError):
        audit_fit(RobustClassifier())
