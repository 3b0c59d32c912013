"""Early-learning regularisation (ELR): a network is held to what it predicted before it memorised wrong labels.

Liu, Niles-Weed, Razavian, Fernandez-Granda, *Early-Learning Regularization Prevents Memorization of Noisy Labels*
(NeurIPS 2020).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from symloss import checks

NAME = "elr"
MOMENTUM = 0.9
"""How much of an example's mean prediction stays with each epoch."""
LEAST = 1e-4
"""Probabilities are kept this far from 0 and 1."""


def is_early_learning(loss: str) -> bool:
    """Return whether a spec names ELR, which is no loss of a batch alone: it remembers each example.

    >>> is_early_learning("elr:strength=3"), is_early_learning("gce")
    (True, False)
    """
    return loss.partition(":")[0] == NAME


class EarlyLearning:
    """Cross-entropy + strength * log(1 - <t, p>): p is predicted for an example, and t its mean over epochs.

    Args:
        strength: of the regularisation.

    >>> elr, history = EarlyLearning(3.0), EarlyLearning.history(1, 2, 2)
    >>> elr(torch.zeros(1, 2, 2), torch.tensor([[0, 1]]), history, torch.tensor([[0, 1]]))
    tensor([[0.5393, 0.5393]])
    >>> history[0]
    tensor([[0.0500, 0.0500],
            [0.0500, 0.0500]])
    """

    def __init__(self, strength: float):
        self.strength = checks.number("strength", strength, "[0, inf)")

    @classmethod
    def of(cls, spec: str) -> EarlyLearning:
        """Return what a spec such as "elr:strength=3" names."""
        name, _, value = spec.partition(":")[2].partition("=")
        if name != "strength":
            raise ValueError(f"{NAME} must have a strength, as in elr:strength=1; got {spec!r}")
        return cls(float(value))

    @staticmethod
    def history(networks: int, rows: int, num_classes: int) -> Tensor:
        """Return (networks, rows, C), mean predictions before any was made."""
        return torch.zeros(networks, rows, num_classes)

    def __call__(self, scores: Tensor, labels: Tensor, history: Tensor, rows: Tensor) -> Tensor:
        """Return the loss (M, n) of scores (M, n, C) and add their predictions to the history (M, N, C).

        Args:
            scores: of M networks at n examples each.
            labels: (M, n), the classes.
            history: (M, N, C), the mean prediction for each example; changed in place.
            rows: (M, n), which of the N examples these are.
        """
        probabilities = scores.softmax(2).clamp(LEAST, 1 - LEAST)
        network = torch.arange(len(rows), device=rows.device)[:, None]
        with torch.no_grad():
            now = probabilities / probabilities.sum(2, keepdim=True)
            history[network, rows] = MOMENTUM * history[network, rows] + (1 - MOMENTUM) * now
        agreement = (history[network, rows] * probabilities).sum(2)
        cross_entropy = F.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels)
        return cross_entropy + self.strength * (1 - agreement).log()
