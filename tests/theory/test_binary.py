"""The binary case: the statements of appendix B, each named after it; margin losses and multi-label training."""

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

import symloss
from symloss.theory import binary
from symloss.theory.binary import MarginCriterion, derivatives_at_zero, margin_constants, margin_function, surrogate
from symloss.theory.search import worst_chord

Z = torch.linspace(-3, 3, 61, dtype=torch.float64)

SYMMETRIC = ("unhinged", "sigmoid", "probit", "cubic", "sine")
ANALYTIC = {
    **{name: name for name in ("unhinged", "sigmoid", "probit", "savage", "logistic", "exponential")},
    "cubic": lambda z: 1 - z + z**3 / 10,
    "quadratic": lambda z: (1 - z) ** 2,
    "sine": lambda z: 2 - z.sin(),
    "quartic": lambda z: z**4 - z,
}
CONVEX = ["logistic", "exponential", "unhinged", lambda z: (4 - z) ** 2, lambda z: (4 - z) ** 4]
CONVEX.append(lambda z: (1 + (1 - z) ** 2).sqrt() - z)


def sum_is_constant(phi, z=Z):
    total = phi(z) + phi(-z)
    return float(total.max() - total.min()) < 1e-9


@in_turn("name", {**binary.MARGIN_FUNCTIONS, **ANALYTIC})
def test_decomposition_into_odd_and_even_part(name):
    """It is unique, and the binary case of the multi-class symmetrization: at scores (z/2, -z/2)."""
    phi = margin_function(ANALYTIC.get(name, name))
    odd, even = binary.decompose_margin(phi)
    assert_close(odd(Z) + even(Z), phi(Z))
    assert_close(odd(-Z), -odd(Z))
    assert_close(even(-Z), even(Z))
    assert (odd.symmetric, even.symmetric) == (True, False)
    # Unique: with anything even added, the odd part is the same.
    assert_close(binary.symmetrize_margin(lambda z: phi(z) + z.cos() * z**2)(Z), odd(Z), 1e-12)

    def two_classes(scores, labels):
        margin = scores[:, 0] - scores[:, 1]
        return phi(torch.where(labels == 0, margin, -margin))

    found = symloss.symmetrize(two_classes).per_class(torch.stack([Z / 2, -Z / 2], 1))
    assert_close(found[:, 0], odd(Z), 1e-12)


@in_turn("name", ANALYTIC)
def test_proposition_b_1_symmetric_iff_even_derivatives_vanish(name):
    phi = margin_function(ANALYTIC[name])
    vanish = all(abs(number) < 1e-9 for number in derivatives_at_zero(phi, 8)[2::2])
    assert phi.symmetric <= vanish == sum_is_constant(phi) == (name in SYMMETRIC)
    # Symmetrization keeps the odd coefficients and drops the even ones.
    original, symmetric = derivatives_at_zero(phi, 7), derivatives_at_zero(binary.symmetrize_margin(phi), 7)
    assert symmetric[1::2] == pytest.approx(original[1::2], abs=1e-9)
    assert symmetric[0::2] == pytest.approx([0] * 4, abs=1e-9)


@in_turn("order", [1, 2, 5, 8])
@in_turn("name", ANALYTIC)
def test_every_truncation_is_symmetric(name, order):
    """It is the polynomial of phi_sym, and near 0 close to it by the next power. That of phi is not symmetric."""
    truncation = binary.taylor_truncation(ANALYTIC[name], order)
    assert truncation.symmetric
    assert sum_is_constant(truncation)
    near = torch.linspace(-0.1, 0.1, 11, dtype=torch.float64)
    error = (truncation(near) - binary.symmetrize_margin(ANALYTIC[name])(near)).abs()
    assert bool((error <= 10 * near.abs() ** (order + 1) + 1e-12).all())
    if order > 1 and name in ("savage", "logistic", "quadratic"):
        assert not binary.taylor_truncation(ANALYTIC[name], order, symmetric=False).symmetric
    if name == "exponential":
        full = binary.taylor_truncation(name, order, symmetric=False)
        assert full.coefficients == pytest.approx([(-1) ** k / math.factorial(k) for k in range(order + 1)])


@in_turn("radius", [0.5, 2.0])
@in_turn("name", ANALYTIC)
def test_lower_bound_on_the_gain_in_smoothness(name, radius):
    """beta - beta_sym >= max(series at z*, 0), with the series summed term by term where it converges quickly.

    So neither the smoothness nor the Lipschitz constant can get worse.
    """
    constants = margin_constants(ANALYTIC[name], radius)
    gain = constants.smoothness - constants.smoothness_sym
    assert gain >= max(constants.even_series, 0) - 1e-6 * (1 + constants.smoothness)
    assert constants.smoothness_sym <= constants.smoothness_bound + 1e-6 * (1 + constants.smoothness)
    assert constants.lipschitz_sym <= constants.lipschitz * (1 + 1e-9)
    assert constants.smoothness_sym <= constants.smoothness * (1 + 1e-9) + 1e-12
    assert constants.curvature_at_zero == pytest.approx(derivatives_at_zero(ANALYTIC[name], 2)[2], abs=1e-12)
    if radius == 0.5 and name != "probit":
        numbers = derivatives_at_zero(ANALYTIC[name], 10)
        series = sum(numbers[k + 2] / math.factorial(k) * constants.at**k for k in range(0, 9, 2))
        assert constants.even_series == pytest.approx(series, abs=1e-5)


def test_examples_of_the_gain():
    """First, z* = 0, where phi_sym is linear: the gain is phi''(0), all of beta or more.

    Second, even coefficients that are not negative. Third, a small radius, where the bound tends to max(phi''(0), 0).
    """
    for name, radius in (("logistic", 3.0), ("quadratic", 3.0), ("exponential", 2.0), ("quartic", 2.0)):
        constants = margin_constants(ANALYTIC[name], radius)
        assert constants.smoothness - constants.smoothness_sym >= constants.curvature_at_zero - 1e-9 >= -1e-9
        assert (constants.smoothness_sym == pytest.approx(0, abs=1e-9)) == (name != "exponential")
        assert name == "logistic" or all(number >= 0 for number in derivatives_at_zero(ANALYTIC[name], 8)[2::2])
    for name in ("savage", "exponential", "logistic"):
        constants = margin_constants(ANALYTIC[name], 1e-3)
        assert constants.even_series == pytest.approx(constants.curvature_at_zero, rel=1e-2)


@in_turn("radius", [1.0, 4.0])
@in_turn("convex", CONVEX)
def test_surrogate_bounds_the_zero_one_loss(convex, radius):
    """l_sur = 2/phi(-R) l_sym <= l, and beta_sur = 2/phi(-R) beta_sym <= 2/phi(-R) (beta - max(series, 0))."""
    phi = binary.anchored(convex, radius)
    found = surrogate(phi, radius)
    z = torch.linspace(-radius, radius, 4001, dtype=torch.float64)
    values = found(z)
    assert bool((values >= (z <= 0).double() - 1e-9).all())
    assert bool((values.diff() <= 1e-9).all())
    assert values[[2000, -1]].tolist() == pytest.approx([1, 0], abs=1e-9)
    assert found.factor == pytest.approx(2 / float(phi(z[:1])))
    assert found.factor <= 1 + 1e-12
    assert found.symmetric
    assert sum_is_constant(found, z)
    before, after = margin_constants(phi, radius), margin_constants(found, radius)
    assert after.lipschitz == pytest.approx(found.factor * before.lipschitz_sym, rel=1e-7)
    assert after.smoothness == pytest.approx(found.factor * before.smoothness_sym, rel=1e-6, abs=1e-12)
    assert after.lipschitz <= before.lipschitz * (1 + 1e-9)
    assert after.smoothness <= found.factor * before.smoothness_bound + 1e-6 * before.smoothness + 1e-12


KNOWN = {
    # name: the formula; Lipschitz and smoothness constant of phi, then of phi_sym, for |z| <= 4.
    "unhinged": (lambda z: 1 - z, (1, 0, 1, 0)),
    "sigmoid": (lambda z: 1 / (1 + math.exp(z)), (1 / 4, 1 / (6 * math.sqrt(3))) * 2),
    "ramp": (lambda z: min(1, max(0, (1 - z) / 2)), (1 / 2, math.inf) * 2),
    "probit": (stats.norm.sf, (1 / math.sqrt(2 * math.pi), math.exp(-0.5) / math.sqrt(2 * math.pi)) * 2),
    "savage": (lambda z: 1 / (1 + math.exp(z)) ** 2, (8 / 27, 0.15405857, 1 / 4, 1 / (6 * math.sqrt(3)))),
    "logistic": (lambda z: math.log(1 + math.exp(-z)), (1 / (1 + math.exp(-4)), 1 / 4, 1 / 2, 0)),
    "hinge": (lambda z: max(0, 1 - z), (1, math.inf) * 2),
    "exponential": (lambda z: math.exp(-z), (math.exp(4), math.exp(4), math.cosh(4), math.sinh(4))),
}
SCORES = 3 * torch.randn(6, 4, dtype=torch.float64, generator=generator(0))
TARGETS = torch.randint(2, (6, 4), generator=generator(1))
WEIGHT = torch.tensor([1.0, 2.0, 0.5, 3.0], dtype=torch.float64)
MARGINS = [-7.0, -2.0, -0.3, 0.0, 0.4, 1.0, 5.0]


@in_turn("name", binary.MARGIN_FUNCTIONS)
def test_formulas_and_known_constants(name):
    """And far margins are finite, values and slopes, in both precisions."""
    formula, constants = KNOWN[name]
    found = margin_function(name)(torch.tensor(MARGINS, dtype=torch.float64))
    assert found.tolist() == pytest.approx([formula(z) for z in MARGINS], rel=1e-12)
    every = MarginCriterion(name, reduction="none")(SCORES, TARGETS)
    margins = torch.where(TARGETS == 1, SCORES, -SCORES).flatten().tolist()
    assert every.flatten().tolist() == pytest.approx([formula(z) for z in margins], rel=1e-9, abs=1e-12)
    found = margin_constants(name, 4.0)
    values = (found.lipschitz, found.smoothness, found.lipschitz_sym, found.smoothness_sym)
    assert values == pytest.approx(constants, rel=1e-7, abs=1e-12)
    for dtype in (torch.float32, torch.float64):
        z = torch.tensor([-80.0, -30.0, 30.0, 80.0], dtype=dtype, requires_grad=True)
        value = margin_function(name)(z)
        (slope,) = torch.autograd.grad(value.sum(), z)
        assert bool(value.isfinite().all() and slope.isfinite().all())
        assert bool((slope <= 0).all())


def test_a_slight_bend_is_seen_by_long_chords():
    """x^2 / 1e6 bends so little that neighbours hide it; the longest chord shows all of it."""
    grid = torch.linspace(-1, 1, 2001, dtype=torch.float64)
    hollow = worst_chord(-1e-6 * grid**2)
    assert (hollow.excess, hollow.start, hollow.middle, hollow.end) == (pytest.approx(1e-6, rel=1e-6), 0, 1000, 2000)
    assert worst_chord(1e-6 * grid**2).excess < 0
    assert worst_chord(1e-6 * grid**2, either_side=True).excess == pytest.approx(1e-6, rel=1e-6)
    kink = -(grid - 0.3).abs()[:, None] * torch.tensor([0.0, 1.0], dtype=torch.float64)
    assert worst_chord(kink).excess == pytest.approx(0.7)  # -0.3 against the mean of -1.3 and -0.7
    assert [surrogate("hinge", radius).factor for radius in (1.0, 4.0)] == pytest.approx([1, 2 / 5])
    with refused(ValueError, "convex", "2e-06", "chord"):
        surrogate(lambda z: 1 - z + 1e-6 * (1 - z**2) * 2, 1.0)


def test_bad_potentials():
    for radius in (0, -1.0, math.inf):
        for function in (surrogate, binary.anchored, margin_constants):
            with refused(ValueError, "radius", "(0, inf)", radius):
                function("hinge", radius)
    all_refused(
        (ValueError, "no margin loss named 'sigmoyd' ... did you mean 'sigmoid'?", lambda: margin_function("sigmoyd")),
        (TypeError, "phi must be ... 3", lambda: margin_function(3)),
        (TypeError, "phi must be", lambda: margin_function(MarginCriterion)),
        (ValueError, "one value for each margin ... (61,) ... shape ()", lambda: margin_function(torch.sum)(Z)),
        (ValueError, "phi(0) must be above phi(radius) ... 1 and 3", lambda: binary.anchored(lambda z: 1 + z, 2.0)),
        (ValueError, "order ... [0, 12] ... 13", lambda: binary.taylor_truncation("sigmoid", 13)),
        (ValueError, "derivative 1 of phi at 0 ... inf", lambda: derivatives_at_zero(lambda z: z.sqrt(), 2)),
        (ValueError, "slope of phi must be finite ... nan", lambda: margin_constants(lambda z: z.abs().sqrt(), 1.0)),
        # The hypotheses of the surrogate.
        (ValueError, "phi(R) must be 0 ... 0.0485 ... R = 3", lambda: surrogate("logistic", 3.0)),
        (ValueError, "phi(0) must be at least 1 ... 0.5", lambda: surrogate(lambda z: (4 - z) / 8, 4.0)),
        (ValueError, "non-increasing ... rise", lambda: surrogate(lambda z: (z - 2) * (z - 1), 2.0)),
        (ValueError, "convex ... chord", lambda: surrogate(lambda z: 1.5 - 1.5 * (z / 2) ** 3, 2.0)),
        (ValueError, "finite ... nan", lambda: surrogate(lambda z: torch.log(-z), 2.0)),
    )


@in_turn("reduction", ["mean", "sum", "none"])
@in_turn("soft", [False, True])
@in_turn("weight", [None, WEIGHT])
def test_logistic_is_binary_cross_entropy(reduction, soft, weight):
    target = torch.rand(6, 4, dtype=torch.float64, generator=generator(2)) if soft else TARGETS.double()
    ours = MarginCriterion("logistic", weight=weight, reduction=reduction)
    theirs = nn.BCEWithLogitsLoss(weight=weight, reduction=reduction)
    assert_close(value_and_grad(ours, SCORES, target), value_and_grad(theirs, SCORES, target), 1e-10)
    if reduction == "mean":
        assert_close(ours(SCORES, target), nn.MultiLabelSoftMarginLoss(weight=weight)(SCORES, target), 1e-10)


def test_kinds_of_targets_shapes_and_copies():
    loss = MarginCriterion("sigmoid", reduction="none")
    for target in (TARGETS.bool(), TARGETS.int(), TARGETS.float(), TARGETS.double()):
        assert_close(loss(SCORES, target), loss(SCORES, TARGETS))
    assert_close(loss(SCORES[:, 0], TARGETS[:, 0]), loss(SCORES, TARGETS)[:, 0])
    assert_close(loss(SCORES[0, 0], TARGETS[0, 0]), loss(SCORES, TARGETS)[0, 0])
    assert loss(SCORES.bfloat16(), TARGETS).dtype == torch.float32
    assert float(MarginCriterion("sigmoid")(torch.zeros(0, 4), torch.zeros(0, 4))) == 0
    loss = MarginCriterion(binary.symmetrize_margin("savage"), weight=WEIGHT)
    for twin in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert_close(twin(SCORES, TARGETS), loss(SCORES, TARGETS))
    assert list(loss.state_dict()) == ["weight"]
    assert "savage" in repr(loss)


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


@in_turn("name", binary.MARGIN_FUNCTIONS)
@in_turn("eta", [0.2, 0.45])
def test_flipped_labels(name, eta):
    """Labels flipped with probability eta: the risk is 1 - 2 eta times the clean one plus a constant iff symmetric."""
    for phi in (margin_function(name), binary.symmetrize_margin(name)):
        loss = MarginCriterion(phi, weight=WEIGHT, reduction="none")
        clean, flipped = loss(SCORES, TARGETS), loss(SCORES, 1 - TARGETS)
        noisy = loss(SCORES, eta + (1 - 2 * eta) * TARGETS.double())
        assert_close(noisy, (1 - eta) * clean + eta * flipped, 1e-12)
        rest = noisy - (1 - 2 * eta) * clean
        assert bool((rest.amax(0) - rest.amin(0) < 1e-9).all()) == phi.symmetric


def test_bad_input_of_the_criterion():
    loss, zeros = MarginCriterion("sigmoid"), torch.zeros(2)
    for wrong in (1.5, -0.1, math.nan):
        with refused(ValueError, "target", "probabilities", f"{wrong:g}"):
            loss(zeros, torch.tensor([1.0, wrong]))
    with refused(ValueError, "weight", "one entry for each label", "(5, 3)", "4"):
        MarginCriterion("sigmoid", weight=WEIGHT)(torch.zeros(5, 3), torch.zeros(5, 3))
    all_refused(
        (ValueError, "target must have the input's shape (2, 3) ... (2,)", lambda: loss(torch.zeros(2, 3), zeros)),
        (ValueError, "mask ... bool ... (2,) ... torch.float32", lambda: loss(zeros, zeros, torch.ones(2))),
        (ValueError, "target must hold 0 and 1 ... -1", lambda: loss(zeros, torch.tensor([1, -1]))),
        (TypeError, "input ... torch.int64", lambda: loss(zeros.long(), zeros)),
        (TypeError, "target ... list", lambda: loss(zeros, [0, 1])),
        (TypeError, "weight ... list", lambda: MarginCriterion("sigmoid", weight=[1.0])),
        (ValueError, "reduction ... 'avg'", lambda: MarginCriterion("sigmoid", reduction="avg")),
    )
