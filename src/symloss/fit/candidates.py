"""What may be chosen: a learner with its settings."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import nn

Factory = Callable[[tuple[int, ...], int], nn.Module]
"""Builds a network from the shape of one input and the number of classes."""


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
        learner: the name of the learner: "network", or one of :data:`symloss.fit.learners.CLASSICAL`.
        settings: names and values, in the order in which they are shown.
        scaling: "raw" for one factor for all features, "standard" for mean 0 and variance 1 of each.
        loss: the loss of a network; None for other learners.
        model: a name for :func:`symloss.training.models.create_model`, or a factory; None for the networks that are
            trained stacked, and for other learners.

    >>> Candidate("svc", (("C", 1.0), ("gamma", 0.5)), "standard").name
    'svc C=1 gamma=0.5 (standard)'
    """

    learner: str
    settings: tuple[tuple[str, float], ...] = ()
    scaling: str = "raw"
    loss: str | None = None
    model: str | Factory | None = None

    @property
    def name(self) -> str:
        """The candidate in words."""
        head = " ".join(part for part in (self.learner, self.model_name, self.loss) if part is not None)
        values = "".join(f" {name}={value:g}" for name, value in self.settings)
        return f"{head}{values} ({self.scaling})"

    @property
    def model_name(self) -> str | None:
        """The name of the model, or of its factory."""
        return self.model if self.model is None or isinstance(self.model, str) else name_of(self.model)

    def __getitem__(self, setting: str) -> float:
        return dict(self.settings)[setting]


def name_of(factory: object) -> str:
    """What a factory is called."""
    return str(getattr(factory, "__name__", type(factory).__name__))
