"""The binary case, appendix B: its statements, margin losses, multi-label training. Proposition 5.3: the bounds."""

import copy
import functools
import itertools
import json
import math
import pickle

import pytest
import torch
from conftest import assert_close, generator, value_and_grad
from in_turn import in_turn
from refusals import all_refused, refused
from scipy import stats
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import symloss
from symloss import certify_margin
from symloss.losses.catalogue import RECORDS
from symloss.losses.potentials import CEPotential
from symloss.theory import binary, bounds
from symloss.theory.binary import MarginCriterion, derivatives_at_zero, margin_function, surrogate
from symloss.theory.search import worst_chord
from symloss.training.models import create_model

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
    constants = certify_margin(ANALYTIC[name], radius)
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
        constants = certify_margin(ANALYTIC[name], radius)
        assert constants.smoothness - constants.smoothness_sym >= constants.curvature_at_zero - 1e-9 >= -1e-9
        assert (constants.smoothness_sym == pytest.approx(0, abs=1e-9)) == (name != "exponential")
        assert name == "logistic" or all(number >= 0 for number in derivatives_at_zero(ANALYTIC[name], 8)[2::2])
    for name in ("savage", "exponential", "logistic"):
        constants = certify_margin(ANALYTIC[name], 1e-3)
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
    before, after = certify_margin(phi, radius), certify_margin(found, radius)
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
    found = certify_margin(name, 4.0)
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
        for function in (surrogate, binary.anchored, certify_margin):
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
        (ValueError, "slope of phi must be finite ... nan", lambda: certify_margin(lambda z: z.abs().sqrt(), 1.0)),
        # The hypotheses of the surrogate.
        (ValueError, "phi(R) must be 0 ... 0.0485 ... R = 3", lambda: surrogate("logistic", 3.0)),
        (ValueError, "phi(0) must be at least 1 ... 0.5", lambda: surrogate(lambda z: (4 - z) / 8, 4.0)),
        (ValueError, "non-increasing ... rise", lambda: surrogate(lambda z: (z - 2) * (z - 1), 2.0)),
        (ValueError, "convex ... chord", lambda: surrogate(lambda z: 1.5 - 1.5 * (z / 2) ** 3, 2.0)),
        (ValueError, "phi must be finite ... -inf at z = 0", lambda: surrogate(lambda z: torch.log(-z), 2.0)),
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


# --- The certificate of a margin loss ------------------------------------------------------------------------------

softplus = nn.functional.softplus
OWN = {
    # name: phi, R; symmetric, non-increasing, convex
    "tanh": (lambda z: -z.tanh(), 10.0, (True, True, False)),
    "by subtraction": (lambda z: 1 - 1 / (1 + (-z).exp()), 30.0, (True, True, False)),
    "in float32": (lambda z: torch.sigmoid(-z.float()), 5.0, (True, True, False)),
    "in float32, convex": (lambda z: softplus(-z.float()), 5.0, (False, True, True)),
    "huge and symmetric": (lambda z: -1e12 * z, 5.0, (True, True, True)),
    # Far beyond the rounding of values here, though far below 1e-9 of the largest one anywhere.
    "huge and a little even": (lambda z: 1e12 * torch.sigmoid(-z) + softplus(-z), 5.0, (False, True, False)),
    "exponential and a ripple": (lambda z: (-z).exp() + 0.1 * (5 * z).sin(), 25.0, (False, False, False)),
    "tiny": (lambda z: 1e-12 * softplus(-z), 5.0, (False, True, True)),
    "rising": (lambda z: (1 - z) ** 2, 5.0, (False, False, True)),
    "rising by 1e-9": (lambda z: -torch.sigmoid(z) + 1e-7 * torch.sigmoid(5 * (z - 20)), 30.0, (False, False, False)),
    "a slight bend": (lambda z: 1 - z + 2e-6 * (1 - z**2), 1.0, (False, True, False)),
    "a jump up": (lambda z: -z + 0.3 * (z > 1.3371), 5.0, (False, False, False)),
    "a jump down": (lambda z: -z - 0.3 * (z > 1.3371), 5.0, (False, True, False)),
    "a bump": (lambda z: -z + 0.1 * (-(((z - 1.234) / 0.01) ** 2)).exp(), 10.0, (False, False, False)),
    "a bump of width .001": (lambda z: -z + 0.1 * (-(((z - 1.234) / 0.001) ** 2)).exp(), 2.0, (False, False, False)),
    "a kink downwards beside e^20": (lambda z: (-z).exp() - 0.01 * (z - 3).abs(), 20.0, (False, True, False)),
    # Any chord that is long enough to see this kink sees the curve bend the other way much more.
    "a slight kink on a curve": (lambda z: (-z).exp() - 1e-7 * (z - 1.3371).abs(), 20.0, (False, True, False)),
    "zero-one": (lambda z: (z <= 0).double(), 5.0, (False, True, False)),
}
ANSWERS = {
    "unhinged": (True, True, True),
    **dict.fromkeys(("sigmoid", "ramp", "probit"), (True, True, False)),
    "savage": (False, True, False),
    **dict.fromkeys(("logistic", "hinge", "exponential"), (False, True, True)),
}


@in_turn("name", [*OWN, *ANSWERS])
def test_certificate_of_a_margin_loss(name):
    """Each "no" has margins at which it is true, by values alone; each "yes" says how many were tried."""
    phi, radius, answers = OWN[name] if name in OWN else (name, 4.0, ANSWERS[name])
    card, whole = certify_margin(phi, radius), margin_function(phi)
    findings = (card.symmetric, card.non_increasing, card.convex)
    assert tuple(map(bool, findings)) == answers
    assert str(card).count(f"no counter-example at {card.points} margins") >= sum(answers)
    assert "nothing is said beyond" in str(card)

    def at(finding):
        return {key: torch.tensor(place, dtype=torch.float64) for key, place in finding.counter_example.scores.items()}

    if not card.symmetric:
        a, b = at(card.symmetric).values()
        assert float(whole(a) + whole(-a) - whole(b) - whole(-b)) == pytest.approx(card.symmetric.measure, rel=1e-3)
    if not card.non_increasing:
        a, b = at(card.non_increasing).values()
        assert float(a) < float(b)
        assert float(whole(b)) > float(whole(a))
    if not card.convex:
        assert ("the slope falls" in str(card)) == (name == "a slight kink on a curve")
        if "the slope falls" in str(card):
            a, b = (value_and_grad(whole, place)[1] for place in at(card.convex).values())
            assert float(a - b) == pytest.approx(2e-7, rel=1e-3)
        else:
            a, b, c = at(card.convex).values()
            assert float(whole(b) - (whole(a) + whole(c)) / 2) == pytest.approx(card.convex.measure, rel=1e-6)
    json.dumps(card.to_dict(), allow_nan=False)


def test_symmetry_is_measured():
    assert margin_function(OWN["tanh"][0]).symmetric
    assert not margin_function(softplus).symmetric
    assert not margin_function(lambda z: z.log()).symmetric  # which is NaN there
    assert [name for name, phi in binary.MARGIN_FUNCTIONS.items() if phi.symmetric] == [
        "unhinged", "sigmoid", "ramp", "probit",
    ]  # fmt: skip


def test_constants_where_phi_or_its_slope_jumps():
    """(l, beta, l_sym, beta_sym): a jump in the even part alone leaves the odd part smooth."""
    cases = {
        (math.inf,) * 4: OWN["a jump up"][0],
        (math.inf, math.inf, 1, 0): lambda z: -z + 0.3 * (z.abs() > 1.3371),
        (2, math.inf, 1, 0): lambda z: (z - 0.0).abs() - z,
        (1, math.inf, 1, math.inf): lambda z: (1.2345 - z).clamp_min(0),
    }
    for expected, phi in cases.items():
        card = certify_margin(phi, 5.0)
        found = card.lipschitz, card.smoothness, card.lipschitz_sym, card.smoothness_sym
        assert tuple(map(float, found)) == pytest.approx(expected, abs=1e-12)
        assert not card.lower_bounds
        assert "no lower bound" in str(card)
    steep = certify_margin(lambda z: -(1e6 * z).tanh(), 5.0)  # steep, and yet no jump
    assert float(steep.lipschitz) == pytest.approx(1e6, rel=1e-9)
    assert float(steep.smoothness) == pytest.approx(4 / 3**1.5 * 1e12, rel=1e-6)
    assert not any(constant.exact for constant in (steep.lipschitz, steep.smoothness, steep.smoothness_sym))


def not_analytic(z):
    """phi'' is 1 between -1 and 1, then 3 at 2 and -3 at -2: symmetrization gains nothing."""
    return z**2 / 2 + (z - 1).clamp_min(0) ** 3 / 3 - 2 * (-z - 1).clamp_min(0) ** 3 / 3


def concave_at_zero(z):
    return z**4 - z**2 / 2 - 3 * z


CASES = {
    # phi, R: the three bounds, None where one does not apply
    ("logistic", 4.0): (0.25, None, None),
    ("logistic", 0.1): (0.25, None, 0.25),
    ("exponential", 2.0): (None, 1.0, None),
    ("exponential", 0.2): (None, 1.0, 1.0),
    ("savage", 4.0): (None, None, None),
    ("savage", 0.1): (None, None, 0.125),
    ("quadratic", 3.0): (2.0, 2.0, 2.0),
    ("quartic", 3.0): (0.0, 0.0, None),
    ("sigmoid", 30.0): (None, 0.0, 0.0),
    (not_analytic, 2.0): (None, None, None),
    (concave_at_zero, 0.1): (0.0, None, 0.0),
}


@in_turn(("phi", "radius"), CASES)
def test_special_cases_of_the_lower_bound(phi, radius):
    """z* = 0; even coefficients that are not negative; a small R, where the bound comes close to max(phi''(0), 0)."""
    card = certify_margin(ANALYTIC.get(phi, phi) if isinstance(phi, str) else phi, radius)
    for case, bound, near in zip(card.lower_bounds, CASES[phi, radius], (1e-9, 1e-9, 0.03), strict=True):
        assert case.applies == (bound is not None)
        assert case.case in str(card)
        assert case.reason in str(card)
        if bound is None:
            assert math.isnan(case.bound)
            continue
        assert case.bound == pytest.approx(bound, abs=near)
        assert case.bound <= card.gain + 1e-9
    assert card.gain >= max(card.even_series, 0) - 1e-6
    assert ("so phi is not analytic" in str(card)) == (phi is not_analytic)


def test_the_taylor_criterion_of_proposition_b_1():
    """It agrees with the measured symmetry for analytic losses; where it does not, the card says so."""
    for name in (*SYMMETRIC, "savage", "logistic", "quadratic", "quartic"):
        card = certify_margin(ANALYTIC[name], 2.0)
        assert card.even_derivatives_vanish == bool(card.symmetric) == (name in SYMMETRIC)
        assert "as prop. B.1 says" in str(card)
    for phi in ("hinge", OWN["a bump"][0]):
        card = certify_margin(phi, 5.0)
        assert "by prop. B.1 phi is not analytic" in str(card)
    # A low order counts, however large the high ones are.
    assert not certify_margin(lambda z: (100 * z).sin() + 1e-3 * z**2, 1.0).even_derivatives_vanish
    rough = certify_margin(lambda z: z.abs() ** 2.5 - 20 * z, 2.0)
    assert (rough.derivatives, rough.lower_bounds, rough.even_derivatives_vanish) == ((), (), False)
    assert "so phi is not analytic" in str(rough)
    assert math.isnan(rough.curvature_at_zero)


def test_constants_of_the_surrogate():
    """By the formulas of the paper, from those of phi or of phi shifted and scaled."""
    hinge = certify_margin("hinge", 4.0).surrogate
    assert (hinge.anchored, hinge.factor) == (False, pytest.approx(2 / 5))
    assert (float(hinge.lipschitz), float(hinge.lipschitz_bound)) == pytest.approx((2 / 5, 1))
    assert (float(hinge.smoothness), hinge.smoothness_bound) == (math.inf, math.inf)
    card = certify_margin("exponential", 2.0)
    found = card.surrogate
    unit = 1 - math.exp(-2)  # phi(0) - phi(R)
    factor = 2 / ((math.exp(2) - math.exp(-2)) / unit)
    assert found.anchored
    assert found.factor == pytest.approx(factor)
    assert float(found.lipschitz) == pytest.approx(factor / unit * math.cosh(2))
    assert float(found.lipschitz_bound) == pytest.approx(math.exp(2) / unit)
    assert float(found.smoothness) == pytest.approx(factor / unit * math.sinh(2))
    assert found.smoothness_bound == pytest.approx(factor / unit * (math.exp(2) - math.cosh(2)))
    for name in ("unhinged", "logistic", "hinge", "exponential"):
        found = certify_margin(name, 3.0).surrogate
        assert found.upper_bound
        assert found.factor <= 1 + 1e-12
        assert float(found.lipschitz) <= float(found.lipschitz_bound) * (1 + 1e-9)
        assert float(found.smoothness) <= found.smoothness_bound + 1e-9
    for phi, reason in (
        ("sigmoid", "convex"),
        (lambda z: z, "non-increasing"),
        (lambda z: 0 * z, "phi(0) must be above"),
    ):
        card = certify_margin(phi, 3.0)
        assert card.surrogate is None
        assert reason in card.no_surrogate
        assert f"none: {card.no_surrogate}" in str(card)


def test_margin_losses_that_cannot_be_certified():
    def drawn(z):
        return z + 1e-3 * torch.rand(z.shape, dtype=z.dtype)

    all_refused(
        (ValueError, "phi must be finite ... nan at z = 3", lambda: certify_margin(lambda z: (3 - z).sqrt(), 5.0)),
        (ValueError, "phi must be finite ... inf at z = -800", lambda: certify_margin("exponential", 800.0)),
        (
            ValueError,
            "slope of phi must be finite ... nan at z = 0",
            lambda: certify_margin(lambda z: z.abs().sqrt(), 1.0),
        ),
        (
            ValueError,
            "second derivative of phi must be finite ... at z = 0",
            lambda: certify_margin(lambda z: z.abs() ** 1.5, 1.0),
        ),
        (ValueError, "phi must depend on the margin alone ... in a second call", lambda: certify_margin(drawn)),
        (
            ValueError,
            "phi must depend on the margin alone ... without the other margins",
            lambda: certify_margin(lambda z: z - z.max()),
        ),
        (ValueError, "one value for each margin", lambda: certify_margin(torch.sum)),
        (ValueError, "no margin loss named 'logistik'", lambda: certify_margin("logistik")),
    )


# --- Proposition 5.3: the bound, the remainder of networks, and the gap on one layer and on two ----------------------

UNHINGED = RECORDS["unhinged"].loss()
CLASSES = 3
LOSSES = {
    "ce": CEPotential(),
    "mae": RECORDS["mae"].loss(),
    "sgce": RECORDS["sgce"].loss(q=0.5),
    "alpha-mae": RECORDS["alpha-mae"].loss(),
}
SLOPES = {"ce": 1.0, "mae": 1 / 3, "sgce": 3**-0.5, "alpha-mae": 1.0}
every_loss = in_turn("name", LOSSES)


@functools.cache
def smoothness(name):
    """Of the loss as it is, not divided by its slope."""
    return symloss.certify(LOSSES[name], CLASSES).smoothness


def bound_of(model, name, data, *others):
    return symloss.gap_bound(model, LOSSES[name], data, *others, smoothness=float(smoothness(name)))


def remainder_of(name, z):
    """|phi(z, y) - phi(0, y) - unhinged(z, y)| at every label, where phi is the loss divided by its slope."""
    loss = LOSSES[name]
    risen = loss.per_class(z) - loss.per_class(torch.zeros_like(z))
    return (risen / SLOPES[name] - UNHINGED.per_class(z)).abs()


def network(layers, activation, scale, seed=0):
    torch.manual_seed(seed)
    sizes = [5, *[7] * (layers - 1), CLASSES]
    parts = [p for a, b in itertools.pairwise(sizes) for p in (nn.Linear(a, b, bias=False), activation())]
    model = nn.Sequential(*parts[:-1]).double()
    with torch.no_grad():
        for weights in model.parameters():
            weights.mul_(scale / weights.norm())
    return model


def inputs(radius, n=200):
    x = torch.randn(n, 5, dtype=torch.float64, generator=generator(1))
    return radius * x / x.norm(dim=1, keepdim=True) * torch.rand(n, 1, dtype=torch.float64, generator=generator(2))


def test_formula():
    """R^2 beta c^(2 (l - 1)) r^2, with beta of the loss divided by its slope."""
    x = torch.tensor([[3.0, 4.0], [0.5, 0.0]])
    first, second = (nn.Linear(2, 2, bias=False) for _ in range(2))
    torch.nn.init.constant_(first.weight, 0.5)  # of norm 1
    torch.nn.init.constant_(second.weight, 1.0)  # of norm 2
    for slope, c in ((0.1, 1.0), (3.0, 3.0)):
        leaky = nn.LeakyReLU(slope)
        model = nn.Sequential(first, leaky, nn.Sequential(leaky, second))
        found = symloss.gap_bound(model, 0.2 * LOSSES["ce"], x, smoothness=0.1)
        assert (found.radius, found.weights, found.lipschitz, found.slope) == pytest.approx((5.0, 2.0, c * c, 0.2))
        assert float(found.beta) == pytest.approx(0.5)
        assert found.bound == pytest.approx(5**2 * 0.5 * c**4 * 2**2)
        assert found.remainder_bound == pytest.approx(found.bound / 2)
        assert (found.examples, found.num_classes, found.exact) == (2, 2, True)
    unhinged = symloss.gap_bound(model, "unhinged", x)
    assert (unhinged.bound, unhinged.remainder) == (0, pytest.approx(0, abs=1e-12))


def test_the_loss_is_measured_at_slope_1():
    """The bound is that of any multiple of the loss; beta and slope cannot come apart."""
    model, x = network(2, nn.ReLU, 1.3), inputs(1.0)
    for name, losses in {
        "mae": (7 * symloss.MAE(), "mae:scale=ce"),
        "sgce": (symloss.SGCE(q=0.5), 0.01 * symloss.SGCE(q=0.5)),
    }.items():
        plain = bound_of(model, name, x)
        assert plain.slope == pytest.approx(SLOPES[name])
        assert float(plain.beta) == pytest.approx(float(smoothness(name)) / SLOPES[name])
        for found in (symloss.gap_bound(model, loss, x) for loss in losses):
            assert float(found.beta) == pytest.approx(float(plain.beta), rel=1e-4)
            assert found.bound == pytest.approx(plain.bound, rel=1e-4)
            assert found.remainder == pytest.approx(plain.remainder, rel=1e-6)


ACTIVATIONS = {
    "relu": (nn.ReLU(), 1.0),
    "relu6": (nn.ReLU6(), 1.0),
    "tanh": (nn.Tanh(), 1.0),
    "softsign": (nn.Softsign(), 1.0),
    "softshrink": (nn.Softshrink(0.3), 1.0),
    "tanhshrink": (nn.Tanhshrink(), 1.0),
    "hardtanh": (nn.Hardtanh(-0.5, 2.0), 1.0),
    "flat leaky": (nn.LeakyReLU(0.2), 1.0),
    "steep leaky": (nn.LeakyReLU(-2.5), 2.5),
    "prelu": (nn.PReLU(init=1.7), 1.7),
    "elu": (nn.ELU(), 1.0),
    "steep elu": (nn.ELU(3.0), 3.0),
    "celu": (nn.CELU(0.4), 1.0),
    "selu": (nn.SELU(), 1.7580993),
    "gelu": (nn.GELU(), 1.13),
    "gelu by tanh": (nn.GELU("tanh"), 1.13),
    "silu": (nn.SiLU(), 1.1),
    "mish": (nn.Mish(), 1.09),
    "hardswish": (nn.Hardswish(), 1.5),
}


@in_turn("name", ACTIVATIONS)
def test_proposition_5_3_outputs_of_networks(name):
    """What the bound takes for c is at least the steepest slope of the non-linearity, and not much more."""
    activation, c = ACTIVATIONS[name]
    x = torch.linspace(-9, 9, 20001, dtype=torch.float64)
    values = activation.double()(x).detach()
    assert values[10_000].abs() < 1e-15
    assert 0.99 * c <= float((values.diff() / x.diff()).abs().max()) <= c * (1 + 1e-6)
    for layers in (1, 4):
        for seed in range(3):
            model = network(layers, lambda: activation, 1.7, seed)
            assert bounds.weight_product(model) == pytest.approx(1.7**layers)
            found = bound_of(model, "ce", inputs(2.0))
            assert found.lipschitz == pytest.approx(c ** (layers - 1))
            assert found.output == pytest.approx(float(model(inputs(2.0)).detach().norm(dim=1).max()))
            assert found.output <= found.radius * found.lipschitz * found.weights


@in_turn("scale", [0.3, 2.5])
@in_turn("layers", [1, 3])
@every_loss
def test_proposition_5_3_remainder_on_networks(name, layers, scale):
    """At most beta/2 (R c^(l-1) r)^2 for every output and every label, and at most beta/2 |z|^2."""
    model = network(layers, nn.ReLU, scale)
    for radius in (0.5, 3.0):
        z = model(inputs(radius)).detach()
        remainder, found = remainder_of(name, z), bound_of(model, name, inputs(radius))
        assert found.remainder == pytest.approx(float(remainder.max()), rel=1e-9, abs=1e-14)
        assert found.remainder <= found.remainder_bound * (1 + 1e-9)
        own = float(smoothness(name)) / SLOPES[name] / 2 * z.square().sum(1, keepdim=True)
        assert bool((remainder <= own * (1 + 1e-6) + 1e-12).all())


def as_network(*weights, activation=nn.ReLU):
    parts = []
    for weight in weights:
        layer = nn.Linear(weight.shape[1], weight.shape[0], bias=False, dtype=torch.float64)
        layer.weight.data = weight
        parts += [layer, activation()]
    return nn.Sequential(*parts[:-1])


@in_turn("r", [0.3, 3.0])
@every_loss
def test_proposition_5_3_gap_on_one_layer(name, r):
    """One layer with |W| <= r: the best for unhinged is the centroid's, the best for phi is found by descent."""
    x = inputs(1.0, 60)
    y = (x[:, 0] > 0.1).long() + (x[:, 1] > 0).long()
    loss, w = LOSSES[name], torch.zeros(CLASSES, 5, dtype=torch.float64, requires_grad=True)
    for _ in range(1500):
        (slope,) = torch.autograd.grad(loss(x @ w.T, y), w)
        with torch.no_grad():
            w -= slope / SLOPES[name]
            w *= (r / w.norm()).clamp_max(1)
    centroid = (torch.eye(CLASSES, dtype=torch.float64)[y] - 1 / CLASSES).T @ x / len(x)
    best = r * centroid / centroid.norm()
    assert float(UNHINGED(x @ best.T, y)) == pytest.approx(-r * float(centroid.norm()))
    gap = float(UNHINGED(x @ w.detach().T, y) - UNHINGED(x @ best.T, y))
    found = bound_of(as_network(w.detach()), name, (x, y), as_network(best))
    assert found.gap == pytest.approx(gap, abs=1e-12)
    assert found.excess <= 1e-9
    assert -1e-9 <= gap <= found.bound
    assert gap <= 2 * found.remainder + 1e-9


def two_layers(weights, x):
    first, second = weights
    return (x @ first.T).relu() @ second.T


def best_neuron(x, y, r):
    """The best two layers for unhinged with |W1| |W2| <= r, in the plane: one neuron, found by its angle.

    The unhinged risk is linear in the outputs. A network is a sum of neurons, the norms of which add up to at most r,
    so the best neuron alone is the best network.
    """
    angles = torch.linspace(0, 2 * math.pi, 20001, dtype=torch.float64)
    directions = torch.stack([angles.cos(), angles.sin()], 1)
    centred = torch.eye(CLASSES, dtype=torch.float64)[y] - 1 / CLASSES
    gains = (x @ directions.T).relu().T @ centred / len(x)
    best = int(gains.norm(dim=1).argmax())
    return directions[best : best + 1], (r * gains[best] / gains[best].norm())[:, None], r * float(gains[best].norm())


@in_turn("r", [0.5, 2.0])
@every_loss
def test_proposition_5_3_gap_on_two_layers(name, r):
    """phi-risk no larger than that of the best for unhinged is all the proof needs: descent starts from there."""
    loss, x = LOSSES[name], inputs(1.0, 60)[:, :2]
    y = (x[:, 0] > 0.05).long() + (x[:, 1] > 0).long()
    *best, gain = best_neuron(x, y, r)
    assert float(UNHINGED(two_layers(best, x), y)) == pytest.approx(-gain)
    spare = 0.3 * torch.randn(8, 2 + CLASSES, dtype=torch.float64, generator=generator(4))
    weights = [torch.cat([best[0], spare[:, :2]]), torch.cat([best[1], 0 * spare[:, 2:].T], 1)]
    weights = [(w * (r**0.5 / w.norm())).requires_grad_() for w in weights]
    for _ in range(400):
        slopes = torch.autograd.grad(loss(two_layers(weights, x), y), weights)
        with torch.no_grad():
            for layer, slope in zip(weights, slopes, strict=True):
                layer.sub_(slope, alpha=0.5 / SLOPES[name]).mul_((r**0.5 / layer.norm()).clamp_max(1))
    found = [w.detach() for w in weights]
    assert found[0].norm() * found[1].norm() <= r * (1 + 1e-12)
    assert float(loss(two_layers(found, x), y)) <= float(loss(two_layers(best, x), y))
    gap = float(UNHINGED(two_layers(found, x), y)) + gain
    measured = bound_of(as_network(*found), name, (x, y), as_network(*best))
    assert (measured.gap, measured.excess <= 0) == (pytest.approx(gap, abs=1e-12), True)
    assert 0 <= gap <= min(measured.bound, 2 * measured.remainder + 1e-9)


def test_networks_that_are_not_the_best():
    """The gap of any two is at most the bound, or twice the remainder, plus the excess of the first one's phi-risk."""
    x, y = inputs(1.0, 60), torch.arange(60) % CLASSES
    signs = set()
    for seed in range(8):
        one, other = network(2, nn.ReLU, 1.5, seed), network(3, nn.Tanh, 1.1, seed + 100)
        one, other = (one, other) if seed % 2 else (other, one)
        found = bound_of(one, "mae", (x, y), other)
        scores = [model(x).detach() for model in (one, other)]
        risk = [float(UNHINGED(z, y)) for z in scores]
        phi = [float(LOSSES["mae"](z, y)) * CLASSES for z in scores]
        assert (found.gap, found.excess) == pytest.approx((risk[0] - risk[1], phi[0] - phi[1]), abs=1e-12)
        assert found.weights == pytest.approx(max(1.5**2, 1.1**3))
        both = torch.cat(scores)
        assert found.output == pytest.approx(float(both.norm(dim=1).max()))
        assert found.remainder == pytest.approx(float(remainder_of("mae", both).max()))
        assert found.gap - found.excess <= 2 * found.remainder <= found.bound
        assert ("comes on top of the bound" in str(found)) == (found.excess > 0)
        signs.add(found.excess > 0)
    assert signs == {True, False}


@in_turn(
    ("layer", "size"),
    [
        (nn.Conv2d(2, 3, 3, padding=1, bias=False), (2, 6, 6)),
        (nn.Conv2d(2, 3, 5, stride=2, bias=False), (2, 9, 9)),
        (nn.Conv2d(2, 3, 3, stride=2, dilation=2, bias=False), (2, 9, 9)),
        (nn.Conv1d(4, 6, 3, groups=2, padding="same", bias=False), (4, 11)),
        (nn.Conv2d(2, 3, (2, 3), stride=(2, 3), bias=False), (2, 4, 6)),
        (nn.Conv3d(1, 2, 2, bias=False), (1, 4, 4, 4)),
    ],
)
def test_norm_of_a_convolution(layer, size):
    """Never below the largest singular value of the matrix, whatever the kernel; a constant one comes close to it.

    It is exact where patches do not overlap.
    """
    basis = torch.eye(math.prod(size), dtype=torch.float64).reshape(-1, *size)

    def exact():
        return float(torch.linalg.matrix_norm(layer.double()(basis).detach().flatten(1).T, 2))

    for seed in range(3):
        layer.weight.data.normal_(generator=generator(seed))
        bound = bounds.convolution_norm_bound(layer)
        assert exact() <= bound * (1 + 1e-12)
        assert layer.stride != layer.kernel_size or bound == pytest.approx(exact(), rel=1e-12)
    layer.weight.data.fill_(1.0)
    assert exact() >= 0.6 * bounds.convolution_norm_bound(layer)


def test_proposition_5_3_outputs_of_networks_with_convolutions():
    """The bound of the network is the one of its layers, and no output is longer."""
    first = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.GELU(), nn.MaxPool2d(2)
    second = nn.Conv2d(4, 5, 2, bias=False), nn.ReLU(), nn.AvgPool2d(2, stride=(2, 3))
    model = nn.Sequential(*first, *second, nn.Flatten(), nn.Linear(5, CLASSES, bias=False)).double()
    x = torch.randn(200, 1, 7, 7, dtype=torch.float64, generator=generator(3))
    radius = float(x.flatten(1).norm(dim=1).max())
    norms = [bounds.convolution_norm_bound(model[k]) for k in (0, 3)] + [float(model[7].weight.detach().norm())]
    assert bounds.weight_product(model) == pytest.approx(math.prod(norms))
    found = bound_of(model, "ce", x)
    assert found.radius == pytest.approx(radius)
    assert found.lipschitz == pytest.approx(1.13)  # one slope of 1.13, one of 1
    assert float(model(x).detach().norm(dim=1).max()) == pytest.approx(found.output)
    assert found.output <= radius * 1.13 * found.weights
    assert found.bound == pytest.approx(0.5 * (radius * 1.13 * math.prod(norms)) ** 2, rel=1e-4)


def test_networks_of_this_package():
    x = torch.randn(20, 1, 8, 8, generator=generator(0))
    for name in ("mlp:hidden=7-5,bias=false", "linear:bias=false", "cnn4:width=0.1,bias=false"):
        model = create_model(name, input_shape=(1, 8, 8), num_classes=CLASSES, seed=0)
        found = bound_of(model, "mae", x)
        assert 0 < found.output <= found.radius * found.weights
    with refused(ValueError, "bias-free", "bias=false"):
        bound_of(create_model("mlp", input_shape=(4,), num_classes=CLASSES), "mae", torch.zeros(2, 4))
    normalised = nn.Sequential(nn.Linear(4, CLASSES, bias=False), nn.BatchNorm1d(CLASSES, affine=False))
    with refused(TypeError, "BatchNorm1d", "without batch normalisation"):
        bound_of(normalised, "mae", torch.zeros(2, 4))


def test_data_of_every_kind():
    x, y = inputs(2.0, 40).float(), torch.arange(40) % CLASSES
    model, batches = network(2, nn.ReLU, 1.0).float(), DataLoader(TensorDataset(x, y), batch_size=16)
    given = bound_of(model, "mae", x)
    assert (given.gap, given.excess) == (None, None)
    for data in ((x, y), [x, y], batches, [x[:10], x[10:]], iter([(x[:7], y[:7].int()), (x[7:], y[7:].int())])):
        found = bound_of(model, "mae", data, copy.deepcopy(model))
        labelled = not (isinstance(data, list) and data[1].dim() > 1)
        assert (found.gap is not None) == labelled
        assert (found.gap or 0.0, found.excess or 0.0) == (0.0, 0.0)
        same = (found.radius, found.bound, found.output, found.examples, found.remainder)
        assert same == pytest.approx((given.radius, given.bound, given.output, 40, given.remainder), rel=1e-5)
    model.train()
    bound_of(model, "mae", x)
    assert model.training


def test_a_lower_bound_of_beta_gives_an_estimate():
    x, model = inputs(1.0), network(2, nn.ReLU, 1.0)
    exact = symloss.gap_bound(model, "mae", x)
    assert exact.exact
    assert "(a bound)" in str(exact)
    wide = as_network(torch.full((10, 5), 0.5 / 50**0.5, dtype=torch.float64))
    estimate = symloss.gap_bound(wide, "sgce:q=0.8", x / x.norm(dim=1, keepdim=True))
    assert (estimate.radius, estimate.weights) == pytest.approx((1.0, 0.5))
    assert estimate.bound == pytest.approx(0.339, rel=0.01)  # not .054, of the loss with slope .158
    assert not estimate.exact
    assert "an estimate, not a bound" in str(estimate)
    claimed = symloss.gap_bound(wide, "sgce:q=0.8", x, smoothness=float(estimate.beta) * estimate.slope)
    assert claimed.exact
    assert float(claimed.beta) == pytest.approx(float(estimate.beta))


def test_beta_is_at_least_what_the_data_show():
    """A bump that no search finds, at an output of the network: the remainder there shows a curvature."""
    place = torch.tensor([1.0, -0.7, 0.4], dtype=torch.float64)

    def bumpy(z, y):
        bump = (-(z - place).square().sum(1) / 1e-6).exp()
        return z.mean(1) - z.gather(1, y[:, None])[:, 0] + 0.1 * bump

    model = as_network(torch.eye(CLASSES, dtype=torch.float64))
    found = symloss.gap_bound(model, bumpy, place[None])
    assert not found.exact
    assert found.remainder == pytest.approx(0.1)
    assert float(found.beta) >= 2 * 0.1 / float(place.square().sum()) * (1 - 1e-9)
    with refused(ValueError, "smoothness must be at least 0.121", "got 0.1"):
        symloss.gap_bound(model, bumpy, place[None], smoothness=0.1)


def test_losses_that_are_not_unhinged_at_0_are_refused():
    model, x = network(1, nn.ReLU, 1.0), inputs(1.0, 5)
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    hinge = nn.MultiMarginLoss()  # unhinged at 0, with a gradient that jumps elsewhere
    premise = "linear approximation of the loss at 0 must be a positive multiple"
    all_refused(
        (ValueError, f"{premise} ... no multiple of it (distance", lambda: symloss.gap_bound(model, weighted, x)),
        (ValueError, f"{premise} ... -0.333333 times", lambda: symloss.gap_bound(model, -1.0 * symloss.MAE(), x)),
        (ValueError, f"{premise} ... 0 times", lambda: symloss.gap_bound(model, lambda z, y: z[:, 0] ** 2 + 0 * y, x)),
        (ValueError, "beta-smooth ... no finite smoothness", lambda: symloss.gap_bound(model, hinge, x)),
        (ValueError, "smoothness ... [0, inf)", lambda: symloss.gap_bound(model, "ce", x, smoothness=-1.0)),
    )


class Residual(nn.Sequential):
    def forward(self, z):
        return z[:, :3] + super().forward(z)


class Louder(nn.Linear):
    def forward(self, z):
        return 5 * super().forward(z)


class Renamed(nn.Sequential):
    """A subclass that computes as before."""


class Snake(nn.Module):
    def forward(self, z):
        return z + z.sin() ** 2


class Shifted(nn.Module):
    def forward(self, z):
        return z.sigmoid()


class Fickle(nn.Sequential):
    """Shows all its layers at first, and runs one."""

    asked = 0

    def __iter__(self):
        self.asked += 1
        return iter(list(self._modules.values())[: None if self.asked == 1 else 1])


def test_networks_that_compute_otherwise_are_refused():
    """By their classes, and whatever the classes say, by what they compute on the data."""
    x, plain = inputs(1.0, 20), network(1, nn.ReLU, 0.01)
    hooked, patched = copy.deepcopy(plain), copy.deepcopy(plain)
    hooked.register_forward_hook(lambda module, given, output: output + 1)
    patched[0].forward = lambda z: z[:, :3]
    louder = nn.Sequential(Louder(5, 3, bias=False)).double()
    forward = "another `forward`, or with hooks"
    assert float(bound_of(Renamed(*plain), "ce", x).bound) == float(bound_of(plain, "ce", x).bound)
    all_refused(
        (TypeError, f"Residual is a Sequential with {forward}", lambda: bound_of(Residual(*plain), "ce", x)),
        (TypeError, f"Louder is a Linear with {forward}", lambda: bound_of(louder, "ce", x)),
        (TypeError, forward, lambda: bound_of(hooked, "ce", x)),
        (TypeError, forward, lambda: bound_of(patched, "ce", x)),
        (ValueError, "one after the other", lambda: bound_of(Fickle(*network(2, nn.Tanh, 1.0)), "ce", x)),
    )


def test_own_non_linearities():
    def of(activation, c):
        parts = nn.Linear(5, 4, bias=False), activation, nn.Linear(4, CLASSES, bias=False)
        model = nn.Sequential(*parts).double()
        return symloss.gap_bound(model, LOSSES["ce"], inputs(3.0), smoothness=0.5, lipschitz=c)

    torch.manual_seed(0)
    assert of(Snake(), {Snake: 2.0}).lipschitz == 2
    assert of(nn.LeakyReLU(0.5), {nn.LeakyReLU: 1.5}).lipschitz == 1.5  # goes before that of the parameters
    all_refused(
        (TypeError, "`lipschitz` names; got Snake", lambda: of(Snake(), None)),
        (ValueError, "no vector longer ... Snake() has 0.5", lambda: of(Snake(), {Snake: 0.5})),
        (ValueError, "0 at 0 ... Shifted", lambda: of(Shifted(), {Shifted: 1.0})),
        (ValueError, "lipschitz of Snake ... [0, inf) ... -1", lambda: of(Snake(), {Snake: -1.0})),
        (TypeError, "lipschitz ... classes of torch modules ... 'Snake'", lambda: of(Snake(), {"Snake": 1.0})),
    )


def test_bad_input():
    model, x, y = network(1, nn.ReLU, 1.0), inputs(1.0, 6), torch.arange(6) % CLASSES
    for pool in (nn.MaxPool2d(3, stride=2), nn.MaxPool2d(2, dilation=2), nn.AvgPool2d(2, divisor_override=1)):
        with refused(ValueError, "do not overlap", pool):
            bounds.weight_product(nn.Sequential(pool, nn.Linear(2, 2, bias=False)))
    circular = nn.Conv2d(1, 1, 3, padding=1, padding_mode="circular", bias=False)
    with_part = {
        part: nn.Sequential(nn.Linear(2, 2, bias=False), part)
        for part in (nn.Sigmoid(), nn.Hardtanh(0.5, 1.0), nn.CELU(-1.0), nn.Dropout(), nn.Softplus())
    }
    kinds = {nn.Hardtanh: "0 at 0", nn.CELU: "with a Lipschitz constant"}
    for part, whole in with_part.items():
        with refused(ValueError if type(part) in kinds else TypeError, kinds.get(type(part), type(part).__name__)):
            bounds.weight_product(whole)
    all_refused(
        (ValueError, "pad with zeros ... circular", lambda: bounds.weight_product(circular)),
        (TypeError, "nn.Sequential of Linear, Conv1d ... Sigmoid", lambda: bounds.weight_product(nn.Sigmoid())),
        (ValueError, "bias-free ... bias=True", lambda: bounds.weight_product(nn.Linear(2, 2))),
        (ValueError, "at least one nn.Linear", lambda: bounds.weight_product(nn.Sequential(nn.ReLU()))),
        (TypeError, "nn.Sequential of ... 3", lambda: bounds.weight_product(3)),
        (TypeError, "data ... batches of either; got 3", lambda: bound_of(model, "ce", 3)),
        (TypeError, "data ... 'x'", lambda: bound_of(model, "ce", "x")),
        (ValueError, "at least one input; got none", lambda: bound_of(model, "ce", [])),
        (TypeError, "floating-point ... torch.int64", lambda: bound_of(model, "ce", x.long())),
        (TypeError, "floating-point ... (0, 5)", lambda: bound_of(model, "ce", x[:0])),
        (TypeError, "floating-point ... list", lambda: bound_of(model, "ce", [[x.tolist()]])),
        (TypeError, "integer label for each of the 6 inputs ... (5,)", lambda: bound_of(model, "ce", (x, y[1:]))),
        (TypeError, "integer label ... torch.float32", lambda: bound_of(model, "ce", (x, y.float()))),
        (ValueError, "labels must be 0 to 2 ... got 3", lambda: bound_of(model, "ce", (x, y + 1))),
        (ValueError, "finite inputs", lambda: bound_of(model, "ce", x * math.nan)),
        (ValueError, "in every batch or in none", lambda: bound_of(model, "ce", [(x, y), x])),
        (ValueError, "(N, C) ... (6, 1)", lambda: bound_of(as_network(x[:1]), "ce", x)),
        (ValueError, "scores of one shape; got (6, 3) and (6, 2)", lambda: bound_of(model, "ce", x, as_network(x[:2]))),
    )
