"""What public code computes differently from its paper, when it is asked for."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from conftest import CLASSES, assert_close, random_scores, value_and_grad
from in_turn import in_turn
from loss_batches import picked
from torch import Tensor

import symloss

LOG_ZERO, BOUND = -math.log(1e-4), -math.log(1e-7)
# Scores with probabilities below 1e-7, where a clamp shows.
FAR = torch.tensor([[25.0, 0.0, 1.0, 2.0], [-1.0, 0.5, 20.0, 1.0]], dtype=torch.float64)


def held(p: Tensor, gamma: float = 0.5) -> Tensor:
    return -((1 - p) ** gamma).detach() * p.log()


def share(every: Tensor) -> Tensor:
    return every / every.sum(1, keepdim=True)


def clamped(p: Tensor) -> Tensor:
    return p.clamp_min(1e-7)


HELD_BOUND = BOUND * (1 - 1e-7) ** 0.5
DEVIATIONS: dict[tuple[str, str], Callable[[Tensor], Tensor]] = {
    # (spec, deviation): the plain formula, of probabilities, at every label
    ("focal", "held-focal-factor"): held,
    ("focal:gamma=2", "held-focal-factor"): lambda p: held(p, 2.0),
    ("nfl", "held-focal-factor"): lambda p: share(held(p)),
    ("nnfl", "held-focal-factor"): lambda p: 1 - share((HELD_BOUND - held(p)).clamp_min(0)),
    ("nfl+mae:alpha=2", "held-focal-factor"): lambda p: 2 * share(held(p)) + 1 - p,
    ("nfl+rce:beta=3", "held-focal-factor"): lambda p: share(held(p)) + 3 * LOG_ZERO * (1 - p),
    ("anl-fl:alpha=5,beta=2", "held-focal-factor"): lambda p: (
        5 * share(held(p)) + 2 * (1 - share((HELD_BOUND - held(p)).clamp_min(0)))
    ),
    ("ce", "clamped-probability"): lambda p: -clamped(p).log(),
    ("mae", "clamped-probability"): lambda p: 1 - clamped(p),
    ("gce:q=0.5", "clamped-probability"): lambda p: (1 - clamped(p) ** 0.5) / 0.5,
    ("nce", "clamped-probability"): lambda p: share(-clamped(p).log()),
    ("sce:alpha=0.1", "clamped-probability"): lambda p: -0.1 * clamped(p).log() + LOG_ZERO * (1 - clamped(p)),
    ("anl-ce", "clamped-probability"): lambda p: share(-clamped(p).log()) + 1 - share(BOUND + clamped(p).log()),
    ("unhinged:normalize=none", "clamped-probability"): lambda p: (
        clamped(p).log().mean(1, keepdim=True) - clamped(p).log()
    ),
    ("mae", "doubled-mae"): lambda p: 2 * (1 - p),
    ("nce+mae:beta=3", "doubled-mae"): lambda p: share(-p.log()) + 6 * (1 - p),
    ("nfl+mae:gamma=2", "doubled-mae"): lambda p: share(-((1 - p) ** 2) * p.log()) + 2 * (1 - p),
}


@in_turn("spec, deviation", DEVIATIONS)
def test_a_deviation_is_what_public_code_computes(spec, deviation):
    """Value and gradient, at every label, far below the clamp too; and it is never the default."""
    formula = DEVIATIONS[spec, deviation]
    loss = symloss.create_loss(spec, deviation=deviation, reduction="none")
    scores = torch.cat([random_scores(4, CLASSES), FAR])
    found = []
    for label in range(CLASSES):
        labels = torch.full((6,), label)
        found.append(value_and_grad(loss, scores, labels))
        expected = value_and_grad(lambda z, y: picked(formula(z.softmax(1)), y), scores, labels)
        assert_close(found[-1], expected, tolerance=1e-8)
    assert not torch.equal(found[-1][1], value_and_grad(symloss.create_loss(spec, reduction="none"), scores, labels)[1])


def test_a_clamp_silences_hard_examples_and_the_default_does_not():
    labels = torch.tensor([1, 0])
    assert (value_and_grad(symloss.create_loss("ce:deviation=clamped-probability"), FAR, labels)[1] == 0).all()
    assert (value_and_grad(symloss.create_loss("ce"), FAR, labels)[1] != 0).all()
