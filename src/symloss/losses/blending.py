"""A blend of a symmetric loss with the unhinged loss, and the check that a loss can be blended."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import FirstOrder, Loss
from symloss.losses.logits import Scores
from symloss.losses.operators import Operator, slope_at_equal_scores


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class Blend(Operator):
    """A blend with the unhinged loss: (1 - alpha) unhinged + alpha L / slope. alpha scales the non-linear part."""

    alpha: float

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.any_classes:
            _refuse_unblendable(self.inner, 3)

    @property
    def symmetric(self) -> bool:
        return True

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        if not self.inner.any_classes and validation.can_look(s.z):
            _refuse_unblendable_once(self.inner, s.classes)
        # Both parts read log p: a graph that gathers one label's and sums all would have to store it.
        compiling = torch.compiler.is_compiling()
        own = self.inner.label_and_every(s, labels)[0] if compiling else self.inner.values(s, labels)
        unhinged = s.mean(s.logp) - s.select(s.logp, labels, alone=False)
        slope = slope_at_equal_scores(self.inner, s, "blend")
        return (1 - self.alpha) * unhinged + self.alpha * own / slope

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(self.alpha * value / slope, torch.ones_like(slope))


_blendable: WeakKeyDictionary[Loss, set[int]] = WeakKeyDictionary()
"""The losses that passed the check, each with the numbers of classes for which it did."""


def _refuse_unblendable_once(loss: Loss, classes: int) -> None:
    if classes not in _blendable.get(loss, ()):
        _refuse_unblendable(loss, classes)
        _blendable.setdefault(loss, set()).add(classes)


def _refuse_unblendable(loss: Loss, classes: int) -> None:
    """Raise an error unless the loss is symmetric, permutation-invariant and not flat at equal scores."""
    steps = torch.arange(32 * classes, dtype=torch.float64).reshape(32, classes)
    sizes = torch.tensor([0.1, 1.0, 3.0, 10.0], dtype=torch.float64).repeat(8)
    points = sizes[:, None] * (steps.square() + steps.sin()).cos()
    with torch.no_grad():
        every = loss.per_class(points)
        total = every.sum(-1)
        tolerance = 1e-8 * (1 + every.abs().max())
        if (total.max() - total.min()) > tolerance:
            raise ValueError(
                f"blend takes a symmetric loss; the sum over labels of {checks.brief(loss)} is not constant"
            )
        for order in validation.renamings(classes):
            if (loss.per_class(points[:, order]) - every[:, order]).abs().max() > tolerance:
                raise ValueError(
                    f"blend takes a permutation-invariant loss; {checks.brief(loss)} changes when classes are renamed"
                )
    slope_at_equal_scores(loss, Scores(points[:1]), "blend")
