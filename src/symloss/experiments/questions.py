"""The question of a search: which point of a space gives the best validation accuracy with a loss?"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from symloss.data.source import KNOWN, VOUCHED
from symloss.experiments.spaces import Point, Space
from symloss.losses.spec import describe, parse, write
from symloss.training.settings import Settings
from symloss.training.task import build_loss

OF_TRAINING = ("lr", "weight_decay")
"""The dimensions that are settings of training, not parameters of the loss."""
BEST_EPOCH = "the best epoch, smoothed over up to five"
"""How a run on the user's own data is judged. On a published data set it is judged by its last epoch."""


@dataclass(frozen=True)
class Question:
    """Which point of the space has the best validation accuracy with this loss? A study answers it."""

    loss: str
    """The loss as the user wrote it."""
    base: Settings
    """The settings that are not searched."""
    space: Space
    """The points to choose from."""
    seeds: int = 1
    """The number of runs of each point. Their mean counts."""

    def __post_init__(self) -> None:
        if self.base.validation == 0:
            raise ValueError("validation must be above 0 to choose by it; got 0")
        for dimension in self.space.dimensions:
            for value in dimension.values:
                build_loss(self.settings({dimension.name: value}))

    def settings(self, point: Point) -> Settings:
        """The settings of a point: those of the base, with the values of the point."""
        name, parameters = parse(self.base.loss)
        of_loss = {key: value for key, value in point.items() if key not in OF_TRAINING}
        of_training = {key: value for key, value in point.items() if key in OF_TRAINING}
        return replace(self.base, loss=write(name, describe(name).overridden(parameters, of_loss)), **of_training)

    def to_dict(self) -> dict[str, Any]:
        """All that the answer depends on. Settings that are searched are left out."""
        searched = {dimension.name for dimension in self.space.dimensions}
        name, parameters = parse(self.base.loss)
        fixed = {key: value for key, value in parameters.items() if key not in searched}
        settings = {key: value for key, value in self.base.asked().items() if key not in searched}
        # Earlier versions judged the user's own data by the last epoch too. Their studies must not be mixed with these.
        epoch = {} if self.base.data_is_published else {"epoch": BEST_EPOCH}
        return {"settings": settings | {"loss": write(name, fixed)}, "seeds": self.seeds} | epoch


def held_out_labels(settings: Settings) -> str:
    """The kind of labels that the choice is made by, in words."""
    known = settings.data in KNOWN
    if settings.noise == "clean" and settings.data in VOUCHED:
        return "true labels (no noise was added)"
    if settings.noise == "clean":
        return "labels as given" if known else "your labels as they are"
    if settings.clean_validation:
        return "true labels" if known else "your labels, before noise was added"
    return "noisy labels"


def judged_epoch(settings: Settings) -> str:
    """The epoch whose accuracy counts, in words."""
    return "the last epoch" if settings.data_is_published else BEST_EPOCH


def study_name(question: Question, asked: dict[str, Any]) -> str:
    """The name of a study. People can read it, and different searches have different names."""
    base = question.base
    return f"{Path(base.data).stem}-{base.noise}-{question.loss}-{search_key(asked)}"


def search_key(asked: dict[str, Any]) -> str:
    """A hash of a search. Equal searches have equal hashes."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]
