"""Rounds of correction: the leaders name the wrong labels, and learn again from the corrected ones.

A round takes the mean of the leaders' predictions for rows that they were not trained on. A transition matrix is
fitted to them (:func:`symloss.noise.calibrate`). With it and the label that was given, the most probable true class
of each row is the label of the next round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from symloss.noise.calibration import Calibration, calibrate
from symloss.robust.choice import RARE, Judged
from symloss.robust.held_out import Labels, Networks, Probabilities, classical_predictions, network_predictions, stack
from symloss.robust.scaled_table import Table
from symloss.robust.splits import Floats, Rows, Split, standard_error

SEPARATION = 0.15
"""How far the noise, and not the overlap of classes, explains what the features leave open."""
TINY = 1e-6
"""Added to probabilities before their logarithm is taken. A learner's zero is no proof."""


@dataclass(frozen=True)
class Leaders:
    """The candidates that are averaged.

    Args:
        members: the candidates with the epochs at which they stop.
        temperatures: what makes each one's predictions probabilities of the true class.
        networks: the trained networks of the members that are networks, by the number of the member, a list with one
            for each split.
    """

    members: tuple[Judged, ...]
    temperatures: tuple[float, ...]
    networks: dict[int, list[torch.nn.Module]]


@dataclass(frozen=True)
class Round:
    """What one round knows, for all N rows.

    Args:
        labels: (N,), what the leaders were trained on.
        leaders: the candidates, with networks trained on these labels.
        scores: (N, C), logarithms of the mean of their predictions for rows that they were not trained on.
        calibration: how these explain the noisy labels.
        temperature: what makes the scores probabilities: the most likely one with the transition matrix of
            ``calibration``, whose own temperature is the lower one of classes that are apart.
    """

    labels: Rows
    leaders: Leaders
    scores: Floats
    calibration: Calibration
    temperature: float

    def posterior(self, noisy: Rows) -> Floats:
        """(N, C), the probabilities of the true classes, given features and noisy labels."""
        found = self.calibration.posterior(torch.from_numpy(self.scores), torch.from_numpy(noisy))
        return found.numpy()


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


def first_round(leaders: Sequence[Judged], table: Table, labels: Labels, splits: Sequence[Split], seed: int) -> Round:
    """The round whose labels are those that were given."""
    return _round(leaders, table, labels, labels.numbers, splits, seed)


def next_round(before: Round, table: Table, labels: Labels, splits: Sequence[Split], seed: int) -> Round | None:
    """The leaders again, trained on corrected labels. None if few are wrong, or if a class would lose all examples.

    If few are wrong, the hardest examples would be taken for wrong ones. On clean digits that cost 0.7 points.
    """
    if before.calibration.noise_rate < RARE:
        return None
    corrected = before.posterior(labels.numbers).argmax(1).astype(np.int64)
    if len(np.unique(corrected)) < len(np.unique(labels.numbers)):
        return None
    return _round(before.leaders.members, table, replace(labels, numbers=corrected), labels.numbers, splits, seed)


def is_worse(after: Round, before: Round, noisy: Rows) -> bool:
    """Whether a round predicts held-out noisy labels worse than the one before, by more than a paired standard error.

    Labels of classes that overlap are corrected wrongly, and the next round learns that. It is a coarse guard: the
    corrected labels come from learners that have seen the rows that are held out.
    """
    right = [np.asarray(one.scores.argmax(1) == noisy, np.float64) for one in (before, after)]
    lost = right[0] - right[1]
    return bool(lost.mean() > standard_error(lost))


def _round(
    members: Sequence[Judged], table: Table, labels: Labels, noisy: Rows, splits: Sequence[Split], seed: int
) -> Round:
    predictions: dict[int, Probabilities] = {}
    for k, member in enumerate(members):
        if member.epoch is None:
            predictions[k] = classical_predictions(member.candidate, table, labels, splits, seed)
    networks = _trained(members, table, labels, splits, seed, predictions)
    order = np.argsort(np.concatenate([split.held_out for split in splits]))
    by_row = [predictions[k][order] for k in range(len(members))]
    temperatures = tuple(calibrate(torch.from_numpy(log(one)), torch.from_numpy(noisy)).temperature for one in by_row)
    scores = mean_scores(by_row, temperatures)
    rows, given = torch.from_numpy(scores), torch.from_numpy(noisy)
    calibration = calibrate(rows, given, separation=SEPARATION)
    temperature = calibrate(rows, given, calibration.transition).temperature
    return Round(labels.numbers, Leaders(tuple(members), temperatures, networks), scores, calibration, temperature)


def _trained(
    members: Sequence[Judged],
    table: Table,
    labels: Labels,
    splits: Sequence[Split],
    seed: int,
    predictions: dict[int, Probabilities],
) -> dict[int, list[torch.nn.Module]]:
    """Train the members that are networks, each to its epoch, and add their predictions."""
    chosen = sorted(
        (k for k, one in enumerate(members) if one.epoch is not None), key=lambda k: str(members[k].candidate.loss)
    )
    if not chosen:
        return {}
    candidates = [members[k].candidate for k in chosen]
    networks = stack(candidates, table, labels, splits, seed, candidates[0].scaling)
    modules: dict[int, list[torch.nn.Module]] = {}
    while chosen:
        networks.train_epoch()
        arrived = [k for k in chosen if members[k].epoch == networks.epoch]
        if not arrived:
            continue
        found = network_predictions(networks, splits)
        for place, k in enumerate(chosen):
            if k in arrived:
                predictions[k] = found[place]
                modules[k] = [networks.module(place * len(splits) + fold) for fold in range(len(splits))]
        chosen = _go_on(networks, chosen, arrived, len(splits))
    return modules


def _go_on(networks: Networks, chosen: list[int], arrived: list[int], folds: int) -> list[int]:
    """The members that are not there yet. The stack keeps their networks only."""
    left = [k for k in chosen if k not in arrived]
    if left:
        networks.keep([chosen.index(k) * folds + fold for k in left for fold in range(folds)])
    return left
