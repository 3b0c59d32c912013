"""Gradients that training can rely on: right in float32 from a label that leads by 20,000 to one that trails as much.

Robust losses live on these tails: where a confident or a hopeless example has its gradient rounded to 0, or to NaN,
another loss is trained than the one that was written down. The truth is the reference, at the float32 scores.
"""

import functools
import math
import random
from collections.abc import Iterator
from contextlib import nullcontext
from typing import NamedTuple

import pytest
import reference
import torch
from conftest import every_loss
from in_turn import in_turn
from loss_batches import NORMALIZED
from loss_helpers import interesting_specs
from torch import Tensor

import symloss
from symloss.functional import linear_loss
from symloss.losses.potentials import CEPotential, MAEPotential
from symloss.losses.spec import parse

LEADS = (0.0, 1e-3, 1.0, 5.0, 8.0, 15.0, 30.0, 50.0, 80.0, 100.0, 1000.0, 2e4)
MANY = 100  # classes at which every third lead must do: the reference takes its time


@pytest.fixture(params=[nullcontext, symloss.losses.plain], ids=["kernel", "plain"])
def _way(request: pytest.FixtureRequest) -> Iterator[None]:
    """By a kernel, and by the plain formulas."""
    with request.param():
        yield


kernel_or_plain = pytest.mark.usefixtures("_way")


class Point(NamedTuple):
    name: str
    scores: tuple[float, ...]
    label: int


@functools.cache
def points(classes: int) -> list[Point]:
    """Scores within 10,000, exact in float32: the label leads its rival, or trails it; the rest is level or spread out.

    Labels, and where the scores are centred, take turns, so that each entry leads some time and large scores are
    met with small leads too.
    """
    draw = random.Random(classes)
    made: list[Point] = []
    for lead in LEADS[2::3] if classes == MANY else LEADS:
        for sign in (1, -1):
            for rest in ("level", "spread")[: classes - 1]:
                turn = len(made)
                label, centre = turn % classes, (0, 8000, -8000)[turn % 3] if lead < 2e4 else 0
                rival = centre - sign * lead / 2
                reach = 0 if rest == "level" else max(5, lead)
                scores = [max(-1e4, rival - draw.uniform(0, reach)) for _ in range(classes)]
                scores[label - 1], scores[label] = rival, centre + sign * lead / 2
                exact = tuple(torch.tensor(scores, dtype=torch.float32).tolist())
                made.append(Point(f"{'leads' if sign > 0 else 'trails'} by {lead:g}, {rest}", exact, label))
    return made


def batch(classes: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    scores = torch.tensor([point.scores for point in points(classes)], dtype=dtype, requires_grad=True)
    return scores, torch.tensor([point.label for point in points(classes)])


def our_gradients(spec: str, z: Tensor, labels: Tensor, **options: str | None) -> Tensor:
    values = symloss.create_loss(spec, **{"reduction": "none", "normalize": None} | options)(z, labels)
    values.sum().backward()
    assert z.grad is not None
    assert torch.isfinite(values).all()
    assert torch.isfinite(z.grad).all()
    return z.grad


@functools.cache
def probability(point: Point) -> float:
    return float(reference.softmax(tuple(map(reference.mpf, point.scores)))[point.label])


@functools.cache
def true_slopes(spec: str, classes: int) -> list[float]:
    """The label's entry of the gradient at each point."""
    name, parameters = parse(spec)
    return [reference.gradient(name, z, y, [y], **parameters)[0] for _, z, y in points(classes)]


# Where the label's entry can cross 0 it is a difference of terms, and these are what rounding is measured by.
TERMS = {
    "alpha-mae": lambda z, p, alpha=2.0, kappa=None: (
        abs(1 - alpha) + alpha * len(z) * p * (1 - p) if kappa is None else 1 + kappa * p * (1 - p)
    ),
    "label-smoothing": lambda z, p, r=0.1: abs(1 - r) * (1 - p) + abs(r) * (p + 1 / len(z)),
    "dirichlet-ce": lambda z, p, alpha=0.5: 1 - p + abs(1 - alpha) * (1 + len(z) * p),
    "cosine": lambda z, p: 1 / max(math.hypot(*z), 1e-5),
    "symmetrized-cosine": lambda z, p: 1 / max(math.hypot(*z), 1e-5),
}


def size(spec: str, point: Point, slope: float) -> float:
    name, parameters = parse(spec)
    return TERMS[name](point.scores, probability(point), **parameters) if name in TERMS else abs(slope)


def size_at_equal_scores(spec: str, point: Point) -> float:
    """What a gradient is small against. The cosine losses see no scale, so theirs goes with the scores."""
    if "cosine" in spec:
        return size(spec, point, 0.0)
    return _size_at_zero(spec, len(point.scores))


@functools.cache
def _size_at_zero(spec: str, classes: int) -> float:
    name, parameters = parse(spec)
    origin = Point("equal", (0.0,) * classes, 0)
    return size(spec, origin, reference.gradient(name, origin.scores, 0, [0], **parameters)[0])


class Rule(NamedTuple):
    """How far the label's entry may be off, and what it must not be rounded to 0 from."""

    relative: float  # up to p = 0.99: times the entry
    confident: float  # beyond, where the entry goes to 0: times its size at equal scores
    smallest: float  # an entry is collected from a term for each class; each above this is a number of the type

    def allowed(self, spec: str, point: Point, truth: float, dtype: torch.dtype) -> float:
        kind, even = torch.finfo(dtype), size_at_equal_scores(spec, point)
        # Below its smallest normal number, 1e-38, float32 counts in steps of 1.4e-45, for the factors of an entry too.
        steps = 2 * kind.smallest_normal * kind.eps + (0.1 * abs(truth) if abs(truth) < kind.smallest_normal else 0)
        # An entry that is larger at p > 0.99 than at equal scores (the complements are) is measured by itself too.
        within = probability(point) <= 0.99 or abs(truth) > even
        return reference.NOISE + steps + (self.relative * size(spec, point, truth) if within else self.confident * even)


RULES = {torch.float32: Rule(1e-4, 1e-6, 5e-44), torch.float64: Rule(1e-10, 1e-14, reference.NOISE)}


@every_loss
def test_gradient_at_the_label(name: str) -> None:
    """Plain log_softmax fails at a lead of 15 in float32, of 30 in float64."""
    for spec in interesting_specs(name):
        for classes in (2, 3) if ":" in spec else (2, 3, 10, MANY):
            for dtype in RULES:
                assert_gradient_at_the_label(spec, classes, dtype)


def assert_gradient_at_the_label(spec: str, classes: int, dtype: torch.dtype) -> None:
    rule = RULES[dtype]
    z, labels = batch(classes, dtype)
    ours = our_gradients(spec, z, labels).gather(1, labels[:, None]).flatten().tolist()
    for point, slope, truth in zip(points(classes), ours, true_slopes(spec, classes), strict=True):
        assert abs(slope - truth) <= rule.allowed(spec, point, truth, dtype), (spec, classes, point.name, slope, truth)
        cancels = abs(truth) < 10 * torch.finfo(dtype).eps * size(spec, point, truth)
        assert slope != 0 or abs(truth) < rule.smallest * classes or cancels, (spec, classes, point.name, truth)


@every_loss
def test_float32_gradient_at_the_other_classes(name: str) -> None:
    """Within 1e-4 of the largest entry, or 1e-6 of the size at equal scores where all entries cancel to less."""
    for classes in (2, 3):
        z, labels = batch(classes)
        for point, ours in zip(points(classes), our_gradients(name, z, labels).tolist(), strict=True):
            truth = reference.gradient(name, point.scores, point.label)
            allowed = max(1e-4 * max(map(abs, truth)), 1e-6 * size_at_equal_scores(name, point))
            assert ours == pytest.approx(truth, rel=0, abs=allowed), (classes, point.name)


@in_turn("classes", [2, 3, 10, MANY])
@in_turn("name", NORMALIZED)
def test_float32_gradient_of_unit_scores(name: str, classes: int) -> None:
    """Within 1e-4 of the length of the gradient; of many classes the label, its rival and one more are looked at.

    Scores that point straight up or down the slope have gradient 0, since only their direction counts (two classes,
    opposite scores). Rounding leaves 1e-6 of the slope at equal scores there, divided by the norm as all of it is.
    """
    z, labels = batch(classes)
    slope = abs(reference.gradient(name, [0.0] * classes, 0, [0])[0])
    for point, ours in zip(points(classes), our_gradients(name, z, labels, normalize="l2").tolist(), strict=True):
        entries = [(point.label - k) % classes for k in range(3 if classes == MANY else classes)]
        truth = reference.gradient(name, point.scores, point.label, entries, normalize="l2")
        floor = 1e-6 * slope / max(math.hypot(*point.scores), 1e-5)
        off = math.dist([ours[k] for k in entries], truth)
        assert off <= max(1e-4 * math.hypot(*truth), floor), point.name


@kernel_or_plain
@in_turn("spec", ["sgce", "sgce:q=0.3", "ngce", "ngce:q=0.2", "nce", "nfl", "nnce", "nnfl", "anl-ce", "nce+agce"])
def test_float32_gradient_where_a_wrong_class_leads(spec: str) -> None:
    """Every entry that is more than the rounding of the largest; of SGCE the leader's is the largest itself."""
    name, parameters = parse(spec)
    for lead in (12.0, 20.0, 50.0, 100.0):
        for others in ((0.0,), (-1.0, 0.5), (-3.0, -6.0, 2.0)):
            scores = (0.0, lead, *others)
            z = torch.tensor([scores], requires_grad=True)
            (ours,) = our_gradients(spec, z, torch.tensor([0])).tolist()
            truth = reference.gradient(name, scores, 0, **parameters)
            largest = max(map(abs, truth))
            for slope, exact in zip(ours, truth, strict=True):
                assert slope == pytest.approx(exact, rel=1e-4, abs=5e-6 * largest + 1e-44), scores


@pytest.mark.filterwarnings("ignore:normalize='l2' at temperature 1")
@kernel_or_plain
@in_turn("q", [0.005, 0.7, 1.0])
def test_sgces_value_over_many_classes(q: float) -> None:
    """With 100,000 of them p^q is 1e-4: next to the constant 1 its differences are lost (7 % off)."""
    z = torch.randn(4, 100_000, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([5, 700, 70_000, 99_999])
    power = q * torch.nn.functional.normalize(z.double(), dim=1).log_softmax(1)
    truth = (power.exp().mean(1) - power.gather(1, labels[:, None]).squeeze(1).exp()) / q
    ours = symloss.create_loss("sgce", q=q, reduction="none")(z, labels)
    torch.testing.assert_close(ours.double(), truth, rtol=2e-3, atol=0)
    if q == 1:
        ours = symloss.symmetrize(MAEPotential())(z, labels, reduction="none", score_map=symloss.losses.UnitScores())
        torch.testing.assert_close(ours.double(), truth, rtol=2e-3, atol=0)


@kernel_or_plain
@in_turn("spec", ["unhinged", "alpha-mae:alpha=0.5", "sgce", "nce+unhinged"])
def test_what_all_scores_have_in_common(spec: str) -> None:
    """A shift of a million changes no digit of losses that do not see it."""
    own = {"nce+unhinged": symloss.losses.relative(CEPotential()) + symloss.symmetrize(CEPotential())}
    loss = own[spec] if spec in own else symloss.create_loss(spec, normalize=None).loss
    z, y = torch.tensor([[0.25, 1.0, -0.5, 0.75, 0.0]]), torch.tensor([1])
    assert loss(1e6 + z, y).item() == pytest.approx(loss(z, y).item(), rel=1e-6)
    if spec == "unhinged":
        assert loss(1e6 + z, y).item() == pytest.approx(-0.7, rel=1e-6)


SIZES = {torch.float32: (1e-44, 1e-30, 1e-6, 1e-5, 1, 1e18, 1e20, 1e38), torch.float64: (1e-320, 1e-200, 1e160, 1e307)}


@kernel_or_plain
@in_turn("dtype", SIZES)
@in_turn("name", [*NORMALIZED, "nce", "symmetrized-cosine"])
def test_unit_scores_of_any_size(name: str, dtype: torch.dtype) -> None:
    """Squares that overflow or vanish, in one batch with others: values and gradients of every row are right."""
    normalize = None if "cosine" in name else "l2"
    z = torch.tensor([[size * x for x in (1.0, 2.0, -3.0, 0.5)] for size in SIZES[dtype]], dtype=dtype)
    z, labels = z.requires_grad_(), torch.arange(len(z)) % 3
    values = symloss.create_loss(name, normalize=normalize, reduction="none")(z, labels)
    (gradient,) = torch.autograd.grad(values.sum(), z)
    kind = torch.finfo(dtype)
    steps = 8 * kind.smallest_normal * kind.eps
    rows = zip(z.tolist(), labels.tolist(), values.tolist(), gradient.tolist(), strict=True)
    for scores, label, value, slopes in rows:
        assert value == pytest.approx(reference.value(name, scores, label, normalize=normalize), rel=1e-5, abs=1e-7)
        length = max(math.hypot(*scores), 1e-5)
        # In numbers of the unit sphere: differences of 1e-40 say nothing at scores of 1e160.
        truth = _sphere_gradient(name, scores, label, normalize)
        assert [slope * length for slope in slopes] == pytest.approx(truth, rel=1e-4, abs=1e-6 + steps * length)


def _sphere_gradient(name: str, scores: list[float], label: int, normalize: str | None) -> list[float]:
    length = math.hypot(*scores)
    scale = 1 / max(length, 1e-5) if length > 1e-5 else 1.0
    found = reference.gradient(name, [x * scale for x in scores], label, normalize=normalize)
    return [slope * (1 if length > 1e-5 else 1e-5) for slope in found]


def test_a_floor_whose_square_vanishes() -> None:
    unit = symloss.losses.UnitScores(eps=1e-30)
    z, y = torch.tensor([[1e-25, 2e-25, 2e-25]], requires_grad=True), torch.tensor([0])
    value = symloss.symmetrize(CEPotential())(z, y, score_map=unit)
    assert value.item() == pytest.approx(2 / 9, rel=1e-6)
    (gradient,) = torch.autograd.grad(value, z)
    exact = reference.gradient("unhinged", [1.0, 2.0, 2.0], 0, normalize="l2")
    assert (1e-25 * gradient[0]).tolist() == pytest.approx(exact, rel=1e-5)


@kernel_or_plain
@in_turn("temperature", [1e-15, 1e-20, 0.04, 1e20])
@in_turn("size", [1.0, 1e20])
@in_turn("name", ["unhinged", "sgce"])
def test_any_temperature(name: str, size: float, temperature: float) -> None:
    scores = [size, 2 * size, 3 * size]
    unit = [x / math.hypot(*scores) / temperature for x in scores]
    z = torch.tensor([scores], requires_grad=True)
    value = symloss.create_loss(name, temperature=temperature)(z, torch.tensor([0]))
    assert value.item() == pytest.approx(reference.value(name, unit, 0), rel=1e-5, abs=1e-6 if name == "sgce" else 0)
    (gradient,) = torch.autograd.grad(value, z)
    assert gradient.isfinite().all()
    if name == "unhinged":
        exact = [slope / temperature / size for slope in reference.gradient(name, [1.0, 2.0, 3.0], 0, normalize="l2")]
        assert gradient[0].tolist() == pytest.approx(exact, rel=1e-5, abs=1e-44)


@in_turn("dtype", [torch.float16, torch.bfloat16])
@in_turn("name", NORMALIZED)
def test_half_precision_unit_scores_of_any_size(name: str, dtype: torch.dtype) -> None:
    """A zero vector has no direction, and the squares of 60,000 no place in half precision."""
    vectors = [[0.0, 0.0, 0.0], [6e4, -6e4, 6e4], [6e4, 0.0, 0.0], [1e-7, -1e-7, 0.0]]
    labels = [0, 1, 0, 1]
    z = torch.tensor(vectors, dtype=dtype, requires_grad=True)
    loss = symloss.create_loss(name, normalize="l2")(z, torch.tensor(labels))
    loss.backward()
    assert loss.dtype == torch.float32
    assert z.grad is not None
    for ours, scores, label in zip(z.grad.tolist(), z.tolist(), labels, strict=True):
        truth = [slope / len(vectors) for slope in reference.gradient(name, scores, label, normalize="l2")]
        # Entries as small as these, of 1e-6, are subnormal in float16: they come in steps of 6e-8.
        smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        # An entry whose two terms cancel to 0 keeps the rounding of float32, in which all of it is computed.
        rounding = 4 * torch.finfo(torch.float32).eps * max(map(abs, truth))
        assert ours == pytest.approx(truth, rel=torch.finfo(dtype).eps, abs=max(smallest, rounding))


# --- Terms of a gradient that cancel must not leave their rounding behind --------------------------------------------

TWO_LEAD = [
    tuple(torch.tensor([-1.0, lead - 0.75, lead + 0.5, *(0.3 * k for k in range(rest))]).tolist())
    for lead in (8.0, 15.0, 30.0)
    for rest in (0, 7)
]
# The label, 0, is far behind two other classes: p_1 + p_2 is nearly 1, and so is its rounding error.


def off(ours: Tensor, scores: tuple[float, ...], factor: float, name: str = "mae") -> float:
    truth = [factor * slope for slope in reference.gradient(name, scores, 0)]
    return math.dist(ours.tolist(), truth) / math.hypot(*truth)


CANCELLING = [
    # Multiples of MAE and a constant: the mean over labels has no gradient (0.5 of the true one was left).
    *(("symmetrized-mse", 2, "mae"), ("symmetrize(0.5*mse + 2*mae)", 3, "mae")),
    *(("sgce:q=1", 1, "mae"), ("symmetrize(mae)", 1, "mae")),
    # Smoothed labels only scale a symmetric loss.
    *(("mae:label_smoothing=0.25", 0.75, "mae"), ("nce:label_smoothing=0.25", 0.75, "nce")),
]


@kernel_or_plain
@in_turn("spec, factor, name", CANCELLING)
def test_means_over_labels_have_no_gradient(spec: str, factor: float, name: str) -> None:
    for scores in TWO_LEAD:
        z = torch.tensor([scores], requires_grad=True)
        (gradient,) = torch.autograd.grad(symloss.create_loss(spec, normalize=None)(z, torch.tensor([0])), z)
        assert off(gradient[0], scores, factor, name) < (2e-6 if "smoothing" in spec else 1e-6), scores


@in_turn("alpha", [0.5, 0.3, 1e4])
def test_dirichlet_ce_over_many_classes(alpha: float) -> None:
    """The label's entry is p - 1 + (alpha - 1) (C p - 1): terms of size C (alpha - 1) cancel (it was 0.6 % off)."""
    classes, label = 50_000, torch.tensor([7])
    z = (0.01 * torch.randn(1, classes, generator=torch.Generator().manual_seed(0))).requires_grad_()
    (gradient,) = torch.autograd.grad(symloss.create_loss("dirichlet-ce", alpha=alpha)(z, label), z)
    p = float(z.detach().double().softmax(1)[0, 7])
    excess = (alpha - 1) * (classes * p - 1)
    assert float(gradient[0, 7]) == pytest.approx(p - 1 + excess, rel=1e-5, abs=3e-7 * abs(alpha - 1))


@in_turn("factor", [1.0, 1e4, 1e8])
@in_turn("name", ["dirichlet-ce", "alpha-mae", "sce"])
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


@in_turn("name", ["dirichlet-ce", "alpha-mae", "sce", "symmetrized-mse"])
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
