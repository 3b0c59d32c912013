"""Margin losses: one scalar function phi of the margin, which is the score where the label is +1, and minus it else."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from symloss import checks


class Potential(ABC):
    """phi, entry by entry. It is symmetric if phi(z) + phi(-z) is constant."""

    @abstractmethod
    def phi(self, margin: Tensor) -> Tensor:
        """The loss at each margin."""

    @property
    def symmetric(self) -> bool:
        """Whether phi(z) + phi(-z) is constant, as far as the construction tells."""
        return False

    def __call__(self, margin: Tensor) -> Tensor:
        return self.phi(margin)


AnyPotential: TypeAlias = Potential | Callable[[Tensor], Tensor] | str


@dataclass(frozen=True)
class Symmetric(Potential):
    """Those that need no symmetrization."""

    @property
    def symmetric(self) -> bool:
        return True


@dataclass(frozen=True)
class Unhinged(Symmetric):
    """1 - z, the only convex one of the symmetric."""

    def phi(self, margin: Tensor) -> Tensor:
        return 1 - margin


@dataclass(frozen=True)
class Sigmoid(Symmetric):
    """1 / (1 + e^z)."""

    def phi(self, margin: Tensor) -> Tensor:
        return torch.sigmoid(-margin)


@dataclass(frozen=True)
class Ramp(Symmetric):
    """(1 - z) / 2, cut off at 0 and 1."""

    def phi(self, margin: Tensor) -> Tensor:
        return ((1 - margin) / 2).clamp(0, 1)


@dataclass(frozen=True)
class Probit(Symmetric):
    """The normal distribution's mass above z."""

    def phi(self, margin: Tensor) -> Tensor:
        above: Tensor = torch.special.ndtr(-margin)
        return above


@dataclass(frozen=True)
class Savage(Potential):
    """1 / (1 + e^z)^2. Its symmetrization is the sigmoid loss, less 1/2."""

    def phi(self, margin: Tensor) -> Tensor:
        return torch.sigmoid(-margin).square()


@dataclass(frozen=True)
class Logistic(Potential):
    """log(1 + e^-z). Its symmetrization is -z/2, the unhinged loss."""

    def phi(self, margin: Tensor) -> Tensor:
        # softplus is cut off at 20, which float64 sees.
        return -functional.logsigmoid(margin)


@dataclass(frozen=True)
class Hinge(Potential):
    """1 - z, cut off at 0."""

    def phi(self, margin: Tensor) -> Tensor:
        return (1 - margin).clamp_min(0)


@dataclass(frozen=True)
class Exponential(Potential):
    """e^-z. Its symmetrization is -sinh z."""

    def phi(self, margin: Tensor) -> Tensor:
        return (-margin).exp()


@dataclass(frozen=True, repr=False)
class Function(Potential):
    """Any function of a tensor of margins, entry by entry."""

    function: Callable[[Tensor], Tensor]

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def phi(self, margin: Tensor) -> Tensor:
        values = self.function(margin)
        if not isinstance(values, Tensor) or values.shape != margin.shape:
            given = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"phi must return one value for each margin, shape {tuple(margin.shape)}; got {given}")
        return values


POTENTIALS: dict[str, type[Potential]] = {
    "unhinged": Unhinged,
    "sigmoid": Sigmoid,
    "ramp": Ramp,
    "probit": Probit,
    "savage": Savage,
    "logistic": Logistic,
    "hinge": Hinge,
    "exponential": Exponential,
}


def potential(phi: AnyPotential) -> Potential:
    """A potential by name, as it is, or from any function of a tensor of margins.

    >>> potential("sigmoid")(torch.zeros(1))
    tensor([0.5000])
    >>> potential(lambda z: (1 - z) ** 2)(torch.zeros(1))
    tensor([1.])
    """
    if isinstance(phi, str):
        if phi not in POTENTIALS:
            raise ValueError(f"there is no margin loss named {phi!r}; {checks.nearest(phi, POTENTIALS)}")
        return POTENTIALS[phi]()
    if isinstance(phi, Potential):
        return phi
    if isinstance(phi, type) or not callable(phi):
        raise TypeError(f"phi must be a name, a Potential or a function of margins; got {checks.brief(phi)}")
    return Function(phi)
