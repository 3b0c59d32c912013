"""Interval arithmetic over potentials: bounds that hold for every log p at once, so that no point is left out.

An :class:`Interval` goes through the formulas of ``losses/potentials.py`` in place of a tensor. Every operation returns
bounds of all that it could return, rounded outwards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

OUTWARD, LEAST = 2.0**-50, 5e-324
"""Outward rounding: four units in the last place, and the smallest number where a result may have underflowed."""
EDGES = (-torch.inf, *(-(10.0**k) for k in range(300, 3, -1)), *(-k / 8 for k in range(8000, -1, -1)))
"""The log-probabilities at which the half-line is cut. Cells that are too wide for an answer are halved."""
HALVINGS = 16


class Interval:
    """Numbers between two tensors: a set of possible values for each entry."""

    dtype, device = torch.float64, torch.device("cpu")

    def __init__(self, low: Tensor, high: Tensor, exact: bool = False):
        wide = torch.full_like(low, torch.inf)
        low, high = torch.where(low.isnan(), -wide, low), torch.where(high.isnan(), wide, high)
        out = 0.0 if exact else OUTWARD
        self.low, self.high = low - out * low.abs().nan_to_num(0.0, 0.0), high + out * high.abs().nan_to_num(0.0, 0.0)

    @classmethod
    def of(cls, value: object, like: Interval) -> Interval:
        """Return a number or a tensor as an interval."""
        if isinstance(value, Interval):
            return value
        point: Tensor = torch.as_tensor(value, dtype=torch.float64).expand_as(like.low)
        return cls(point, point, exact=True)

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(function, "__name__", str(function))
        if name not in FUNCTIONS:
            raise NotImplementedError(f"interval arithmetic knows no {name}")
        return FUNCTIONS[name](*args, **(kwargs or {}))

    def _rising(self, function: Callable[[Tensor], Tensor]) -> Interval:
        """Return the range of an increasing function."""
        return Interval(function(self.low), function(self.high))

    def __neg__(self) -> Interval:
        return Interval(-self.high, -self.low, exact=True)

    def neg(self) -> Interval:
        """Return the negative."""
        return -self

    def __add__(self, other: Any) -> Interval:
        other = Interval.of(other, self)
        return Interval(self.low + other.low, self.high + other.high)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Interval:
        return self + -Interval.of(other, self)

    def __rsub__(self, other: Any) -> Interval:
        return -self + Interval.of(other, self)

    def __mul__(self, other: Any) -> Interval:
        other = Interval.of(other, self)
        ends = [(a, b) for a in (self.low, self.high) for b in (other.low, other.high)]
        every = torch.stack([torch.where((a == 0) | (b == 0), 0.0, a * b) for a, b in ends])
        sign = torch.stack([a.sign() * b.sign() for a, b in ends])
        return Interval(_not_0(every, sign.clamp_max(0)).amin(0), _not_0(every, sign.clamp_min(0)).amax(0))

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Interval:
        other = Interval.of(other, self)
        through_0 = (other.low <= 0) & (other.high >= 0)
        inverse = Interval(1 / other.high, 1 / other.low)
        whole = torch.full_like(self.low, torch.inf)
        return self * Interval(
            torch.where(through_0, torch.where(other.low >= 0, 1 / other.high, -whole), inverse.low),
            torch.where(through_0, torch.where(other.high <= 0, 1 / other.low, whole), inverse.high),
        )

    def __rtruediv__(self, other: Any) -> Interval:
        return Interval.of(other, self) / self

    def pow(self, exponent: float) -> Interval:
        """Return a power of numbers of at least 0."""
        ends = [end.clamp_min(0).pow(exponent) for end in (self.low, self.high)]
        low, high = ends if exponent >= 0 else ends[::-1]
        return Interval(low, high)

    def exp(self) -> Interval:
        """Return the exponential."""
        return Interval(torch.exp(self.low), _not_0(torch.exp(self.high), (self.high > -torch.inf).double()))

    def expm1(self) -> Interval:
        """Return the exponential, minus 1."""
        return self._rising(torch.expm1)

    def log(self) -> Interval:
        """Return the logarithm."""
        return self.clamp_min(0)._rising(torch.log)

    def log1p(self) -> Interval:
        """Return the logarithm of 1 plus this."""
        return self.clamp_min(-1)._rising(torch.log1p)

    def clamp_min(self, least: float) -> Interval:
        """Return the larger one of this and a number."""
        return Interval(self.low.clamp_min(least), self.high.clamp_min(least), exact=True)

    def clamp_max(self, most: float) -> Interval:
        """Return the smaller one of this and a number."""
        return Interval(self.low.clamp_max(most), self.high.clamp_max(most), exact=True)

    def __gt__(self, other: float) -> Condition:
        return Condition(self.low > other, self.high > other)


def _not_0(value: Tensor, sign: Tensor) -> Tensor:
    """Return a value of this sign, which has underflowed where it is 0."""
    return torch.where((value == 0) & (sign != 0), LEAST * sign, value)


class Condition:
    """Where a comparison of intervals certainly holds, and where it may hold."""

    __torch_function__ = Interval.__torch_function__

    def __init__(self, certain: Tensor, possible: Tensor):
        self.certain, self.possible = certain, possible


def _where(condition: Condition, yes: Any, no: Any) -> Interval:
    certain, possible = condition.certain, condition.possible
    like = next(each for each in (yes, no) if isinstance(each, Interval))
    yes, no = Interval.of(yes, like), Interval.of(no, like)
    low = torch.where(certain, yes.low, torch.where(possible, torch.minimum(yes.low, no.low), no.low))
    high = torch.where(certain, yes.high, torch.where(possible, torch.maximum(yes.high, no.high), no.high))
    return Interval(low, high, exact=True)


def _log_add_exp(one: Any, other: Any) -> Interval:
    like = one if isinstance(one, Interval) else other
    one, other = Interval.of(one, like), Interval.of(other, like)
    return Interval(torch.logaddexp(one.low, other.low), torch.logaddexp(one.high, other.high))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "where": _where,
    "logaddexp": _log_add_exp,
    "log_sigmoid": lambda x: x._rising(torch.nn.functional.logsigmoid),
    "full_like": lambda x, value: Interval.of(value, x),
    "ones_like": lambda x: Interval.of(1.0, x),
    "zeros_like": lambda x: Interval.of(0.0, x),
}


def proves(function: Callable[[Tensor], Tensor], holds: Callable[[Interval], Tensor]) -> bool:
    """Return whether a statement holds for the values of a function at every log p.

    Args:
        function: a formula of log p, such as the ``derivative`` of a potential.
        holds: whether the statement holds for everything in each interval, such as ``lambda it: it.high <= 0``.

    >>> from symloss.losses.potentials import GCEPotential
    >>> proves(GCEPotential(q=0.7).derivative, lambda slope: slope.high <= 0)
    True
    """
    edges = torch.tensor(EDGES, dtype=torch.float64)
    low, high = edges[:-1], edges[1:]
    for _ in range(HALVINGS):
        try:
            open_ = ~holds(function(Interval(low, high, exact=True)))  # type: ignore[arg-type]
        except (NotImplementedError, TypeError, AttributeError, RuntimeError):  # a formula that it cannot follow
            return False
        if not bool(open_.any()):
            return True
        low, high = low[open_], high[open_]
        middle = torch.where(low == -torch.inf, 2 * high, (low + high) / 2)
        if len(low) > 10_000 or not bool(middle.isfinite().all()):
            return False
        low, high = torch.cat([low, middle]), torch.cat([middle, high])
    return False
