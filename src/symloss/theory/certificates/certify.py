"""Measure the properties of a loss by a search for the worst case."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import Loss
from symloss.losses.criterion import AnyLoss, Criterion, ScoreMap, score_map
from symloss.losses.layers import Temperature
from symloss.losses.operators import as_loss
from symloss.losses.spec import create_loss
from symloss.theory.certificates.certificate import TOLERANCE, Certificate, Constant, CounterExample, Finding
from symloss.theory.certificates.loss_constants import Derivatives, largest_derivatives
from symloss.theory.certificates.search import (
    Subject,
    ascend,
    bends,
    best_points,
    climb,
    derivative,
    directions,
    grows,
    largest_rise,
    sharpest_jump,
    starting_points,
)

ROUNDING = 1e-9
"""Violations below this, relative to the size of the values, are rounding."""


def certify(
    loss: str | AnyLoss,
    classes: int = 10,
    *,
    normalize: str | ScoreMap | None = None,
    temperature: Temperature = 1.0,
    seed: int = 0,
) -> Certificate:
    """Measure the properties of a loss, in float64, by a search for the worst case.

    The Lipschitz constant and the smoothness are either exact to 1e-4, or lower bounds: the largest values that the
    search met. The result says which. They are exact for functions of the label's probability (with any multiple of the
    unhinged loss added), and for other losses that are built of such functions if there are at most four classes.

    Args:
        loss: a spec string, a loss of this package, or any differentiable function or module of (input, target).
            The loss itself is measured, on raw scores: the normalisation that a loss of this package may apply to the
            scores is left out.
        classes: the number of classes.
        normalize, temperature: a map of the scores to measure together with the loss, as in every loss.
        seed: the seed of the search's random starting points.

    >>> certificate = certify("mae", classes=3)
    >>> bool(certificate.symmetric), bool(certificate.convex), round(certificate.slope, 6)
    (True, False, 0.333333)
    """
    checks.number("classes", classes, "[2, inf)", whole=True)
    expression = _expression(loss)
    scores = score_map(normalize, temperature)
    subject = Subject(_per_class(expression, scores), classes)
    z, y = starting_points(classes, torch.Generator().manual_seed(seed))
    _refuse_flat_values(subject, z, y)
    finding_bounded, low, high = _bounded(subject, z, y)
    curved = _most_curved(subject, z, y) if bends(subject, z, y) else []
    known = largest_derivatives(expression, classes) if scores is None else None
    lipschitz = _constant(_lipschitz(subject, z, y), known and known.lipschitz, known)
    smoothness = _smoothness(subject, z, y, lipschitz, curved)
    return Certificate(
        loss=loss if isinstance(loss, str) else repr(expression),
        classes=classes,
        scores="raw scores" if scores is None else f"scores after {getattr(scores, '__name__', scores)}",
        symmetric=_symmetric(subject, z, y),
        permutation_invariant=_permutation_invariant(subject, z, y),
        non_increasing=_non_increasing(subject, z, y),
        convex=_convex(subject, z, y, curved[:1]),
        bounded=finding_bounded,
        low=low,
        high=high,
        lipschitz=lipschitz,
        smoothness=_constant(smoothness, known and known.smoothness, known),
        **_at_equal_scores(subject),
    )


def _expression(loss: str | AnyLoss) -> Loss:
    if isinstance(loss, str):
        loss = create_loss(loss)
    if isinstance(loss, Criterion) and loss.weight is None and loss.label_smoothing == 0:
        return loss.loss
    return as_loss(loss)


def _per_class(loss: Loss, scores: ScoreMap | None) -> Callable[[Tensor], Tensor]:
    if scores is None:
        return loss.per_class
    return lambda z: loss.per_class(scores(z))


def _refuse_flat_values(subject: Subject, z: Tensor, y: Tensor) -> None:
    at = z[:4].clone().requires_grad_()
    values = subject.value(at, y[:4])
    if not values.requires_grad:
        raise ValueError("certify needs a differentiable loss; this one returns values without a gradient")


def _vectors(**named: Tensor) -> dict[str, list[float]]:
    return {name: vector.tolist() for name, vector in named.items()}


def _symmetric(subject: Subject, z: Tensor, y: Tensor) -> Finding:
    def total(z: Tensor, _: Tensor) -> Tensor:
        return subject.per_class(z).sum(1)

    top, _, highs = climb(total, z, y)
    bottom, _, lows = climb(lambda z, y: -total(z, y), z, y)
    high, low = float(highs[0]), -float(lows[0])
    size = 1 + float(subject.per_class(torch.cat([top, bottom])).abs().sum(1).max())
    holds = high - low <= ROUNDING * size
    seen = f"the sum over labels is {high:.6g} at a and {low:.6g} at b"
    example = None if holds else CounterExample(seen, None, _vectors(a=top[0], b=bottom[0]))
    return Finding(holds, high - low, example)


def _permutation_invariant(subject: Subject, z: Tensor, y: Tensor) -> Finding:
    """Two renamings of the classes that make up all others, at every label."""
    worst = [_renamed(subject, z, y, order) for order in validation.renamings(subject.classes)]
    return max(worst, key=lambda finding: (not finding.holds, finding.measure))


def _renamed(subject: Subject, z: Tensor, y: Tensor, order: Tensor) -> Finding:
    def difference(z: Tensor, _: Tensor) -> Tensor:
        return (subject.per_class(z[:, order]) - subject.per_class(z)[:, order]).abs()

    found, _, worst = climb(lambda z, y: difference(z, y).amax(1), z, y)
    a, b = found[:1], found[:1, order]
    before, after = subject.per_class(a)[0], subject.per_class(b)[0]
    new_label = int(difference(a, y)[0].argmax())
    label = int(order[new_label])
    measure = float(worst[0])
    if measure <= ROUNDING * (1 + float(before.abs().max())):
        return Finding(True, measure)
    seen = (
        f"{float(before[label]):.6g} at a, and {float(after[new_label]):.6g} at b with label {new_label}, "
        "which is a with the classes renamed"
    )
    return Finding(False, measure, CounterExample(seen, label, _vectors(a=a[0], b=b[0])))


def _non_increasing(subject: Subject, z: Tensor, y: Tensor) -> Finding:
    """The derivative in the label's own score, and values along rays in it: a jump has no derivative."""

    def rise(z: Tensor, y: Tensor) -> Tensor:
        return subject.gradient(z, y).gather(1, y[:, None]).squeeze(1)

    found, label, worst = climb(rise, z, y)
    size = 1e-3 + float(subject.gradient(z, y).abs().max())
    steepest = max(0.0, float(worst[0]))
    if steepest > ROUNDING * size:
        seen = f"the derivative in the label's own score is {steepest:.6g} at a"
        return Finding(False, steepest, CounterExample(seen, int(label[0]), _vectors(a=found[0])))
    low, high, own = largest_rise(subject, z, y)
    before, after = (float(value) for value in subject.value(torch.stack([low, high]), own.repeat(2)))
    if after - before <= ROUNDING * (1 + abs(before)):
        return Finding(True, steepest)
    seen = f"{before:.6g} at a and {after:.6g} at b, where only the label's own score is higher"
    return Finding(False, after - before, CounterExample(seen, int(own), _vectors(a=low, b=high)))


def _convex(subject: Subject, z: Tensor, y: Tensor, hollow: list[Curved]) -> Finding:
    """Chords between starting points, and short chords along the direction of the most negative curvature."""
    classes = subject.classes

    def excess(pair: Tensor, y: Tensor) -> Tensor:
        a, b = pair[:, :classes], pair[:, classes:]
        return subject.value((a + b) / 2, y) - (subject.value(a, y) + subject.value(b, y)) / 2

    partners = z[torch.randperm(len(z), generator=torch.Generator().manual_seed(2))]
    pairs, labels = [torch.cat([z, partners], 1)], [y]
    for points, label, axes, _ in hollow:
        for length in (0.03, 0.3, 1.0):
            pairs.append(torch.cat([points - length * axes, points + length * axes], 1))
            labels.append(label)
    found, label, worst = climb(excess, torch.cat(pairs), torch.cat(labels))
    a, b = found[0, :classes], found[0, classes:]
    size = 1e-3 + float(subject.value(torch.stack([a, b]), label[:1].repeat(2)).abs().max())
    measure = max(0.0, float(worst[0]))
    holds = measure <= ROUNDING * size
    seen = f"midway between a and b the loss is {measure:.6g} above the mean of their losses"
    example = None if holds else CounterExample(seen, int(label[0]), _vectors(a=a, b=b))
    return Finding(holds, measure, example)


class Curved(NamedTuple):
    """Where the loss bends most: points, labels, unit directions, and the curvature at the first of them."""

    points: Tensor
    labels: Tensor
    axes: Tensor
    curvature: float


def _most_curved(subject: Subject, z: Tensor, y: Tensor) -> list[Curved]:
    """Where the curvature is most negative, and where it is most positive, each best first.

    Point and direction climb together; then the matrix of second derivatives gives the best direction at each point,
    and they climb once more. Both signs climb in one batch: a step of sixteen points costs hardly more than one of
    eight. The sign of a point is beside its label.
    """
    classes = subject.classes

    def curvature(state: Tensor, tags: Tensor) -> Tensor:
        keep = state.requires_grad
        at, axis = state[:, :classes], state[:, classes:]
        at = at if keep else at.detach().requires_grad_()
        bend = derivative((subject.gradient(at, tags[:, 0]) * axis).sum(), at, keep)
        return tags[:, 1] * (bend * axis).sum(1) / axis.square().sum(1)

    start, label = torch.cat([torch.cat([z, axis], 1) for axis in _axes(z, y)]), y.repeat(4)
    chosen = [
        best_points(curvature, start, torch.stack([label, sign * torch.ones_like(label)], 1), 8) for sign in SIGNS
    ]
    state, tags = (torch.cat(parts) for parts in zip(*chosen, strict=True))
    state, tags, best = ascend(curvature, state, tags, 30)
    for _ in range(2):
        matrix = tags[:, 1, None, None] * subject.hessian(state[:, :classes], tags[:, 0])
        state = torch.cat([state[:, :classes], torch.linalg.eigh(matrix).eigenvectors[:, :, -1]], 1)
        state, tags, best = ascend(curvature, state, tags, 12)
    return [_sorted(state[side], tags[side], best[side], classes) for side in (tags[:, 1] == sign for sign in SIGNS)]


SIGNS = (-1, 1)


def _axes(z: Tensor, y: Tensor) -> list[Tensor]:
    """Directions (P, C) to start with: the label against its largest rival, alone, and both against the last class."""
    label = _one_hot(y, z)
    rival = _one_hot(z.masked_fill(label > 0, -torch.inf).argmax(1), z)
    last = _one_hot(z.masked_fill(label + rival > 0, torch.inf).argmin(1), z)
    axes = [label - rival, label, rival - last, label - last]
    return [torch.where(axis.abs().sum(1, keepdim=True) > 0, axis, label) for axis in axes]


def _sorted(state: Tensor, tags: Tensor, best: Tensor, classes: int) -> Curved:
    order = best.argsort(descending=True)
    axis = state[order, classes:]
    curvature = float(tags[0, 1]) * float(best[order[0]])
    return Curved(state[order, :classes], tags[order, 0], axis / axis.norm(dim=1, keepdim=True), curvature)


def _one_hot(index: Tensor, like: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(index, like.shape[1]).to(like)


class Extreme(NamedTuple):
    """The largest or smallest value of a loss that the search met."""

    value: float
    point: Tensor
    label: int
    endless: bool


def _extreme(subject: Subject, z: Tensor, y: Tensor, sign: float) -> Extreme:
    """The largest (sign 1) or smallest (sign -1) value, and whether values grow without bound."""

    def signed(z: Tensor, y: Tensor) -> Tensor:
        return sign * subject.value(z, y)

    far = directions(z)
    points, labels, values = climb(signed, z, y)
    distant = signed(1e6 * far, y)
    best = int(distant.argmax())
    endless = grows(lambda radius: signed(radius * far, y).max())
    if float(distant[best]) > float(values[0]):
        return Extreme(sign * float(distant[best]), 1e6 * far[best], int(y[best]), endless)
    return Extreme(sign * float(values[0]), points[0], int(labels[0]), endless)


def _bounded(subject: Subject, z: Tensor, y: Tensor) -> tuple[Finding, float, float]:
    top, bottom = (_extreme(subject, z, y, sign) for sign in (1.0, -1.0))
    low = -math.inf if bottom.endless else bottom.value + 0.0
    high = math.inf if top.endless else top.value + 0.0
    example = None
    if high - low == math.inf:
        end = top if top.endless else bottom
        seen = f"{end.value:.6g} at a, and on without end along it"
        example = CounterExample(seen, end.label, _vectors(a=end.point))
    return Finding(example is None, high - low, example), low, high


def _constant(climbed: float, searched: float | None, known: Derivatives | None) -> Constant:
    """The larger result of the two searches. It is exact if the finer one says so and the other one agrees."""
    if known is None or searched is None or not math.isfinite(climbed):
        return Constant(climbed)
    return Constant(max(climbed, searched), known.exact and climbed <= searched * (1 + TOLERANCE) + ROUNDING)


def _lipschitz(subject: Subject, z: Tensor, y: Tensor) -> float:
    def size(z: Tensor, y: Tensor) -> Tensor:
        return subject.gradient(z, y).square().sum(1).sqrt()

    if grows(lambda radius: size(radius * directions(z), y).max()):
        return math.inf
    return float(climb(size, z, y, keep=32, steps=80)[2][0])


def _smoothness(subject: Subject, z: Tensor, y: Tensor, lipschitz: float, curved: list[Curved]) -> float:
    if lipschitz == math.inf or sharpest_jump(subject, z, y) > 1e-5 * lipschitz:
        return math.inf
    return max(abs(place.curvature) for place in curved) if curved else math.nan


def _at_equal_scores(subject: Subject) -> dict[str, Any]:
    """The linear approximation at equal scores, label by label, against the unhinged loss's gradient 1/C - e_y."""
    classes = subject.classes
    z = torch.ones(classes, classes, dtype=torch.float64)
    gradients = subject.gradient(z, torch.arange(classes))
    unhinged = 1 / classes - torch.eye(classes, dtype=torch.float64)
    slope = float((gradients * unhinged).sum() / unhinged.square().sum())
    size = float(gradients.norm())
    return {
        "slope": slope,
        "distance_from_unhinged": float((gradients - slope * unhinged).norm()) / size if size > 0 else 0.0,
        "locally_symmetric": bool(gradients.sum(0).norm() <= ROUNDING * max(size, 1e-300)),
        "gradient_against_ce": size / float(unhinged.norm()),
    }
