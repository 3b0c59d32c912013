"""Means under the distribution of corrupted targets: moments, partial moments, and any other mean by quadrature."""

from __future__ import annotations

import math
from abc import abstractmethod

import torch
from torch import Tensor
from torch.distributions import Laplace, MixtureSameFamily, Normal, Uniform

from symloss.noise.target_distribution import TargetDistribution, TargetSample, TorchDistribution, target_distribution
from symloss.theory.regression.quadrature import Rule, rule


class TargetNoise(TargetDistribution):
    """The distribution q of corrupted targets T, with the means that a loss needs. Everything is in float64."""

    @abstractmethod
    def moments(self) -> tuple[Tensor, Tensor] | None:
        """Mean and variance, or None where they are not finite."""

    @abstractmethod
    def rule(self, nodes: int) -> Rule:
        """Points and weights for the mean of any function."""

    def below(self, s: Tensor, power: int) -> Tensor | None:
        """E (s - T)_+^power for power 1 or 2, or None where no formula is known."""
        return None

    def above(self, s: Tensor, power: int) -> Tensor | None:
        """E (T - s)_+^power for power 1 or 2, or None where no formula is known."""
        return None


class Known(TorchDistribution, TargetNoise):
    """A distribution of torch. Subclasses know formulas for ``below`` and ``above``."""

    def moments(self) -> tuple[Tensor, Tensor] | None:
        try:
            mean, variance = self.distribution.mean.detach().double(), self.distribution.variance.detach().double()
        except NotImplementedError:
            return None
        return (mean, variance) if bool((mean.isfinite() & variance.isfinite()).all()) else None

    def rule(self, nodes: int) -> Rule:
        return rule(self.distribution, nodes)


class KnownNormal(Known):
    """A normal distribution."""

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
    """A uniform distribution."""

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
    """A Laplace distribution."""

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
    """A mixture of distributions of one family."""

    distribution: MixtureSameFamily

    def below(self, s: Tensor, power: int) -> Tensor | None:
        return self._mixed(self._parts.below(s[..., None], power))

    def above(self, s: Tensor, power: int) -> Tensor | None:
        return self._mixed(self._parts.above(s[..., None], power))

    @property
    def _parts(self) -> TargetNoise:
        return target_noise(self.distribution.component_distribution)

    def _mixed(self, parts: Tensor | None) -> Tensor | None:
        share: Tensor = self.distribution.mixture_distribution.probs
        return None if parts is None else (parts * share.detach().double()).sum(-1)


class Sample(TargetSample, TargetNoise):
    """A sample of corrupted targets."""

    def moments(self) -> tuple[Tensor, Tensor]:
        return self.values.mean(), self.values.var(correction=0)

    def rule(self, nodes: int) -> Rule:
        return Rule(self.values, torch.full_like(self.values, 1 / len(self.values)), exact=True)

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


def target_noise(given: object) -> TargetNoise:
    """Turn a distribution of torch or a sample into a :class:`TargetNoise`; refuse anything else.

    >>> mean, variance = target_noise(Normal(1.0, 2.0)).moments()
    >>> mean.item(), variance.item()
    (1.0, 4.0)
    """
    q = target_distribution(given)
    if isinstance(q, TargetNoise):
        return q
    if isinstance(q, TargetSample):
        return Sample(q.values)
    assert isinstance(q, TorchDistribution)
    return _CLOSED.get(type(q.distribution), Known)(q.distribution)


_CLOSED: dict[type, type[Known]] = {
    Normal: KnownNormal,
    Uniform: KnownUniform,
    Laplace: KnownLaplace,
    MixtureSameFamily: KnownMixture,
}
