"""Targets with a weight for each class (probabilities, smoothing, class weights): kernels, digits and extremes."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from conftest import every_loss, random_probabilities
from in_turn import in_turn
from torch import Tensor

import symloss
from symloss.losses import criterion
from symloss.losses.kernels import batch
from symloss.losses.kernels.dispatch import PROBABILITIES, WEIGHTS, kernel_for

N, C = 7, 6
GENERATOR = torch.Generator().manual_seed(5)
SCORES = 4 * torch.randn(N, C, generator=GENERATOR, dtype=torch.float64)
SCORES[2, 3] += 12  # a class that leads
MASKED = SCORES.masked_fill(torch.eye(N, C).bool().roll(2, 1), -torch.inf)
LABELS = torch.tensor([0, 1, 3, 2, -100, 5, 4])
SOFT = random_probabilities(N, C)
WEIGHT = torch.linspace(0.2, 2, C, dtype=torch.float64)
PICTURES = SCORES.reshape(1, N, C).movedim(2, 1)

CASES: dict[str, tuple[Tensor, Tensor, dict[str, object]]] = {
    "probabilities": (SCORES, SOFT, {}),
    "smoothed": (SCORES, LABELS, {"label_smoothing": 0.2}),
    "weights": (SCORES, LABELS, {"weight": WEIGHT}),
    "weights, smoothed": (SCORES, LABELS, {"weight": WEIGHT, "label_smoothing": 0.2, "reduction": "none"}),
    "probabilities, weights, smoothed": (SCORES, SOFT, {"weight": WEIGHT, "label_smoothing": 0.2}),
    "unit scores": (SCORES, SOFT, {"normalize": "l2", "temperature": 0.3, "reduction": "sum"}),
    "masked": (MASKED, LABELS, {"weight": WEIGHT, "label_smoothing": 0.2}),
    "masked probabilities": (MASKED, torch.where(-torch.inf < MASKED, 1.0, 0.0).double() / 5, {"reduction": "none"}),
    "pictures": (PICTURES, LABELS[None], {"weight": WEIGHT, "reduction": "none"}),
}
CASES["masked probabilities"][1][-1] = torch.tensor([0.5, 0, 0, 0, 0.5, 0])


def step(loss: Callable[..., Tensor], scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    leaf = scores.clone().requires_grad_()
    value = loss(leaf, target)
    upstream = torch.linspace(0.5, 1.5, value.numel(), dtype=value.dtype).reshape(value.shape)
    return value.detach(), torch.autograd.grad(value, leaf, upstream)[0]


@every_loss
def test_kernels_agree_with_the_plain_formulas(name):
    for scores, target, options in CASES.values():
        loss = symloss.create_loss(name, **{"normalize": None} | options)
        found = step(loss, scores, target)
        with symloss.losses.plain():
            torch.testing.assert_close(found, step(loss, scores, target), rtol=1e-9, atol=1e-11)


@in_turn("case", CASES)
def test_a_kernel_is_used(case, monkeypatch):
    scores, target, options = CASES[case]
    loss = symloss.create_loss("sgce", **{"normalize": None} | options)
    monkeypatch.setattr(criterion, "_plain", None)
    step(loss, scores, target)


@in_turn("name", ["ce", "gce", "sgce", "alpha-mae", "nce", "focal", "anl-ce"])
def test_one_hot_probabilities_are_labels(name):
    """Also in float32 where the label or another class leads by 60: the gradient of either keeps its digits."""
    lead = torch.tensor([0.0, 1.0, 8.0, 15.0, 30.0, 60.0])
    scores = torch.zeros(12, 5)
    scores[:6, 2], scores[6:, 4] = lead, lead
    scores[:, 1] = -3.0
    labels = torch.full((12,), 2)
    hot = torch.nn.functional.one_hot(labels, 5).float()
    loss = symloss.create_loss(name, normalize=None, reduction="none")
    (_, by_label), (_, by_weight) = step(loss, scores, labels), step(loss, scores, hot)
    entries = by_label.gather(1, labels[:, None])[:6]
    torch.testing.assert_close(by_weight.gather(1, labels[:, None])[:6], entries, rtol=2e-5, atol=1e-44)
    assert (entries[5] != 0).all()
    largest = by_label.abs().amax(1, keepdim=True)
    torch.testing.assert_close(by_weight / largest, by_label / largest, rtol=0, atol=2e-5)


@in_turn("target", [PROBABILITIES, WEIGHTS])
def test_every_loss_of_potentials_has_a_kernel_for_weights(target):
    for name in symloss.list_losses():
        loss = symloss.create_loss(name).loss
        assert (kernel_for(loss, 10, None, target) is None) == (kernel_for(loss, 10) is None), name


def test_smoothing_of_a_symmetric_loss_that_holds_tensors():
    """Its mean over labels is needed, which no record knows."""
    loss = symloss.losses.relative(symloss.losses.dirichlet("ce", torch.full((C,), 0.5)), label_smoothing=0.1)
    assert loss(SCORES, LABELS).item() == pytest.approx(loss(PICTURES, LABELS[None]).item())


# --- Scores whose sums overflow --------------------------------------------------------------------------------------


def spread(size: float, classes: int = 100) -> Tensor:
    scores = torch.zeros(1, classes)
    scores[0, 0] = size
    return scores.requires_grad_()


@in_turn("size", [1e30, 1e36, 1e37, 3e38])
def test_sums_over_classes_do_not_overflow(size):
    """The label is one of 99 classes that trail by as much: L_y / sum_k L_k = 1 / 99."""
    target = torch.tensor([5])
    assert symloss.NCE()(spread(size), target).item() == pytest.approx(1 / 99, rel=1e-5)
    assert symloss.losses.relative("gce:q=0.5")(spread(size), target).item() == pytest.approx(1 / 99, rel=1e-5)
    smallest = symloss.create_loss("anl-ce")(spread(1e20), target).item()
    assert symloss.create_loss("anl-ce")(spread(size), target).item() == pytest.approx(smallest, rel=1e-5)
    expected = symloss.Unhinged(normalize=None)(spread(1.0), target).item() * size
    assert symloss.Unhinged(normalize=None)(spread(size), target).item() == pytest.approx(expected, rel=1e-5)


@in_turn("name", ["focal:gamma=0.5", "nfl:gamma=0.5", "anl-fl:gamma=0.5", "jal-fl:gamma=0.5"])
@in_turn("size", [1e4, 1e20, 1e30])
def test_focal_losses_have_finite_gradients_far_out(name, size):
    soft = torch.full((1, 100), 0.01)
    hard = torch.tensor([5])
    weighed = {"weight": torch.linspace(0.5, 2, 100)}
    for options, target in (({"label_smoothing": 0.1}, hard), (weighed, hard), ({}, soft), ({}, hard)):
        loss = symloss.create_loss(name, normalize=None, **options)
        for context in (symloss.losses.plain, functools.partial(symloss.losses.checked, True)):
            scores = spread(size)
            with context():
                (gradient,) = torch.autograd.grad(loss(scores, target), scores)
            assert gradient.isfinite().all(), (options, context)


@in_turn("name", ["ce", "sce", "agce", "alpha-mae"])
def test_masks_beside_large_scores(name):
    scores = torch.tensor([[1e36, 0.0, -torch.inf, 5.0]], requires_grad=True)
    value = symloss.create_loss(name, normalize=None)(scores, torch.tensor([0]))
    (gradient,) = torch.autograd.grad(value, scores)
    assert value.isfinite()
    assert gradient.isfinite().all()


def test_scores_that_are_too_large_are_noticed_before_a_block_is_overwritten(monkeypatch):
    monkeypatch.setattr(batch, "BLOCK", 100)
    scores = torch.zeros(3, 100)
    scores[0, 0], scores[2, 0] = 3.0, 1e37
    labels = torch.tensor([5, 5, 5])
    expected = symloss.NCE()(scores, labels)
    assert symloss.NCE(overwrite=True)(scores.requires_grad_() * 1.0, labels).item() == expected.item()
