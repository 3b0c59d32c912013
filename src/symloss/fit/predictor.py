"""The model that a fit returns: the mean of fitted learners, calibrated to the true classes."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from symloss.fit.candidates import Candidate
from symloss.fit.correction import Round
from symloss.fit.held_out import Labels, fitted, probabilities, stack
from symloss.fit.leaders import mean_scores
from symloss.fit.scaled_table import Scaler, Table
from symloss.fit.single_networks import rows_at_a_time
from symloss.fit.splits import Floats, Split


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
        input_shape: of one row as networks see it.
    """

    scaler: Scaler
    members: tuple[Member, ...]
    temperature: float
    classes: int
    input_shape: tuple[int, ...] = (-1,)

    def probabilities(self, features: Any) -> Floats:
        """The probabilities of the true classes (n, C)."""
        predictions = [self._of(member, self.scaler(features, member.candidate.scaling)) for member in self.members]
        scores = mean_scores(predictions, [member.temperature for member in self.members])
        return torch.from_numpy(scores).div(self.temperature).softmax(1).numpy()

    def _of(self, member: Member, features: Any) -> Floats:
        if member.networks:
            return mean_of_networks(member.networks, torch.from_numpy(features).reshape(-1, *self.input_shape))
        # In float64 for the same reason as the networks.
        return probabilities(member.estimator, features.astype(np.float64), self.classes)

    def module(self) -> nn.Module | None:
        """The first member that is a network, as a module for features that are not scaled; None if there is none."""
        for member in self.members:
            if member.networks:
                return ScaledNetworks(self.scaler, member, self.temperature, self.input_shape)
        return None


def precise(net: nn.Module, candidate: Candidate) -> nn.Module:
    """The network in float64, so that no prediction depends on its neighbours; but users' networks stay as they are."""
    return net.double() if candidate.model is None else net


@torch.no_grad()
def mean_of_networks(networks: Sequence[nn.Module], features: Tensor) -> Floats:
    """The mean (n, C) of the softmax of some networks, in their precision."""
    features = features.to(next((p.dtype for p in networks[0].parameters()), torch.float32))
    blocks = [
        torch.stack([net(block).softmax(1) for net in networks]).mean(0)
        for block in torch.split(features, rows_at_a_time(tuple(features.shape[1:])))
    ]
    return torch.cat(blocks).numpy()


class ScaledNetworks(nn.Module):
    """Networks with the scaling of their features. It returns logarithms of probabilities (n, C).

    Args:
        scaler: of the features.
        member: the networks.
        temperature: of the mean that the member was part of.
        input_shape: of one row as the networks see it.
    """

    shift: Tensor
    size: Tensor

    def __init__(self, scaler: Scaler, member: Member, temperature: float, input_shape: tuple[int, ...]):
        super().__init__()
        shift, size = scaler.shift_and_size(member.candidate.scaling)
        self.register_buffer("shift", torch.tensor(shift, dtype=torch.float32))
        self.register_buffer("size", torch.tensor(size, dtype=torch.float32))
        self.input_shape = input_shape
        self.networks = nn.ModuleList(copy.deepcopy(member.networks)).float()
        self.temperature = member.temperature * temperature

    def forward(self, features: Tensor) -> Tensor:
        scaled = ((features.flatten(1) - self.shift) / self.size).reshape(-1, *self.input_shape)
        mean = torch.stack([net(scaled).softmax(1) for net in self.networks]).mean(0)
        return mean.clamp_min(1e-6).log().div(self.temperature).log_softmax(1)


def mean_predictor(last: Round, table: Table, labels: Labels, seed: int, *, refit: bool = False) -> Predictor:
    """The leaders of the last round, fitted to all rows; but networks as the mean of their folds without ``refit``."""
    corrected = Labels(last.labels, labels.weights)
    members: list[Member] = []
    failures: list[Exception] = []
    for k, (one, temperature) in enumerate(zip(last.leaders.members, last.leaders.temperatures, strict=True)):
        if one.epoch is None or refit:
            try:
                members.append(_fitted_to_all(one.candidate, one.epoch, temperature, corrected, table, seed))
            except ValueError as error:  # it could be fitted to every fold, and the others stand for it
                failures.append(error)
        else:
            networks = tuple(precise(net, one.candidate) for net in last.leaders.networks[k])
            members.append(Member(one.candidate, temperature, networks=networks))
    if not members:
        raise failures[0]
    return Predictor(table.scaler, tuple(members), last.explanation.temperature, table.classes, table.input_shape)


def single_predictor(
    candidate: Candidate, epoch: int | None, temperature: float, last: Round, table: Table, labels: Labels, seed: int
) -> Predictor:
    """One learner, fitted to all rows with the labels of the last round."""
    corrected = Labels(last.labels, labels.weights)
    member = _fitted_to_all(candidate, epoch, temperature, corrected, table, seed)
    return Predictor(table.scaler, (member,), 1.0, table.classes, table.input_shape)


def _fitted_to_all(
    candidate: Candidate, epoch: int | None, temperature: float, labels: Labels, table: Table, seed: int
) -> Member:
    """One learner, fitted to all rows."""
    rows = np.arange(len(labels.numbers))
    if epoch is None:
        return Member(candidate, temperature, fitted(candidate, table, labels, rows, seed))
    networks = stack([candidate], table, labels, [Split(rows, rows[:0])], seed)
    for _ in range(epoch):
        networks.train_epoch()
    return Member(candidate, temperature, networks=(precise(networks.module(0), candidate),))
