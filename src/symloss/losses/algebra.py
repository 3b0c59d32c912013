"""The algebra: a loss is its value at every label. Losses add up, and take factors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from symloss.losses import validation
from symloss.losses.evaluate import Options, evaluate
from symloss.losses.kernels import AtLabel, Block, Partials
from symloss.losses.scores import Scores

if TYPE_CHECKING:
    from symloss.losses.leaves import Potential


class FirstOrder(NamedTuple):
    """A loss near equal scores, to first order: value + slope * unhinged (prop. 5.2)."""

    value: Tensor
    slope: Tensor


class NoSlopeError(ValueError):
    """The loss has no slope at equal scores."""


class Loss(ABC):
    """A loss as its value at every label.

    >>> from symloss import symmetrize
    >>> from symloss.losses.leaves import GCE
    >>> sgce = symmetrize(GCE(q=0.5))
    >>> sgce
    symmetrize(GCE(q=0.5))
    >>> sgce.per_class(torch.tensor([0.0, 1.0, 2.0])).sum().abs() < 1e-6
    tensor(True)
    """

    @abstractmethod
    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        """The value at the given labels (shaped like a kept sum), or at every label. Masked classes hold no meaning."""

    def refuse(self, s: Scores, kept: Tensor) -> None:
        """An error where the loss has no value at scores that are kept (shaped like a kept sum)."""
        for child in self.children:
            child.refuse(s, kept)

    @abstractmethod
    def first_order(self, s: Scores) -> FirstOrder:
        """Value and slope at equal scores, for as many classes as each example of s has."""

    @property
    def symmetric(self) -> bool:
        """Whether the sum over labels is constant, as far as the construction tells."""
        return False

    @property
    def affine(self) -> bool:
        """Whether the loss is affine in log p."""
        return False

    @property
    def children(self) -> tuple[Loss, ...]:
        return ()

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        """The potentials whose sums over classes the loss reads besides the label; None if it reads anything else."""
        return None

    @property
    def linear(self) -> float | None:
        """The factor of a loss that is a multiple of the unhinged loss, and therefore needs no softmax."""
        return None

    def partials(self, at: AtLabel) -> Partials:
        """Value and derivatives at the label, for losses of which ``summed`` is known."""
        raise NotImplementedError

    @property
    def kernels(self) -> dict[Any, Block | None]:
        """The fast paths found so far. They live as long as the loss, and are no part of it."""
        known: dict[Any, Block | None] = self.__dict__.setdefault("_kernels", {})
        return known

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_kernels"}

    @property
    def any_classes(self) -> bool:
        """Whether the loss is defined for every number of classes."""
        return all(child.any_classes for child in self.children)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """The torch modules the loss is made of."""
        return tuple(module for child in self.children for module in child.modules)

    def map(self, change: Callable[[Loss], Loss]) -> Loss:
        """The same expression with every leaf changed."""
        return change(self)

    def per_class(self, scores: Tensor, dim: int = -1) -> Tensor:
        """The value at every label, classes along dim; 0 where masked. Log p will do for scores: its softmax is p."""
        s = Scores(scores, dim)
        if validation.can_look(scores):
            self.refuse(s, torch.ones_like(s.count, dtype=torch.bool))
        return torch.where(s.present, self.values(s), 0.0)

    def slope(self, classes: int) -> float:
        """The slope at equal scores against the unhinged loss (cross-entropy's is 1)."""
        return float(self.first_order(Scores(torch.zeros(classes, dtype=torch.float64))).slope)

    def __call__(self, input: Tensor, target: Tensor, **options: Any) -> Tensor:
        """The training loss, with the options of ``F.cross_entropy``."""
        return evaluate(self, input, target, Options(**options))

    def __add__(self, other: object) -> Loss:
        return Sum(_terms(self) + _terms(other)) if isinstance(other, Loss) else NotImplemented

    def __sub__(self, other: object) -> Loss:
        return self + -1.0 * other if isinstance(other, Loss) else NotImplemented

    def __mul__(self, factor: object) -> Loss:
        if isinstance(factor, bool) or not isinstance(factor, (int, float)):
            return NotImplemented
        return Sum(tuple((factor * coefficient, term) for coefficient, term in _terms(self)))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Loss:
        return self * (1 / divisor)

    def __neg__(self) -> Loss:
        return -1.0 * self


def refuse_no_loss(loss: object) -> None:
    if not isinstance(loss, Loss):
        raise TypeError(f"loss must be a Loss of the algebra, such as potentials.CE(); got {type(loss).__name__}")


def _terms(loss: Loss) -> tuple[tuple[float, Loss], ...]:
    return loss.terms if isinstance(loss, Sum) else ((1.0, loss),)


@dataclass(frozen=True, repr=False)
class Sum(Loss):
    """A weighted sum of losses."""

    terms: tuple[tuple[float, Loss], ...]

    def __repr__(self) -> str:
        return " + ".join(f"{term!r}" if a == 1 else f"{a:g} * {term!r}" for a, term in self.terms)

    @property
    def children(self) -> tuple[Loss, ...]:
        return tuple(term for _, term in self.terms)

    @property
    def symmetric(self) -> bool:
        return all(term.symmetric for a, term in self.terms if a != 0)

    @property
    def affine(self) -> bool:
        return all(term.affine for _, term in self.terms)

    def map(self, change: Callable[[Loss], Loss]) -> Loss:
        return Sum(tuple((a, term.map(change)) for a, term in self.terms))

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        found: dict[Potential, None] = {}
        for _, term in self.terms:
            if term.summed is None:
                return None
            found.update(dict.fromkeys(term.summed))
        return tuple(found)

    @property
    def linear(self) -> float | None:
        factors = [(a, term.linear) for a, term in self.terms]
        return sum(a * factor for a, factor in factors if factor) if all(f is not None for _, f in factors) else None

    def partials(self, at: AtLabel) -> Partials:
        (first, loss), *others = self.terms
        total = loss.partials(at) * first
        for a, term in others:
            total = total.plus(a, term.partials(at))
        return total

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        first, *others = (a * term.values(s, labels) for a, term in self.terms)
        return sum(others, first)

    def first_order(self, s: Scores) -> FirstOrder:
        parts = [(a, term.first_order(s)) for a, term in self.terms]
        total, *others = (FirstOrder(a * part.value, a * part.slope) for a, part in parts)
        for other in others:
            total = FirstOrder(total.value + other.value, total.slope + other.slope)
        return total
