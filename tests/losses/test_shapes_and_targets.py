"""Shapes, kinds of targets, reductions, smoothed labels and data types, for each way of evaluation."""

from __future__ import annotations

import pytest
import torch
from conftest import CLASSES, assert_close, random_labels, random_probabilities, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import KINDS, REDUCTIONS, SYMMETRIC, WEIGHT, one_hot, target_and_options, values_of
from representatives import every_path

import symloss
from symloss import functional


@every_path
def test_images_are_rows_of_pixels(name):
    scores, labels = random_scores(2, CLASSES, 3, 2), random_labels(2, 3, 2)
    loss = symloss.create_loss(name, reduction="none")
    rows = scores.movedim(1, -1).flatten(0, 2)
    value, gradient = value_and_grad(loss, scores, labels)
    flat_value, flat_gradient = value_and_grad(loss, rows, labels.flatten())
    assert_close(value.flatten(), flat_value)
    assert_close(gradient.movedim(1, -1).flatten(0, 2), flat_gradient)
    one_value, one_gradient = value_and_grad(loss, rows[0], labels.flatten()[0])
    assert_close(one_value, flat_value[0])
    assert_close(one_gradient, flat_gradient[0])


@every_path
def test_one_hot_probabilities_are_labels(name):
    scores, labels = random_scores(3, CLASSES, 2), random_labels(3, 2)
    for reduction in REDUCTIONS:
        loss = symloss.create_loss(name, reduction=reduction)
        assert_close(value_and_grad(loss, scores, one_hot(labels)), value_and_grad(loss, scores, labels))


@every_path
@in_turn("kind", KINDS)
def test_sum_and_mean_are_of_the_single_values(name, kind):
    scores = random_scores(5, CLASSES)
    target, options = target_and_options(scores, kind)
    single, total, mean = (
        symloss.create_loss(name, reduction=r, **options)(scores, target) for r in ("none", "sum", "mean")
    )
    kept = single if kind == "probabilities" else single[target != options.get("ignore_index", -100)]
    assert single.shape == (5,)
    assert_close(total, kept.sum())
    assert_close(mean, kept.mean())


@every_path
@in_turn("smoothing", [0.1, 1.0])
def test_label_smoothing_is_the_dot_with_smoothed_labels(name, smoothing):
    scores, labels, soft = random_scores(5, CLASSES), random_labels(5), random_probabilities(5, CLASSES)
    loss = symloss.create_loss(name, label_smoothing=smoothing, reduction="none")
    for target, probabilities in ((labels, one_hot(labels)), (soft, soft)):
        smoothed = (1 - smoothing) * probabilities + smoothing / CLASSES
        assert_close(
            value_and_grad(loss, scores, target),
            value_and_grad(lambda z, t=smoothed: (t * values_of(name, z)).sum(1), scores),
        )


@pytest.mark.parametrize("spec", SYMMETRIC)
def test_label_smoothing_only_scales_a_symmetric_loss(spec):
    scores, labels = random_scores(5, CLASSES), random_labels(5)
    _, gradient = value_and_grad(symloss.create_loss(spec), scores, labels)
    _, smoothed = value_and_grad(symloss.create_loss(spec, label_smoothing=0.3), scores, labels)
    assert_close(smoothed, 0.7 * gradient)


@every_path
@in_turn("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(name, dtype):
    """The options of the losses included: the division by the norm, which loses digits in half precision."""
    scores, labels = random_scores(5, CLASSES).to(dtype), random_labels(5)
    loss = symloss.create_loss(name)
    value, gradient = value_and_grad(loss, scores, labels)
    assert value.dtype == torch.float32
    expected, expected_gradient = value_and_grad(loss, scores.float(), labels)
    assert torch.equal(value, expected)
    assert torch.equal(gradient, expected_gradient.to(dtype))


def test_the_loss_has_the_type_of_the_scores():
    """Weights and probabilities follow, whatever type they have."""
    scores, soft = random_scores(5, CLASSES), random_probabilities(5, CLASSES).float()
    for dtype in (torch.float32, torch.float64):
        value = functional.sgce(scores.to(dtype), soft, weight=WEIGHT.to(torch.bfloat16))
        assert value.dtype == dtype
