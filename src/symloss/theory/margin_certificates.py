"""Certificates of margin losses: symmetry, convexity, constants, and the statements of appendix B, in one card."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from symloss import checks
from symloss.theory.binary import (
    AnyMarginFunction,
    MarginFunction,
    anchored,
    derivatives_at_zero,
    margin_function,
    surrogate,
)
from symloss.theory.certificates import Constant
from symloss.theory.findings import Finding, finding, plain
from symloss.theory.margin_search import (
    Trace,
    jets,
    jumps,
    largest,
    measured_convex,
    measured_non_increasing,
    measured_symmetric,
    trace,
)

__all__ = ["LowerBound", "MarginCertificate", "SurrogateConstants", "certify_margin"]

ORDER = 8  # the highest derivative at 0
VANISHES = 1e-9  # of derivatives at 0, relative to those of the next orders


@dataclass(frozen=True)
class LowerBound:
    """A special case of the lower bound of appendix B on beta - beta_sym."""

    case: str
    """Its assumption."""
    applies: bool
    """Whether the assumption holds, as far as the search and the derivatives at 0 tell."""
    bound: float
    """The lower bound; NaN where it does not apply."""
    reason: str
    """What was seen."""


@dataclass(frozen=True)
class SurrogateConstants:
    """Constants of the surrogate phi_sur = 2 / phi(-R) phi_sym + 1 of the 0-1 loss, for |z| <= R."""

    anchored: bool
    """Whether phi was first shifted and scaled to phi(R) = 0 and phi(0) = 1; then all fields are of the result."""
    factor: float
    """2 / phi(-R), which is at most 1."""
    lipschitz: Constant
    """l_sur, the factor times l_sym."""
    lipschitz_bound: Constant
    """l, which l_sur does not exceed."""
    smoothness: Constant
    """beta_sur, the factor times beta_sym."""
    smoothness_bound: float
    """The factor times (beta - max(series at z*, 0)), which beta_sur does not exceed."""
    upper_bound: Finding
    """Is phi_sur at least the 0-1 loss? Measured: how far it is below."""


@dataclass(frozen=True)
class MarginCertificate:
    """The measured properties of a margin loss phi and of its symmetrization, for |z| <= radius and nowhere else.

    Constants are the largest values that the search met. An answer "yes" says that it met no counter-example.
    """

    loss: str
    """The loss, as text."""
    radius: float
    """The largest margin R."""
    points: int
    """How many margins were tried."""
    gap: float
    """The largest distance of two neighbours among them. What happens within it may have been missed."""
    symmetric: Finding
    """Is phi(z) + phi(-z) constant? Measured: its spread."""
    non_increasing: Finding
    """Does phi never rise? Measured: the largest rise."""
    convex: Finding
    """Is phi convex? Measured: how far it lies above a chord, or how far its slope falls."""
    lipschitz: Constant
    """l = sup |phi'|; infinite where phi jumps."""
    smoothness: Constant
    """beta = sup |phi''|; infinite where phi' jumps."""
    lipschitz_sym: Constant
    """l_sym = sup |phi_sym'|, never above l."""
    smoothness_sym: Constant
    """beta_sym = sup |phi_sym''|, never above ``smoothness_bound``."""
    at: float
    """z*, where phi_sym'' is beta_sym; of several, the one with the largest series; NaN if beta_sym is infinite."""
    even_series: float
    """The even part of phi'' at z*: for an analytic phi the sum over even k of phi^(k+2)(0) / k! z*^k."""
    derivatives: tuple[float, ...]
    """phi(0), phi'(0), ..., up to order 8; empty if one is not finite."""
    lower_bounds: tuple[LowerBound, ...] = ()
    """The three special cases of the lower bound on beta - beta_sym; empty if beta is infinite."""
    surrogate: SurrogateConstants | None = None
    """The surrogate of the 0-1 loss; None where phi does not meet its assumptions."""
    no_surrogate: str = ""
    """Which assumption phi does not meet; empty if there is a surrogate."""

    @property
    def curvature_at_zero(self) -> float:
        """phi''(0), the value of the series at z* = 0; NaN if it is not finite."""
        return self.derivatives[2] if self.derivatives else math.nan

    @property
    def gain(self) -> float:
        """beta - beta_sym; NaN if both are infinite."""
        return float(self.smoothness) - float(self.smoothness_sym)

    @property
    def smoothness_bound(self) -> float:
        """beta - max(even_series, 0), the paper's upper bound on beta_sym."""
        return float(self.smoothness) - (max(self.even_series, 0.0) if math.isfinite(self.even_series) else 0.0)

    @property
    def even_derivatives_vanish(self) -> bool:
        """Whether the derivatives at 0 of even order, 2 to 8, vanish: prop. B.1's criterion for an analytic phi."""
        return bool(self.derivatives) and not any(_without_rounding(self.derivatives)[2::2])

    def to_dict(self) -> dict[str, Any]:
        """Return the certificate as plain data for JSON. Infinities and NaN are strings."""
        derived = ("curvature_at_zero", "gain", "smoothness_bound", "even_derivatives_vanish")
        return plain(asdict(self) | {name: getattr(self, name) for name in derived})

    def __str__(self) -> str:
        lines = [f"{self.loss}, margins |z| <= {self.radius:g}; nothing is said beyond"]
        for mark, name, text in self._rows():
            lines.append(f"  {mark:<4} {name:<24} {text}")
        return "\n".join(line.rstrip() for line in lines)

    def _rows(self) -> Iterator[tuple[str, str, str]]:
        tried = f"no counter-example at {self.points} margins, at most {self.gap:.2g} apart"
        for name in ("symmetric", "non_increasing", "convex"):
            answer: Finding = getattr(self, name)
            seen = str(answer.counter_example) if answer.counter_example else tried
            yield "yes" if answer else "no", name.replace("_", "-"), seen
        yield "", "even derivatives at 0", self._taylor()
        yield "", "Lipschitz constant", f"{self.lipschitz}; symmetrized {self.lipschitz_sym}"
        yield "", "beta-smoothness", f"{self.smoothness}; symmetrized {self.smoothness_sym}"
        if self.lower_bounds:
            series = f"{self.gain:.6g}; even part of phi'' at z* = {self.at:.6g}: {self.even_series:.6g}"
            yield "", "beta - beta_sym", series
        else:
            yield "", "beta - beta_sym", "no lower bound, because phi' jumps or phi has no derivatives at 0"
        for each in self.lower_bounds:
            bound = f"at least {each.bound:.6g}: " if each.applies else "does not apply: "
            yield "", f"  {each.case}", bound + each.reason
        if self.surrogate is None:
            yield "", "0-1 surrogate", f"none: {self.no_surrogate}"
            return
        found = self.surrogate
        yield "", "0-1 surrogate", "of phi shifted and scaled to phi(R) = 0, phi(0) = 1" if found.anchored else "of phi"
        yield "", "  2/phi(-R)", f"{found.factor:.6g}, at most 1"
        yield "", "  Lipschitz constant", f"{found.lipschitz}, phi's is {found.lipschitz_bound}"
        yield "", "  beta-smoothness", f"{found.smoothness}, bound {found.smoothness_bound:.6g}"
        yield "yes" if found.upper_bound else "no", "above the 0-1 loss", tried

    def _taylor(self) -> str:
        if not self.derivatives:
            return f"not finite up to order {ORDER}, so phi is not analytic"
        vanish = self.even_derivatives_vanish
        said = f"of orders 2 to {ORDER} {'vanish' if vanish else 'do not all vanish'}"
        if vanish == self.symmetric.holds:
            return f"{said}, as prop. B.1 says of an analytic phi that is {'' if vanish else 'not '}symmetric"
        return f"{said}, so by prop. B.1 phi is not analytic for |z| <= {self.radius:g}, or higher orders count"


def certify_margin(phi: AnyMarginFunction, radius: float = 10.0) -> MarginCertificate:
    """Measure the properties of a margin loss and of its symmetrization, and check the statements of appendix B.

    The search evaluates phi in float64 at several thousand margins from -radius to radius. It halves the cells where
    values, slopes and second derivatives disagree, down to 1e-12 of the radius. So it finds jumps and kinks wherever
    they are, and bumps that are wider than the first grid (radius / 2000). Each violation must exceed the rounding of
    the values at its margins. Constants are lower bounds: for a loss without many bends they are right to many digits.

    Args:
        phi: a name of ``MARGIN_FUNCTIONS``, a :class:`MarginFunction` or any function of a tensor of margins.
        radius: the largest margin R. The card says nothing beyond.

    Raises:
        ValueError: if phi or one of its first two derivatives is infinite or NaN at a margin, if phi is random, or if
            its value at one margin depends on the others.

    Reference: appendix B of the paper.

    >>> card = certify_margin("logistic", radius=2.0)
    >>> bool(card.convex), bool(card.symmetric), card.smoothness, round(card.gain, 9)
    (True, False, 0.25 (at least), 0.25)
    >>> bool(certify_margin(lambda z: -z.tanh()).symmetric)
    True
    """
    radius = checks.number("radius", radius, "(0, inf)")
    whole = margin_function(phi)
    found = trace(whole.phi, radius)
    odd, even = found.part(-1), found.part(1)
    at, series = math.nan, math.nan
    lipschitz = lipschitz_sym = smoothness = smoothness_sym = math.inf
    broken = jumps(found, found.jets.value, found.jets.slope, found.slack)
    if not broken:
        lipschitz = largest(partial(_derivative, whole, 0, 1), found.z, found.jets.slope)[1]
        if not jumps(found, found.jets.slope, found.jets.bend, found.slope_slack):
            smoothness = largest(partial(_derivative, whole, 0, 2), found.z, found.jets.bend)[1]
    slack, slope_slack = ((each + each.flip(0)) / 2 for each in (found.slack, found.slope_slack))
    if not (broken and jumps(found, odd.value, odd.slope, slack)):
        lipschitz_sym = largest(partial(_derivative, whole, -1, 1), found.z, odd.slope)[1]
        if not jumps(found, odd.slope, odd.bend, slope_slack):
            steepest, smoothness_sym = largest(partial(_derivative, whole, -1, 2), found.z, odd.bend)
            at, series = _star(whole, found, odd.bend, even.bend, steepest)
    try:
        derivatives = derivatives_at_zero(whole, ORDER)
    except ValueError:
        derivatives = ()
    # What one search met bounds the other: l_sym is at most l, and beta_sym at most beta.
    smoothness = max(smoothness, smoothness_sym)
    smoothness_sym = 0.0 if smoothness_sym <= min(1e-14 * smoothness, 1e300) else smoothness_sym
    lipschitz = max(lipschitz, lipschitz_sym)
    convex, non_increasing = measured_convex(whole.phi, found), measured_non_increasing(found)
    card = MarginCertificate(
        loss=repr(whole),
        radius=radius,
        points=len(found.z),
        gap=float(found.z.diff().max()),
        symmetric=measured_symmetric(found),
        non_increasing=non_increasing,
        convex=convex,
        lipschitz=Constant(lipschitz),
        smoothness=Constant(smoothness),
        lipschitz_sym=Constant(lipschitz_sym),
        smoothness_sym=Constant(smoothness_sym),
        at=at,
        even_series=series,
        derivatives=derivatives,
    )
    bounds = _lower_bounds(card) if derivatives and math.isfinite(smoothness) else ()
    card = replace(card, lower_bounds=bounds)
    try:
        return replace(card, surrogate=_surrogate(card, whole, found))
    except ValueError as refused:
        return replace(card, no_surrogate=str(refused))


def _derivative(phi: MarginFunction, sign: int, order: int, z: Tensor) -> Tensor:
    """Return a derivative of phi, or of its odd part for the sign -1, or of its even part for 1."""
    own = jets(phi.phi, z)
    return (own.part(jets(phi.phi, -z), sign) if sign else own)[order]


def _star(phi: MarginFunction, found: Trace, bends: Tensor, evens: Tensor, steepest: float) -> tuple[float, float]:
    """Return z* with phi_sym''(z*) = beta_sym, and the even part of phi'' there. Ties go to the largest even part."""
    ends = torch.tensor([steepest, -steepest], dtype=torch.float64)
    z = torch.cat([found.z, ends])
    bends = torch.cat([bends, _derivative(phi, -1, 2, ends)])
    evens = torch.cat([evens, _derivative(phi, 1, 2, ends)])
    ties = bends >= bends.max() - 1e-12 * (bends.abs().max()) - 1e-14 * evens.abs().max()
    best = int(torch.where(ties, evens, -math.inf).argmax())
    return float(z[best]), float(evens[best])


def _without_rounding(derivatives: tuple[float, ...]) -> list[float]:
    """Set to 0 what is rounding beside the derivatives of the next lower and the next higher order."""
    padded = [0.0, *map(abs, derivatives), 0.0]
    beside = [max(padded[k], padded[k + 2]) for k in range(len(derivatives))]
    beside[0] = 0.0
    return [0.0 if abs(d) <= VANISHES * size else d for d, size in zip(derivatives, beside, strict=True)]


def _lower_bounds(card: MarginCertificate) -> tuple[LowerBound, ...]:
    """Return the three special cases of appendix B. One that the measured constants contradict does not apply."""
    derivatives = _without_rounding(card.derivatives)
    start, floor = derivatives[2], max(derivatives[2], 0.0)
    linear = float(card.smoothness_sym) <= VANISHES * float(card.smoothness)
    at_zero = f"phi''(0) = {start:.6g}"
    first = LowerBound(
        "z* = 0", linear, floor, at_zero if linear else "phi_sym'' is not 0 everywhere, so it is largest elsewhere"
    )
    below = next((k for k in range(2, ORDER + 1, 2) if derivatives[k] < 0), None)
    seen = (
        f"{at_zero}, orders up to {ORDER}"
        if below is None
        else f"the derivative of order {below} is {derivatives[below]:.6g}"
    )
    second = LowerBound("even coefficients >= 0", below is None, floor, seen)
    terms = [abs(derivatives[k + 2]) * card.radius**k / math.factorial(k) for k in range(2, ORDER - 1, 2)]
    ratio = terms[-1] / terms[-2] if terms[-2] else math.inf if terms[-1] else 0.0
    tail = sum(terms) + (terms[-1] * ratio / (1 - ratio) if ratio < 1 else 0.0)
    seen, small = f"the terms after {at_zero} add at most about {tail:.3g}", ratio < 1 and tail <= abs(start)
    if ratio >= 1:
        seen = f"the terms of the series at R still grow at order {ORDER}"
    third = LowerBound("small R", small, max(start - tail, 0.0), seen)
    return tuple(_checked(each, card) for each in (first, second, third))


def _checked(case: LowerBound, card: MarginCertificate) -> LowerBound:
    if case.applies and case.bound > card.gain + 1e-6 * float(card.smoothness):
        reason = f"{case.reason}, but beta - beta_sym is {card.gain:.6g}, so phi is not analytic for |z| <= R"
        case = replace(case, applies=False, reason=reason)
    return case if case.applies else replace(case, bound=math.nan)


def _surrogate(card: MarginCertificate, phi: MarginFunction, found: Trace) -> SurrogateConstants:
    """Return the surrogate's constants; ValueError with what is not met, also after phi is shifted and scaled."""
    if not (card.convex and card.non_increasing):
        raise ValueError("phi must be convex and non-increasing")
    unit = 1.0
    try:
        sur = surrogate(phi, card.radius)
    except ValueError:
        scaled = anchored(phi, card.radius)
        sur, unit = surrogate(scaled, card.radius), scaled.unit
    value = sur(found.z)
    short = (found.z <= 0).double() - value
    worst = int(short.argmax())
    seen = f"phi_sur is {float(value[worst]):.6g} at a, which is below the 0-1 loss"
    return SurrogateConstants(
        anchored=unit != 1.0,
        factor=sur.factor,
        lipschitz=card.lipschitz_sym * (sur.factor / unit),
        lipschitz_bound=card.lipschitz / unit,
        smoothness=card.smoothness_sym * (sur.factor / unit),
        smoothness_bound=sur.factor / unit * card.smoothness_bound,
        upper_bound=finding(float(short[worst]) <= 1e-9, float(short[worst]), seen, a=found.z[worst]),
    )
