"""The embedded digits: every image once, the same split every time."""

from __future__ import annotations

import numpy as np
import torch
from sklearn.datasets import load_digits

from symloss.data import open_data

FIRST_TRAIN = [3, 9, 1, 3, 1, 9, 4, 4, 2, 8, 3, 5]
FIRST_TEST = [7, 6, 3, 7, 7, 3, 2, 8, 9, 3, 2, 6]


def test_every_digit_is_there_once():
    digits = open_data("digits")
    published = load_digits()
    ours = torch.cat([digits.train.inputs, digits.test.inputs])[:, 0].double() * 16 / 255
    labels = torch.cat([digits.train.labels, digits.test.labels])

    def rows(images: np.ndarray, labels: np.ndarray) -> list[tuple[float, ...]]:
        return sorted(tuple(row) for row in np.column_stack([labels, images.reshape(len(images), -1)]))

    assert rows(ours.round().numpy(), labels.numpy()) == rows(published.images, published.target)


def test_the_split():
    digits = open_data("digits")
    assert (len(digits.train), len(digits.test)) == (1437, 360)
    assert digits.train.inputs.dtype == torch.uint8
    assert digits.train.inputs.shape[1:] == digits.input_shape == (1, 8, 8)
    assert int(digits.train.inputs.max()) == 255
    share = digits.train.labels.bincount() / (digits.train.labels.bincount() + digits.test.labels.bincount())
    assert bool(((share - 0.8).abs() < 0.005).all())
    assert not digits.streamed


def test_the_split_never_changes():
    """Results on digits can be compared only while these labels stay."""
    first, second = open_data("digits"), open_data("digits")
    assert torch.equal(first.train.inputs, second.train.inputs)
    assert first.train.labels[:12].tolist() == FIRST_TRAIN
    assert first.test.labels[:12].tolist() == FIRST_TEST


def test_scaling_is_that_of_the_training_images():
    digits = open_data("digits")
    values = digits.train.inputs.numpy() / 255
    np.testing.assert_allclose(digits.scaling.mean, [values.mean()], rtol=1e-12)
    np.testing.assert_allclose(digits.scaling.std, [values.std()], rtol=1e-12)
