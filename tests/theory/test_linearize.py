"""Linear approximations: proposition 5.2, lemma D.1, proposition D.2, remark D.3, example D.4, examples F.5 and F.7."""

import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from conftest import assert_close, generator
from in_turn import in_turn
from refusals import all_refused, refused
from scipy import integrate, stats
from sklearn.base import clone
from torch import distributions as D, nn  # noqa: N812
from torch.nn import functional as F  # noqa: N812

import symloss
from symloss.losses.catalogue import RECORDS
from symloss.theory.linear_facts import linear_facts
from symloss.theory.linearize import (
    LinearFormula,
    LinearizedRegression,
    linearize_regression,
)
from symloss.theory.regression import (
    LinearFamilyRegressor,
    UnhingedRegressor,
    certify_regression,
    symmetrize_regression,
)

SYMMETRIC = [name for name, r in RECORDS.items() if r.facts.at(5, **r.defaults)["symmetric"]]
EVERY = [name for name in RECORDS if name not in ("cosine", "symmetrized-cosine")]  # which have no slope at 0
AWAY = (1.5, -0.3, 0.2, 0.9)


def own(z, y):
    return z.gather(1, y[:, None])[:, 0]


def step_along(loss, at, z, y, h=1e-5):
    """The slope of a loss at a point along z, by steps to both sides."""
    at, z = torch.tensor(at, dtype=torch.float64), torch.tensor(z, dtype=torch.float64)
    ahead, behind = ((loss.per_class(at + sign * h * z))[y] for sign in (1, -1))
    return float(ahead - behind) / (2 * h)


def unhinged(classes):
    return 1 / classes - torch.eye(classes, dtype=torch.float64)


# Classification.


@in_turn("name", EVERY)
def test_the_linear_loss_is_the_slope_along_the_scores(name):
    loss, z = RECORDS[name].loss(), (0.4, -1.1, 2.0, 0.3)
    for at in ((0.0,) * 4, AWAY):
        linear = symloss.linearize(loss, at)
        found = linear.per_class(torch.tensor(z, dtype=torch.float64))
        expected = [step_along(loss, at, z, y) for y in range(4)]
        assert found.tolist() == pytest.approx(expected, rel=1e-6, abs=1e-8)


@in_turn("level", [0.0, 7.5, -3.0])
@in_turn("name", ["ce", *SYMMETRIC])
def test_proposition_5_2_a_multiple_of_unhinged_at_equal_scores(name, level):
    if name == "symmetrized-cosine" and level == 0:
        return
    loss = RECORDS[name].loss()
    linear = symloss.linearize(loss, level, num_classes=5)
    facts = linear.facts
    assert facts.symmetric
    assert facts.permutation_invariant
    assert facts.non_increasing
    assert not facts.trivial
    label_up = step_along(loss, (level,) * 5, (1.0, 0, 0, 0, 0), 0)
    assert facts.multiple_of_unhinged == pytest.approx(-label_up / (1 - 1 / 5), rel=1e-5)
    assert_close(linear.coefficients, facts.multiple_of_unhinged * unhinged(5), 1e-9)
    assert facts.distance_from_unhinged < 1e-9


def test_section_5_2_cross_entropy_is_locally_symmetric_at_equal_scores_alone():
    assert symloss.linearize("ce", -2.0).facts.multiple_of_unhinged == pytest.approx(1, rel=1e-12)
    away = symloss.linearize("ce", AWAY).facts
    assert not away.symmetric
    assert away.multiple_of_unhinged is None


def test_proposition_5_2_needs_symmetry_invariance_and_a_gradient():
    """Each assumption left out in turn, the linear approximation at 0 is no positive multiple of unhinged."""
    not_symmetric = symloss.linearize(lambda z, y: (-own(z, y)).exp(), num_classes=3).facts
    assert not_symmetric.permutation_invariant
    assert not not_symmetric.symmetric
    rows = torch.tensor([[-1.0, 1, 0], [0, -1, 1], [1, 0, -1]], dtype=torch.float64)
    not_invariant = symloss.linearize(lambda z, y: (rows[y] * z).sum(1).sin(), num_classes=3).facts
    assert not_invariant.symmetric
    assert not not_invariant.permutation_invariant
    flat = symloss.linearize(lambda z, y: (own(z, y) - z.mean(1)) ** 3, num_classes=3).facts
    assert flat.trivial
    rising = symloss.linearize(lambda z, y: own(z, y) - z.mean(1), num_classes=3).facts
    assert (not_symmetric.multiple_of_unhinged, not_invariant.multiple_of_unhinged) == (None, None)
    assert flat.multiple_of_unhinged == 0
    assert rising.multiple_of_unhinged == pytest.approx(-1, rel=1e-12)
    assert not rising.non_increasing


def test_example_d_4_mae_at_1_0_0():
    e = math.e
    rows = torch.tensor([[-2 * e, e, e], [e, -e - 1, 1], [e, 1, -e - 1]], dtype=torch.float64)
    linear = symloss.linearize(2 * symloss.MAE(), at=(1, 0, 0))
    assert_close(linear.coefficients, 2 / (e + 2) ** 2 * rows, 1e-14)
    facts = linear.facts
    assert facts.symmetric
    assert not facts.permutation_invariant
    assert [bool(facts.same_own), bool(facts.same_swapped), bool(facts.same_others)] == [False, True, False]
    assert facts.multiple_of_unhinged is None
    assert 0.1 < facts.distance_from_unhinged < 1


BASE = [[-1.0, 1, 1], [1, -1, 1], [1, 1, -1]]
CONSTRAINTS = ("same_own", "same_swapped", "same_others", "symmetric", "non_increasing")
LINEAR = {
    "i fails": ([[-1, 1, 1], [1, -2, 1], [1, 1, -1]], {"same_own", "symmetric"}, "a_1(1) = -2 and a_0(0) = -1"),
    "ii fails": ([[-1, 1, 1], [0, -1, 0], [0, 0, -1]], {"same_swapped", "symmetric"}, "a_1(0) = 1 and a_0(1) = 0"),
    "iii fails": ([[-3, 1, 2], [1, -3, 2], [2, 2, -3]], {"same_others", "symmetric"}, "a_2(0) = 2 and a_1(0) = 1"),
    "sum fails": (BASE, {"symmetric"}, "sum_y a_0(y) = 1"),
    "it rises": ([[2, -1, -1], [-1, 2, -1], [-1, -1, 2]], {"non_increasing"}, "a_0(0) = 2"),
    "one rises": (
        [[-3, 1, 1], [1, 0.5, 1], [2, -1.5, -2]],
        {"same_own", "same_swapped", "same_others", "non_increasing"},
        "a_0(0) = -3 and a_1(1) = 0.5",
    ),
    "all hold": ([[-2, 1, 1], [1, -2, 1], [1, 1, -2]], set(), ""),
    "remark D.3": ([[-1, 1, 1], [1, -1, 0], [0, 0, -1]], {"same_swapped", "same_others"}, "a_2(0) = 1 and a_0(2) = 0"),
}


@in_turn("factor", [1.0, 1e12, 1e-12, 1e200])
@in_turn("name", LINEAR)
def test_lemma_d_1_and_proposition_d_2_constraints(name, factor):
    rows, broken, seen = LINEAR[name]
    facts = linear_facts(factor * torch.tensor(rows, dtype=torch.float64))
    assert {each for each in CONSTRAINTS if not getattr(facts, each)} == broken
    first = next((getattr(facts, each) for each in CONSTRAINTS if each in broken), None)
    if factor == 1 and first is not None:
        assert first.seen == seen
        assert first.measure > 0
        assert seen in str(facts)
        assert (name == "one rises") <= (facts.non_increasing.seen == "a_1(1) = 0.5")
    is_multiple = name in ("it rises", "all hold")
    assert (facts.multiple_of_unhinged is not None) == is_multiple
    if is_multiple:
        assert facts.multiple_of_unhinged == pytest.approx(-1.5 * rows[0][0] * factor)
    assert str(facts).count("\n") == 7


def test_permutation_invariance_by_every_permutation():
    """The three constraints together say what all renamings say, for coefficients of few values."""
    found = set()
    for number in range(400):
        values = torch.randint(2, (3, 3), generator=generator(number)).double() if number > 1 else number * torch.eye(3)
        a = values.double()
        renamed = [a[list(order)][:, list(order)] for order in itertools.permutations(range(3))]
        invariant = all(torch.equal(a, each) for each in renamed)
        assert linear_facts(a).permutation_invariant == invariant
        found.add(invariant)
    assert found == {True, False}


def test_rounding_is_no_violation_and_little_more_is_one():
    for size, holds in ((1e-14, True), (1e-9, False)):
        a = unhinged(4)
        a[1, 2] += size
        facts = linear_facts(a)
        assert bool(facts.symmetric) == facts.permutation_invariant == (facts.multiple_of_unhinged is not None) == holds
    # What a loss computes in float32 is no more precise. Some take nothing else.
    plain = symloss.linearize(nn.CrossEntropyLoss(weight=torch.ones(3)), num_classes=3).facts
    assert plain.multiple_of_unhinged == pytest.approx(1, rel=1e-6)
    heavy = symloss.linearize(nn.CrossEntropyLoss(weight=torch.tensor([1.0, 1.0, 2.0])), num_classes=3).facts
    assert heavy.multiple_of_unhinged is None
    single = symloss.linearize(lambda z, y: F.cross_entropy(z.float(), y, reduction="none"), 3.0, num_classes=7)
    assert single.coefficients.dtype == torch.float32
    assert single.facts.multiple_of_unhinged == pytest.approx(1, rel=1e-6)


def test_it_is_a_loss_like_any_other():
    linear = symloss.linearize("ce", AWAY)
    z = torch.randn(6, 4, 3, dtype=torch.float64, generator=generator(1), requires_grad=True)
    y = torch.randint(4, (6, 3), generator=generator(2))
    flat, labels = z.movedim(1, -1).reshape(-1, 4), y.reshape(-1)
    expected = torch.stack([linear.coefficients[label] @ row for label, row in zip(labels, flat, strict=True)])
    assert_close(linear(z, y, reduction="none").reshape(-1), expected, 1e-12)
    assert_close(linear.per_class(z, dim=1).gather(1, y[:, None]).reshape(-1), expected, 1e-12)
    (slope,) = torch.autograd.grad(symloss.Criterion(linear, reduction="sum")(z, y), z)
    assert_close(slope.movedim(1, -1).reshape(-1, 4), linear.coefficients[labels], 1e-12)
    soft = flat.detach().softmax(1)
    assert_close(linear(flat, soft), (soft * linear.per_class(flat)).sum(1).mean(), 1e-12)
    # Sums, operators and certificates.
    assert_close((2 * linear + RECORDS["mae"].loss())(flat, labels), 2 * expected.mean() + symloss.MAE()(flat, labels))
    robust = symloss.symmetrize(linear)
    assert_close(robust.per_class(flat).sum(1), torch.zeros(18, dtype=torch.float64), 1e-12)
    assert symloss.linearize(robust, 0.0, 4).facts.symmetric
    card = symloss.certify(linear, 4)
    assert card.convex
    assert not card.symmetric
    assert float(card.smoothness) == pytest.approx(0, abs=1e-9)
    # Of a linear loss, the linear approximation is the loss itself, at every point.
    assert_close(symloss.linearize(linear, (5.0, -2, 0, 1)).coefficients, linear.coefficients, 1e-15)
    mae = symloss.linearize("mae", num_classes=4)
    assert (mae.symmetric, linear.symmetric) == (True, False)
    assert_close(symloss.blend(mae, 0.5).per_class(flat), RECORDS["unhinged"].loss().per_class(flat), 1e-12)
    assert_close(symloss.Criterion(mae, scale="ce").per_class(flat), RECORDS["unhinged"].loss().per_class(flat), 1e-12)
    assert mae.slope(4) == pytest.approx(1 / 4)


def test_it_has_a_name_and_compares_by_value():
    linear = symloss.linearize("mae", (1.0, 0, 0))
    same, other = symloss.linearize(symloss.MAE(), (1.0, 0, 0)), symloss.linearize("mae", num_classes=3)
    assert linear == same == pickle.loads(pickle.dumps(linear))
    assert linear != other != 3
    assert repr(linear) == "linearize('mae', at=(1, 0, 0))"
    assert repr(other) == "linearize('mae', at=0)"
    assert repr(LinearFormula([[-1, 1], [1, -1]])) == "LinearFormula([[-1.0, 1.0], [1.0, -1.0]])"
    given = torch.zeros(2, 2)
    kept = LinearFormula(given)
    given += 1
    assert kept.facts.trivial
    assert not kept.coefficients.any()
    weighted = symloss.MAE(weight=[1.0, 2.0, 3.0])  # class weights are a part of the loss
    assert symloss.linearize(weighted, num_classes=3).facts.multiple_of_unhinged is None
    normalised = symloss.SGCE(q=0.5, normalize="l2")  # the normalisation is not
    assert symloss.linearize(normalised, 0.0, 3) == symloss.linearize(symloss.SGCE(q=0.5, normalize=None), 0.0, 3)


def test_losses_without_a_linear_approximation_are_refused():
    hinge = nn.MultiMarginLoss()
    assert symloss.linearize(hinge, num_classes=3).facts.multiple_of_unhinged == pytest.approx(1)
    all_refused(
        (
            ValueError,
            "no gradient at (1.0, 0.0, 0.0) ... differentiable",
            lambda: symloss.linearize(hinge, (1.0, 0, 0)),
        ),
        (
            ValueError,
            "no gradient ... says a slope of 0",
            lambda: symloss.linearize(lambda z, y: own(z.detach(), y) + 0 * z[:, 0]),
        ),
        (ValueError, "no gradient", lambda: symloss.linearize(lambda z, y: -own(z, y) + 0.3 * (own(z, y) > 0))),
        (ValueError, "no finite value and gradient at", lambda: symloss.linearize(lambda z, y: own(z, y).sqrt(), 0, 3)),
        (ValueError, "no finite value", lambda: symloss.linearize(lambda z, y: own(z, y).log(), -1.0)),
        (ValueError, "a value of its own", lambda: symloss.linearize(lambda z, y: own(z - z.mean(0) ** 2, y), AWAY)),
        (ValueError, "a value of its own", lambda: symloss.linearize(lambda z, y: own(F.dropout(z), y), AWAY)),
        (ValueError, "differentiable loss ... without a gradient", lambda: symloss.linearize(lambda z, y: y.double())),
    )
    with refused(symloss.losses.base.NoSlopeError, "the cosine loss has no slope"):
        symloss.linearize("cosine")
    assert symloss.linearize("symmetrized-cosine", 2.0).facts.multiple_of_unhinged > 0


def test_bad_input():
    linear = symloss.linearize("mae", num_classes=3)
    z, y = torch.zeros(1, 3), torch.tensor([0])
    all_refused(
        (TypeError, "at ... (-inf, inf) ... 'x'", lambda: symloss.linearize("mae", "x")),
        (TypeError, "at ... True", lambda: symloss.linearize("mae", True)),
        (ValueError, "at ... nan", lambda: symloss.linearize("mae", math.nan)),
        (ValueError, "at must be a number or a finite score ... (1.0,)", lambda: symloss.linearize("mae", (1.0,))),
        (ValueError, "at must be a number or a finite score", lambda: symloss.linearize("mae", (1.0, math.inf))),
        (ValueError, "each of the 4 classes; got 3", lambda: symloss.linearize("mae", (1.0, 0, 0), 4)),
        (ValueError, "num_classes ... [2, inf) ... 1", lambda: symloss.linearize("mae", 0.0, 1)),
        (ValueError, "num_classes is for classification", lambda: symloss.linearize(nn.MSELoss(), 0.0, 3)),
        (ValueError, "scores of 3 classes; got 4", lambda: linear(torch.zeros(1, 4), y)),
        (ValueError, "masked out; got a score of -inf", lambda: linear(z.index_fill(1, y + 1, -math.inf), y)),
        (ValueError, "shape (C, C) ... (2, 3)", lambda: linear_facts(torch.zeros(2, 3))),
        (ValueError, "shape (C, C) ... (2,)", lambda: linear_facts([1.0, 2.0])),
        (ValueError, "at least two labels ... (1, 1)", lambda: linear_facts([[1.0]])),
        (ValueError, "finite", lambda: LinearFormula([[1.0, math.nan], [0.0, 0.0]])),
        (TypeError, "coefficients must be ... 'x'", lambda: linear_facts("x")),
        (TypeError, "at ... (0.0, 1.0)", lambda: linearize_regression(nn.MSELoss(), (0.0, 1.0))),
        (TypeError, "loss must be a torch module or a function", lambda: linearize_regression(nn.MSELoss)),
        (ValueError, "without a gradient", lambda: linearize_regression(lambda z, t: t)),
        (ValueError, "one value for each target", lambda: linearize_regression(lambda z, t: z.sum())),
        (
            ValueError,
            "no finite slope ... 0 ... target 0",
            lambda: linearize_regression(lambda z, t: (z - t).abs().sqrt()),
        ),
    )
    assert symloss.linearize("mae", torch.tensor(2.0), 3) == symloss.linearize("mae", np.array([2.0, 2.0, 2.0]))


# Regression.

REGRESSION = {
    "squared": nn.MSELoss(),
    "absolute": nn.L1Loss(),
    "huber": nn.HuberLoss(delta=0.7),
    "smooth": nn.SmoothL1Loss(beta=0.5),
    "log-cosh": lambda z, t: (z - t).cosh().log(),
    "linex": lambda z, t: (0.3 * (z - t)).exp() - 0.3 * (z - t) - 1,
}
DERIVATIVES = {
    "squared": lambda z, t: 2 * (z - t),
    "absolute": lambda z, t: np.sign(z - t),
    "huber": lambda z, t: np.clip(z - t, -0.7, 0.7),
    "smooth": lambda z, t: np.clip((z - t) / 0.5, -1, 1),
    "log-cosh": lambda z, t: np.tanh(z - t),
    "linex": lambda z, t: 0.3 * (np.exp(0.3 * (z - t)) - 1),
}
T = np.linspace(-4, 4, 33)


@in_turn("at", [0.0, 1.3])
@in_turn("name", REGRESSION)
def test_regression_f_is_the_derivative_and_its_mean_decides(name, at):
    """The mean under q by scipy, for a q where it is 0 and for others; f of arrays and of tensors."""
    linear = linearize_regression(REGRESSION[name], at)
    expected = DERIVATIVES[name](at, T)
    assert np.allclose(linear.f(T), expected, atol=1e-12)
    single = linear.f(torch.from_numpy(T).float())
    assert single.dtype == torch.float32
    assert_close(single.double(), torch.from_numpy(expected), 1e-5)
    z = torch.full((33,), 1.7, dtype=torch.float64)
    assert_close(linear(z, torch.from_numpy(T)), torch.tensor(1.7 * expected.mean()), 1e-12)
    for q, density, ends in (
        (D.Normal(at, 1.5), stats.norm(at, 1.5).pdf, 20),
        (D.Normal(at + 0.5, 1.5), stats.norm(at + 0.5, 1.5).pdf, 20),
        (D.Uniform(-2.0, 3.0), stats.uniform(-2, 5).pdf, 4),
    ):
        kinks = [at - 0.7, at - 0.5, at, at + 0.5, at + 0.7, -2.0, 3.0]
        mean = integrate.quad(
            lambda t, density=density: float(DERIVATIVES[name](at, t)) * density(t), at - ends, at + ends, points=kinks
        )[0]
        found = linear.symmetric(q)
        assert found.measure == pytest.approx(abs(mean), abs=1e-7)
        assert bool(found) == (abs(mean) < 1e-7)
        assert float(found.seen.removeprefix("E_q f = ")) == pytest.approx(mean, rel=1e-5, abs=1e-7)
        symmetrized = linearize_regression(symmetrize_regression(REGRESSION[name], q), at)
        assert symmetrized.symmetric(q)


def test_example_f_5_squared_error_at_0():
    linear = symloss.linearize(nn.MSELoss())
    assert isinstance(linear, LinearizedRegression)
    z, y = torch.tensor([1.5, -2.0]), torch.tensor([3.0, 0.5])
    assert_close(linear(z, y), (-2 * y * z).mean())
    robust = symloss.linearize(symmetrize_regression(nn.MSELoss(), D.Uniform(-3.0, 3.0)))
    assert np.allclose(robust.f(T), -2 * T)
    assert robust.symmetric(D.Normal(0.0, 5.0))  # any centred corruption
    assert not robust.symmetric(D.Normal(0.1, 5.0))


@in_turn("delta", [0.5, 2.0])
def test_example_f_7_huber_under_a_centred_gaussian(delta):
    q = D.Normal(torch.tensor(0.0, dtype=torch.float64), torch.tensor(1.7, dtype=torch.float64))
    linear = symloss.linearize(symmetrize_regression(nn.HuberLoss(delta=delta), q), at=0.0)
    assert np.allclose(linear.f(T), -np.clip(T, -delta, delta), atol=1e-12)
    assert linear.symmetric(q)
    assert linear.symmetric(D.Laplace(0.0, 3.0))  # centred and symmetric, as well
    assert not linear.symmetric(D.Normal(0.4, 1.7))
    assert certify_regression(linear, q).symmetric
    # The estimators: the centroid of clipped targets.
    random = np.random.default_rng(0)
    x, y = random.normal(size=(60, 3)), 3 * random.normal(size=60)
    options = {"decay": 0.4, "fit_intercept": False, "center": False}
    centroid = np.clip(y, -delta, delta) @ x / 60 / 0.4
    for estimator in (LinearFamilyRegressor(linear.f, **options), UnhingedRegressor(delta=delta, **options)):
        assert np.allclose(clone(estimator).fit(x, y).coef_, centroid, rtol=1e-10)
    assert np.allclose(pickle.loads(pickle.dumps(linear)).f(T), linear.f(T))


def test_linear_approximations_of_a_symmetric_regression_loss_are_symmetric():
    """At any point z' (below example F.7); of the loss that is symmetrized under another q it is not."""
    q, other = D.Normal(0.5, 2.0), D.Normal(1.5, 2.0)
    for name, loss in REGRESSION.items():
        robust = symmetrize_regression(loss, q)
        for at in (-1.2, 0.0, 2.0):
            linear = linearize_regression(robust, at)
            assert linear.symmetric(q), name
            assert not linear.symmetric(other), name


def test_corruptions_of_other_kinds():
    absolute = linearize_regression(nn.L1Loss(), 1.0)
    assert absolute.symmetric([0.0, 0.5, 1.5, 7.0])  # a sample of median 1
    assert absolute.symmetric([0.0, 0.5, 0.7, 7.0]).measure == pytest.approx(0.5)
    # The loss has no mean under a Cauchy distribution; its slope has one.
    huber = linearize_regression(nn.HuberLoss(), 1.0)
    assert huber.symmetric(D.Cauchy(1.0, 0.5))
    assert not huber.symmetric(D.Cauchy(2.5, 0.5))
    batch = D.Normal(torch.tensor([0.0, 0.5]), torch.tensor([1.0, 1.0]))  # one of the two is not centred
    assert linearize_regression(nn.MSELoss()).symmetric(batch).measure == pytest.approx(1.0)
    # By quadrature, which feels the jump of f: a pinball loss at its quantile has mean 0 within the error.
    normal = D.Normal(torch.tensor(0.0, dtype=torch.float64), torch.tensor(1.0, dtype=torch.float64))
    quantile = float(normal.icdf(torch.tensor(0.25, dtype=torch.float64)))

    def pinball(z, t):
        return torch.maximum(0.25 * (t - z), -0.75 * (t - z))

    assert linearize_regression(pinball, quantile).symmetric(normal)
    assert not linearize_regression(pinball, quantile - 1).symmetric(normal)
    assert not linearize_regression(nn.MSELoss()).symmetric(D.Normal(1e-4, 1.0))
    with refused(TypeError, "corruption"):
        huber.symmetric(lambda x: D.Normal(x, 1.0))
