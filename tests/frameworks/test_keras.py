"""Keras 3 on torch: our losses train its models, with weights of examples, and are saved with them."""

from __future__ import annotations

import doctest
import os

import pytest

os.environ["KERAS_BACKEND"] = "torch"
pytest.importorskip("keras", reason="keras is not installed: make frameworks")

import keras
import numpy as np
import torch
from conftest import assert_close
from refusals import refused

import symloss
from symloss.adapters import keras as adapter
from symloss.adapters.keras import KerasLoss

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
ROWS, CLASSES = 40, 4


def data():
    random = np.random.default_rng(0)
    return random.normal(size=(ROWS, 5)).astype("float32"), random.integers(CLASSES, size=ROWS)


def model(loss):
    keras.utils.set_random_seed(0)
    net = keras.Sequential([keras.Input((5,)), keras.layers.Dense(CLASSES)])
    net.compile(optimizer=keras.optimizers.SGD(0.5), loss=loss)
    return net


def trained(loss, labels, **options):
    net = model(loss)
    history = net.fit(data()[0], labels, epochs=5, batch_size=10, shuffle=False, verbose=0, **options)
    return torch.tensor(net.get_weights()[0]), history.history["loss"]


def test_cross_entropy_is_that_of_keras():
    weights = np.linspace(0.0, 2.0, ROWS)
    theirs = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    for options in ({}, {"sample_weight": weights}):
        expected = trained(theirs, data()[1], **options)
        found = trained(KerasLoss("ce"), data()[1], **options)
        assert_close(found[0], expected[0], 1e-5)
        assert found[1] == pytest.approx(expected[1], rel=1e-5)
    assert trained(theirs, data()[1])[1] != pytest.approx(expected[1], rel=1e-2)


def test_labels_come_as_numbers_as_a_column_or_as_probabilities():
    labels = data()[1]
    forms = [trained(KerasLoss("gce:q=0.7"), form)[0] for form in (labels, labels[:, None], np.eye(CLASSES)[labels])]
    for form in forms[1:]:
        assert_close(form, forms[0], 1e-6)
    assert (forms[0] - trained(KerasLoss("ce"), labels)[0]).abs().max() > 0.01


def test_the_value_is_the_loss_of_the_scores_also_of_pixels():
    scores, labels = torch.randn(ROWS, CLASSES), torch.from_numpy(data()[1])
    assert_close(KerasLoss("sgce:q=0.5")(labels, scores), symloss.SGCE(q=0.5)(scores, labels), 1e-6)
    scores, labels = torch.randn(2, 3, 5, CLASSES), torch.randint(CLASSES, (2, 3, 5))
    expected = symloss.GCE(q=0.7)(scores.movedim(-1, 1), labels)
    for target in (labels, labels[..., None], torch.nn.functional.one_hot(labels, CLASSES)):
        assert_close(KerasLoss("gce:q=0.7")(target, scores), expected, 1e-6)
    assert KerasLoss("gce:q=0.7", reduction=None)(labels, scores).shape == (2, 3, 5)


def test_a_model_is_saved_and_loaded_with_its_loss(tmp_path):
    net = model(KerasLoss("gce:q=0.3", reduction="sum"))
    net.fit(*data(), epochs=1, verbose=0)
    net.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert (loaded.loss.loss, loaded.loss.reduction) == ("gce:q=0.3", "sum")
    assert_close(loaded.evaluate(*data(), verbose=0), net.evaluate(*data(), verbose=0), 1e-6)


def test_what_is_refused(monkeypatch):
    with refused(TypeError, "loss must be a spec such as 'gce:q=0.7'", "GCE"):
        KerasLoss(symloss.GCE(q=0.7))
    with refused(ValueError, "y_true must have shape (3,) or (3, 1)", "(3, 4)", "got (3, 2)"):
        KerasLoss("ce")(torch.zeros(3, 2), torch.zeros(3, 4))
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with refused(ValueError, "Keras must run on torch (KERAS_BACKEND=torch)", "got 'jax'"):
        KerasLoss("ce")


def test_docstrings_run():
    ran = doctest.testmod(adapter)
    assert (ran.attempted, ran.failed) == (2, 0)
