"""Which examples of a batch count, and for how much."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses import validation
from symloss.losses.kernels.job import constant


class Examples(NamedTuple):
    """The targets of a batch, and how the values of its examples become one loss."""

    target: Tensor
    """Class indices (N,) or (N, d1, ...); or a weight for each class, in the shape of the scores."""
    kept: Tensor | None
    """Which examples count, in the shape of class indices; None if all do."""
    factor: Tensor | None
    """What the value of each example is multiplied by, in the shape of class indices; None for 1."""
    reduction: str
    """One of "mean", "sum" and "none"."""
    divisor: float | Tensor | None = None
    """What a mean divides by; None for the number of examples that count."""
    offset: float | Tensor | None = None
    """A constant that is added to the value of each example, in the shape of class indices or a number; None for 0."""

    @property
    def labels(self) -> Tensor:
        """The labels, and 0 where an example is ignored; or the weights as they are."""
        if self.target.is_floating_point():
            return self.target
        return (self.target if self.kept is None else torch.where(self.kept, self.target, 0)).unsqueeze(1)

    def weighed(self, class_weight: Tensor | None) -> Examples:
        """Return the same examples, each multiplied by the weight (C,) of its label."""
        if class_weight is None:
            return self
        labels = self.target if self.kept is None else torch.where(self.kept, self.target, 0)
        factor = class_weight.to(self.target.device)[labels]
        if self.kept is not None:
            factor = torch.where(self.kept, factor, 0.0)
        divisor = factor.sum() if self.divisor is None and self.reduction == "mean" else self.divisor
        return self._replace(factor=factor, divisor=divisor)

    def none_counts(self) -> bool:
        """Return whether it is known that no example counts."""
        return self.kept is not None and validation.can_look(self.kept) and not bool(self.kept.any())

    def share(self, kind: torch.dtype, upstream: Tensor | None = None) -> Tensor:
        """Return what each example counts for in the gradient: a scalar if all agree, else of size 1 in dimension 1."""
        total = self.total if self.reduction == "mean" else 1.0
        share = total.to(kind).reciprocal() if isinstance(total, Tensor) else constant(1 / total, kind)
        if self.factor is not None:
            share = share * self.factor.to(kind)
        if upstream is not None:
            share = share * upstream
        if self.kept is not None:
            share = torch.where(self.kept, share, 0.0)
        return share.unsqueeze(1) if share.dim() else share

    @property
    def total(self) -> float | Tensor:
        """What a mean divides by."""
        if self.divisor is not None:
            return self.divisor
        return self.target.numel() if self.kept is None else self.kept.sum()

    def reduced(self, values: Tensor) -> Tensor:
        """Reduce the values of the examples, which have size 1 along dimension 1, to the loss of the batch."""
        even = self.kept is None and self.factor is None and self.offset is None
        if even and self.divisor is None and self.reduction == "mean":
            return values.mean()
        values = values.squeeze(1)
        if self.factor is not None:
            values = values * self.factor.to(values.dtype)
        if self.offset is not None:
            values = values + self.offset
        if self.kept is not None:
            values = torch.where(self.kept, values, 0.0)
        if self.reduction == "none":
            return values
        if self.reduction == "sum":
            return values.sum()
        total = self.total
        return values.sum() / (total.to(values.dtype) if isinstance(total, Tensor) else total)


def labelled(
    target: Tensor,
    classes: int,
    ignore_index: int,
    class_weight: Tensor | None,
    reduction: str,
    divisor: float | Tensor | None = None,
) -> Examples:
    """Return the examples of a batch of labels. Wrong labels raise an error where values may be looked at."""
    kept = validation.kept(target, classes, ignore_index)
    return Examples(target, kept, None, reduction, divisor).weighed(class_weight)
