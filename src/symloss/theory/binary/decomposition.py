"""A margin loss is the sum of its odd part, which is symmetric, and its even part, which ignores the label (app. B)."""

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
    """The two parts of a margin loss: ``odd`` is symmetric, ``even`` is the same for both labels."""

    odd: Odd
    even: Even


def decompose_margin(phi: AnyMarginFunction) -> OddEven:
    """Split a margin loss into a symmetric and a class-insensitive part, which is possible in one way only (app. B).

    Args:
        phi: a name of ``MARGIN_FUNCTIONS``, a :class:`MarginFunction` or any function of a tensor of margins.

    >>> import torch
    >>> odd, even = decompose_margin("logistic")
    >>> z = torch.tensor([-2.0, 3.0])
    >>> odd(z)  # -z / 2
    tensor([ 1.0000, -1.5000])
    """
    inner = margin_function(phi)
    return OddEven(Odd(inner), Even(inner))


def symmetrize_margin(phi: AnyMarginFunction) -> Odd:
    """The symmetric part of a margin loss: phi_sym(z) = (phi(z) - phi(-z)) / 2 (app. B).

    Args:
        phi: as in :func:`decompose_margin`.

    >>> import torch
    >>> symmetrize_margin("savage")(torch.tensor([0.0, 1.0]))  # 1 / (1 + e^z) - 1/2
    tensor([ 0.0000, -0.2311])
    """
    return decompose_margin(phi).odd
