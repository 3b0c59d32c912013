"""One margin loss for each label: binary and multi-label training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import tensors
from symloss.losses.evaluate import REDUCTIONS
from symloss.losses.scores import full_precision
from symloss.theory.binary.margin_functions import AnyMarginFunction, margin_function


class MarginCriterion(nn.Module):
    """A margin loss for binary and multi-label targets, wherever ``torch.nn.BCEWithLogitsLoss`` would do.

    The loss of an entry is t phi(z) + (1 - t) phi(-z), with t its target. If each label is flipped on its own with a
    probability eta < 1/2, the risk of a symmetric phi is 1 - 2 eta times the clean one, plus a constant.

    Args:
        phi: a name of ``symloss.theory.binary.MARGIN_FUNCTIONS``, a potential or any function of margins.
        weight: one entry for each label (the last dimension), which multiplies its losses. It keeps the symmetry.
        reduction: ``"mean"`` over all entries that are kept, ``"sum"`` or ``"none"``. The mean is that of
            ``torch.nn.MultiLabelSoftMarginLoss`` and ``torch.nn.BCEWithLogitsLoss`` for ``"logistic"``.

    Shapes: input of any shape, often (N,) or (N, K); target of the same shape, 0 or 1 as bool, whole or floating-point
    numbers, or probabilities; mask, if given, is a bool tensor of that shape, and entries where it is False are left
    out (their loss is 0, and the mean of none is 0).

    >>> loss = MarginCriterion("sigmoid")
    >>> scores = torch.tensor([[2.0, -1.0, 0.0]])
    >>> loss(scores, torch.tensor([[1, 0, 1]]))
    tensor(0.2960)
    >>> loss(scores, torch.tensor([[1, 0, 1]]), mask=torch.tensor([[True, True, False]]))
    tensor(0.1941)
    """

    weight: Tensor | None

    def __init__(self, phi: AnyMarginFunction, *, weight: Tensor | None = None, reduction: str = "mean"):
        super().__init__()
        self.phi = margin_function(phi)
        checks.choice("reduction", reduction, REDUCTIONS)
        if weight is not None:
            tensors.class_vector("weight", weight)
        self.register_buffer("weight", weight)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor, mask: Tensor | None = None) -> Tensor:
        _check_shapes(input, target, mask)
        z = full_precision(input)
        if mask is not None:
            z, target = torch.where(mask, z, 0.0), torch.where(mask, target, torch.zeros_like(target))
        values = self._values(z, target)
        if self.weight is not None:
            if z.dim() == 0 or z.shape[-1] != len(self.weight):
                raise ValueError(
                    f"weight must have one entry for each label, the last dimension of {tuple(z.shape)}; "
                    f"got {len(self.weight)}"
                )
            values = values * self.weight.to(values)
        if mask is not None:
            values = torch.where(mask, values, 0.0)
        if self.reduction == "mean":
            return values.sum() / (max(values.numel(), 1) if mask is None else mask.sum().clamp_min(1))
        return values.sum() if self.reduction == "sum" else values

    def _values(self, z: Tensor, target: Tensor) -> Tensor:
        if not target.is_floating_point():
            if tensors.can_look(target) and bool(((target != 0) & (target != 1)).any()):
                wrong = target[(target != 0) & (target != 1)].flatten()[0]
                raise ValueError(f"target must hold 0 and 1, one for each label; got {wrong.item()}")
            return self.phi.phi(torch.where(target.bool(), z, -z))
        t = target.to(z.dtype)
        if tensors.can_look(t):
            if not bool(((t >= 0) & (t <= 1)).all()):
                wrong = t[~((t >= 0) & (t <= 1))].flatten()[0]
                raise ValueError(f"target must hold 0, 1 or probabilities between; got {wrong.item():g}")
            if bool(((t == 0) | (t == 1)).all()):
                return self.phi.phi(torch.where(t == 1, z, -z))
        return t * self.phi.phi(z) + (1 - t) * self.phi.phi(-z)

    def extra_repr(self) -> str:
        return f"{self.phi!r}, reduction={self.reduction!r}"


def _check_shapes(input: object, target: object, mask: object) -> None:
    if not isinstance(input, Tensor) or not input.is_floating_point():
        given = str(input.dtype) if isinstance(input, Tensor) else type(input).__name__
        raise TypeError(f"input must be a tensor of floating-point scores; got {given}")
    if not isinstance(target, Tensor) or target.is_complex():
        given = str(target.dtype) if isinstance(target, Tensor) else type(target).__name__
        raise TypeError(f"target must be a tensor of 0 and 1; got {given}")
    if target.shape != input.shape:
        raise ValueError(f"target must have the input's shape {tuple(input.shape)}; got {tuple(target.shape)}")
    if mask is not None and (not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.shape != input.shape):
        given = f"{mask.dtype} {tuple(mask.shape)}" if isinstance(mask, Tensor) else type(mask).__name__
        raise ValueError(f"mask must be a bool tensor of the input's shape {tuple(input.shape)}; got {given}")
