"""A loss together with its kernel."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from symloss.losses.algebra import Loss
from symloss.losses.fast.blocks import block_rows, by_blocks, new_scratch
from symloss.losses.fast.capped import CappedKernel
from symloss.losses.fast.kernel_choice import Unit, kernel_for
from symloss.losses.fast.kernels import Kernel


class Computing:
    """Computes a loss at labels together with its gradient, by operations of torch, on every device.

    Args:
        kernel: from ``kernel_for``.
        loss: the loss.
        unit: divides the scores by their norm; None if they stay as they are.
    """

    __slots__ = ("kernel", "loss", "unit")

    def __init__(self, kernel: Kernel, loss: Loss, unit: Unit | None):
        self.kernel, self.loss, self.unit = kernel, loss, unit

    def __call__(
        self, z: Tensor, y: Tensor, share: Tensor, out: Tensor | None, scratch: Sequence[Tensor] | None = None
    ) -> Tensor:
        """The values at the labels. The gradient of sum(share * values) is written to ``out``, as by ``by_blocks``."""
        return by_blocks(self.kernel, z, y, share, out, scratch)

    def scratch(self, z: Tensor) -> list[Tensor] | None:
        """The scratch tensors for blocks of such scores."""
        return new_scratch(self.kernel, z[: block_rows(z)])

    def capped(self, cap: float) -> Computing:
        """The same with a soft cap of the scores: cap * tanh(z / cap)."""
        return Computing(CappedKernel(self.kernel, cap), self.loss, self.unit)


def computing_for(loss: Loss, classes: int, unit: Unit | None) -> Computing | None:
    """How to compute a loss together with its gradient; None if only the plain formulas serve it.

    Args:
        loss: an expression of the algebra.
        classes: the number of classes.
        unit: divides the scores by their norm; None if they stay as they are.
    """
    kernel = kernel_for(loss, classes, unit)
    return None if kernel is None else Computing(kernel, loss, unit)
