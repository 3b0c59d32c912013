"""Every loss as a function of (input, target), with its parameters and the options of ``F.cross_entropy``.

>>> import torch
>>> from symloss import functional as F
>>> F.gce(torch.zeros(2, 4), torch.tensor([0, 3]), q=0.5)
tensor(1.)
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from symloss.losses.create import FUNCTIONS
from symloss.losses.heads import linear_loss, linear_unhinged

__all__ = ["linear_loss", "linear_unhinged", *FUNCTIONS]  # noqa: PLE0604


def __getattr__(name: str) -> Callable[..., Tensor]:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
