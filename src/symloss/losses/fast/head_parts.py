"""A linear layer and its inputs."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor
from torch.nn import functional as F  # noqa: N812


class Head(NamedTuple):
    """A linear layer and its inputs. All parts have one type, but the bias may have more precision."""

    features: Tensor
    """Shape (N, d)."""
    weight: Tensor
    """Shape (C, d)."""
    bias: Tensor | None
    """Shape (C,)."""

    def scores(self) -> Tensor:
        """All scores, shape (N, C)."""
        return F.linear(self.features, self.weight, self.bias)
