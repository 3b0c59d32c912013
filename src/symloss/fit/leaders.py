"""The candidates that are averaged: how they learn, and what their mean says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from symloss.fit.choice import Judged
from symloss.fit.held_out import (
    Failure,
    Labels,
    LearnerFailed,
    Networks,
    Probabilities,
    network_predictions,
    predictions_in_parallel,
    stack,
)
from symloss.fit.progress import NoProgress, ProgressLines
from symloss.fit.scaled_table import Table
from symloss.fit.splits import Floats, Judge, Rows, Split

TINY = 1e-6
"""Added to probabilities before their logarithm is taken. A learner's zero is no proof."""


Modules = dict[int, list[torch.nn.Module]]
"""Trained networks by the number of the member, a list with one for each split."""


@dataclass(frozen=True)
class Leaders:
    """The candidates that are averaged.

    Args:
        members: the candidates with the epochs at which they stop.
        temperatures: what makes each one's predictions probabilities of the true class.
        networks: the networks of those members that are networks, by the number of the member.
    """

    members: tuple[Judged, ...]
    temperatures: tuple[float, ...]
    networks: Modules


def log(probabilities: Probabilities) -> Floats:
    """Logarithms of probabilities, none of them infinite."""
    return np.log(np.asarray(probabilities, np.float64) + TINY)


def mean_scores(predictions: Sequence[Probabilities], temperatures: Sequence[float]) -> Floats:
    """The logarithms (n, C) of the mean over members of their calibrated probabilities."""
    parts = [
        (torch.from_numpy(log(one)) / temperature).softmax(1).numpy()
        for one, temperature in zip(predictions, temperatures, strict=True)
    ]
    return log(np.mean(parts, 0))


@dataclass(frozen=True, eq=False)
class Material:
    """What the leaders learn from.

    Args:
        table: the features.
        labels: the labels, with weights.
        splits: which rows are held out. Every row is held out once.
        judge: of predictions for rows that are held out.
        seed: of the learners.
        jobs: processes that share the learners.
        progress: is told what the leaders do.
    """

    table: Table
    labels: Labels
    splits: tuple[Split, ...]
    judge: Judge
    seed: int
    jobs: int | None = None
    progress: ProgressLines = field(default_factory=NoProgress)

    def with_labels(self, numbers: Rows) -> Material:
        """The same with other labels: (N,), or (splits, N) if each split has its own."""
        return replace(self, labels=replace(self.labels, numbers=numbers))


def learn(
    members: Sequence[Judged], material: Material, splits: Sequence[Split]
) -> tuple[list[Probabilities], Modules]:
    """Train all members on each of some splits.

    Returns:
        The predictions of each member for the rows that are held out, in the order of the splits; and the networks.

    Raises:
        LearnerFailed: if a member cannot be fitted to these labels.
    """
    classical = [k for k, member in enumerate(members) if member.epoch is None]
    tried = [members[k].candidate for k in classical]
    found = predictions_in_parallel(tried, material.table, material.labels, splits, material.seed, material.jobs)
    predictions: dict[int, Probabilities] = {}
    for k, one in zip(classical, found, strict=True):
        if isinstance(one, Failure):
            raise LearnerFailed(members[k].candidate, one)
        predictions[k] = one
        material.progress.step(f"{len(predictions)} of {len(classical)} learners fitted again")
    networks = _trained(members, material, splits, predictions)
    return [predictions[k] for k in range(len(members))], networks


def _trained(
    members: Sequence[Judged], material: Material, splits: Sequence[Split], predictions: dict[int, Probabilities]
) -> Modules:
    """Train the members that are networks, each to its epoch, and add their predictions."""
    chosen = sorted(
        (k for k, one in enumerate(members) if one.epoch is not None), key=lambda k: str(members[k].candidate.loss)
    )
    if not chosen:
        return {}
    candidates = [members[k].candidate for k in chosen]
    networks = stack(candidates, material.table, material.labels, splits, material.seed, material.jobs)
    trained: Modules = {}
    while chosen:
        networks.train_epoch()
        material.progress.step(f"the leaders' networks learn, epoch {networks.epoch}")
        arrived = [k for k in chosen if members[k].epoch == networks.epoch]
        if not arrived:
            continue
        found = network_predictions(networks, splits)
        for place, k in enumerate(chosen):
            if k in arrived:
                predictions[k] = found[place]
                trained[k] = [networks.module(place * len(splits) + fold) for fold in range(len(splits))]
        chosen = _go_on(networks, chosen, arrived, len(splits))
    return trained


def _go_on(networks: Networks, chosen: list[int], arrived: list[int], folds: int) -> list[int]:
    """The members that are not there yet. The stack keeps their networks only."""
    left = [k for k in chosen if k not in arrived]
    if left:
        networks.keep([chosen.index(k) * folds + fold for k in left for fold in range(folds)])
    return left
