"""Prop. C.1 as an objective."""

import numpy as np
import torch
from closed_form_helpers import blobs
from in_turn import in_turn
from refusals import all_refused

from symloss.closed_form import centroid_alignment


def double_sum(features, labels, classes):
    """1/N^2 sum_ij a_ij <f_i, f_j>."""
    a = (labels[:, None] == labels).double() - 1 / classes
    return (a * (features @ features.T)).sum() / len(features) ** 2


@in_turn("classes", [2, 3, 7])
def test_value_and_gradient_are_those_of_the_double_sum(classes):
    x, y = blobs(50, classes=classes)
    labels = torch.from_numpy(y)
    ours, theirs = (torch.from_numpy(x).requires_grad_() for _ in range(2))
    value, expected = centroid_alignment(ours, labels), double_sum(theirs, labels, classes)
    torch.testing.assert_close(value, expected, rtol=1e-12, atol=1e-12)
    more = double_sum(theirs, labels, classes + 2)  # classes that are not there count
    torch.testing.assert_close(centroid_alignment(ours, labels, classes + 2), more)
    value.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-12, atol=1e-12)
    leaf = torch.from_numpy(x[:8]).requires_grad_()
    assert torch.autograd.gradcheck(lambda f: centroid_alignment(f, labels[:8], classes), leaf)


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


def test_bad_input_is_refused():
    f, y = torch.ones(4, 2), torch.tensor([0, 1, 0, 1])
    all_refused(
        (ValueError, "features ... (N, d) ... (4,)", lambda: centroid_alignment(f[:, 0], y)),
        (TypeError, "features ... torch.int64", lambda: centroid_alignment(f.long(), y)),
        (ValueError, "labels ... (4,) ... (3,)", lambda: centroid_alignment(f, y[:3])),
        (TypeError, "labels ... torch.float32", lambda: centroid_alignment(f, y.float())),
        (ValueError, "labels ... at least 0 ... -1", lambda: centroid_alignment(f, y - 1)),
        (ValueError, "classes ... [2, inf) ... 1", lambda: centroid_alignment(f, y, 1)),
        (IndexError, "label 2 ... 0 to 1", lambda: centroid_alignment(f, 2 * y, 2)),
    )
    assert np.isfinite(float(centroid_alignment(f, y * 0)))
