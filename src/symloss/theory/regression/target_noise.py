"""Corruption of targets: what a corrupted target is drawn from, and what a loss needs to know of it.

A corruption is a distribution of torch (its batch may differ from example to example), a sample of corrupted targets,
or a function of the features x that returns one of these.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution, Laplace, MixtureSameFamily, Normal, Uniform

from symloss import checks
from symloss.theory.regression.quadrature import Rule, refuse_vectors, rule

Fixed: TypeAlias = Distribution | Tensor | np.ndarray[Any, Any] | Sequence[float]
AnyCorruption: TypeAlias = Fixed | Callable[[Any], Fixed]

WANTED = "must be a distribution of torch, a sample of corrupted targets or a function of x giving one"


class Corruption(ABC):
    """The distribution q of corrupted targets T, everything in float64."""

    batch: tuple[int, ...] = ()
    """The shape of the parameters, where they differ from example to example."""

    @abstractmethod
    def moments(self) -> tuple[Tensor, Tensor] | None:
        """Mean and variance, or None where they are not finite."""

    @abstractmethod
    def rule(self, nodes: int) -> Rule:
        """Points and weights for means of any function."""

    @abstractmethod
    def draw(self, shape: tuple[int, ...]) -> Tensor:
        """Corrupted targets of this shape, independent of each other, by torch's global generator."""

    def below(self, s: Tensor, power: int) -> Tensor | None:
        """E (s - T)_+^power for power 1 or 2, or None where no formula is known."""
        return None

    def above(self, s: Tensor, power: int) -> Tensor | None:
        """E (T - s)_+^power."""
        return None


class Known(Corruption):
    """A distribution of torch."""

    def __init__(self, distribution: Distribution):
        self.distribution = distribution
        self.batch = tuple(distribution.batch_shape)

    def __repr__(self) -> str:
        return checks.brief(self.distribution)

    def moments(self) -> tuple[Tensor, Tensor] | None:
        try:
            mean, variance = self.distribution.mean.detach().double(), self.distribution.variance.detach().double()
        except NotImplementedError:
            return None
        return (mean, variance) if bool((mean.isfinite() & variance.isfinite()).all()) else None

    def rule(self, nodes: int) -> Rule:
        return rule(self.distribution, nodes)

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        refuse_vectors(self.distribution)
        if self.batch in ((), shape):
            found: Tensor = self.distribution.sample(torch.Size(shape[: len(shape) - len(self.batch)]))
        else:
            found = self.distribution.expand(torch.Size(shape)).sample()
        return found


class KnownNormal(Known):
    distribution: Normal

    def below(self, s: Tensor, power: int) -> Tensor:
        return self._partial((s - self._mean) / self._std, power)

    def above(self, s: Tensor, power: int) -> Tensor:
        return self._partial((self._mean - s) / self._std, power)

    @property
    def _mean(self) -> Tensor:
        mean: Tensor = self.distribution.loc
        return mean.detach().double()

    @property
    def _std(self) -> Tensor:
        std: Tensor = self.distribution.scale
        return std.detach().double()

    def _partial(self, d: Tensor, power: int) -> Tensor:
        """std^power E (d - N)_+^power of a standard normal N."""
        share: Tensor = torch.special.ndtr(d)
        density = (-d.square() / 2).exp() / math.sqrt(2 * math.pi)
        if power == 1:
            return self._std * (d * share + density)
        return self._std.square() * ((1 + d.square()) * share + d * density)


class KnownUniform(Known):
    distribution: Uniform

    def below(self, s: Tensor, power: int) -> Tensor:
        return self._partial(s, *self._ends, power)

    def above(self, s: Tensor, power: int) -> Tensor:
        low, high = self._ends
        return self._partial(-s, -high, -low, power)

    @property
    def _ends(self) -> tuple[Tensor, Tensor]:
        low, high = (end.detach().double() for end in (self.distribution.low, self.distribution.high))
        return low, high

    @staticmethod
    def _partial(s: Tensor, low: Tensor, high: Tensor, power: int) -> Tensor:
        """(a^(power + 1) - b^(power + 1)) / ((power + 1) (high - low)), a and b from s to the ends of what is below."""
        a, b = (s - low).clamp_min(0), (s - high).clamp_min(0)
        share = (torch.minimum(torch.maximum(s, low), high) - low) / (high - low)
        return share * (a + b) / 2 if power == 1 else share * (a.square() + a * b + b.square()) / 3


class KnownLaplace(Known):
    distribution: Laplace

    def below(self, s: Tensor, power: int) -> Tensor:
        mean, scale = self._parameters
        return self._partial((s - mean) / scale, scale, power)

    def above(self, s: Tensor, power: int) -> Tensor:
        mean, scale = self._parameters
        return self._partial((mean - s) / scale, scale, power)

    @property
    def _parameters(self) -> tuple[Tensor, Tensor]:
        mean, scale = (part.detach().double() for part in (self.distribution.loc, self.distribution.scale))
        return mean, scale

    @staticmethod
    def _partial(d: Tensor, scale: Tensor, power: int) -> Tensor:
        """scale^power E (d - X)_+^power of a standard Laplace X."""
        tail = (-d.abs()).exp()
        if power == 1:
            return scale * (d.clamp_min(0) + tail / 2)
        return scale.square() * torch.where(d > 0, d.square() + 2 - tail, tail)


class KnownMixture(Known):
    distribution: MixtureSameFamily

    def below(self, s: Tensor, power: int) -> Tensor | None:
        return self._mixed(self._parts.below(s[..., None], power))

    def above(self, s: Tensor, power: int) -> Tensor | None:
        return self._mixed(self._parts.above(s[..., None], power))

    @property
    def _parts(self) -> Corruption:
        return corruption(self.distribution.component_distribution)

    def _mixed(self, parts: Tensor | None) -> Tensor | None:
        share: Tensor = self.distribution.mixture_distribution.probs
        return None if parts is None else (parts * share.detach().double()).sum(-1)


class Sample(Corruption):
    """Targets that were seen to be corrupted, each as likely as any other."""

    def __init__(self, values: Tensor):
        self.values = values

    def __repr__(self) -> str:
        return f"a sample of {len(self.values)}"

    def moments(self) -> tuple[Tensor, Tensor]:
        return self.values.mean(), self.values.var(correction=0)

    def rule(self, nodes: int) -> Rule:
        return Rule(self.values, torch.full_like(self.values, 1 / len(self.values)), exact=True)

    def draw(self, shape: tuple[int, ...]) -> Tensor:
        return self.values[torch.randint(len(self.values), shape)]

    def below(self, s: Tensor, power: int) -> Tensor:
        return self._partial(self.values, s, power)

    def above(self, s: Tensor, power: int) -> Tensor:
        return self._partial(-self.values, -s, power)

    @staticmethod
    def _partial(values: Tensor, s: Tensor, power: int) -> Tensor:
        """By sums over the sorted sample up to s: the cost of a search, not of the sample's size."""
        centre = values.mean()
        ordered = (values - centre).sort().values.to(s.device)
        s = s - centre.to(s.device)
        sums = [torch.nn.functional.pad((ordered**k).cumsum(0), (1, 0)) for k in range(power + 1)]
        upto = torch.searchsorted(ordered, s.detach().contiguous())
        zero, one, *two = (total[upto] for total in sums)
        found = s * zero - one if power == 1 else s.square() * zero - 2 * s * one + two[0]
        return found / len(values)


def corruption(given: object, argument: str = "corruption") -> Corruption:
    """What was given, as a :class:`Corruption`; anything else is refused."""
    if isinstance(given, Corruption):
        return given
    if isinstance(given, Distribution):
        _refuse_not_finite(given)
        return _CLOSED.get(type(given), Known)(given)
    if isinstance(given, (Tensor, np.ndarray, list, tuple)):
        return Sample(_sample(given, argument))
    raise TypeError(f"{argument} {WANTED}; got {checks.brief(given)}")


_CLOSED: dict[type, type[Known]] = {
    Normal: KnownNormal,
    Uniform: KnownUniform,
    Laplace: KnownLaplace,
    MixtureSameFamily: KnownMixture,
}


def _refuse_not_finite(distribution: Distribution) -> None:
    for name in distribution.arg_constraints if isinstance(distribution.arg_constraints, dict) else ():
        value = getattr(distribution, name, None)
        if isinstance(value, Tensor) and name != "logits" and not bool(value.isfinite().all()):
            raise ValueError(
                f"corruption {type(distribution).__name__} must have finite parameters; "
                f"got {name} = {float(value[~value.isfinite()].flatten()[0])}"
            )


def _sample(given: object, argument: str) -> Tensor:
    try:
        values = torch.as_tensor(given).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise TypeError(f"{argument} {WANTED}; got {checks.brief(given)}") from error
    if values.dtype == torch.bool or values.is_complex():
        raise TypeError(f"a sample of corrupted targets must hold real numbers; got {values.dtype}")
    values = values.double()
    if values.dim() != 1 or not len(values):
        raise ValueError(
            f"a sample of corrupted targets must have shape (M,) with M above 0; got {tuple(values.shape)}"
        )
    if not bool(values.isfinite().all()):
        raise ValueError("a sample of corrupted targets must hold finite numbers; got NaN or infinity")
    return values
