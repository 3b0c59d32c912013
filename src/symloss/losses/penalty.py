"""The weight penalty of active negative losses: a part of the training step, not of the loss."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from symloss import checks


def l1_penalty(parameters: nn.Module | Iterable[Tensor], delta: float) -> Tensor:
    """The L1 penalty: delta times the sum of the absolute values of all parameters. Add it to the loss of a step.

    Args:
        parameters: a module, or tensors of any shapes.
        delta: weight of the penalty, at least 0.

    Reference: Ye et al.: Active negative loss functions for learning with noisy labels. NeurIPS 2023.

    >>> l1_penalty([torch.tensor([1.0, -2.0])], delta=0.5)
    tensor(1.5000)
    """
    delta = checks.number("delta", delta, "[0, inf)")
    return delta * torch.stack([tensor.abs().sum() for tensor in tensors_of(parameters)]).sum()


def tensors_of(parameters: nn.Module | Iterable[Tensor]) -> list[Tensor]:
    """The parameters as a list of tensors. Raise an error if there are none, or if one is no tensor."""
    tensors = list(parameters.parameters() if isinstance(parameters, nn.Module) else parameters)
    if not tensors:
        raise ValueError("parameters must hold at least one tensor; got none")
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"parameters must hold tensors; got {type(tensor).__name__}")
    return tensors
