"""A fused kernel inside a graph of ``torch.compile``."""

from __future__ import annotations

import torch
from torch import Tensor

from symloss.losses.algebra import Loss
from symloss.losses.fast.kernel_choice import Unit
from symloss.losses.fast.labelled import Labelled
from symloss.losses.fused.operator import fused_key, fused_loss


def loss_in_graph(loss: Loss, z: Tensor, examples: Labelled, unit: Unit | None) -> Tensor | None:
    """The loss of scores (N, C) while they are traced; None if the loss has no fused kernel.

    Args:
        loss: an expression of the algebra.
        z: scores (N, C).
        examples: the labels, and what each example counts for.
        unit: divides the scores by their norm; None if they stay as they are.
    """
    key = fused_key(loss, z.shape[1], unit)
    if not key:
        return None
    labels = examples.labels
    counts = torch.ones_like(labels, dtype=torch.float32)
    counts = counts if examples.kept is None else torch.where(examples.kept, counts, 0.0)
    return examples.reduced(fused_loss(z.contiguous(), labels, counts, key)[0][:, None])
