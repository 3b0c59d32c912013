"""Class weights: torch's rule, and the one that keeps a symmetric loss symmetric."""

from __future__ import annotations

import torch
from conftest import CLASSES, assert_close, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import KINDS, SPECS, SYMMETRIC, WEIGHT, one_hot, spread_of_sum, target_and_options, values_of
from torch import Tensor

import symloss


def symmetric_rule(every: Tensor) -> Tensor:
    """w_y L_y - mean_k w_k L_k + mean(w) mean_k L_k, of every label's value."""
    return WEIGHT * every - (WEIGHT * every).mean(1, keepdim=True) + WEIGHT.mean() * every.mean(1, keepdim=True)


@in_turn("spec", SPECS)
@in_turn("smoothing", [0.0, 0.1])
@in_turn("kind", KINDS)
def test_weighted_values_follow_the_rule_of_the_loss(spec, smoothing, kind):
    """torch's w_y L_y, or the one that stays symmetric; soft and smoothed labels dot the same values."""
    scores = random_scores(6, CLASSES)
    target, options = target_and_options(scores, kind)
    loss = symloss.create_loss(spec, weight=WEIGHT, label_smoothing=smoothing, reduction="none", **options)

    def rule(z: Tensor) -> Tensor:
        every = values_of(spec, z)
        every = symmetric_rule(every) if spec in SYMMETRIC else WEIGHT * every
        kept = torch.ones(6) if kind == "probabilities" else (target != options.get("ignore_index", -100))
        probabilities = target if kind == "probabilities" else one_hot(torch.where(kept, target, 0))
        return kept * (((1 - smoothing) * probabilities + smoothing / CLASSES) * every).sum(1)

    assert_close(value_and_grad(loss, scores, target), value_and_grad(rule, scores))


@in_turn("spec", SYMMETRIC)
def test_weights_keep_a_symmetric_loss_symmetric(spec):
    assert spread_of_sum(values_of(spec, random_scores(20, CLASSES, seed=9), weight=WEIGHT)) < 1e-9


@in_turn("spec", SPECS)
@in_turn("kind", KINDS)
def test_mean_of_weighted_values_divides_by_what_counts(spec, kind):
    """Symmetric: the count times mean(w). Otherwise torch's: the sum of w_y, and for probabilities the count."""
    scores = random_scores(6, CLASSES)
    target, options = target_and_options(scores, kind)
    options |= {"weight": WEIGHT}
    soft = kind == "probabilities"
    kept = target if soft else target[target != options.get("ignore_index", -100)]
    torchs = len(kept) if soft else WEIGHT[kept].sum()
    divisor = len(kept) * WEIGHT.mean() if spec in SYMMETRIC else torchs
    for options["label_smoothing"] in (0.0, 0.1):
        single, mean = (symloss.create_loss(spec, reduction=r, **options)(scores, target) for r in ("none", "mean"))
        assert_close(mean, single.sum() / divisor)
