"""A loss on a GPU: by its fused kernel, or by operations of torch where it has none."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from symloss.losses.fast.computing import Computing
from symloss.losses.fused.fused_kernel import TYPES, FusedKernel, fused_kernel, served


class OnGpu(Computing):
    """Computes a loss at labels together with its gradient, by one kernel where the scores allow it."""

    def __call__(
        self, z: Tensor, y: Tensor, share: Tensor, out: Tensor | None, scratch: Sequence[Tensor] | None = None
    ) -> Tensor:
        fused = self.fused(z)
        values = None if fused is None else _launched(fused, z, y, share, out)
        return super().__call__(z, y, share, out, scratch) if values is None else values

    def scratch(self, z: Tensor) -> list[Tensor] | None:
        return super().scratch(z) if self.fused(z) is None else None

    def fused(self, z: Tensor) -> FusedKernel | None:
        """The fused kernel for these scores; None if there is none."""
        if z.dim() != 2 or z.stride(1) != 1 or z.dtype not in TYPES or _broken or not served(self.loss, z.shape[1]):
            return None
        return fused_kernel(self.loss, z.shape[1], self.unit, interpret=z.is_cpu)


_broken: list[str] = []
"""Why fused kernels cannot be used on this machine; empty if they can."""


def _launched(fused: FusedKernel, z: Tensor, y: Tensor, share: Tensor, out: Tensor | None) -> Tensor | None:
    """The values by a fused kernel; None if it cannot be built on this machine, which is said once."""
    shares = (share.squeeze(1) if share.dim() else share).to(z.device, torch.float32)
    gradient = torch.empty_like(z) if out is None else out
    try:
        return fused(z, y.squeeze(1).contiguous(), shares, gradient).unsqueeze(1)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # Triton, and the compilers that it calls, raise errors of many kinds
        _broken.append(str(error))
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        warnings.warn(
            f"Triton cannot build kernels on this machine, so losses are computed by operations of torch: {first}",
            stacklevel=2,
        )
        return None
