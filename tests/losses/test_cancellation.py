"""Terms of a gradient that cancel must not leave their rounding behind.

And where scores are products that float32 has rounded, a gradient is as far off as that rounding makes it, not more.
"""

from __future__ import annotations

import math
import random

import pytest
import reference
import torch
from torch import Tensor

import symloss
from symloss.functional import linear_loss
from symloss.losses import criterion

kernel_or_plain = pytest.mark.parametrize("kernel", [True, False], ids=["kernel", "plain"])


@pytest.fixture(autouse=True)
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Switch the kernels off for a test that asks for the plain formulas."""
    if "kernel" in request.fixturenames and not request.getfixturevalue("kernel"):
        monkeypatch.setattr(criterion, "kernel_for", lambda *_: None)


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


@pytest.mark.parametrize("alpha", [0.5, 0.3, 1e4])
def test_dirichlet_ce_over_many_classes(alpha: float) -> None:
    """The label's entry is p - 1 + (alpha - 1) (C p - 1): terms of size C (alpha - 1) cancel (it was 0.6 % off)."""
    classes, label = 50_000, torch.tensor([7])
    z = (0.01 * torch.randn(1, classes, generator=torch.Generator().manual_seed(0))).requires_grad_()
    (gradient,) = torch.autograd.grad(symloss.create_loss("dirichlet-ce", alpha=alpha)(z, label), z)
    p = float(z.detach().double().softmax(1)[0, 7])
    excess = (alpha - 1) * (classes * p - 1)
    assert float(gradient[0, 7]) == pytest.approx(p - 1 + excess, rel=1e-5, abs=3e-7 * abs(alpha - 1))


@pytest.mark.parametrize("factor", [1.0, 1e4, 1e8], ids="{:g}".format)
@pytest.mark.parametrize("name", ["dirichlet-ce", "alpha-mae", "sce"])
def test_raw_scores_of_any_size(name: str, factor: float) -> None:
    """Scores are differences for these losses, and differences of float32 scores are exact where it matters."""
    draw = random.Random(0)
    for _ in range(4):
        scores = [factor * draw.gauss(0, 1) for _ in range(5)]
        scores[0] = max(scores[1:]) + draw.uniform(-3, 3)
        z = torch.tensor([scores], requires_grad=True)
        for times in (1, 10_000):
            loss = symloss.create_loss(f"{times}*{name}", normalize=None)
            (gradient,) = torch.autograd.grad(loss(z, torch.tensor([0])), z)
            assert off(gradient[0], tuple(z[0].tolist()), times, name) < 1e-6


@pytest.mark.parametrize("name", ["dirichlet-ce", "alpha-mae", "sce", "symmetrized-mse"])
def test_heads_lose_what_the_rounding_of_their_scores_costs(name: str) -> None:
    """At scores of 10^4 one rounding moves p by 5e-4, so no float32 head is better; a sum of products rounds twice.

    The label nearly ties with the best of the other classes. Otherwise p is 0 or 1, and nothing is off.
    """
    loss, generator = symloss.create_loss(name).loss, torch.Generator().manual_seed(1)
    n, d, classes = 32, 16, 100
    h, w = (torch.randn(size, d, generator=generator) for size in (n, classes))
    y = torch.arange(n)
    z = 1e4 * h.double() @ w.double().T
    gap = z.scatter(1, y[:, None], -torch.inf).amax(1) - z.gather(1, y[:, None]).squeeze(1)
    lift = gap + torch.linspace(-2, 2, n)
    head = (torch.cat([1e4 * h, torch.diag(lift).float()], 1), torch.cat([w, torch.eye(classes, n)], 1))

    def gradients(dtype: torch.dtype, rounded: bool = False) -> list[Tensor]:
        features, weight = (part.to(dtype).requires_grad_() for part in head)
        if not rounded:
            return list(torch.autograd.grad(linear_loss(loss, features, weight, None, y), (features, weight)))
        scores = features @ weight.T
        scores = scores + (scores.float() - scores).detach()
        return list(torch.autograd.grad(loss(scores, y), (features, weight)))

    truth = gradients(torch.float64)
    ours, best = gradients(torch.float32), gradients(torch.float64, rounded=True)
    for exact, found, honest in zip(truth, ours, best, strict=True):
        assert float((honest - exact).norm() / exact.norm()) > 5e-5
        assert float((found - exact).norm()) < 8 * float((honest - exact).norm())
