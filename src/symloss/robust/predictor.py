"""The model that a fit returns: the mean of fitted learners, calibrated to the true classes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from symloss.robust.candidates import Candidate
from symloss.robust.correction import Round, mean_scores
from symloss.robust.held_out import Labels, fitted, probabilities, stack
from symloss.robust.scaled_table import Scaler, Table
from symloss.robust.splits import Floats, Split

BLOCK = 4096
"""Rows that networks predict at a time."""


@dataclass(frozen=True)
class Member:
    """One fitted learner.

    Args:
        candidate: what it is.
        temperature: what makes its predictions probabilities of the true class.
        estimator: of scikit-learn's kind; None for networks.
        networks: their mean is the prediction; empty for other learners. They compute in float64, so that a prediction
            does not depend on the other rows of a batch.
    """

    candidate: Candidate
    temperature: float
    estimator: Any = None
    networks: tuple[nn.Module, ...] = ()


@dataclass(frozen=True)
class Predictor:
    """The mean of some learners.

    Args:
        scaler: of the features.
        members: the learners.
        temperature: of the mean.
        classes: the number of classes.
    """

    scaler: Scaler
    members: tuple[Member, ...]
    temperature: float
    classes: int

    def probabilities(self, features: Any) -> Floats:
        """The probabilities of the true classes (n, C)."""
        predictions = [self._of(member, self.scaler(features, member.candidate.scaling)) for member in self.members]
        scores = mean_scores(predictions, [member.temperature for member in self.members])
        return torch.from_numpy(scores).div(self.temperature).softmax(1).numpy()

    def _of(self, member: Member, features: Any) -> Floats:
        if member.networks:
            return mean_of_networks(member.networks, torch.from_numpy(features).double())
        return probabilities(member.estimator, features, self.classes)

    def module(self) -> nn.Module | None:
        """The first member that is a network, as a module for features that are not scaled; None if there is none."""
        for member in self.members:
            if member.networks:
                return ScaledNetworks(self.scaler, member, self.temperature)
        return None


@torch.no_grad()
def mean_of_networks(networks: Sequence[nn.Module], features: Tensor) -> Floats:
    """The mean (n, C) of the softmax of some networks."""
    blocks = [
        torch.stack([net(block).softmax(1) for net in networks]).mean(0) for block in torch.split(features, BLOCK)
    ]
    return torch.cat(blocks).numpy()


class ScaledNetworks(nn.Module):
    """Networks with the scaling of their features. It returns logarithms of probabilities (n, C).

    Args:
        scaler: of the features.
        member: the networks.
        temperature: of the mean that the member was part of.
    """

    shift: Tensor
    size: Tensor

    def __init__(self, scaler: Scaler, member: Member, temperature: float):
        super().__init__()
        standard = member.candidate.scaling == "standard"
        self.register_buffer("shift", torch.tensor(scaler.mean if standard else 0.0, dtype=torch.float32))
        self.register_buffer("size", torch.tensor(scaler.deviation if standard else scaler.size, dtype=torch.float32))
        self.networks = nn.ModuleList(copy.deepcopy(member.networks)).float()
        self.temperature = member.temperature * temperature

    def forward(self, features: Tensor) -> Tensor:
        scaled = (features - self.shift) / self.size
        mean = torch.stack([net(scaled).softmax(1) for net in self.networks]).mean(0)
        return mean.clamp_min(1e-6).log().div(self.temperature).log_softmax(1)


def mean_predictor(last: Round, table: Table, labels: Labels, seed: int) -> Predictor:
    """The leaders of the last round: networks as the mean of their folds, other learners fitted to all rows."""
    rows = np.arange(len(labels.numbers))
    corrected = Labels(last.labels, labels.weights)
    members = []
    for k, (one, temperature) in enumerate(zip(last.leaders.members, last.leaders.temperatures, strict=True)):
        if one.epoch is None:
            estimator = fitted(one.candidate, table, corrected, rows, seed)
            members.append(Member(one.candidate, temperature, estimator))
        else:
            networks = tuple(net.double() for net in last.leaders.networks[k])
            members.append(Member(one.candidate, temperature, networks=networks))
    return Predictor(table.scaler, tuple(members), last.temperature, table.classes)


def single_predictor(
    candidate: Candidate, epoch: int | None, temperature: float, last: Round, table: Table, labels: Labels, seed: int
) -> Predictor:
    """One learner, fitted to all rows with the labels of the last round."""
    rows = np.arange(len(labels.numbers))
    corrected = Labels(last.labels, labels.weights)
    if epoch is None:
        member = Member(candidate, temperature, fitted(candidate, table, corrected, rows, seed))
    else:
        networks = stack([candidate], table, corrected, [Split(rows, rows[:0])], seed, candidate.scaling)
        for _ in range(epoch):
            networks.train_epoch()
        member = Member(candidate, temperature, networks=(networks.module(0).double(),))
    return Predictor(table.scaler, (member,), 1.0, table.classes)
