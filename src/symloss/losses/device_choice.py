"""The choice how a loss is computed, by the device of its scores."""

from __future__ import annotations

import importlib.util

from torch import Tensor

from symloss.losses.algebra import Loss
from symloss.losses.fast.computing import Computing
from symloss.losses.fast.kernel_choice import Unit, kernel_for
from symloss.losses.switches import ALWAYS_PLAIN

HAS_TRITON = importlib.util.find_spec("triton") is not None
"""Whether Triton is installed. A constant, because ``torch.compile`` asks for it too."""


def computing_for(loss: Loss, classes: int, unit: Unit | None, scores: Tensor) -> Computing | None:
    """How to compute a loss together with its gradient; None if only the plain formulas serve it.

    Args:
        loss: an expression of the algebra.
        classes: the number of classes.
        unit: divides the scores by their norm; None if they stay as they are.
        scores: a tensor on the device of the scores.
    """
    kernel = kernel_for(loss, classes, unit)
    if kernel is None:
        return None
    if not has_fused_kernels(scores):
        return Computing(kernel, loss, unit)
    from symloss.losses.fused.on_gpu import OnGpu  # noqa: PLC0415 (Triton is not needed anywhere else)

    return OnGpu(kernel, loss, unit)


def has_fused_kernels(scores: Tensor) -> bool:
    """Whether Triton serves the device of these scores."""
    return scores.is_cuda and HAS_TRITON and not ALWAYS_PLAIN
