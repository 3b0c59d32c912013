"""Certificates: the properties of a loss, measured by a search for the worst case, with counter-examples."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation
from symloss.losses.base import Loss
from symloss.losses.criterion import AnyLoss, Criterion, ScoreMap, score_map
from symloss.losses.layers import Temperature
from symloss.losses.operators import as_loss
from symloss.losses.spec import create_loss
from symloss.theory import search
from symloss.theory.search import ROUNDING, Subject

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Certificate", "Constant", "CounterExample", "Finding", "certify"]

TOLERANCE = 1e-4  # the relative error of a constant that is called exact


class Constant(float):
    """A measured constant: a number that knows whether it is exact or a lower bound. So do its multiples.

    Args:
        value: the number.
        exact: whether it is exact; else it is the largest value that a search met.

    >>> Constant(0.5, exact=False) * 2
    1.0 (at least)
    """

    exact: bool

    def __new__(cls, value: float, exact: bool = False) -> Constant:
        constant = super().__new__(cls, value)
        constant.exact = exact or value == math.inf  # nothing is larger than infinity
        return constant

    @property
    def meaning(self) -> str:
        """``"exact to 1e-4"`` or ``"at least"``."""
        return f"exact to {TOLERANCE:.0e}".replace("e-0", "e-") if self.exact else "at least"

    def __mul__(self, factor: float) -> Constant:
        return Constant(float(self) * factor, self.exact) if isinstance(factor, (int, float)) else NotImplemented

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Constant:
        return Constant(float(self) / divisor, self.exact) if isinstance(divisor, (int, float)) else NotImplemented

    def __str__(self) -> str:
        number = f"{float(self):.6g}"
        return f"{number} ({self.meaning})" if math.isfinite(self) else number

    def __repr__(self) -> str:
        return f"{float(self)!r} ({self.meaning})"


@dataclass(frozen=True)
class CounterExample:
    """Score vectors at which a loss does not have a property."""

    seen: str
    """What happens there, as a sentence."""
    label: int | None
    """The label; None where the property is one of all labels together."""
    scores: dict[str, list[float]]
    """The score vectors by name."""

    def __str__(self) -> str:
        label = "" if self.label is None else f", label {self.label}"
        vectors = "".join(f"; {name} = {_short(vector, self.label)}" for name, vector in self.scores.items())
        return f"{self.seen}{label}{vectors}"


@dataclass(frozen=True)
class Finding:
    """Whether a loss has a property. ``bool(finding)`` is the answer."""

    holds: bool
    """Whether the search met no violation."""
    measure: float
    """The largest violation that the search met; 0 is none."""
    counter_example: CounterExample | None = None
    """Where the property fails; None if it holds."""

    def __bool__(self) -> bool:
        return self.holds


@dataclass(frozen=True)
class Certificate:
    """The measured properties of a loss. Each constant says whether it is exact or a lower bound."""

    loss: str
    """The loss, as text."""
    num_classes: int
    """The number of classes."""
    scores: str
    """What the loss was given: raw scores, or the scores after a map such as ``normalize="l2"``."""
    symmetric: Finding
    """Is the sum over labels constant? Measured: its spread."""
    permutation_invariant: Finding
    """Is the loss the same when classes are renamed? Measured: the largest difference."""
    non_increasing: Finding
    """Does the loss never rise with the label's own score? Measured: the steepest rise."""
    convex: Finding
    """Is the loss convex in the scores? Measured: how far the middle of a chord lies below the loss."""
    bounded: Finding
    """Are all values within a range? Measured: the width of the range."""
    low: float
    """The smallest value that the search met; -inf if there is no bound."""
    high: float
    """The largest value that the search met; inf if there is no bound."""
    lipschitz: Constant
    """Largest norm of the gradient in the scores."""
    smoothness: Constant
    """Largest curvature (beta); infinite where the gradient jumps, NaN where it has no derivative to measure."""
    slope: float
    """At equal scores, the linear approximation is this multiple of the unhinged loss (prop. 5.2); 1 for CE."""
    distance_from_unhinged: float
    """At equal scores, the norm of the rest of the gradient, relative to that multiple."""
    locally_symmetric: bool
    """At equal scores: do the gradients of all labels sum to zero?"""
    gradient_against_ce: float
    """At equal scores: the norm of the gradient, relative to cross-entropy's."""

    @property
    def findings(self) -> dict[str, Finding]:
        """All findings by name."""
        return {f.name: v for f in dataclasses.fields(self) if isinstance(v := getattr(self, f.name), Finding)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON. Infinities become strings. ``constants`` says which constants are exact."""
        sure = {name: getattr(self, name).meaning for name in ("lipschitz", "smoothness")}
        return dataclasses.asdict(self, dict_factory=_plain) | {"constants": sure}

    def __str__(self) -> str:
        lines = [self._title]
        for mark, name, text in self._rows():
            lines.append(
                f"  {mark:<4} {name:<22} {text}" if mark else f"  {name:<27} {text}" if name else f"{'':7}{text}"
            )
        return "\n".join(lines)

    def __rich__(self) -> RenderableType:
        from rich.panel import Panel  # noqa: PLC0415 (rich asks, so it is there)
        from rich.table import Table  # noqa: PLC0415
        from rich.text import Text  # noqa: PLC0415

        table = Table.grid(padding=(0, 2))
        for mark, name, text in self._rows():
            colour = "bold green" if mark == "yes" else "bold red"
            table.add_row(Text(mark, colour), name if mark else Text(name, "cyan"), text if name else Text(text, "dim"))
        return Panel(table, title=Text(self._title), title_align="left", expand=False)

    @property
    def _title(self) -> str:
        return f"{self.loss}, {self.num_classes} classes, {self.scores}"

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield the lines that are shown: an answer, a name and a text; a counter-example has a text alone."""
        measures = {
            "symmetric": f"spread of the sum over labels {self.symmetric.measure:.3g}",
            "permutation_invariant": f"largest difference {self.permutation_invariant.measure:.3g}",
            "non_increasing": f"steepest rise {self.non_increasing.measure:.3g}",
            "convex": f"largest excess over a chord {self.convex.measure:.3g}",
            "bounded": f"values from {self.low:.6g} to {self.high:.6g}",
        }
        for name, finding in self.findings.items():
            yield "yes" if finding else "no", name.replace("_", "-"), measures[name]
            if finding.counter_example is not None:
                yield "", "", str(finding.counter_example)
        yield "", "Lipschitz constant", str(self.lipschitz)
        yield "", "beta-smoothness", str(self.smoothness)
        linear = f"{self.slope:.6g} times unhinged (distance {self.distance_from_unhinged:.1g})"
        yield "", "slope at equal scores", linear
        yield "", "locally symmetric there", "yes" if self.locally_symmetric else "no"
        yield "", "gradient there, CE = 1", f"{self.gradient_against_ce:.6g}"


def _short(vector: list[float], label: int | None, most: int = 6) -> str:
    """Return a score vector on a line: whole if short, else the label's score, the extremes and the count."""
    if len(vector) <= most:
        return "(" + ", ".join(f"{x:.4g}" for x in vector) + ")"
    own = "" if label is None else f"label {vector[label]:.4g}, "
    return f"({own}others {min(vector):.4g} to {max(vector):.4g}, {len(vector)} in all)"


def _plain(fields: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return fields as plain data: numbers as floats, and infinities as strings."""
    numbers = {name: float(value) for name, value in fields if isinstance(value, float)}
    return dict(fields) | {name: value if math.isfinite(value) else str(value) for name, value in numbers.items()}


def certify(
    loss: str | AnyLoss,
    num_classes: int = 10,
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
        num_classes: the number of classes.
        normalize, temperature: a map of the scores to measure together with the loss, as in every loss.
        seed: the seed of the search's random starting points.

    >>> certificate = certify("mae", num_classes=3)
    >>> bool(certificate.symmetric), bool(certificate.convex), round(certificate.slope, 6)
    (True, False, 0.333333)
    """
    checks.number("num_classes", num_classes, "[2, inf)", whole=True)
    expression = _expression(loss)
    scores = score_map(normalize, temperature)
    per_class = expression.per_class
    subject = Subject(per_class if scores is None else lambda z: per_class(scores(z)), num_classes)
    z, y = search.starting_points(num_classes, torch.Generator().manual_seed(seed))
    if not subject.value(z[:4].clone().requires_grad_(), y[:4]).requires_grad:
        raise ValueError("certify needs a differentiable loss; this one returns values without a gradient")
    finding_bounded, low, high = _bounded(subject, z, y)
    curved = _most_curved(subject, z, y) if search.bends(subject, z, y) else []
    known = search.largest_derivatives(expression, num_classes) if scores is None else None
    lipschitz = _constant(_lipschitz(subject, z, y), known and known.lipschitz, known)
    is_rough = lipschitz == math.inf or search.sharpest_jump(subject, z, y) > 1e-5 * lipschitz
    bend = max((abs(place.curvature) for place in curved), default=math.nan)
    return Certificate(
        loss=loss if isinstance(loss, str) else repr(expression),
        num_classes=num_classes,
        scores="raw scores" if scores is None else f"scores after {getattr(scores, '__name__', scores)}",
        symmetric=_symmetric(subject, z, y),
        permutation_invariant=_permutation_invariant(subject, z, y),
        non_increasing=_non_increasing(subject, z, y),
        convex=_convex(subject, z, y, curved[:1]),
        bounded=finding_bounded,
        low=low,
        high=high,
        lipschitz=lipschitz,
        smoothness=_constant(math.inf if is_rough else bend, known and known.smoothness, known),
        **_at_equal_scores(subject),
    )


def _expression(loss: str | AnyLoss) -> Loss:
    if isinstance(loss, str):
        loss = create_loss(loss)
    if isinstance(loss, Criterion) and loss.weight is None and loss.label_smoothing == 0:
        return loss.loss
    return as_loss(loss)


def finding(holds: bool, measure: float, seen: str, label: Tensor | int | None = None, **at: Tensor) -> Finding:
    """Return what was found, with the score vectors ``at`` as a counter-example if the property does not hold."""
    vectors = {name: vector.flatten().tolist() for name, vector in at.items()}
    example = CounterExample(seen, None if label is None else int(label), vectors)
    return Finding(holds, measure, None if holds else example)


def _symmetric(subject: Subject, z: Tensor, y: Tensor) -> Finding:
    def total(z: Tensor, _: Tensor) -> Tensor:
        return subject.per_class(z).sum(1)

    top, _, highs = search.climb(total, z, y)
    bottom, _, lows = search.climb(lambda z, y: -total(z, y), z, y)
    high, low = float(highs[0]), -float(lows[0])
    size = 1 + float(subject.per_class(torch.cat([top, bottom])).abs().sum(1).max())
    seen = f"the sum over labels is {high:.6g} at a and {low:.6g} at b"
    return finding(high - low <= ROUNDING * size, high - low, seen, a=top[0], b=bottom[0])


def _permutation_invariant(subject: Subject, z: Tensor, y: Tensor) -> Finding:
    """Try two renamings of the classes that generate all others, at every label."""
    worst = [_renamed(subject, z, y, order) for order in validation.renamings(subject.num_classes)]
    return max(worst, key=lambda finding: (not finding.holds, finding.measure))


def _renamed(subject: Subject, z: Tensor, y: Tensor, order: Tensor) -> Finding:
    def difference(z: Tensor, _: Tensor) -> Tensor:
        return (subject.per_class(z[:, order]) - subject.per_class(z)[:, order]).abs()

    found, _, worst = search.climb(lambda z, y: difference(z, y).amax(1), z, y)
    a, b = found[:1], found[:1, order]
    before, after = subject.per_class(a)[0], subject.per_class(b)[0]
    new_label = int(difference(a, y)[0].argmax())
    label = int(order[new_label])
    measure = float(worst[0])
    seen = (
        f"{float(before[label]):.6g} at a, and {float(after[new_label]):.6g} at b with label {new_label}, "
        "which is a with the classes renamed"
    )
    return finding(measure <= ROUNDING * (1 + float(before.abs().max())), measure, seen, label, a=a, b=b)


def _non_increasing(subject: Subject, z: Tensor, y: Tensor) -> Finding:
    """Measure the derivative in the label's own score, and values along rays in it: a jump has no derivative."""

    def rise(z: Tensor, y: Tensor) -> Tensor:
        return subject.gradient(z, y).gather(1, y[:, None]).squeeze(1)

    found, label, worst = search.climb(rise, z, y)
    size = 1e-3 + float(subject.gradient(z, y).abs().max())
    steepest = max(0.0, float(worst[0]))
    if steepest > ROUNDING * size:
        return finding(
            False, steepest, f"the derivative in the label's own score is {steepest:.6g} at a", label[0], a=found[0]
        )
    low, high, own = search.largest_rise(subject, z, y)
    before, after = (float(value) for value in subject.value(torch.stack([low, high]), own.repeat(2)))
    if after - before <= ROUNDING * (1 + abs(before)):
        return Finding(True, steepest)
    seen = f"{before:.6g} at a and {after:.6g} at b, where only the label's own score is higher"
    return finding(False, after - before, seen, own, a=low, b=high)


def _convex(subject: Subject, z: Tensor, y: Tensor, hollow: list[Curved]) -> Finding:
    """Try chords between starting points, and short chords along the direction of the most negative curvature."""
    num_classes = subject.num_classes

    def excess(pair: Tensor, y: Tensor) -> Tensor:
        a, b = pair[:, :num_classes], pair[:, num_classes:]
        return subject.value((a + b) / 2, y) - (subject.value(a, y) + subject.value(b, y)) / 2

    partners = z[torch.randperm(len(z), generator=torch.Generator().manual_seed(2))]
    pairs, labels = [torch.cat([z, partners], 1)], [y]
    for points, label, axes, _ in hollow:
        for length in (0.03, 0.3, 1.0):
            pairs.append(torch.cat([points - length * axes, points + length * axes], 1))
            labels.append(label)
    found, label, worst = search.climb(excess, torch.cat(pairs), torch.cat(labels))
    a, b = found[0, :num_classes], found[0, num_classes:]
    size = 1e-3 + float(subject.value(torch.stack([a, b]), label[:1].repeat(2)).abs().max())
    measure = max(0.0, float(worst[0]))
    seen = f"midway between a and b the loss is {measure:.6g} above the mean of their losses"
    return finding(measure <= ROUNDING * size, measure, seen, label[0], a=a, b=b)


class Curved(NamedTuple):
    """Where the loss bends most: points, labels, unit directions, and the curvature at the first of them."""

    points: Tensor
    labels: Tensor
    axes: Tensor
    curvature: float


def _most_curved(subject: Subject, z: Tensor, y: Tensor) -> list[Curved]:
    """Return where the curvature is most negative, and where it is most positive, each best first.

    Point and direction climb together; then the matrix of second derivatives gives the best direction at each point,
    and they climb once more. Both signs climb in one batch: a step of sixteen points costs hardly more than one of
    eight. The sign of a point is beside its label.
    """
    num_classes = subject.num_classes

    def curvature(state: Tensor, tags: Tensor) -> Tensor:
        keep = state.requires_grad
        at, axis = state[:, :num_classes], state[:, num_classes:]
        at = at if keep else at.detach().requires_grad_()
        bend = search.derivative((subject.gradient(at, tags[:, 0]) * axis).sum(), at, keep)
        return tags[:, 1] * (bend * axis).sum(1) / axis.square().sum(1)

    start, label = torch.cat([torch.cat([z, axis], 1) for axis in _axes(z, y)]), y.repeat(4)
    chosen = [
        search.best_points(curvature, start, torch.stack([label, sign * torch.ones_like(label)], 1), 8)
        for sign in SIGNS
    ]
    state, tags = (torch.cat(parts) for parts in zip(*chosen, strict=True))
    state, tags, best = search.ascend(curvature, state, tags, 30)
    for _ in range(2):
        matrix = tags[:, 1, None, None] * subject.hessian(state[:, :num_classes], tags[:, 0])
        state = torch.cat([state[:, :num_classes], torch.linalg.eigh(matrix).eigenvectors[:, :, -1]], 1)
        state, tags, best = search.ascend(curvature, state, tags, 12)
    found = []
    for sign in SIGNS:
        order = torch.where(tags[:, 1] == sign, best, -torch.inf).argsort(descending=True)[: len(best) // 2]
        axis = state[order, num_classes:]
        axis = axis / axis.norm(dim=1, keepdim=True)
        found.append(Curved(state[order, :num_classes], tags[order, 0], axis, sign * float(best[order[0]])))
    return found


SIGNS = (-1, 1)


def _axes(z: Tensor, y: Tensor) -> list[Tensor]:
    """Return directions (P, C) to start with: the label against its rival, alone, and both against the last class."""
    label = _one_hot(y, z)
    rival = _one_hot(z.masked_fill(label > 0, -torch.inf).argmax(1), z)
    last = _one_hot(z.masked_fill(label + rival > 0, torch.inf).argmin(1), z)
    axes = [label - rival, label, rival - last, label - last]
    return [torch.where(axis.abs().sum(1, keepdim=True) > 0, axis, label) for axis in axes]


def _one_hot(index: Tensor, like: Tensor) -> Tensor:
    return torch.nn.functional.one_hot(index, like.shape[1]).to(like)


def _extreme(subject: Subject, z: Tensor, y: Tensor, sign: float) -> tuple[float, Tensor, Tensor, bool]:
    """Return the largest (sign 1) or smallest (sign -1) value, its point and label; and whether there is no bound."""

    def signed(z: Tensor, y: Tensor) -> Tensor:
        return sign * subject.value(z, y)

    far = search.directions(z)
    points, labels, values = search.climb(signed, z, y)
    distant = signed(1e6 * far, y)
    best = int(distant.argmax())
    endless = search.grows(lambda radius: signed(radius * far, y).max())
    if float(distant[best]) > float(values[0]):
        return sign * float(distant[best]), 1e6 * far[best], y[best], endless
    return sign * float(values[0]), points[0], labels[0], endless


def _bounded(subject: Subject, z: Tensor, y: Tensor) -> tuple[Finding, float, float]:
    top, bottom = (_extreme(subject, z, y, sign) for sign in (1.0, -1.0))
    low = -math.inf if bottom[-1] else bottom[0] + 0.0
    high = math.inf if top[-1] else top[0] + 0.0
    value, point, label, _ = top if top[-1] else bottom
    seen = f"{value:.6g} at a, and on without end along it"
    return finding(high - low != math.inf, high - low, seen, label, a=point), low, high


def _constant(climbed: float, searched: float | None, known: search.Derivatives | None) -> Constant:
    """Return the larger result of the two searches. It is exact if the finer one says so and the other one agrees."""
    if known is None or searched is None or not math.isfinite(climbed):
        return Constant(climbed)
    return Constant(max(climbed, searched), known.exact and climbed <= searched * (1 + TOLERANCE) + ROUNDING)


def _lipschitz(subject: Subject, z: Tensor, y: Tensor) -> float:
    def size(z: Tensor, y: Tensor) -> Tensor:
        return subject.gradient(z, y).square().sum(1).sqrt()

    if search.grows(lambda radius: size(radius * search.directions(z), y).max()):
        return math.inf
    return float(search.climb(size, z, y, keep=32, steps=80)[2][0])


def _at_equal_scores(subject: Subject) -> dict[str, Any]:
    """Compare the gradients at equal scores with those of the unhinged loss, 1/C - e_y."""
    num_classes = subject.num_classes
    z = torch.ones(num_classes, num_classes, dtype=torch.float64)
    gradients = subject.gradient(z, torch.arange(num_classes))
    unhinged = 1 / num_classes - torch.eye(num_classes, dtype=torch.float64)
    slope = float((gradients * unhinged).sum() / unhinged.square().sum())
    size = float(gradients.norm())
    return {
        "slope": slope,
        "distance_from_unhinged": float((gradients - slope * unhinged).norm()) / size if size > 0 else 0.0,
        "locally_symmetric": bool(gradients.sum(0).norm() <= ROUNDING * max(size, 1e-300)),
        "gradient_against_ce": size / float(unhinged.norm()),
    }
