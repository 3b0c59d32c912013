"""The algebra of losses. A loss has a value at every label. Losses can be added, and multiplied by numbers.

This module, the potentials and the operators hold the formulas of values, and of the slope at equal scores. They define
the losses. The kernels in ``kernels`` compute the same faster.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from symloss.losses import validation
from symloss.losses.logits import Scores


class FirstOrder(NamedTuple):
    """A loss near equal scores, to first order: ``value + slope * unhinged`` (proposition 5.2 of the paper)."""

    value: Tensor  # the value at equal scores, with size 1 along the classes
    slope: Tensor  # the slope against the unhinged loss, in the same shape


class NoSlopeError(ValueError):
    """The loss has no slope at equal scores."""


T = TypeVar("T")


class Scalable(ABC, Generic[T]):
    """What can be multiplied by numbers, and divided."""

    @abstractmethod
    def times(self, factor: float) -> T:
        """Return a multiple."""

    def __mul__(self, factor: object) -> T:
        is_number = isinstance(factor, (int, float)) and not isinstance(factor, bool)
        return self.times(factor) if is_number else NotImplemented  # type: ignore[arg-type]

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> T:
        return self * (1 / divisor)

    def __neg__(self) -> T:
        return self * -1.0


class Loss(Scalable["Loss"]):
    """The base class of all losses.

    A subclass defines ``values`` and ``first_order``. It should be a frozen dataclass, because losses are compared and
    cached by value.

    >>> from symloss import symmetrize
    >>> from symloss.losses.potentials import GCEPotential
    >>> sgce = symmetrize(GCEPotential(q=0.5))
    >>> sgce
    symmetrize(GCE(q=0.5))
    >>> sgce.per_class(torch.tensor([0.0, 1.0, 2.0])).sum().abs() < 1e-6
    tensor(True)
    """

    def __repr__(self) -> str:
        """Return a formula as a call of its loss in the catalogue: ``GCE(q=0.7)`` of ``GCEPotential(q=0.7)``."""
        names: list[str] = [each.name for each in fields(self)] if is_dataclass(self) else []
        arguments = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{type(self).__name__.removesuffix('Potential').removesuffix('Formula')}({arguments})"

    @abstractmethod
    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        """Return the value at every label, in the shape of the scores; or at ``labels``, of size 1 along classes."""

    def label_and_every(self, s: Scores, labels: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the values at ``labels`` and at every label, both as by :meth:`values`."""
        every = self.values(s)
        return s.select(every, labels), every

    def refuse(self, s: Scores, kept: Tensor) -> None:
        """Raise an error if the loss has no value at the scores of an example that counts, that is, is ``kept``."""
        for child in self.children:
            child.refuse(s, kept)

    @abstractmethod
    def first_order(self, s: Scores) -> FirstOrder:
        """Value and slope at equal scores, for the number of classes that each example of ``s`` has."""

    @property
    def symmetric(self) -> bool:
        """Whether the sum over labels is constant. False means that the construction does not show it."""
        return False

    @property
    def affine(self) -> bool:
        """Whether the loss is affine in log p."""
        return False

    @property
    def less_constant(self) -> Loss:
        """The same loss without what all labels have in common, which would only cost digits of differences."""
        return self

    @property
    def children(self) -> tuple[Loss, ...]:
        """The losses that this one is made of; none for a leaf."""
        return ()

    @property
    def any_classes(self) -> bool:
        """Whether the loss is defined for every number of classes."""
        return all(child.any_classes for child in self.children)

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """The torch modules inside the loss."""
        return tuple(module for child in self.children for module in child.modules)

    def map(self, change: Callable[[Loss], Loss]) -> Loss:
        """Return the same expression, with ``change`` applied to every leaf."""
        return change(self)

    def per_class(self, scores: Tensor, dim: int = -1) -> Tensor:
        """Return the value at every label, in the shape of the scores; 0 at a class that is masked out.

        Args:
            scores: classes lie along ``dim``. log p may be passed as scores, because its softmax is p.
            dim: the dimension of the classes.
        """
        s = Scores(scores, dim)
        if validation.can_look(scores):
            self.refuse(s, torch.ones((), dtype=torch.bool, device=scores.device))
        return torch.where(s.present, self.values(s), 0.0)

    def slope(self, classes: int) -> float:
        """Return the slope at equal scores against the unhinged loss. It is 1 for cross-entropy."""
        return float(self.first_order(Scores(torch.zeros(classes, dtype=torch.float64))).slope)

    def __call__(self, input: Tensor, target: Tensor, **options: Any) -> Tensor:
        """Return the training loss, with the options of ``F.cross_entropy``."""
        # The import is here because the evaluation is built on the formulas, not the other way round.
        from symloss.losses.criterion import Options, evaluate  # noqa: PLC0415

        return evaluate(self, input, target, Options(**options))

    def __add__(self, other: object) -> Loss:
        return Sum(_terms(self) + _terms(other)) if isinstance(other, Loss) else NotImplemented

    def __sub__(self, other: object) -> Loss:
        return self + -1.0 * other if isinstance(other, Loss) else NotImplemented

    def times(self, factor: float) -> Loss:
        return Sum(tuple((factor * coefficient, term) for coefficient, term in _terms(self)))


def is_key(loss: Loss) -> bool:
    """Whether a cache may hold a loss: it has a hash, and holds neither tensors nor modules, which may change."""
    try:
        hash(loss)
    except TypeError:  # a loss from outside this package that is no frozen dataclass
        return False
    return loss.any_classes


def same(one: Any, other: Any) -> bool:
    """Whether two arguments of losses are the same. Tensors are if they hold the same numbers, in any precision."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        alike = one.shape == other.shape and one.device == other.device
        return one is other or (alike and torch.equal(one.double(), other.double()))
    return not isinstance(one, Tensor) and not isinstance(other, Tensor) and bool(one == other)


def shown(argument: Any) -> str:
    """Return an argument of a loss as text that evaluates back; a tensor as a list."""
    return repr(argument.tolist() if isinstance(argument, Tensor) else argument)


def _terms(loss: Loss) -> tuple[tuple[float, Loss], ...]:
    return loss.terms if isinstance(loss, Sum) else ((1.0, loss),)


@dataclass(frozen=True, repr=False)
class Sum(Loss):
    """A weighted sum of losses, sum_i a_i L_i. The terms are pairs (a_i, L_i)."""

    terms: tuple[tuple[float, Loss], ...]

    def __repr__(self) -> str:
        shown = [(f"{a:g}" if float(f"{a:g}") == a else repr(a), term) for a, term in self.terms]
        return " + ".join(f"{term!r}" if a == "1" else f"{a} * {term!r}" for a, term in shown)

    @property
    def children(self) -> tuple[Loss, ...]:
        return tuple(term for _, term in self.terms)

    @property
    def symmetric(self) -> bool:
        return all(term.symmetric for a, term in self.terms if a != 0)

    @property
    def affine(self) -> bool:
        return all(term.affine for _, term in self.terms)

    @property
    def less_constant(self) -> Loss:
        return Sum(tuple((a, term.less_constant) for a, term in self.terms))

    def map(self, change: Callable[[Loss], Loss]) -> Loss:
        return Sum(tuple((a, term.map(change)) for a, term in self.terms))

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        first, *others = (a * term.values(s, labels) for a, term in self.terms)
        return sum(others, first)

    def first_order(self, s: Scores) -> FirstOrder:
        parts = [(a, term.first_order(s)) for a, term in self.terms]
        return FirstOrder(*(torch.stack([a * part[i] for a, part in parts]).sum(0) for i in (0, 1)))
