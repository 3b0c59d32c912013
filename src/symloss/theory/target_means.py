"""Means under the distribution of corrupted targets: closed forms where they exist, and quadrature (app. F).

Everything is in float64. A closed form exists for losses of the residual that are a square and hinges of power 1 or 2,
under normal, uniform and Laplace distributions, their mixtures, and samples.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Distribution, Laplace, MixtureSameFamily, Normal, Uniform
from torch.nn import functional

from symloss import checks
from symloss.noise.targets import TargetDistribution, refuse_vectors, target_distribution


def moments(q: TargetDistribution) -> tuple[Tensor, Tensor] | None:
    """Return mean and variance of corrupted targets; None where they are not finite."""
    if isinstance(q.source, Tensor):
        return q.source.mean(), q.source.var(correction=0)
    try:
        mean, variance = q.source.mean.detach().double(), q.source.variance.detach().double()
    except NotImplementedError:
        return None
    return (mean, variance) if bool((mean.isfinite() & variance.isfinite()).all()) else None


def partial_moment(q: TargetDistribution, s: Tensor, power: int, side: int) -> Tensor | None:
    """Return E (side (s - T))_+^power for power 1 or 2 and side 1 or -1; None where no formula is known."""
    source = q.source
    if isinstance(source, Tensor):
        return _partial_moment_of_sample(side * source, side * s, power)
    if type(source) is MixtureSameFamily:
        parts = partial_moment(target_distribution(source.component_distribution), s[..., None], power, side)
        return None if parts is None else (parts * source.mixture_distribution.probs.detach().double()).sum(-1)
    if type(source) is Uniform:
        low, high = (side * end.detach().double() for end in (source.low, source.high)[::side])
        s = side * s
        a, b = (s - low).clamp_min(0), (s - high).clamp_min(0)
        share = (torch.minimum(torch.maximum(s, low), high) - low) / (high - low)
        return share * (a + b) / 2 if power == 1 else share * (a.square() + a * b + b.square()) / 3
    standard = {Normal: _normal_moment, Laplace: _laplace_moment}.get(type(source))
    if standard is None:
        return None
    loc, scale = (getattr(source, name).detach().double() for name in ("loc", "scale"))
    found: Tensor = scale**power * standard(side * (s - loc) / scale, power)
    return found


def _normal_moment(d: Tensor, power: int) -> Tensor:
    """Return E (d - X)_+^power of a standard normal X."""
    share: Tensor = torch.special.ndtr(d)
    density = (-d.square() / 2).exp() / math.sqrt(2 * math.pi)
    return d * share + density if power == 1 else (1 + d.square()) * share + d * density


def _laplace_moment(d: Tensor, power: int) -> Tensor:
    """Return E (d - X)_+^power of a standard Laplace X."""
    tail = (-d.abs()).exp()
    return d.clamp_min(0) + tail / 2 if power == 1 else torch.where(d > 0, d.square() + 2 - tail, tail)


def _partial_moment_of_sample(values: Tensor, s: Tensor, power: int) -> Tensor:
    """Add up the sorted sample up to s: the cost of a search, not of the sample's size."""
    centre = values.mean()
    ordered = (values - centre).sort().values.to(s.device)
    s = s - centre.to(s.device)
    sums = [torch.nn.functional.pad((ordered**k).cumsum(0), (1, 0)) for k in range(power + 1)]
    upto = torch.searchsorted(ordered, s.detach().contiguous())
    zero, one, *two = (total[upto] for total in sums)
    found = s * zero - one if power == 1 else s.square() * zero - 2 * s * one + two[0]
    return found / len(values)


MASS = 1e-3  # a density is refused if its weights miss a total of 1 by more than this
LEAST = 1e-24  # points with a smaller weight than this, for a function that grows like a square, are left out
MOST = 1e5  # the largest distance from the mean up to which integers are summed one by one


class Rule(NamedTuple):
    """Points (n, *batch) and weights of the same shape, in float64. The weights sum to 1 over the first dimension.

    ``exact`` means that the sum is the mean itself (a discrete distribution). ``lost`` is how much the weights of a
    density missed 1 by, before they were scaled. ``ends`` are the outermost points, where terms should be negligible.
    """

    points: Tensor
    weights: Tensor
    exact: bool = False
    lost: float = 0.0
    ends: tuple[int, ...] = ()


def rule(source: Distribution | Tensor, nodes: int) -> Rule:
    """Return the quadrature rule of a distribution of single numbers, for each entry of its batch.

    Normal: the trapezoid rule. Uniform: Gauss-Legendre. Integers: the sum itself. A mixture: the weighted rules of its
    components. Any other density: double-exponential quadrature of ``log_prob`` on both sides of its mode.
    """
    checks.number("nodes", nodes, "[2, 500]", whole=True)
    if isinstance(source, Tensor):
        return Rule(source, torch.full_like(source, 1 / len(source)), exact=True)
    refuse_vectors(source)
    if isinstance(source, MixtureSameFamily):
        return _mixture(source, nodes)
    if isinstance(source, Normal):
        # The trapezoid rule: for a normal density as exact as Gauss-Hermite, and better for losses with poles or kinks.
        reach = min(9.0, math.sqrt(math.pi * (nodes - 1)))
        x = torch.linspace(-reach, reach, nodes, dtype=torch.float64)
        return _affine(source.loc, source.scale, x, (-x.square() / 2).exp())
    if isinstance(source, Uniform):
        x, w = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(nodes))
        return _affine(source.low, source.high - source.low, (x + 1) / 2, w / 2)
    if source.has_enumerate_support:
        points = source.enumerate_support()
        return Rule(points.double(), source.log_prob(points).double().exp(), exact=True)
    is_discrete = getattr(source.support, "is_discrete", False)
    return _counted(source) if is_discrete else _density(source, nodes)


def _affine(start: Tensor, size: Tensor, x: Tensor, w: Tensor) -> Rule:
    start, size = start.detach().double(), size.detach().double()
    column = (-1, *(1,) * start.dim())
    x, w = x.to(start.device).reshape(column), w.to(start.device).reshape(column)
    points = start + size * x
    return Rule(points, (w / w.sum()).expand_as(points))


def _mixture(mixture: MixtureSameFamily, nodes: int) -> Rule:
    """Join the rules of the components, which the last dimension of their batch numbers."""
    parts = rule(mixture.component_distribution, nodes)
    share = mixture.mixture_distribution.probs.detach().double()

    def joined(values: Tensor) -> Tensor:
        return values.movedim(-1, 0).flatten(0, 1)

    points = joined(parts.points)
    ends = tuple(k * len(parts.points) + end for k in range(share.shape[-1]) for end in parts.ends)
    return Rule(points, joined(parts.weights * share), parts.exact, parts.lost, ends)


def _counted(distribution: Distribution) -> Rule:
    """Sum over unbounded integers, such as Poisson's: all within 40 standard deviations of the mean."""
    lowest = getattr(distribution.support, "lower_bound", None)
    mean, reach = distribution.mean.detach().double(), 40 * (1 + distribution.stddev.detach().double())
    if lowest is None or not bool(reach.isfinite().all()) or float(reach.max()) > MOST:
        raise ValueError(
            f"corruption {checks.brief(distribution)} has too many values to sum; "
            "give a sample of corrupted targets instead"
        )
    start = max(float(lowest), math.floor(float((mean - reach).min())))
    numbers = torch.arange(start, float((mean + reach).max()) + 1, dtype=torch.float64)
    points = numbers.reshape(-1, *(1,) * mean.dim()).expand(-1, *mean.shape)
    weights = _in_double(distribution).log_prob(points).double().exp()
    mass = weights.sum(0)
    return Rule(points, weights / mass, lost=float((mass - 1).abs().max()))


def _density(distribution: Distribution, nodes: int) -> Rule:
    distribution = _in_double(distribution)
    support: Any = distribution.support
    bounds = (getattr(support, "lower_bound", -math.inf), getattr(support, "upper_bound", math.inf))
    low, high = (torch.as_tensor(end, dtype=torch.float64).expand(distribution.batch_shape) for end in bounds)
    centre, scale = _centre(distribution, low, high)
    sides = [end for end in (low, high) if bool((end != centre).any())]
    pieces = [_piece(distribution, centre, end, scale, nodes) for end in sides]
    points, weights = (torch.cat(parts) for parts in zip(*pieces, strict=True))
    mass = weights.sum(0)
    off = (mass - 1).abs().flatten()
    if not bool((off <= MASS).all()):
        found = float(mass.flatten()[off.nan_to_num(math.inf).argmax()])
        raise ValueError(
            f"the density of corruption {checks.brief(distribution)} integrates to {found:.6g} with {nodes} nodes, and "
            "must to 1; take more nodes, or give a sample of corrupted targets instead"
        )
    starts = [0] if len(pieces) == 1 else [0, len(pieces[0][0])]
    ends = tuple(end for start, piece in zip(starts, pieces, strict=True) for end in (start, start + len(piece[0]) - 1))
    return Rule(points, weights / mass, lost=float(off.max()), ends=ends)


def _in_double(distribution: Distribution) -> Distribution:
    """Return the distribution with parameters in float64, for a more precise log_prob; unchanged if impossible."""
    names = list(distribution.arg_constraints) if isinstance(distribution.arg_constraints, dict) else []
    try:
        parameters = {name: getattr(distribution, name).detach().double() for name in names}
        return type(distribution)(**parameters) if names else distribution
    except (AttributeError, TypeError, ValueError):
        return distribution


def _centre(distribution: Distribution, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """Return the point where the support is cut in two (the mode, or else the mean), and a scale of length."""
    found = _first(distribution, ("mode", "mean", "loc"), low, high)
    scale = _first(distribution, ("stddev", "scale"), torch.zeros_like(low), torch.full_like(low, math.inf))
    bounded = torch.where(low.isfinite(), low, torch.where(high.isfinite(), high, 0.0))
    return torch.where(found.isnan(), bounded, found), torch.where(scale.isnan(), 1.0, scale)


def _first(distribution: Distribution, names: tuple[str, ...], low: Tensor, high: Tensor) -> Tensor:
    """Return the first attribute that is finite and strictly between the bounds, entry by entry; NaN without one."""
    found = torch.full_like(low, math.nan)
    for name in names:
        try:
            value = getattr(distribution, name, None)
        except (NotImplementedError, ValueError):
            continue
        if isinstance(value, Tensor):
            value = value.detach().double()
            serves = found.isnan() & value.isfinite() & (value > low) & (value < high)
            found = torch.where(serves, value.expand_as(found), found)
    return found


def _piece(distribution: Distribution, centre: Tensor, end: Tensor, scale: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """Return the rule for one side of the centre: the trapezoid rule in x, where weights are not negligible."""
    column = (-1, *(1,) * centre.dim())

    def at(x: Tensor) -> tuple[Tensor, Tensor]:
        distance, left, speed = _stretched(x.reshape(column), (end - centre).abs(), scale)
        side = torch.where(end < centre, -1.0, 1.0)
        points = torch.where(distance <= left, centre + side * distance, end - side * left)
        inside = (points != centre) & (points != end) & points.isfinite()
        length = (end - centre).abs()
        # Points that are not used get a place where the density can be evaluated.
        safe = torch.where(inside, points, centre + side * torch.where(length.isfinite(), length / 2, scale))
        density = torch.where(inside, distribution.log_prob(safe).double().exp(), 0.0)
        return safe, torch.where(density > 0, density * speed, 0.0)

    scan = torch.linspace(-6.0, 5.5, 461, dtype=torch.float64)
    points, weights = at(scan)
    counts = weights * (1 + (points - centre).abs() / scale).square() > LEAST
    used = scan[counts.reshape(len(scan), -1).any(1)]
    if not len(used):
        return points[:1], weights[:1]
    x = torch.linspace(float(used[0]), float(used[-1]), nodes, dtype=torch.float64)
    points, weights = at(x)
    return points, weights * float(x[1] - x[0])


def _stretched(x: Tensor, length: Tensor, scale: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return at x the distance from the centre, the distance to the end, and the derivative of the first.

    This is tanh-sinh for a finite length and exp-sinh for an infinite one. The distance to the end is not computed as
    a difference, since densities may have a pole at the end.
    """
    steep, slope = math.pi / 2 * x.sinh(), math.pi / 2 * x.cosh()
    grown = (scale.log() + steep).exp()
    share, rest = torch.sigmoid(2 * steep), torch.sigmoid(-2 * steep)
    endless = length.isinf()
    finite = torch.where(endless, 1.0, length)
    return (
        torch.where(endless, grown, finite * share),
        torch.where(endless, math.inf, finite * rest),
        torch.where(endless, grown * slope, finite * 2 * slope * share * rest),
    )


@dataclass(frozen=True)
class Residual:
    """The loss square * u^2 + factor * ((u - knot)_+^power + (-u - knot)_+^power), of u = z - t.

    The absolute error has hinges of power 1 at 0. Huber's loss is u^2/2 minus half the hinges of power 2 at delta.
    """

    square: float
    factor: float = 0.0
    knot: float = 0.0
    power: int = 2

    def mean(self, z: Tensor, q: TargetDistribution) -> Tensor | None:
        """Return the mean of the loss at z under the corruption, or None where no formula is known."""
        total = z * 0
        if self.square:
            found = moments(q)
            if found is None:
                return None
            mean, variance = (part.to(z.device) for part in found)
            total = total + self.square * ((z - mean).square() + variance)
        for side in (1, -1) if self.factor else ():
            # u - knot = (z - knot) - t, and -u - knot = t - (z + knot).
            part = partial_moment(q, z - side * self.knot, self.power, side)
            if part is None:
                return None
            total = total + self.factor * part
        return total


def huber(delta: float, factor: float = 1.0) -> Residual:
    """Return Huber's loss times a factor: u^2/2 up to delta, and linear beyond."""
    return Residual(factor / 2, -factor / 2, delta)


SQUARED, ABSOLUTE = Residual(1.0), Residual(0.0, 1.0, power=1)

_FUNCTIONS: dict[Callable[..., Tensor], Residual] = {
    functional.mse_loss: SQUARED,
    functional.l1_loss: ABSOLUTE,
    functional.huber_loss: huber(1.0),
    functional.smooth_l1_loss: huber(1.0),
}


def recognised(loss: object) -> Residual | None:
    """Return the :class:`Residual` of a loss of torch; None for any other loss."""
    if type(loss) is nn.MSELoss:
        return SQUARED
    if type(loss) is nn.L1Loss:
        return ABSOLUTE
    if type(loss) is nn.HuberLoss:
        return huber(float(loss.delta))
    if type(loss) is nn.SmoothL1Loss:
        return huber(float(loss.beta), 1 / loss.beta) if loss.beta else ABSOLUTE
    return _FUNCTIONS.get(loss) if callable(loss) and getattr(loss, "__hash__", None) else None
