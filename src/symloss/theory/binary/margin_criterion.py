"""One margin loss for each label: binary and multi-label training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.criterion import REDUCTIONS
from symloss.losses.logits import full_precision
from symloss.theory.binary.margin_functions import AnyMarginFunction, margin_function


class MarginCriterion(nn.Module):
    """A margin loss for binary and multi-label targets, wherever ``torch.nn.BCEWithLogitsLoss`` would do.

    The loss of an entry with score z and target t is t phi(z) + (1 - t) phi(-z). If each label is flipped
    independently with a probability eta < 1/2, the risk of a symmetric phi is 1 - 2 eta times the clean risk, plus a
    constant (app. B).

    Args:
        phi: a name of ``symloss.binary.MARGIN_FUNCTIONS``, a :class:`MarginFunction` or any function of margins.
        weight: one entry for each label (the last dimension), which multiplies its losses. It keeps the symmetry.
        reduction: ``"mean"`` over all entries that are kept, ``"sum"`` or ``"none"``. The mean is that of
            ``torch.nn.MultiLabelSoftMarginLoss`` and ``torch.nn.BCEWithLogitsLoss`` for ``"logistic"``.

    Shapes: the input has any shape, often (N,) or (N, K). The target has the same shape and holds 0 and 1, as bool,
    integers or floating-point numbers, or probabilities. The mask is a bool tensor of the same shape. Entries where it
    is False have loss 0 and do not count in the mean; the mean of no entries is 0.

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
            validation.class_vector("weight", weight)
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
            if validation.can_look(target) and bool(((target != 0) & (target != 1)).any()):
                wrong = target[(target != 0) & (target != 1)].flatten()[0]
                raise ValueError(f"target must hold 0 and 1, one for each label; got {wrong.item()}")
            return self.phi.phi(torch.where(target.bool(), z, -z))
        t = target.to(z.dtype)
        if validation.can_look(t):
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
