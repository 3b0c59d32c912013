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
    """The mean margin of each example over the batches that a model was trained on, for several models.

    Args:
        models: the number of models.
        examples: the number of examples N.

    >>> running = RunningMargins(1, 3)
    >>> running.add(0, torch.tensor([2]), torch.tensor([-1.0]))
    >>> running.means(0)
    tensor([ 0.,  0., -1.])
    """

    def __init__(self, models: int, examples: int):
        self.sums, self.visits = torch.zeros(models, examples), torch.zeros(models, examples)

    def add(self, model: int | slice, rows: Tensor, found: Tensor) -> None:
        """Add the margins of a batch.

        Args:
            model: the number of the model, or a slice of all.
            rows: (M,), or (models, M), the numbers of the examples.
            found: like rows, their margins.
        """
        self.sums[model].scatter_add_(-1, rows, found)
        self.visits[model].scatter_add_(-1, rows, torch.ones_like(found))

    def means(self, model: int) -> Tensor:
        """Return the mean margin (N,) over all visits of a model; 0 for examples never seen."""
        return self.sums[model] / self.visits[model].clamp_min(1)
