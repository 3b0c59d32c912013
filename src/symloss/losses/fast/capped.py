"""A kernel of scores with a soft cap."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from symloss.losses.fast.kernels import Job, Kernel
from symloss.losses.logits import Scores


@dataclass
class CappedKernel:
    """A kernel of the scores cap * tanh(z / cap). It turns the gradient into one of z."""

    kernel: Kernel
    cap: float
    scratch: int = field(init=False)
    shows_masks: ClassVar = False
    squares: ClassVar = False

    def __post_init__(self) -> None:
        self.scratch = 1 + self.kernel.scratch

    def __call__(self, job: Job) -> Tensor:
        z, y, share, out, (capped, *for_kernel), scores, _ = job
        torch.mul(z, 1 / self.cap, out=capped).tanh_().mul_(self.cap)
        if scores is not None:
            capped.masked_fill_(~scores.present, -torch.inf)
            scores = Scores(capped, 1)
        values = self.kernel(Job(capped, y, share, out, for_kernel, scores))
        if scores is not None:
            capped.masked_fill_(~scores.present, 0.0)
        # The derivative of the cap is 1 - (capped / cap)^2.
        out.sub_(capped.mul_(1 / self.cap).square_().mul_(out))
        return values
