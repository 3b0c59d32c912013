"""A score of -inf takes a class away: value and gradient are those of the loss without it."""

from __future__ import annotations

import itertools

import torch
from conftest import CLASSES, assert_close, random_probabilities, random_scores, value_and_grad
from loss_batches import MASK, MASK_LABELS, WEIGHT, masked
from representatives import WITHOUT_SLOPE, every_path
from torch import Tensor

import symloss

EDGES = {
    "plain": {},
    "weighted": {"weight": WEIGHT},
    "smoothed": {"label_smoothing": 0.1},
    "l2": {"normalize": "l2"},
    "l2-weighted-smoothed": {"normalize": "l2", "temperature": 0.5, "weight": WEIGHT, "label_smoothing": 0.1},
    "scaled": {"normalize": None, "scale": "ce"},
}


def edges_of(name: str) -> list[dict]:
    return [options for edge, options in EDGES.items() if edge != "scaled" or name not in WITHOUT_SLOPE]


def targets_within(mask: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The labels, and probabilities that give nothing to masked classes."""
    probabilities = random_probabilities(*mask.shape) * mask
    return labels, probabilities / probabilities.sum(1, keepdim=True)


def removed(scores: Tensor, target: Tensor, mask: Tensor, options: dict) -> tuple[Tensor, Tensor, dict]:
    """The same batch with the masked classes cut out of scores, target and weight (one mask for all rows)."""
    position = mask.cumsum(0) - 1
    target = target[:, mask] if target.is_floating_point() else position[target]
    weight = {"weight": options["weight"][mask]} if "weight" in options else {}
    return scores[:, mask], target, options | weight


@every_path
def test_masked_classes_are_absent_row_by_row(name):
    """Value and gradient of each row are those of the loss without the class, whatever the other rows mask."""
    scores = random_scores(*MASK.shape)
    for edge, target in itertools.product(edges_of(name), targets_within(MASK, MASK_LABELS)):
        loss = symloss.create_loss(name, reduction="none", **edge)
        values, gradients = value_and_grad(loss, masked(scores, MASK), target)
        assert (gradients[~MASK] == 0).all(), edge
        for i, mask in enumerate(MASK):
            row, label, options = removed(scores[i : i + 1], target[i : i + 1], mask, edge)
            value, gradient = value_and_grad(symloss.create_loss(name, reduction="none", **options), row, label)
            assert_close(values[i : i + 1], value)
            assert_close(gradients[i : i + 1, mask], (i + 1) * gradient)


@every_path
def test_a_class_masked_in_every_row_is_absent_from_the_mean(name):
    mask, scores = torch.tensor([True, True, False, True]), random_scores(*MASK.shape)
    for edge, target in itertools.product(edges_of(name), targets_within(mask.expand(4, 4), MASK_LABELS)):
        value, gradient = value_and_grad(symloss.create_loss(name, **edge), masked(scores, mask), target)
        rows, labels, options = removed(scores, target, mask, edge)
        expected, expected_gradient = value_and_grad(symloss.create_loss(name, **options), rows, labels)
        assert_close(value, expected)
        assert_close(gradient[:, mask], expected_gradient)


@every_path
def test_a_single_class_present_is_finite_and_flat(name):
    mask = torch.tensor([[False, True, False, False], [False, False, False, True]])
    scores = masked(torch.tensor([[0.7], [-2.0]], dtype=torch.float64), mask)
    for edge, target in itertools.product(edges_of(name), (torch.tensor([1, 3]), mask.double())):
        values, gradient = value_and_grad(symloss.create_loss(name, reduction="none", **edge), scores, target)
        assert values.isfinite().all(), edge
        assert (gradient == 0).all(), edge


@every_path
def test_an_ignored_row_may_be_masked_completely(name):
    """Padding: no class, no label, and nothing of it may reach the other rows."""
    scores, labels = random_scores(3, CLASSES), torch.tensor([0, -100, 2])
    padded = scores.clone()
    padded[1] = -torch.inf
    loss = symloss.create_loss(name)
    value, gradient = value_and_grad(loss, padded, labels)
    assert_close(value, loss(scores, labels))
    assert gradient.isfinite().all()
    assert (gradient[1] == 0).all()
