"""What may be chosen: a learner with its settings."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Shape:
    """The size of the data.

    Args:
        rows: examples to train on.
        features: numbers of each example.
        classes: how many there are.
        sparse: whether the features are a sparse matrix.
    """

    rows: int
    features: int
    classes: int
    sparse: bool = False


@dataclass(frozen=True)
class Candidate:
    """One learner with its settings.

    Args:
        learner: the name of the learner: "network", or one of :data:`symloss.robust.learners.CLASSICAL`.
        settings: names and values, in the order in which they are shown.
        scaling: "raw" for one factor for all features, "standard" for mean 0 and variance 1 of each.
        loss: the loss of a network; None for other learners.

    >>> Candidate("svc", (("C", 1.0), ("gamma", 0.5)), "standard").name
    'svc C=1 gamma=0.5 (standard)'
    """

    learner: str
    settings: tuple[tuple[str, float], ...] = ()
    scaling: str = "raw"
    loss: str | None = None

    @property
    def name(self) -> str:
        """The candidate in words."""
        head = self.learner if self.loss is None else f"{self.learner} {self.loss}"
        values = "".join(f" {name}={value:g}" for name, value in self.settings)
        return f"{head}{values} ({self.scaling})"

    def __getitem__(self, setting: str) -> float:
        return dict(self.settings)[setting]
