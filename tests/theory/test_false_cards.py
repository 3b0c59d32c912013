"""Losses that a lenient certificate would take for something better, and honest ones that a strict one would refuse."""

import json
import math

import pytest
import torch
from in_turn import in_turn
from refusals import all_refused, refused
from torch.nn import functional

import symloss
from symloss.losses.base import Loss
from symloss.losses.operators import as_loss
from symloss.losses.potentials import MAEPotential, Potential
from symloss.theory import certificates
from symloss.theory.findings import CounterExample, Finding
from symloss.theory.search import Places
from symloss.theory.subject import Subject
from symloss.theory.theorem import linearity


def own(z, y):
    return z.gather(1, y[:, None]).squeeze(1)


def ce(z, y):
    return functional.cross_entropy(z, y, reduction="none")


def mae(z, y):
    return 1 - own(z.softmax(1), y)


def unhinged(z, y):
    return z.mean(1) - own(z, y)


def bump(x, at, width=0.01, height=0.3):
    return height * (-(((x - at) / width) ** 2)).exp()


def remark_d_3(z, y):
    return own(torch.stack([-z[:, 0] + z[:, 1] + z[:, 2], z[:, 0] - z[:, 1], -z[:, 2]], 1), y)


def odd_exponential(z, y):
    return (-own(z, y)).exp() - (-z).exp().mean(1)


def clamped(limit):
    return lambda z, y: unhinged(z.clamp(-limit, limit), y)


FALSE = {
    # Small beside values that are large elsewhere, or everywhere; or small altogether.
    "a symmetric loss of e^40, and cross-entropy": ("symmetric bounded", lambda z, y: odd_exponential(z, y) + ce(z, y)),
    "much MAE, and cross-entropy": ("symmetric bounded", lambda z, y: 1e12 * mae(z, y) + ce(z, y)),
    "little cross-entropy": ("symmetric bounded", lambda z, y: 1e-12 * ce(z, y)),
    "little MAE": ("convex", lambda z, y: 1e-12 * mae(z, y)),
    "a large constant, and cross-entropy": ("symmetric", lambda z, y: 1e9 + ce(z, y)),
    "little that rises, beside much that falls elsewhere": (
        "non_increasing",
        lambda z, y: (-own(z, y)).exp() + 1e-3 * own(z, y),
    ),
    # Ordinary scores do not reach it.
    "clamped at 45": ("convex", clamped(45.0)),
    "clamped at 1000": ("convex", clamped(1e3)),
    "clamped at 100,000": ("convex", clamped(1e5)),
    "asymmetric beyond 60": ("symmetric", lambda z, y: unhinged(z, y) + (own(z, y) - 60).clamp_min(0)),
    "rising beyond 3000": ("non_increasing", lambda z, y: unhinged(z, y) + 2 * (own(z, y) - 3000).clamp_min(0)),
    "one class apart beyond 200": (
        "permutation_invariant",
        lambda z, y: unhinged(z, y) - (y == 1) * (own(z, y) - 200).clamp_min(0),
    ),
    "a logarithm": ("bounded", lambda z, y: own(z, y).square().log1p()),
    "infinite beyond 700": ("bounded", lambda z, y: torch.where(own(z, y) < -700, math.inf, mae(z, y))),
    "nan beyond 700": ("bounded", lambda z, y: torch.where(own(z, y) < -700, math.nan, mae(z, y))),
    # Narrow.
    "a jump that a step down hides": ("non_increasing convex", lambda z, y: -own(z, y) + 0.3 * (own(z, y) > 13.37)),
    "a small jump": ("non_increasing", lambda z, y: -own(z, y) + 1e-5 * (own(z, y) > 13.37)),
    "a bump": ("non_increasing convex", lambda z, y: -own(z, y) + bump(own(z, y), 13.37)),
    "a bump on unhinged": ("symmetric convex", lambda z, y: unhinged(z, y) + bump(own(z, y), -7.77)),
    "a bump for one class": ("permutation_invariant", lambda z, y: unhinged(z, y) + bump(own(z, y), 5.55) * (y == 2)),
    "a bump in a rival": ("convex", lambda z, y: ce(z, y) + bump(z.sum(1) - own(z, y), 3.3)),
    "a narrow valley": ("non_increasing", lambda z, y: -own(z, y) - bump(own(z, y), 21.21, width=0.003)),
    # Symmetric and convex, were it not for one thing.
    "unhinged, and a little MAE": ("convex", lambda z, y: unhinged(z, y) + 1e-6 * mae(z, y)),
    "unhinged, and a little of the sum of squares": (
        "symmetric",
        lambda z, y: unhinged(z, y) + 1e-6 * z.square().sum(1),
    ),
    "the loss of remark D.3": ("permutation_invariant", remark_d_3),
    # Where no line of a few labels goes, or only far out.
    "rising where all scores are above 50": (
        "non_increasing",
        lambda z, y: -own(z, y) + 1.5 * (z.amin(1) - 50).clamp_min(0),
    ),
    "a step of width 1.2 at 77.7": ("symmetric", lambda z, y: mae(z, y) + 0.1 * ((own(z, y) - 77.7) / 1.2).tanh()),
    "ripples that look like rounding": (
        "symmetric convex",
        lambda z, y: unhinged(z, y) + 1e-6 * (1e5 * own(z, y)).sin(),
    ),
    "a ridge": ("bounded", lambda z, y: z.abs().amax(1) * (-((z[:, 0] - 0.3 * z[:, 1]) ** 2)).exp()),
    "the other way round": ("non_increasing", lambda z, y: -unhinged(z, y)),
}


@in_turn("name", list(FALSE))
def test_no_false_card(name):
    wrong, loss = FALSE[name]
    card = symloss.certify(loss, 3)
    for fact in wrong.split():
        assert not card.findings[fact], f"{fact}\n{card}"
        assert card.findings[fact].counter_example is not None
    assert not card.theorem().applies
    if card.symmetric and card.convex:
        assert card.smoothness == 0


def test_one_label_of_many_that_rises():
    """A rise of one label in a hundred, far out; and a tent of one label, which breaks convexity too."""

    def rising(z, y):
        return unhinged(z, y) + 2 * (y == 57) * (own(z, y) - 300).clamp_min(0)

    def tent(z, y):
        return unhinged(z, y) + (y == 83) * (5 - (own(z, y) - 20).abs()).clamp_min(0) * 2

    assert not symloss.certify(rising, 100).non_increasing
    card = symloss.certify(tent, 100)
    assert not any((card.non_increasing, card.convex, card.symmetric, card.permutation_invariant))


class AnotherSlope(MAEPotential):
    """A potential whose derivative is that of another formula."""

    def derivative(self, logp):
        return -2 * logp.exp()


def test_declared_slopes_must_be_those_of_the_gradient():
    with refused(ValueError, "slope of MAE()", "0.333333 by its gradient", "0.666667 by its `first_order`"):
        symloss.certify(AnotherSlope(), 3)


HONEST = {
    "float32 inside": ("symmetric permutation_invariant non_increasing convex", lambda z, y: unhinged(z.float(), y)),
    "cross-entropy in float32": ("permutation_invariant non_increasing convex", lambda z, y: ce(z.float(), y)),
    "MAE in float32": ("symmetric permutation_invariant non_increasing bounded", lambda z, y: mae(z.float(), y)),
    "MAE times a million": ("symmetric permutation_invariant non_increasing bounded", lambda z, y: 1e6 * mae(z, y)),
    "MAE by a millionth": ("symmetric permutation_invariant non_increasing bounded", lambda z, y: 1e-6 * mae(z, y)),
    "a softmax that overflows": (
        "symmetric permutation_invariant non_increasing",
        lambda z, y: 1 - own(z.exp() / z.exp().sum(1, keepdim=True), y),
    ),
    "the logarithm of a softmax": (
        "permutation_invariant non_increasing convex",
        lambda z, y: -own(z.softmax(1), y).log(),
    ),
    "the exponential loss": ("permutation_invariant non_increasing convex", lambda z, y: (-own(z, y)).exp()),
    "the 0-1 loss": ("symmetric non_increasing bounded", lambda z, y: (z.argmax(1) != y).double()),
    "multi-class hinge": (
        "permutation_invariant non_increasing convex",
        lambda z, y: functional.multi_margin_loss(z, y, reduction="none"),
    ),
    "a small slope far out": ("permutation_invariant non_increasing convex", lambda z, y: ce(1e-4 * z, y)),
    "a bound that is far out": ("symmetric permutation_invariant non_increasing bounded", clamped(3e5)),
    "weights in float32": (
        "non_increasing convex",
        torch.nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), reduction="none"),
    ),
    "in place": (
        "permutation_invariant non_increasing convex",
        lambda z, y: ce(z.mul_(0.5), y),
    ),
    "an odd exponential": ("symmetric permutation_invariant non_increasing", odd_exponential),
}


@in_turn("name", list(HONEST))
def test_rounding_is_no_violation(name):
    facts, loss = HONEST[name]
    card = symloss.certify(loss, 3)
    assert {fact for fact, found in card.findings.items() if found} >= set(facts.split()), card


def test_constants_of_losses_that_grow():
    """Beta is finite where the gradient grows evenly; infinite at a kink, and where the curvature grows too."""
    square = symloss.certify(lambda z, y: (z - torch.eye(3, dtype=z.dtype)[y]).square().sum(1), 3)
    assert square.lipschitz == math.inf
    assert square.smoothness == pytest.approx(2, rel=1e-6)
    small = symloss.certify(lambda z, y: ce(1e-4 * z, y), 3)
    assert small.lipschitz == pytest.approx(math.sqrt(2) * 1e-4, rel=1e-2)
    assert symloss.certify(lambda z, y: own(z, y) ** 4, 3).smoothness == math.inf


def test_gradients_that_are_not_those_of_the_values():
    """Detached weights, or no gradient at all: values are judged, and constants of the gradient are not measured."""

    def detached_focal(z, y):
        return (1 - own(z.softmax(1), y)).detach() * ce(z, y)

    for loss in (detached_focal, lambda z, y: (z.argmax(1) != y).double(), lambda z, y: mae(z.detach(), y)):
        card = symloss.certify(loss, 3)
        assert card.non_increasing
        assert math.isnan(card.slope)
        assert not math.isfinite(card.lipschitz)
        assert "no gradient" in str(card)
        assert json.loads(json.dumps(card.to_dict()))["slope"] == "nan"
    assert symloss.certify(lambda z, y: (z.argmax(1) != y).double(), 3).lipschitz == math.inf


def test_where_the_gradient_is_nan_the_card_says_so():
    """The norm at 0, and sqrt(CE) where p = 1: the losses are numbers there, and sound elsewhere."""
    norm = symloss.certify(lambda z, y: unhinged(z, y) + z.square().sum(1).sqrt(), 3)
    assert math.isnan(norm.slope)
    assert norm.convex
    root = symloss.certify(lambda z, y: ce(z, y).sqrt(), 3)
    assert root.slope == pytest.approx(0.5 / math.sqrt(math.log(3)), rel=1e-6)
    assert root.non_increasing
    assert not root.symmetric
    assert math.isfinite(root.lipschitz)
    for card in (norm, root):
        assert "the gradient is nan at" in str(card)
    assert symloss.certify("ce", 3).undefined is None


class Normalised(torch.nn.CrossEntropyLoss):
    """Cross-entropy behind a batch normalisation, whose statistics change with every call."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3).double()

    def forward(self, input, target):
        return functional.cross_entropy(self.norm(input), target, reduction=self.reduction)


def test_the_loss_is_left_as_it_is():
    module = Normalised()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    with refused(ValueError, "more than 1 value per channel when training"):
        symloss.certify(module, 3)
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in before.items())
    assert symloss.certify(module.eval(), 3).convex
    assert module.reduction == "mean"


@in_turn("steepness", [0.2, 2.0, 20.0, 200.0])
def test_losses_that_overflow_soon(steepness):
    """The card reaches as far as the loss is finite, and is right there."""
    card = symloss.certify(lambda z, y: (-steepness * own(z, y)).exp(), 3)
    assert 1 <= card.reach * steepness <= 1000
    assert all((card.convex, card.non_increasing, card.permutation_invariant))
    assert not any((card.symmetric, card.bounded))


def test_a_symmetric_loss_that_is_not_affine_is_not_convex():
    """What theorem 5.1 excludes is not called convex, even if no chord of the search has shown it."""
    places = Places(Subject(as_loss(mae), 3))
    settled = certificates._settled(places, Finding(True, 0.0, None, 1), linearity(places, 1 / 3), [])
    assert not settled
    a, b = (torch.tensor(settled.counter_example.scores[end], dtype=torch.float64) for end in "ab")
    y = torch.tensor([settled.counter_example.label])
    middle, ends = mae((a + b)[None] / 2, y), (mae(a[None], y) + mae(b[None], y)) / 2
    assert float(middle - ends) == pytest.approx(settled.measure)
    linear = Places(Subject(as_loss(unhinged), 3))
    assert certificates._settled(linear, Finding(True, 0.0, None, 1), linearity(linear, 1.0), [])


def test_later_searches_pass_through_earlier_counter_examples():
    places = Places(Subject(as_loss(ce), 3))
    before = len(places.own_lines[0])
    point = [1.25, -7.5, 3.0]
    places.remember(CounterExample("seen", 1, {"a": point}))
    points, labels = places.own_lines
    assert len(points) == before + 1
    assert labels[-1] == 1
    assert (points[-1][:, [0, 2]] == torch.tensor([1.25, 3.0])).all()
    assert points[-1][:, 1].min() < -7.5 < points[-1][:, 1].max()


def test_what_is_no_loss_of_one_example_is_refused():
    calls = iter(range(10**6))

    def certify(loss):
        return lambda: symloss.certify(loss, 3)

    def nan_beyond_3(z, y):
        return torch.where(z.abs().amax(1) > 3, math.nan, ce(z, y))

    def beyond_5(extra):
        return lambda z, y: unhinged(z, y) + extra(z) * (z.abs().amax(1) - 5).clamp_min(0)

    all_refused(
        (ValueError, "is nan at ( ... label", certify(lambda z, y: own(z, y).sqrt())),
        (ValueError, "is nan at (", certify(nan_beyond_3)),
        (ValueError, "changes from call to call", certify(lambda z, y: unhinged(z, y) + 1e-6 * torch.rand(len(z)))),
        (ValueError, "changes from call to call", certify(lambda z, y: unhinged(z, y) * (1 + 1e-6 * next(calls)))),
        (ValueError, "other examples of the batch", certify(lambda z, y: unhinged(z, y) + 1e-6 * ce(z, y).mean())),
        (ValueError, "other examples of the batch", certify(lambda z, y: ce(z - z.mean(0), y))),
        (ValueError, "changes from call to call", certify(beyond_5(lambda z: torch.rand(len(z))))),
        (ValueError, "changes with the batch or from", certify(beyond_5(lambda z: 0 * z[:, 0] + (len(z) > 200)))),
        (ValueError, "float32 or float64; got bfloat16", certify(lambda z, y: ce(z, y).bfloat16())),
        (
            ValueError,
            "between scores that are next to each other",
            certify(lambda z, y: unhinged(z, y) + 0.01 * (1e9 * own(z, y)).sin()),
        ),
        (ValueError, "infinite even within", certify(lambda z, y: ce(z, y) + math.inf)),
    )


def test_the_card_says_how_far_it_looked():
    assert symloss.certify("ce", 3).reach == 1e6
    overflowing = symloss.certify(lambda z, y: (-own(z, y)).exp(), 3)
    assert overflowing.reach == 100
    assert "raw scores up to 100 (gradients up to 40)" in str(overflowing)
    assert "inf at a" in str(overflowing.bounded.counter_example)
    by_search = symloss.certify(mae, 3)
    assert f"no counter-example at {by_search.symmetric.points:,} points" in str(by_search)
    assert by_search.symmetric.points > 10_000
    assert symloss.certify("mae", 3).symmetric.grounds == "by construction"


class Step(Potential):
    """A potential from outside, with a step that is finer than any grid."""

    symmetric = True  # which is false

    def phi(self, logp):
        return -0.3 * torch.tanh((logp + 0.7313) / 0.0007)

    def derivative(self, logp):
        return -0.3 / 0.0007 * (1 - torch.tanh((logp + 0.7313) / 0.0007) ** 2)


def test_declarations_from_outside_prove_nothing():
    card = symloss.certify(Step(), 3)
    assert not card.symmetric
    assert not any(found.proof for found in card.findings.values())
    assert not card.lipschitz.exact
    assert not card.smoothness.exact
    assert card.lipschitz > 40


def test_the_slope_is_that_at_0_and_the_card_says_where_it_differs():
    def growing(z, y):
        return unhinged(z, y) * z.mean(1).exp()

    card = symloss.certify(growing, 3)
    assert card.slope == pytest.approx(1)
    assert card.slope == pytest.approx(as_loss(growing).slope(3))
    assert card.slopes == pytest.approx((math.exp(-10), math.exp(10)))
    assert "it depends on the point" in str(card)
    assert "it depends on the point" not in str(symloss.certify("mae", 3))
    assert isinstance(as_loss(growing), Loss)


def test_theorem():
    """Unhinged alone fulfils all assumptions. Each other loss lacks one, and shows where."""
    found = symloss.certify("unhinged", 4).theorem()
    assert found.applies
    assert found.distance
    assert "1 x unhinged + b" in found.conclusion
    scaled = symloss.certify(lambda z, y: 3 * unhinged(z, y) + 5, 4).theorem()
    assert scaled.applies
    assert scaled.slope == pytest.approx(3)
    lacking = {
        "convex": mae,
        "symmetric": ce,
        "non-increasing": lambda z, y: -unhinged(z, y),
        "permutation-invariant": remark_d_3,
        "non-trivial": lambda z, y: 0 * z.sum(1) + 2,
    }
    for assumption, loss in lacking.items():
        theorem = symloss.certify(loss, 3).theorem()
        assert not theorem.applies
        assert f"the loss is not {assumption}." in theorem.conclusion, theorem
    assert symloss.certify(lacking["non-increasing"], 3).theorem().distance
    assert theorem.to_dict()["applies"] is False
    remark = symloss.certify(remark_d_3, 3).theorem()
    assert remark.linear.symmetric
    assert not remark.linear.same_swapped
    assert "no   lemma D.1 ii" in str(remark)
    assert symloss.certify("mae", 3).theorem().linear is None
    assert json.loads(json.dumps(symloss.certify("unhinged", 3).to_dict()))["linearity"]["coefficients"][0][1] > 0
