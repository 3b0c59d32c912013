"""skorch: our losses train its classifiers, which return probabilities, can be pickled, and searched over."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

pytest.importorskip("skorch", reason="skorch is not installed")

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from skorch import NeuralNetClassifier
from torch import nn

import symloss

PIXELS, LABELS = load_digits(return_X_y=True)
IMAGES = (PIXELS / 16).astype(np.float32)


def classifier(criterion, **options):
    # What prints a line for each epoch keeps `print`, which cannot be pickled where another library has replaced it.
    quiet = {"verbose": 0, "callbacks__print_log": None}
    options = {"max_epochs": 3, "lr": 0.5, "train_split": None, **quiet, **options}
    sizes = {"module__in_features": 64, "module__out_features": 10}
    return NeuralNetClassifier(nn.Linear, criterion=criterion, **sizes, **options)


def test_probabilities_are_the_softmax_of_the_scores_as_the_loss_is_a_cross_entropy():
    net = classifier(symloss.GCE, criterion__q=0.7, max_epochs=8, lr=2.0).fit(IMAGES, LABELS)
    found = net.predict_proba(IMAGES)
    assert found.sum(1) == pytest.approx(1.0, abs=1e-5)
    scores = net.forward(IMAGES).numpy()
    expected = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    assert found == pytest.approx(expected, abs=1e-6)
    assert net.score(IMAGES, LABELS) > 0.8

    class Stranger(nn.Module):
        """Why ``Criterion`` is a subclass of ``nn.CrossEntropyLoss``: skorch looks for it, or scores stay scores."""

        def forward(self, input, target):
            return nn.functional.cross_entropy(input, target)

    sums = classifier(Stranger).fit(IMAGES, LABELS).predict_proba(IMAGES).sum(1)
    assert np.abs(sums - 1).max() > 0.1


def test_cross_entropy_is_torch_s():
    trained = []
    for criterion in (nn.CrossEntropyLoss, symloss.CE):
        torch.manual_seed(0)
        trained.append(classifier(criterion).fit(IMAGES, LABELS).predict_proba(IMAGES))
    assert trained[1] == pytest.approx(trained[0], abs=1e-5)


def test_a_classifier_comes_back_from_a_pickle():
    net = classifier(symloss.SGCE, criterion__q=0.8, criterion__weight=torch.ones(10)).fit(IMAGES, LABELS)
    again = pickle.loads(pickle.dumps(net))
    assert np.array_equal(again.predict_proba(IMAGES), net.predict_proba(IMAGES))
    assert again.criterion_.loss == net.criterion_.loss
    again.partial_fit(IMAGES, LABELS)
    assert not np.array_equal(again.predict_proba(IMAGES), net.predict_proba(IMAGES))
    search = GridSearchCV(classifier(symloss.GCE), {"criterion__q": [0.2, 0.9]}, cv=2).fit(IMAGES[:300], LABELS[:300])
    assert len(set(search.cv_results_["mean_test_score"])) == 2
    assert search.best_estimator_.criterion_.loss == symloss.GCE(q=search.best_params_["criterion__q"]).loss
