"""Prop. C.1 as an objective."""

import numpy as np
import pytest
import torch
from closed_form_helpers import blobs
from refusals import refused

from symloss.closed_form import UnhingedClassifier, centroid_alignment


def double_sum(features, labels, classes):
    """1/N^2 sum_ij a_ij <f_i, f_j>."""
    a = (labels[:, None] == labels).double() - 1 / classes
    return (a * (features @ features.T)).sum() / len(features) ** 2


@pytest.mark.parametrize("classes", [2, 3, 7])
def test_value_and_gradient_are_those_of_the_double_sum(classes):
    x, y = blobs(50, classes=classes)
    labels = torch.from_numpy(y)
    ours, theirs = (torch.from_numpy(x).requires_grad_() for _ in range(2))
    value, expected = centroid_alignment(ours, labels), double_sum(theirs, labels, classes)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    value.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)
    leaf = torch.from_numpy(x[:8]).requires_grad_()
    assert torch.autograd.gradcheck(lambda f: centroid_alignment(f, labels[:8], classes), leaf)


def test_classes_that_are_not_there_count():
    x, y = blobs()
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    torch.testing.assert_close(centroid_alignment(features, labels, 5), double_sum(features, labels, 5))
    assert float(centroid_alignment(features, labels, 5)) != pytest.approx(float(centroid_alignment(features, labels)))


def test_it_is_the_squared_norm_that_the_classifier_finds():
    x, y = blobs()
    norm = UnhingedClassifier(fit_intercept=False, center=False).fit(x, y).centroid_norm_
    assert float(centroid_alignment(torch.from_numpy(x), torch.from_numpy(y))) == pytest.approx(norm**2)


def test_memory_is_linear_in_the_examples():
    features, labels = torch.ones(200_000, 4), torch.arange(200_000) % 3  # a kernel matrix would have 160 GB
    labels[:2] = 0
    assert float(centroid_alignment(features, labels)) < 1e-9


def test_half_precision_is_summed_in_float32():
    x, y = blobs(20_000, offset=3.0)
    features, labels = torch.from_numpy(x), torch.from_numpy(y)
    for dtype in (torch.float16, torch.bfloat16):
        rounded = features.to(dtype)
        found = centroid_alignment(rounded, labels)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), centroid_alignment(rounded.double(), labels), rtol=1e-4, atol=0)


def test_ascent_draws_classes_apart():
    random = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 3
    x = torch.randn(60, 8, generator=random) + torch.eye(8)[labels]
    layer = torch.nn.Linear(8, 2, bias=False)

    def features():
        return torch.nn.functional.normalize(layer(x), dim=1)

    def accuracy():
        model = UnhingedClassifier().fit(features(), labels)
        return float((model.predict(features()) == labels).float().mean())

    optimizer = torch.optim.SGD(layer.parameters(), lr=5.0)
    before = centroid_alignment(features(), labels).item(), accuracy()
    for _ in range(60):
        optimizer.zero_grad()
        (-centroid_alignment(features(), labels)).backward()
        optimizer.step()
    after = centroid_alignment(features(), labels).item(), accuracy()
    assert after[0] > 2 * before[0]
    assert after[1] > before[1]


def test_bad_input_is_refused():
    f, y = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    with refused(ValueError, "features", "(N, d)", "(4,)"):
        centroid_alignment(f[:, 0], y)
    with refused(TypeError, "features", "torch.int64"):
        centroid_alignment(f.long(), y)
    with refused(ValueError, "labels", "(4,)", "(3,)"):
        centroid_alignment(f, y[:3])
    with refused(TypeError, "labels", "torch.float32"):
        centroid_alignment(f, y.float())
    with refused(ValueError, "labels", "at least 0", "-1"):
        centroid_alignment(f, y - 1)
    with refused(ValueError, "classes", "[2, inf)", "1"):
        centroid_alignment(f, y, 1)
    with refused(IndexError, "label 2", "0 to 1"):
        centroid_alignment(f, 2 * y, 2)
    assert np.isfinite(float(centroid_alignment(f, y * 0)))
