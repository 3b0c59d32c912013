"""Margin losses: a function phi of the margin. The margin is z for the label +1 and -z for the label -1."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from symloss import checks


class MarginFunction(ABC):
    """A function phi of the margin, entry by entry. It is symmetric if phi(z) + phi(-z) is constant."""

    @abstractmethod
    def phi(self, margin: Tensor) -> Tensor:
        """The loss at each margin, in the shape of the margins."""

    @property
    def symmetric(self) -> bool:
        """Whether phi(z) + phi(-z) is known to be constant."""
        return False

    def __call__(self, margin: Tensor) -> Tensor:
        return self.phi(margin)


AnyMarginFunction: TypeAlias = MarginFunction | Callable[[Tensor], Tensor] | str


@dataclass(frozen=True)
class SymmetricMargin(MarginFunction):
    """A margin loss that is symmetric."""

    @property
    def symmetric(self) -> bool:
        return True


@dataclass(frozen=True)
class UnhingedMargin(SymmetricMargin):
    """1 - z, the only symmetric loss that is convex (van Rooyen et al. 2015)."""

    def phi(self, margin: Tensor) -> Tensor:
        return 1 - margin


@dataclass(frozen=True)
class SigmoidMargin(SymmetricMargin):
    """The sigmoid loss 1 / (1 + e^z)."""

    def phi(self, margin: Tensor) -> Tensor:
        return torch.sigmoid(-margin)


@dataclass(frozen=True)
class RampMargin(SymmetricMargin):
    """The ramp loss: (1 - z) / 2, clipped to [0, 1]."""

    def phi(self, margin: Tensor) -> Tensor:
        return ((1 - margin) / 2).clamp(0, 1)


@dataclass(frozen=True)
class ProbitMargin(SymmetricMargin):
    """The probability that a standard normal variable is above z."""

    def phi(self, margin: Tensor) -> Tensor:
        above: Tensor = torch.special.ndtr(-margin)
        return above


@dataclass(frozen=True)
class SavageMargin(MarginFunction):
    """The Savage loss 1 / (1 + e^z)^2. Its symmetrization is the sigmoid loss minus 1/2."""

    def phi(self, margin: Tensor) -> Tensor:
        return torch.sigmoid(-margin).square()


@dataclass(frozen=True)
class LogisticMargin(MarginFunction):
    """The logistic loss log(1 + e^-z). Its symmetrization is -z/2, a multiple of the unhinged loss plus a constant."""

    def phi(self, margin: Tensor) -> Tensor:
        # torch's softplus is linear beyond 20, which is inexact in float64.
        return -functional.logsigmoid(margin)


@dataclass(frozen=True)
class HingeMargin(MarginFunction):
    """The hinge loss max(1 - z, 0)."""

    def phi(self, margin: Tensor) -> Tensor:
        return (1 - margin).clamp_min(0)


@dataclass(frozen=True)
class ExponentialMargin(MarginFunction):
    """The exponential loss e^-z. Its symmetrization is -sinh z."""

    def phi(self, margin: Tensor) -> Tensor:
        return (-margin).exp()


@dataclass(frozen=True, repr=False)
class FunctionMargin(MarginFunction):
    """Any function of a tensor of margins that works entry by entry."""

    function: Callable[[Tensor], Tensor]

    def __repr__(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def phi(self, margin: Tensor) -> Tensor:
        values = self.function(margin)
        if not isinstance(values, Tensor) or values.shape != margin.shape:
            given = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"phi must return one value for each margin, shape {tuple(margin.shape)}; got {given}")
        return values


MARGIN_FUNCTIONS: dict[str, type[MarginFunction]] = {
    "unhinged": UnhingedMargin,
    "sigmoid": SigmoidMargin,
    "ramp": RampMargin,
    "probit": ProbitMargin,
    "savage": SavageMargin,
    "logistic": LogisticMargin,
    "hinge": HingeMargin,
    "exponential": ExponentialMargin,
}
"""The margin losses that have a name, by that name."""


def margin_function(phi: AnyMarginFunction) -> MarginFunction:
    """Turn a name or a function into a :class:`MarginFunction`.

    Args:
        phi: a name of ``MARGIN_FUNCTIONS``, a :class:`MarginFunction`, which is returned as it is, or any function of a
            tensor of margins.

    >>> margin_function("sigmoid")(torch.zeros(1))
    tensor([0.5000])
    >>> margin_function(lambda z: (1 - z) ** 2)(torch.zeros(1))
    tensor([1.])
    """
    if isinstance(phi, str):
        if phi not in MARGIN_FUNCTIONS:
            raise ValueError(
                f"there is no margin loss named {checks.brief(phi)}; {checks.nearest(phi, MARGIN_FUNCTIONS)}"
            )
        return MARGIN_FUNCTIONS[phi]()
    if isinstance(phi, MarginFunction):
        return phi
    if isinstance(phi, type) or not callable(phi):
        raise TypeError(f"phi must be a name, a MarginFunction or a function of margins; got {checks.brief(phi)}")
    return FunctionMargin(phi)
