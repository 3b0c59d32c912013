"""Any margin loss as its odd part, which is symmetric, and its even part, which does not read the label (app. B)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from symloss.theory.binary.margin_functions import AnyMarginFunction, MarginFunction, margin_function


@dataclass(frozen=True)
class Odd(MarginFunction):
    """(phi(z) - phi(-z)) / 2."""

    inner: MarginFunction

    @property
    def symmetric(self) -> bool:
        return True

    def phi(self, margin: Tensor) -> Tensor:
        return (self.inner.phi(margin) - self.inner.phi(-margin)) / 2


@dataclass(frozen=True)
class Even(MarginFunction):
    """(phi(z) + phi(-z)) / 2."""

    inner: MarginFunction

    def phi(self, margin: Tensor) -> Tensor:
        return (self.inner.phi(margin) + self.inner.phi(-margin)) / 2


class OddEven(NamedTuple):
    """The two parts that sum to a margin loss: one symmetric, one that is the same for both labels."""

    odd: Odd
    even: Even


def decompose_margin(phi: AnyMarginFunction) -> OddEven:
    """The unique decomposition of a margin loss into a symmetric and a class-insensitive loss.

    >>> import torch
    >>> odd, even = decompose_margin("logistic")
    >>> z = torch.tensor([-2.0, 3.0])
    >>> odd(z)  # -z / 2
    tensor([ 1.0000, -1.5000])
    """
    inner = margin_function(phi)
    return OddEven(Odd(inner), Even(inner))


def symmetrize_margin(phi: AnyMarginFunction) -> Odd:
    """The symmetric part of a margin loss: phi_sym(z) = (phi(z) - phi(-z)) / 2.

    >>> import torch
    >>> symmetrize_margin("savage")(torch.tensor([0.0, 1.0]))  # 1 / (1 + e^z) - 1/2
    tensor([ 0.0000, -0.2311])
    """
    return decompose_margin(phi).odd
