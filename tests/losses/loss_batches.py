"""What several tests of losses share: targets of every kind, masks, and the value of a loss at every label."""

import copy
import pickle
from collections.abc import Callable

import torch
from conftest import random_labels
from torch import Tensor, nn

from symloss.losses.catalogue import RECORDS

NORMALIZED = ("unhinged", "sgce", "alpha-mae")
"""The losses of the paper, which divide the scores by their norm."""
WEIGHT = torch.tensor([0.5, 3.0, 0.0, 1.5], dtype=torch.float64)


def picked(every: Tensor, labels: Tensor) -> Tensor:
    return every.gather(1, labels[:, None])[:, 0]


def at_every_label(loss: Callable[..., Tensor], scores: Tensor) -> Tensor:
    """The values (N, C) of a loss with reduction none, label after label."""
    return torch.stack([loss(scores, torch.full(scores.shape[:1], k)) for k in range(scores.shape[1])], 1)


def labels_for(scores: Tensor, ignore_index: int | None = None) -> Tensor:
    """Labels for these scores, every third one ignored if that is asked for."""
    dim = 0 if scores.dim() == 1 else 1
    labels = random_labels(*scores.shape[:dim], *scores.shape[dim + 1 :])
    if ignore_index is not None:
        labels.view(-1)[::3] = ignore_index
    return labels


def other_parameters(name: str) -> dict[str, float]:
    """Allowed values that are not the defaults."""
    parameters = [p for p in RECORDS[name].parameters if p.default is not None]
    return {p.name: p.default + 1 if p.whole else 0.9 * p.default for p in parameters}


ROUND_TRIPS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "deepcopy": copy.deepcopy,
}

MASK = torch.tensor([[1, 1, 0, 1], [0, 1, 1, 1], [1, 1, 1, 1], [0, 1, 0, 1]], dtype=torch.bool)
MASK_LABELS = torch.tensor([3, 1, 0, 3])


def masked(scores: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, scores, -torch.inf)
