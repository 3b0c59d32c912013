"""What a loss reads of the label and of the other classes."""

from __future__ import annotations

from torch import Tensor

from symloss.losses.leaves import Potential
from symloss.losses.logits import Scores


class AtLabel:
    """The quantities of each example that a loss reads: the label's p, 1 - p and log p, and sums over other classes."""

    def __init__(self, behind: Tensor, others: Tensor, classes: int, scores: Scores | None = None):
        """Args:
        behind: the label's score minus the largest one, shape (N, 1, ...).
        others: the sum of exp(z - max z) over the other classes, in the same shape.
        classes: the number of classes.
        scores: the scores, if classes may be masked out. Then each example has its number of classes.
        """
        label = behind.exp()
        self.behind, self.others = behind, others
        self.inverse = (label + others).reciprocal_()
        self.p, self.miss = label.mul_(self.inverse), others * self.inverse
        self.rest: dict[Potential, Tensor] = {}
        self.classes: int | Tensor = classes if scores is None else scores.count
        self.scores = scores
        self._logp: Tensor | None = None
        self._log_total: Tensor | None = None

    @property
    def logp(self) -> Tensor:
        """The label's log p. It is computed on demand: not every loss reads it."""
        if self._logp is None:
            total = self._log_total
            self._logp = self.behind - (self.log_total if total is None else total)
        return self._logp

    @property
    def log_total(self) -> Tensor:
        """log sum_k exp(z_k - max z)."""
        if self._log_total is None:
            self._log_total = self.behind.expm1().add_(self.others).log1p_()
        return self._log_total
