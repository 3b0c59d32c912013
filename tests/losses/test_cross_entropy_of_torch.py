"""``symloss.CE`` is ``torch.nn.CrossEntropyLoss``: shapes, targets, options, memory layouts."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from conftest import CLASSES, assert_close, random_labels, random_scores, value_and_grad
from loss_batches import REDUCTIONS, WEIGHT, kinds, labels_for, target_and_options
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import symloss
from symloss import functional

SHAPES = {"C": (4,), "NC": (5, 4), "NCd": (3, 4, 2), "NCd1d2": (2, 4, 3, 2)}
SMOOTHINGS = (0.0, 0.1, 1.0)
TARGETS = ("indices", "ignored=-100", "ignored=0", "ignored=255", "probabilities")

shapes = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
targets = pytest.mark.parametrize("kind", TARGETS)
weighted = pytest.mark.parametrize("weight", [None, WEIGHT], ids=["unweighted", "weighted"])


def assert_like_torch(scores: Tensor, target: Tensor, torchs_target: Tensor | None = None, **options: object) -> None:
    """Function and module agree with torch's, value and gradient."""
    torchs_target = target if torchs_target is None else torchs_target
    expected = value_and_grad(cross_entropy, scores, torchs_target, **options)
    assert_close(value_and_grad(nn.CrossEntropyLoss(**options), scores, torchs_target), expected, equal_nan=True)
    assert_close(value_and_grad(functional.ce, scores, target, **options), expected, equal_nan=True)
    assert_close(value_and_grad(symloss.CE(**options), scores, target), expected, equal_nan=True)


@shapes
@targets
@weighted
def test_ce_is_torchs(shape, kind, weight):
    """Every combination: here options meet each other."""
    scores = random_scores(*shape)
    target, options = target_and_options(scores, kind)
    for smoothing, reduction in itertools.product(SMOOTHINGS, REDUCTIONS):
        assert_like_torch(scores, target, weight=weight, label_smoothing=smoothing, reduction=reduction, **options)


@pytest.mark.parametrize("shape", [(0, 4), (0, 4, 2), (2, 4, 0), (1, 4), (1, 4, 1)], ids=str)
@pytest.mark.parametrize("kind", ["indices", "probabilities"])
def test_ce_of_empty_and_single_batches_is_torchs(shape, kind):
    scores = random_scores(*shape)
    target, _ = target_and_options(scores, kind)
    for reduction in REDUCTIONS:
        assert_like_torch(scores, target, reduction=reduction)


@shapes
@weighted
def test_ce_with_all_targets_ignored_is_torchs(shape, weight):
    """torch's mean over nothing is nan, its sum 0, its gradient 0."""
    scores = random_scores(*shape)
    ignored = torch.full_like(labels_for(scores), 255)
    for smoothing, reduction in itertools.product(SMOOTHINGS, REDUCTIONS):
        options = {"label_smoothing": smoothing, "reduction": reduction, "ignore_index": 255}
        assert_like_torch(scores, ignored, weight=weight, **options)


@pytest.mark.parametrize(
    ("dtype", "ignore_index"),
    [
        (torch.int8, -100),
        (torch.int16, 255),
        (torch.int32, -100),
        (torch.int32, 0),
        (torch.uint8, 0),
        (torch.uint8, 255),
    ],
    ids=str,
)
def test_labels_of_any_integer_type(dtype, ignore_index):
    """torch takes int64 and uint8 alone; images hold uint8 labels with 255 for 'ignore'."""
    scores = random_scores(7, CLASSES)
    labels = labels_for(scores, ignore_index)
    assert_like_torch(scores, labels.to(dtype), labels, ignore_index=ignore_index)


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "transposed": lambda: random_scores(2, 3, 2, 4).movedim(-1, 1),
    "strided": lambda: random_scores(4, 8, 3, 2)[::2, ::2],
    "expanded": lambda: random_scores(1, 4, 1, 1).expand(2, 4, 3, 2),
    "channels-last": lambda: random_scores(2, 4, 3, 2).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@kinds
def test_ce_of_any_memory_layout_is_torchs(layout, kind):
    scores = LAYOUTS[layout]()
    target, options = target_and_options(scores, kind)
    assert_like_torch(scores, target, weight=WEIGHT, label_smoothing=0.1, **options)


def test_labels_of_any_memory_layout():
    scores, labels = random_scores(2, CLASSES, 3, 2), random_labels(2, 2, 3).transpose(1, 2)
    assert not labels.is_contiguous()
    assert_like_torch(scores, labels)
