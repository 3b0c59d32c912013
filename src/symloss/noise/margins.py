"""Margins of labels: how far a model's score of the label is above all others. Wrong labels have low ones."""

import torch
from torch import Tensor


def margins(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the margin of scores, and that of the scores divided by their norm.

    Args:
        scores: (N, C), by a model.
        labels: (N,), class numbers.

    Returns:
        (2, N) in float32: score of the label minus the largest other score; and the same of scores / norm. Scores that
        are all 0 have the margins 0.

    >>> margins(torch.tensor([[3.0, 4.0]]), torch.tensor([0]))
    tensor([[-1.0000],
            [-0.2000]])
    """
    scores, column = scores.float(), labels[:, None]
    others = scores.scatter(1, column, -torch.inf).amax(1)
    margin = scores.gather(1, column).squeeze(1) - others
    # The smallest normal number: what is below may be flushed to 0.
    norm = torch.linalg.vector_norm(scores, dim=1).clamp_min(torch.finfo(torch.float32).tiny)
    return torch.stack([margin, margin / norm])


class RunningMargins:
    """The mean margin of each of N examples over the batches that a network was trained on.

    >>> running = RunningMargins(3)
    >>> running.add(torch.tensor([2]), torch.tensor([-1.0]))
    >>> running.means()
    tensor([ 0.,  0., -1.])
    """

    def __init__(self, examples: int):
        self.sums, self.visits = torch.zeros(examples), torch.zeros(examples)

    def add(self, rows: Tensor, found: Tensor) -> None:
        """Add the margins ``found`` of a batch, whose examples have the numbers ``rows``: both (M,)."""
        self.sums.scatter_add_(0, rows, found)
        self.visits.scatter_add_(0, rows, torch.ones_like(found))

    def means(self) -> Tensor:
        """Return the mean margin (N,) over all visits; 0 for examples never seen."""
        return self.sums / self.visits.clamp_min(1)
