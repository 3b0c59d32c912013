"""Terms of a gradient that cancel must not leave their rounding behind."""

from __future__ import annotations

import math

import pytest
import reference
import torch
from torch import Tensor

import symloss
from symloss.functional import linear_loss
from symloss.losses import evaluate

kernel_or_plain = pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "plain"])


@pytest.fixture(autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the kernels off for a test that asks for the plain formulas."""
    if "kernel" in request.fixturenames and not request.getfixturevalue("kernel"):
        monkeypatch.setattr(evaluate, "_quick", lambda *_: None)


TWO_LEAD = [
    tuple(torch.tensor([-1.0, lead - 0.75, lead + 0.5, *(0.3 * k for k in range(rest))]).tolist())
    for lead in (8.0, 15.0, 30.0)
    for rest in (0, 7)
]
"""Scores whose label, 0, is far behind two other classes: p_1 + p_2 is nearly 1, and so is its rounding error."""


def off(ours: Tensor, scores: tuple[float, ...], factor: float, name: str = "mae") -> float:
    truth = [factor * slope for slope in reference.gradient(name, scores, 0)]
    return math.dist(ours.tolist(), truth) / math.hypot(*truth)


@kernel_or_plain
@pytest.mark.parametrize(
    ("spec", "factor"),
    [("symmetrized-mse", 2), ("symmetrize(0.5*mse + 2*mae)", 3), ("sgce:q=1", 1), ("symmetrize(mae)", 1)],
)
def test_symmetric_parts_that_are_linear_in_p(spec: str, factor: float, kernel: bool) -> None:
    """Each is a multiple of MAE and a constant: the mean over labels has no gradient (0.5 of the true one was left)."""
    for scores in TWO_LEAD:
        z = torch.tensor([scores], requires_grad=True)
        (gradient,) = torch.autograd.grad(symloss.create_loss(spec, normalize=None)(z, torch.tensor([0])), z)
        assert off(gradient[0], scores, factor) < 1e-6, scores


def test_symmetrized_mse_of_a_head() -> None:
    """The weights are the identity, so the gradient in the features is that in the scores."""
    loss = symloss.create_loss("symmetrized-mse").loss
    for scores in TWO_LEAD:
        h = torch.tensor([scores], requires_grad=True)
        value = linear_loss(loss, h, torch.eye(len(scores)), None, torch.tensor([0]))
        assert off(torch.autograd.grad(value, h)[0][0], scores, 2) < 1e-6, scores


@pytest.mark.parametrize("name", ["mae", "nce"])
def test_smoothed_labels_only_scale_a_symmetric_loss(name: str) -> None:
    for scores in TWO_LEAD:
        z = torch.tensor([scores], requires_grad=True)
        value = symloss.create_loss(name, label_smoothing=0.25)(z, torch.tensor([0]))
        assert off(torch.autograd.grad(value, z)[0][0], scores, 0.75, name) < 2e-6, scores
