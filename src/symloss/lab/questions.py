"""What a search is asked: which settings of a loss do best, chosen between the points of a space."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from symloss.data.names import KNOWN, VOUCHED
from symloss.lab.search_space import Point, Space
from symloss.losses.spec import parse, write
from symloss.runs.settings import Settings
from symloss.training.task import build_loss

OF_TRAINING = ("lr", "weight_decay")
"""Dimensions that are no parameters of the loss."""


@dataclass(frozen=True)
class Question:
    """What a study answers: which point of the space does best with this loss, by the mean over so many seeds?"""

    loss: str
    """As the user wrote it."""
    base: Settings
    """What is not searched."""
    space: Space
    seeds: int = 1

    def __post_init__(self) -> None:
        if self.base.validation == 0:
            raise ValueError("validation must be above 0 to choose by it; got 0")
        for dimension in self.space.dimensions:
            for value in dimension.values:
                build_loss(self.settings({dimension.name: value}))

    def settings(self, point: Point) -> Settings:
        """The settings of a point: those of the base, with the values of the point in them."""
        name, parameters = parse(self.base.loss)
        of_loss = {key: value for key, value in point.items() if key not in OF_TRAINING}
        of_training = {key: value for key, value in point.items() if key in OF_TRAINING}
        return replace(self.base, loss=write(name, parameters | of_loss), **of_training)

    def to_dict(self) -> dict[str, Any]:
        """Everything that decides the answer. What is searched is left out of the settings."""
        searched = {dimension.name for dimension in self.space.dimensions}
        name, parameters = parse(self.base.loss)
        fixed = {key: value for key, value in parameters.items() if key not in searched}
        settings = {key: value for key, value in self.base.to_dict().items() if key not in searched}
        return {"settings": settings | {"loss": write(name, fixed)}, "seeds": self.seeds}


def held_out_labels(settings: Settings) -> str:
    """By which labels the choice is made, in words for people."""
    known = settings.data in KNOWN
    if settings.noise == "clean" and settings.data in VOUCHED:
        return "true labels (no noise was added)"
    if settings.noise == "clean":
        return "labels as given" if known else "your labels as they are"
    if settings.clean_validation:
        return "true labels" if known else "your labels, before noise was added"
    return "noisy labels"


def study_name(question: Question, asked: dict[str, Any]) -> str:
    """A name of a study that people can read, and that no two searches share."""
    base = question.base
    return f"{Path(base.data).stem}-{base.noise}-{question.loss}-{search_key(asked)}"


def search_key(asked: dict[str, Any]) -> str:
    """The same for the same search."""
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]
