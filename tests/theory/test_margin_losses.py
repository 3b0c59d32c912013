"""Margin losses: formulas, refusals of the surrogate, and multi-label training against torch's losses."""

import copy
import math
import pickle

import pytest
import torch
from conftest import assert_close, generator, value_and_grad
from in_turn import in_turn
from refusals import all_refused, refused
from scipy import stats
from torch import nn

from symloss.theory.binary import (
    MARGIN_FUNCTIONS,
    MarginCriterion,
    anchored,
    derivatives_at_zero,
    margin_constants,
    margin_function,
    surrogate,
    symmetrize_margin,
    taylor_truncation,
)
from symloss.theory.search import worst_chord

FORMULAS = {
    "unhinged": lambda z: 1 - z,
    "sigmoid": lambda z: 1 / (1 + math.exp(z)),
    "ramp": lambda z: min(1, max(0, (1 - z) / 2)),
    "probit": stats.norm.sf,
    "savage": lambda z: 1 / (1 + math.exp(z)) ** 2,
    "logistic": lambda z: math.log(1 + math.exp(-z)),
    "hinge": lambda z: max(0, 1 - z),
    "exponential": lambda z: math.exp(-z),
}
SCORES = 3 * torch.randn(6, 4, dtype=torch.float64, generator=generator(0))
TARGETS = torch.randint(2, (6, 4), generator=generator(1))
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
MARGINS = [-7.0, -2.0, -0.3, 0.0, 0.4, 1.0, 5.0]


@in_turn("name", MARGIN_FUNCTIONS)
def test_formulas(name):
    """And far margins are finite, values and slopes, in both precisions."""
    found = margin_function(name)(torch.tensor(MARGINS, dtype=torch.float64))
    assert found.tolist() == pytest.approx([FORMULAS[name](z) for z in MARGINS], rel=1e-12)
    every = MarginCriterion(name, reduction="none")(SCORES, TARGETS)
    for z, target, value in zip(SCORES.flatten(), TARGETS.flatten(), every.flatten(), strict=True):
        assert float(value) == pytest.approx(FORMULAS[name](float(z if target else -z)), rel=1e-9, abs=1e-12)
    for dtype in (torch.float32, torch.float64):
        z = torch.tensor([-80.0, -30.0, 30.0, 80.0], dtype=dtype, requires_grad=True)
        value = margin_function(name)(z)
        (slope,) = torch.autograd.grad(value.sum(), z)
        assert bool(value.isfinite().all() and slope.isfinite().all())
        assert bool((slope <= 0).all())


@pytest.mark.parametrize(
    ("phi", "radius", "ingredients"),
    [
        ("logistic", 3.0, ("phi(R) must be 0", "0.0485", "R = 3")),
        (lambda z: (4 - z) / 8, 4.0, ("phi(0) must be at least 1", "0.5")),
        (lambda z: (z - 2) * (z - 1), 2.0, ("non-increasing", "rise")),
        (lambda z: 1.5 - 1.5 * (z / 2) ** 3, 2.0, ("convex", "chord")),
        (lambda z: torch.log(-z), 2.0, ("finite", "nan")),
    ],
    ids=["not zero at R", "low at 0", "rising", "not convex", "not finite"],
)
def test_hypotheses_of_the_surrogate(phi, radius, ingredients):
    with refused(ValueError, *ingredients):
        surrogate(phi, radius)


def test_a_slight_bend_is_seen_by_long_chords():
    """x^2 / 1e6 bends so little that neighbours hide it; the longest chord shows all of it."""
    grid = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    hollow, round_ = worst_chord(-1e-6 * grid**2), worst_chord(1e-6 * grid**2)
    assert hollow.excess == pytest.approx(1e-6, rel=1e-6)
    assert (hollow.start, hollow.middle, hollow.end) == (0, 1000, 2000)
    assert round_.excess < 0
    assert worst_chord(1e-6 * grid**2, either_side=True).excess == pytest.approx(1e-6, rel=1e-6)
    kink = -(grid - 0.3).abs()[:, None] * torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert worst_chord(kink).excess == pytest.approx(0.7)  # -0.3 against the mean of -1.3 and -0.7
    assert surrogate("hinge", 1.0).factor == 1
    assert surrogate("hinge", 4.0).factor == pytest.approx(2 / 5)
    with refused(ValueError, "convex", "2e-06", "chord"):
        surrogate(lambda z: 1 - z + 1e-6 * (1 - z**2) * 2, 1.0)


def test_bad_potentials():
    all_refused(
        (ValueError, "no margin loss named 'sigmoyd' ... did you mean 'sigmoid'?", lambda: margin_function("sigmoyd")),
        (TypeError, "phi must be ... 3", lambda: margin_function(3)),
        (TypeError, "phi must be", lambda: margin_function(MarginCriterion)),
    )
    with refused(ValueError, "one value for each margin", "(3,)", "shape ()"):
        margin_function(lambda z: z.sum())(torch.zeros(3))
    for radius in (0, -1.0, math.inf):
        for function in (surrogate, anchored, margin_constants):
            with refused(ValueError, "radius", "(0, inf)", radius):
                function("hinge", radius)
    all_refused(
        (ValueError, "phi(0) must be above phi(radius) ... 1 and 3", lambda: anchored(lambda z: 1 + z, 2.0)),
        (ValueError, "order ... [0, 12] ... 13", lambda: taylor_truncation("sigmoid", 13)),
        (ValueError, "derivative 1 of phi at 0 ... inf", lambda: derivatives_at_zero(lambda z: z.sqrt(), 2)),
        (ValueError, "slope of phi must be finite ... nan", lambda: margin_constants(lambda z: z.abs().sqrt(), 1.0)),
    )


@in_turn("reduction", ["mean", "sum", "none"])
@in_turn("soft", [False, True])
@in_turn("weight", [None, WEIGHT])
def test_logistic_is_binary_cross_entropy(reduction, soft, weight):
    target = torch.rand(6, 4, dtype=torch.float64, generator=generator(2)) if soft else TARGETS.double()
    ours = MarginCriterion("logistic", weight=weight, reduction=reduction)
    theirs = nn.BCEWithLogitsLoss(weight=weight, reduction=reduction)
    for found, expected in zip(
        value_and_grad(ours, SCORES, target), value_and_grad(theirs, SCORES, target), strict=True
    ):
        assert_close(found, expected, 1e-10)
    if reduction == "mean":
        assert_close(ours(SCORES, target), nn.MultiLabelSoftMarginLoss(weight=weight)(SCORES, target), 1e-10)


def test_kinds_of_targets_and_shapes():
    loss = MarginCriterion("sigmoid", reduction="none")
    for target in (TARGETS.bool(), TARGETS.int(), TARGETS.float(), TARGETS.double()):
        assert_close(loss(SCORES, target), loss(SCORES, TARGETS))
    assert_close(loss(SCORES[:, 0], TARGETS[:, 0]), loss(SCORES, TARGETS)[:, 0])
    assert_close(loss(SCORES[0, 0], TARGETS[0, 0]), loss(SCORES, TARGETS)[0, 0])
    assert loss(SCORES.bfloat16(), TARGETS).dtype == torch.float32
    assert float(MarginCriterion("sigmoid")(torch.zeros(0, 4), torch.zeros(0, 4))) == 0


def test_masks_leave_entries_out():
    mask = torch.rand(6, 4, generator=generator(3)) > 0.4
    spoilt = torch.where(mask, SCORES, math.nan)
    unknown = torch.where(mask, TARGETS.double(), math.nan)
    for name in ("sigmoid", "logistic", "savage"):
        loss = MarginCriterion(name, weight=WEIGHT)
        every = MarginCriterion(name, weight=WEIGHT, reduction="none")(SCORES, TARGETS)
        leaf = spoilt.clone().requires_grad_()
        value = loss(leaf, unknown, mask)
        assert_close(value.detach(), every[mask].mean())
        (slope,) = torch.autograd.grad(value, leaf)
        assert not slope[~mask].any()
        assert bool(slope.isfinite().all())
    assert float(loss(SCORES, TARGETS, torch.zeros(6, 4, dtype=torch.bool))) == 0


@in_turn("name", MARGIN_FUNCTIONS)
@in_turn("eta", [0.2, 0.45])
def test_flipped_labels(name, eta):
    """Labels flipped with probability eta: the risk is 1 - 2 eta times the clean one plus a constant iff symmetric."""
    for phi in (margin_function(name), symmetrize_margin(name)):
        loss = MarginCriterion(phi, weight=WEIGHT, reduction="none")
        clean, flipped = loss(SCORES, TARGETS), loss(SCORES, 1 - TARGETS)
        rest = (1 - eta) * clean + eta * flipped - (1 - 2 * eta) * clean
        constant = bool((rest.amax(0) - rest.amin(0) < 1e-9).all())
        assert constant == phi.symmetric
        noisy = loss(SCORES, eta + (1 - 2 * eta) * TARGETS.double())
        assert_close(noisy, (1 - eta) * clean + eta * flipped, 1e-12)


def test_copies_pickles_and_training():
    loss = MarginCriterion(symmetrize_margin("savage"), weight=WEIGHT)
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert_close(twin(SCORES, TARGETS), loss(SCORES, TARGETS))
    assert list(loss.state_dict()) == ["weight"]
    assert "savage" in repr(loss)
    x = torch.randn(200, 3, generator=generator(4))
    target = (x @ torch.tensor([[1.0, 0.0], [0.5, -1.0], [0.0, 1.0]]) > 0).long()
    noise = torch.rand(200, 2, generator=generator(5)) < 0.3
    noisy = torch.where(noise, 1 - target, target)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(200):
        optimizer.zero_grad()
        MarginCriterion("sigmoid")(model(x), noisy).backward()
        optimizer.step()
    accuracy = ((model(x) > 0) == (target == 1)).double().mean()
    assert float(accuracy) > 0.9


def test_bad_input_of_the_criterion():
    loss = MarginCriterion("sigmoid")
    with refused(ValueError, "target must hold 0 and 1", "-1"):
        loss(torch.zeros(2), torch.tensor([1, -1]))
    for wrong in (1.5, -0.1, math.nan):
        with refused(ValueError, "target", "probabilities", f"{wrong:g}"):
            loss(torch.zeros(2), torch.tensor([1.0, wrong]))
    all_refused(
        (TypeError, "input ... torch.int64", lambda: loss(torch.zeros(2, dtype=torch.long), torch.zeros(2))),
        (TypeError, "target ... list", lambda: loss(torch.zeros(2), [0, 1])),
        (TypeError, "weight ... list", lambda: MarginCriterion("sigmoid", weight=[1.0])),
        (ValueError, "reduction ... 'avg'", lambda: MarginCriterion("sigmoid", reduction="avg")),
    )
    with refused(ValueError, "target must have the input's shape (2, 3)", "(2,)"):
        loss(torch.zeros(2, 3), torch.zeros(2))
    with refused(ValueError, "mask", "bool", "(2,)", "torch.float32"):
        loss(torch.zeros(2), torch.zeros(2), torch.ones(2))
    with refused(ValueError, "weight", "one entry for each label", "(5, 3)", "4"):
        MarginCriterion("sigmoid", weight=WEIGHT)(torch.zeros(5, 3), torch.zeros(5, 3))
