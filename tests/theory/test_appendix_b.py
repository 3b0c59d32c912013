"""The statements of appendix B on the binary case: a test for each, named after it."""

import math

import pytest
import torch
from conftest import assert_close
from in_turn import in_turn

import symloss
from symloss.theory.binary import (
    MARGIN_FUNCTIONS,
    Polynomial,
    anchored,
    decompose_margin,
    derivatives_at_zero,
    margin_constants,
    margin_function,
    surrogate,
    symmetrize_margin,
    taylor_truncation,
)

Z = torch.linspace(-3, 3, 61, dtype=torch.float64)

SYMMETRIC = ("unhinged", "sigmoid", "ramp", "probit")
ANALYTIC = {
    **{name: name for name in ("unhinged", "sigmoid", "probit", "savage", "logistic", "exponential")},
    "cubic": lambda z: 1 - z + z**3 / 10,
    "quadratic": lambda z: (1 - z) ** 2,
    "sine": lambda z: 2 - z.sin(),
    "quartic": lambda z: z**4 - z,
}
CONVEX = {
    "logistic": "logistic",
    "exponential": "exponential",
    "quadratic": lambda z: (4 - z) ** 2,
    "quartic": lambda z: (4 - z) ** 4,
    "unhinged": "unhinged",
    "soft": lambda z: (1 + (1 - z) ** 2).sqrt() - z,
}


def sum_is_constant(phi, z=Z):
    total = phi(z) + phi(-z)
    return float(total.max() - total.min()) < 1e-9


@in_turn("name", {**MARGIN_FUNCTIONS, **ANALYTIC})
def test_decomposition_into_odd_and_even_part(name):
    phi = margin_function(ANALYTIC.get(name, name))
    odd, even = decompose_margin(phi)
    assert_close(odd(Z) + even(Z), phi(Z))
    assert_close(odd(-Z), -odd(Z))
    assert_close(even(-Z), even(Z))
    assert sum_is_constant(odd)
    assert odd.symmetric
    # Unique: with anything even added, the odd part is the same.
    assert_close(symmetrize_margin(lambda z: phi(z) + z.cos() * z**2)(Z), odd(Z), 1e-12)


@in_turn("name", {**MARGIN_FUNCTIONS, **ANALYTIC})
def test_the_binary_case_of_the_multi_class_symmetrization(name):
    """Scores (z/2, -z/2): the label is the sign of the margin, and symloss.symmetrize finds the odd part."""
    phi = margin_function(ANALYTIC.get(name, name))

    def two_classes(scores, labels):
        margin = scores[:, 0] - scores[:, 1]
        return phi(torch.where(labels == 0, margin, -margin))

    found = symloss.symmetrize(two_classes).per_class(torch.stack([Z / 2, -Z / 2], 1))
    assert_close(found[:, 0], symmetrize_margin(phi)(Z), 1e-12)


@in_turn("name", ANALYTIC)
def test_proposition_b_1_symmetric_iff_even_derivatives_vanish(name):
    phi = margin_function(ANALYTIC[name])
    even = derivatives_at_zero(phi, 8)[2::2]
    vanish = all(abs(number) < 1e-9 for number in even)
    assert vanish == sum_is_constant(phi)
    assert vanish == (name in (*SYMMETRIC, "cubic", "sine"))
    # Symmetrization keeps the odd coefficients and drops the even ones.
    original, symmetric = derivatives_at_zero(phi, 7), derivatives_at_zero(symmetrize_margin(phi), 7)
    assert symmetric[1::2] == pytest.approx(original[1::2], abs=1e-9)
    assert symmetric[0::2] == pytest.approx([0] * 4, abs=1e-9)


@in_turn("order", [1, 2, 5, 8])
@in_turn("name", ANALYTIC)
def test_every_truncation_is_symmetric(name, order):
    truncation = taylor_truncation(ANALYTIC[name], order)
    assert isinstance(truncation, Polynomial)
    assert truncation.symmetric
    assert sum_is_constant(truncation)
    # It is the polynomial of phi_sym, and near 0 close to it by the next power.
    near = torch.linspace(-0.1, 0.1, 11, dtype=torch.float64)
    error = (truncation(near) - symmetrize_margin(ANALYTIC[name])(near)).abs()
    assert bool((error <= 10 * near.abs() ** (order + 1) + 1e-12).all())


def test_truncations_of_the_original_are_not_symmetric():
    for name in ("savage", "logistic", "quadratic"):
        assert not taylor_truncation(ANALYTIC[name], 3, symmetric=False).symmetric
    full = taylor_truncation("exponential", 6, symmetric=False)
    assert full.coefficients == pytest.approx([(-1) ** k / math.factorial(k) for k in range(7)])


@in_turn("name", {**MARGIN_FUNCTIONS, **ANALYTIC})
def test_lipschitz_and_smoothness_cannot_get_worse(name):
    constants = margin_constants(ANALYTIC.get(name, name), 3.0)
    assert constants.lipschitz_sym <= constants.lipschitz * (1 + 1e-9)
    assert constants.smoothness_sym <= constants.smoothness * (1 + 1e-9) + 1e-12


@in_turn("radius", [0.5, 2.0])
@in_turn("name", ANALYTIC)
def test_lower_bound_on_the_gain_in_smoothness(name, radius):
    """beta - beta_sym >= max(series at z*, 0), with the series summed term by term where it converges quickly."""
    constants = margin_constants(ANALYTIC[name], radius)
    gain = constants.smoothness - constants.smoothness_sym
    assert gain >= max(constants.even_series, 0) - 1e-6 * (1 + constants.smoothness)
    assert constants.smoothness_sym <= constants.smoothness_bound + 1e-6 * (1 + constants.smoothness)
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


def test_concrete_example_logistic():
    for radius in (1.0, 20.0):
        constants = margin_constants("logistic", radius)
        assert constants.smoothness == pytest.approx(0.25, rel=1e-12)
        assert constants.curvature_at_zero == pytest.approx(0.25, rel=1e-12)
        assert constants.smoothness_sym == pytest.approx(0, abs=1e-12)
    assert_close(symmetrize_margin("logistic")(Z), -Z / 2)


KNOWN = {
    # name: Lipschitz and smoothness constant of phi, then of phi_sym, for |z| <= 4.
    "unhinged": (1, 0, 1, 0),
    "sigmoid": (1 / 4, 1 / (6 * math.sqrt(3)), 1 / 4, 1 / (6 * math.sqrt(3))),
    "ramp": (1 / 2, math.inf, 1 / 2, math.inf),
    "probit": (1 / math.sqrt(2 * math.pi), math.exp(-0.5) / math.sqrt(2 * math.pi)) * 2,
    "savage": (8 / 27, 0.15405857, 1 / 4, 1 / (6 * math.sqrt(3))),
    "logistic": (1 / (1 + math.exp(-4)), 1 / 4, 1 / 2, 0),
    "hinge": (1, math.inf, 1, math.inf),
    "exponential": (math.exp(4), math.exp(4), math.cosh(4), math.sinh(4)),
}


@in_turn("name", MARGIN_FUNCTIONS)
def test_known_constants(name):
    found = margin_constants(name, 4.0)
    values = (found.lipschitz, found.smoothness, found.lipschitz_sym, found.smoothness_sym)
    assert values == pytest.approx(KNOWN[name], rel=1e-7, abs=1e-12)


@in_turn("radius", [1.0, 4.0])
@in_turn("name", CONVEX)
def test_surrogate_bounds_the_zero_one_loss(name, radius):
    phi = anchored(CONVEX[name], radius)
    found = surrogate(phi, radius)
    z = torch.linspace(-radius, radius, 4001, dtype=torch.float64)
    values = found(z)
    zero_one = (z <= 0).double()
    assert bool((values >= zero_one - 1e-9).all())
    assert bool((values.diff() <= 1e-9).all())
    assert float(found(torch.zeros(1, dtype=torch.float64))) == pytest.approx(1)
    assert float(values[-1]) == pytest.approx(0, abs=1e-9)
    assert found.factor == pytest.approx(2 / float(phi(torch.tensor([-radius], dtype=torch.float64))))
    assert found.factor <= 1 + 1e-12
    assert found.symmetric
    assert sum_is_constant(found, z)


@in_turn("name", CONVEX)
def test_constants_of_the_surrogate(name):
    """l_sur = 2/phi(-R) l_sym <= l, and beta_sur = 2/phi(-R) beta_sym <= 2/phi(-R) (beta - max(series, 0))."""
    phi = anchored(CONVEX[name], 4.0)
    found = surrogate(phi, 4.0)
    before, after = margin_constants(phi, 4.0), margin_constants(found, 4.0)
    assert after.lipschitz == pytest.approx(found.factor * before.lipschitz_sym, rel=1e-7)
    assert after.smoothness == pytest.approx(found.factor * before.smoothness_sym, rel=1e-6, abs=1e-12)
    assert after.lipschitz <= before.lipschitz * (1 + 1e-9)
    assert after.smoothness <= found.factor * before.smoothness_bound + 1e-6 * before.smoothness + 1e-12
