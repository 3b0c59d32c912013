"""Model, loss and optimiser, from the settings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from symloss.losses.catalogue import RECORDS
from symloss.losses.create import create_loss
from symloss.losses.criterion import Criterion, ScoreMap
from symloss.losses.scores import BatchNormScores, append_scores
from symloss.losses.spec import parse, write
from symloss.models import create_model
from symloss.runs.settings import Settings


def build_model(settings: Settings, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    model = create_model(settings.model, input_shape=input_shape, classes=classes, seed=settings.seed)
    if settings.scores != "batch-norm":
        return model
    return append_scores(model, BatchNormScores(classes))


def require_scores(scores: Tensor, classes: int, model: str) -> None:
    if scores.dim() != 2 or scores.shape[1] != classes:
        given = tuple(scores.shape)
        raise ValueError(
            f"model {model!r} must return {classes} scores for each example; got a tensor of shape {given}"
        )


def build_loss(settings: Settings) -> Criterion:
    if settings.scores == "loss":
        return create_loss(settings.loss)
    return create_loss(settings.loss, normalize="l2" if settings.scores == "l2" else None)


def build_score_map(settings: Settings) -> ScoreMap | None:
    """What the loss does to the scores. No code of the user's own is imported for it."""
    name, options = parse(settings.loss)
    loss = settings.loss if name in RECORDS else write("ce", options)
    return build_loss(replace(settings, loss=loss)).score_map


def build_optimizer(settings: Settings, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer in ("adam", "adamw"):
        adam = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
        # One kernel for a tensor's update; a tenth of a step of a small network.
        return adam(parameters, fused=True, **common)
    nesterov = settings.optimizer == "nesterov"
    return torch.optim.SGD(parameters, momentum=settings.momentum, nesterov=nesterov, **common)
