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
from symloss.losses.base import Loss, NoSlopeError
from symloss.losses.criterion import AnyLoss, ScoreMap, score_map
from symloss.losses.layers import Temperature
from symloss.losses.operators import Wrapped
from symloss.theory import properties, search
from symloss.theory.constants import Derivatives, largest_derivatives
from symloss.theory.findings import CounterExample, Finding, finding, plain
from symloss.theory.linear_facts import linear_facts
from symloss.theory.proofs import proof
from symloss.theory.search import Places
from symloss.theory.subject import Subject, derivative, raw_loss
from symloss.theory.theorem import Linearity, Theorem, breaking_points, linearity

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
class Certificate:
    """The measured properties of a loss. Each constant says whether it is exact or a lower bound."""

    loss: str
    """The loss, as text."""
    num_classes: int
    """The number of classes."""
    scores: str
    """What the loss was given: raw scores, or the scores after a map such as ``normalize="l2"``."""
    reach: float
    """The largest absolute score at which values were compared: 1e6, or less where the loss is not finite."""
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
    """At scores of 0, the linear approximation is this multiple of the unhinged loss (prop. 5.2); 1 for CE."""
    slopes: tuple[float, float]
    """The smallest and the largest slope at other equal scores: -10, -1, 1 and 10."""
    distance_from_unhinged: float
    """At scores of 0, the norm of the rest of the gradient, relative to that multiple."""
    locally_symmetric: bool
    """At scores of 0: do the gradients of all labels sum to zero?"""
    gradient_against_ce: float
    """At scores of 0: the norm of the gradient, relative to cross-entropy's."""
    undefined: CounterExample | None
    """Where the gradient is NaN although the loss is a number: such points were left out. None if there are none."""
    linearity: Linearity
    """How far the loss is from its linear approximation at 0, and from a multiple of unhinged, at all points."""

    def theorem(self) -> Theorem:
        """Return what theorem 5.1 says of the loss: which assumptions hold, and its distance from a unhinged + b.

        >>> print(certify("mae", num_classes=3).theorem().conclusion)
        The theorem does not apply: the loss is not convex. It need not be unhinged.
        """
        rows = self.linearity.coefficients
        names = ("convex", "symmetric", "non_increasing", "permutation_invariant")
        return Theorem(
            self.loss,
            self.num_classes,
            {name: getattr(self, name) for name in names},
            bool(self.linearity.trivial),
            self.slope,
            self.linearity.unhinged,
            None if rows is None else linear_facts(torch.tensor(rows, dtype=torch.float64)),
        )

    @property
    def findings(self) -> dict[str, Finding]:
        """All findings by name."""
        return {f.name: v for f in dataclasses.fields(self) if isinstance(v := getattr(self, f.name), Finding)}

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON. Infinities become strings. ``constants`` says which constants are exact."""
        sure = {name: getattr(self, name).meaning for name in ("lipschitz", "smoothness")}
        return plain(dataclasses.asdict(self)) | {"constants": sure}

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
        reach = f"up to {self.reach:g} (gradients up to {min(self.reach, search.REACH):g})"
        return f"{self.loss}, {self.num_classes} classes, {self.scores} {reach}"

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        """Yield the lines that are shown: an answer, a name and a text; a counter-example has a text alone."""
        measures = {
            "symmetric": f"spread of the sum over labels {self.symmetric.measure:.3g}",
            "permutation_invariant": f"largest difference {self.permutation_invariant.measure:.3g}",
            "non_increasing": f"steepest rise {self.non_increasing.measure:.3g}",
            "convex": f"largest excess over a chord {self.convex.measure:.3g}",
            "bounded": f"values from {self.low:.6g} to {self.high:.6g}",
        }
        for name, found in self.findings.items():
            yield "yes" if found else "no", name.replace("_", "-"), measures[name]
            yield "", "", str(found.counter_example) if found.counter_example else found.grounds
        if self.undefined is not None:
            yield "", "not everywhere", str(self.undefined)
        elif math.isnan(self.slope):
            yield "", "no gradient", "that is the derivative of the values: its constants were not measured"
        yield "", "Lipschitz constant", str(self.lipschitz)
        yield "", "beta-smoothness", str(self.smoothness)
        linear = f"{self.slope:.6g} times unhinged (distance {self.distance_from_unhinged:.1g})"
        yield "", "slope at scores of 0", linear
        low, high = self.slopes
        if high - low > 1e-6 * max(abs(low), abs(high)):
            yield "", "", f"it depends on the point: {low:.6g} to {high:.6g} at equal scores from -10 to 10"
        yield "", "locally symmetric there", "yes" if self.locally_symmetric else "no"
        yield "", "gradient there, CE = 1", f"{self.gradient_against_ce:.6g}"


def certify(
    loss: str | AnyLoss,
    num_classes: int = 10,
    *,
    normalize: str | ScoreMap | None = None,
    temperature: Temperature = 1.0,
    seed: int = 0,
) -> Certificate:
    """Measure the properties of a loss, in float64, by a search for the worst case.

    Values are compared at scores up to 1e6, or as far as the loss is finite, and gradients up to 40. "Yes" means that
    the search met no violation above the rounding errors at the point, or that the loss has the property by
    construction; ``Finding.grounds`` says which. The findings agree with theorem 5.1: a symmetric loss is called convex
    only if it is affine.

    The Lipschitz constant and the smoothness are either exact to 1e-4, or lower bounds: the largest values that the
    search met. The result says which. They are exact for the catalogue's functions of the label's probability (with any
    multiple of the unhinged loss added), and for other losses that are built of such functions if there are at most
    four classes.

    Args:
        loss: a spec string, a loss of this package, or any function or module of (input, target).
            The loss itself is measured, on raw scores: the normalisation that a loss of this package may apply to the
            scores is left out.
        num_classes: the number of classes.
        normalize, temperature: a map of the scores to measure together with the loss, as in every loss.
        seed: the seed of the search's random starting points.

    Raises:
        ValueError: the loss is NaN somewhere, or not a function of one example: random, or dependent on the batch.

    >>> certificate = certify("mae", num_classes=3)
    >>> bool(certificate.symmetric), bool(certificate.convex), round(certificate.slope, 6)
    (True, False, 0.333333)
    """
    checks.number("num_classes", num_classes, "[2, inf)", whole=True)
    expression = raw_loss(loss)
    scores = score_map(normalize, temperature)
    subject = Subject(expression, num_classes, scores)
    places = Places(subject, seed)
    values = places.along.flatten()
    subject.refuse_replay(places.rays.z, places.rays.y, values)
    at_zero = _at_equal_scores(places)
    if scores is None:
        _refuse_another_slope(expression, num_classes, at_zero["slope"])
    curved = _most_curved(places) if search.bends(subject, places.z, places.y) else []
    symmetric = properties.symmetric(places)
    invariant = properties.permutation_invariant(places)
    places.remember(invariant.counter_example)
    falls = properties.non_increasing(places)
    places.remember(falls.counter_example)
    convex = properties.convex(places, curved[0][:3] if curved else None)
    convex = _overruled_by_curvature(subject, convex, curved)
    bend = max((abs(place.curvature) for place in curved), default=math.nan)
    linear = linearity(places, at_zero["slope"] if math.isfinite(at_zero["slope"]) else 0.0)
    if symmetric and convex:
        convex = _settled(places, convex, linear, curved)
        bend = 0.0 if convex else bend
    bounded, low, high = properties.bounded(places)
    known = largest_derivatives(expression, num_classes) if scores is None else None
    steepest, jumps = _lipschitz(places)
    flat = bool(symmetric and convex)
    rough = not flat and (_is_rough(places, steepest, jumps) if subject.differentiable else jumps)
    if not subject.differentiable:
        steepest, bend = (math.inf, math.inf) if jumps else (math.nan, math.nan)
    subject.refuse_replay(places.rays.z, places.rays.y, values)

    def proved(fact: str, found: Finding) -> Finding:
        shown = proof(expression, fact, num_classes) if found and scores is None else ""
        return dataclasses.replace(found, proof=shown, points=found.points or places.count)

    return Certificate(
        loss=loss if isinstance(loss, str) else repr(expression),
        num_classes=num_classes,
        scores="raw scores" if scores is None else f"scores after {getattr(scores, '__name__', scores)}",
        reach=places.reach,
        symmetric=proved("symmetric", symmetric),
        permutation_invariant=proved("permutation_invariant", invariant),
        non_increasing=proved("non_increasing", falls),
        convex=proved("convex", convex),
        bounded=proved("bounded", bounded),
        low=low,
        high=high,
        lipschitz=_constant(steepest, known and known.lipschitz, known),
        smoothness=_constant(math.inf if rough else bend, known and known.smoothness, known),
        undefined=places.undefined if subject.differentiable else None,
        linearity=linear,
        **at_zero,
    )


def _overruled_by_curvature(subject: Subject, convex: Finding, curved: list[Curved]) -> Finding:
    """Let clearly negative curvature overrule the chords, which cannot see ripples below the rounding error."""
    if not convex or not curved:
        return convex
    lowest, highest = curved
    least = HOLLOW * max(abs(lowest.curvature), abs(highest.curvature))
    a, axis, y = lowest.points[:1], lowest.axes[:1], lowest.labels[:1]
    for step in (1e-6, 3e-7):
        change = subject.gradient(a + step * axis, y) - subject.gradient(a - step * axis, y)
        if not float((change * axis).sum()) < -2 * step * least:
            return convex
    seen = f"the curvature along b - a is {lowest.curvature:.6g} at a"
    return finding(False, convex.measure, seen, y[0], a=a[0], b=a[0] + 1e-3 * axis[0])


def _refuse_another_slope(loss: Loss, num_classes: int, measured: float) -> None:
    """Raise an error if a loss declares another slope than its gradient has: ``blend`` would divide by it."""
    if isinstance(loss, Wrapped):
        return
    try:
        declared = loss.slope(num_classes)
    except NoSlopeError:
        return
    if math.isfinite(measured) and abs(declared - measured) > 1e-6 * (abs(declared) + abs(measured)):
        raise ValueError(
            f"the slope of {loss!r} at equal scores is {measured:.6g} by its gradient and {declared:.6g} by its "
            "`first_order` (of a potential, `derivative`); they must agree"
        )


def _settled(places: Places, convex: Finding, linear: Linearity, curved: list[Curved]) -> Finding:
    """Return whether a symmetric loss is convex. By theorem 5.1 it is so only if it is affine.

    If it is not affine, chords of all labels are tried where it bends, until one of them is too low.
    """
    bent = [place for place in curved if abs(place.curvature) > search.ROUNDING * places.subject.unit]
    ends = [
        (place.points[0] - size * place.axes[0], place.points[0] + size * place.axes[0])
        for place in bent
        for size in (0.01, 0.3)
    ]
    for a, b in breaking_points(linear, ends):
        found = properties.chords_between(places.subject, a, b, convex.points)
        if not found:
            return found
    example = linear.affine.counter_example
    if example is None:
        return convex
    seen = f"a convex symmetric loss is affine (theorem 5.1), and this one is not: {example.seen}"
    return Finding(False, convex.measure, dataclasses.replace(example, seen=seen), convex.points)


class Curved(NamedTuple):
    """Where the loss bends most: points, labels, unit directions, and the curvature at the first of them."""

    points: Tensor
    labels: Tensor
    axes: Tensor
    curvature: float


def _most_curved(places: Places) -> list[Curved]:
    """Return where the curvature is most negative, and where it is most positive, each best first.

    Point and direction climb together; then the matrix of second derivatives gives the best direction at each point,
    and they climb once more. Both signs climb in one batch: a step of sixteen points costs hardly more than one of
    eight. The sign of a point is beside its label.
    """
    subject, z, y = places.subject, places.z, places.y
    num_classes, limit = subject.num_classes, places.limit

    def curvature(state: Tensor, tags: Tensor) -> Tensor:
        keep = state.requires_grad
        at, axis = state[:, :num_classes], state[:, num_classes:]
        at = at if keep else at.detach().requires_grad_()
        bend = derivative((subject.gradient(at, tags[:, 0]) * axis).sum(), at, keep)
        return tags[:, 1] * (bend * axis).sum(1) / axis.square().sum(1)

    start, label = torch.cat([torch.cat([z, axis], 1) for axis in _axes(z, y)]), y.repeat(4)
    sharp, ray = places.sharp_turns(16)
    start = torch.cat([start, torch.cat([sharp, places.rays.axis[ray]], 1)])
    label = torch.cat([label, places.rays.labels[ray]])
    chosen = [
        search.best_points(curvature, start, torch.stack([label, sign * torch.ones_like(label)], 1), 8)
        for sign in SIGNS
    ]
    state, tags = (torch.cat(parts) for parts in zip(*chosen, strict=True))
    state, tags, best = search.ascend(curvature, state, tags, 30, limit)
    for _ in range(2):
        matrix = tags[:, 1, None, None] * subject.hessian(state[:, :num_classes], tags[:, 0])
        finite = matrix.isfinite().all(2).all(1)
        matrix = torch.where(finite[:, None, None], matrix, 0.0)
        state = torch.cat([state[:, :num_classes], torch.linalg.eigh(matrix).eigenvectors[:, :, -1]], 1)
        state, tags, best = search.ascend(curvature, state, tags, 12, limit)
    found = []
    for sign in SIGNS:
        order = torch.where(tags[:, 1] == sign, best, -torch.inf).argsort(descending=True)[: len(best) // 2]
        axis = state[order, num_classes:]
        axis = axis / axis.norm(dim=1, keepdim=True)
        found.append(Curved(state[order, :num_classes], tags[order, 0], axis, sign * float(best[order[0]])))
    return found


SIGNS = (-1, 1)
HOLLOW = 1e-2  # a negative curvature counts if it is this large, relative to the largest


def _axes(z: Tensor, y: Tensor) -> list[Tensor]:
    """Return directions (P, C) to start with: the label against its rival, alone, and both against the last class."""
    label = search.one_hot(y, z)
    rival = search.one_hot(z.masked_fill(label > 0, -torch.inf).argmax(1), z)
    last = search.one_hot(z.masked_fill(label + rival > 0, torch.inf).argmin(1), z)
    axes = [label - rival, label, rival - last, label - last]
    return [torch.where(axis.abs().sum(1, keepdim=True) > 0, axis, label) for axis in axes]


def _constant(climbed: float, searched: float | None, known: Derivatives | None) -> Constant:
    """Return the larger result of the two searches. It is exact if the finer one says so and the other one agrees."""
    if known is None or searched is None or not math.isfinite(climbed):
        return Constant(climbed)
    return Constant(max(climbed, searched), known.exact and climbed <= searched * (1 + TOLERANCE) + search.ROUNDING)


def _curvature_grows(places: Places) -> bool:
    """Return whether the gradient changes by more and more for each unit of the scores, far from 0."""
    subject, z, y = places.subject, search.directions(places.z), places.y
    if places.reach < search.REACHES[-1]:
        return False

    def bend(radius: float) -> Tensor:
        change = subject.gradient(1.01 * radius * z, y) - subject.gradient(radius * z, y)
        steps = 0.01 * radius * torch.linalg.vector_norm(z, dim=1).clamp_min(1e-9)
        found: Tensor = torch.linalg.vector_norm(change, dim=1) / steps
        return found.max().nan_to_num(0.0)

    return search.grows(bend)


def _lipschitz(places: Places) -> tuple[float, bool]:
    """Return the largest norm of the gradient, infinite at a jump and where it grows; and whether the loss jumps."""
    subject, z, y = places.subject, places.z, places.y

    def size(z: Tensor, y: Tensor) -> Tensor:
        found: Tensor = torch.linalg.vector_norm(subject.gradient(z, y), dim=1)
        return found

    still_grows = places.reach == search.REACHES[-1] and search.grows(
        lambda radius: size(radius * search.directions(z), y).max().nan_to_num(0.0)
    )
    sizes = torch.linalg.vector_norm(places.gradients, dim=2).flatten()
    steep = sizes.topk(8).indices
    starts, labels = torch.cat([z, places.rays.z[steep]]), torch.cat([y, places.rays.y[steep]])
    largest = float(search.climb(size, starts, labels, keep=32, steps=80, limit=places.limit)[2][0])
    if len(places.far_z):
        largest = max(largest, float(size(places.far_z, places.far_y).nan_to_num(0.0).max()))
    ray, low, high, change = places.jumps
    value = places.along[ray].abs().amax(1)
    least = subject.tolerance(value, torch.full_like(places.rays.base[ray], places.limit)) + 4 * largest * (high - low)
    jumps = bool((change > least).any())
    return (math.inf if jumps or still_grows else largest), jumps


def _is_rough(places: Places, steepest: float, jumps: bool) -> bool:
    """Return whether there is no bound on the change of the gradient: at a jump or a kink, or since it grows."""
    sizes = torch.linalg.vector_norm(places.gradients, dim=2)
    scale = min(steepest, float(sizes.max()))
    return jumps or places.sharpest_kink() > 1e-5 * scale or _curvature_grows(places)


def _at_equal_scores(places: Places) -> dict[str, Any]:
    """Compare the gradients at equal scores with those of the unhinged loss, 1/C - e_y."""
    subject, num_classes = places.subject, places.subject.num_classes
    unhinged = 1 / num_classes - torch.eye(num_classes, dtype=torch.float64)

    def gradients(level: float) -> tuple[Tensor, float]:
        z = torch.full((num_classes, num_classes), level, dtype=torch.float64)
        found = subject.gradient(z, torch.arange(num_classes))
        return found, float((found * unhinged).sum() / unhinged.square().sum())

    if not subject.differentiable:
        nothing = dict.fromkeys(("slope", "distance_from_unhinged", "gradient_against_ce"), math.nan)
        return nothing | {"slopes": (math.nan, math.nan), "locally_symmetric": False}
    found, slope = gradients(0.0)
    size = float(found.norm())
    others = [gradients(level)[1] for level in (-10.0, -1.0, 1.0, 10.0) if abs(level) <= places.reach]
    return {
        "slope": slope,
        "slopes": (min([slope, *others]), max([slope, *others])),
        "distance_from_unhinged": float((found - slope * unhinged).norm()) / size if size > 0 else 0.0,
        "locally_symmetric": bool(found.sum(0).norm() <= search.ROUNDING * max(size, 1e-300)),
        "gradient_against_ce": size / float(unhinged.norm()),
    }
