"""The model that a fit returns: the mean of fitted learners, calibrated to the true classes."""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from symloss.fit.choice import Judged, weights
from symloss.fit.held_out import Modules, Trainer, probabilities
from symloss.fit.learners import Candidate
from symloss.fit.networks import rows_at_a_time
from symloss.fit.training_data import Floats, Probabilities, Rows, Scaler

SHARPEST = 0.4
"""The least temperature of a member. Where classes overlap, certainty and much noise explain labels as well as doubt
and little noise do, and the mean of certain members would count votes.
"""
PULLS, LEAST_SHARE = (0.3, 0.2, 0.1), 1e-3
"""The share of the logarithm of its frequency that is taken from the logit of a class, and the least frequency."""
TINY = 1e-6
"""Added to probabilities before their logarithm is taken. A learner's zero is not a proof."""


def log(probabilities: Probabilities) -> Floats:
    """Return the logarithms of probabilities, none of them infinite."""
    return np.log(np.asarray(probabilities, np.float64) + TINY)


def mean_scores(
    predictions: Sequence[Probabilities], temperatures: Sequence[float], weights: Sequence[float]
) -> Floats:
    """Return the logarithms (n, C) of the weighted mean over members of their calibrated probabilities."""
    parts = [
        (torch.from_numpy(log(one)) / temperature).softmax(1).numpy()
        for one, temperature in zip(predictions, temperatures, strict=True)
    ]
    return log(np.average(parts, 0, weights))


@dataclass(frozen=True)
class Leaders:
    """The candidates that are averaged."""

    members: tuple[Judged, ...]  # the candidates with the epochs at which they stop
    temperatures: tuple[float, ...]  # what makes each one's predictions probabilities of the true class
    networks: Modules  # the trained networks, by the number of the member

    @functools.cached_property
    def weights(self) -> tuple[float, ...]:
        """How much each member counts in the mean."""
        return weights(self.members)


@dataclass(frozen=True)
class Member:
    """One fitted learner."""

    candidate: Candidate
    temperature: float  # what makes its predictions probabilities of the true class
    estimator: Any = None  # a scikit-learn estimator; None for networks
    networks: tuple[nn.Module, ...] = ()  # their mean is the prediction; empty for other learners
    weight: float = 1.0  # how much it counts in the mean of all


@dataclass(frozen=True)
class Ensemble:
    """The weighted mean of some learners."""

    scaler: Scaler
    members: tuple[Member, ...]
    temperature: float  # of the mean
    num_classes: int
    input_shape: tuple[int, ...] = (-1,)  # of one row as networks see it
    adjustment: tuple[float, ...] = ()  # added to the logarithms of probabilities, for each class; nothing if empty

    def probabilities(self, features: Any) -> Floats:
        """Return the probabilities of the true classes (n, C)."""
        scores = torch.from_numpy(self.scores(features)).div(self.temperature)
        return adjusted(scores, self.adjustment).softmax(1).numpy()

    def scores(self, features: Any) -> Floats:
        """Return the logarithms (n, C) of the mean of the members, without its temperature and adjustment."""
        predictions = [self._of(member, self.scaler(features, member.candidate.scaling)) for member in self.members]
        temperatures, counts = zip(*((member.temperature, member.weight) for member in self.members), strict=True)
        return mean_scores(predictions, temperatures, counts)

    def _of(self, member: Member, features: Any) -> Floats:
        if member.networks:
            return mean_of_networks(member.networks, torch.from_numpy(features).reshape(-1, *self.input_shape))
        # In float64 for the same reason as the networks, see :func:`precise`.
        return probabilities(member.estimator, features.astype(np.float64), self.num_classes)

    def module(self) -> nn.Module | None:
        """Return the first member that is a network, as a module for unscaled features; None if there is none."""
        networks = (member for member in self.members if member.networks)
        member = next(networks, None)
        return None if member is None else ScaledNetworks(self, member)


def adjusted(scores: Tensor, adjustment: Sequence[float]) -> Tensor:
    """Add the adjustment of each class to scores (n, C)."""
    return scores + torch.tensor(adjustment, dtype=scores.dtype) if adjustment else scores


def adjustment_for(scores: Floats, noisy: Rows) -> tuple[float, ...]:
    """Return what to add to scores against the pull of noise towards frequent classes; nothing if that does harm.

    Learners of noisy labels see a rare class less clearly, and predict it too rarely. So the logits are adjusted, by
    a share of the logarithm of how frequent each class is (Menon et al., *Long-tail learning via logit adjustment*,
    ICLR 2021): the largest share that costs no accuracy on held-out noisy labels.

    Args:
        scores: held-out logits (N, C).
        noisy: labels (N,).

    >>> rare = np.array([[0.0, 0.1]] * 10 + [[0.0, 2.0]] * 70)
    >>> [round(float(value), 2) for value in adjustment_for(rare, np.arange(80) // 10 > 0)]
    [0.54, 0.05]
    >>> adjustment_for(rare, np.arange(80) >= 0)
    ()
    """
    shares = np.maximum(torch.from_numpy(scores).softmax(1).mean(0).numpy(), LEAST_SHARE)
    right = int((scores.argmax(1) == noisy).sum())
    for pull in PULLS:
        added = -pull * np.log(shares)
        if int(((scores + added).argmax(1) == noisy).sum()) >= right:
            return tuple(added.tolist())
    return ()


def precise(net: nn.Module, candidate: Candidate) -> nn.Module:
    """Return a perceptron in float64, so that predictions do not depend on their batch; others unchanged."""
    return net.double() if candidate.model is None else net


@torch.no_grad()
def mean_of_networks(networks: Sequence[nn.Module], features: Tensor) -> Floats:
    """Return the mean (n, C) of the softmax of some networks, in their precision."""
    features = features.to(next((p.dtype for p in networks[0].parameters()), torch.float32))
    blocks = [
        torch.stack([net(block).softmax(1) for net in networks]).mean(0)
        for block in torch.split(features, rows_at_a_time(tuple(features.shape[1:])))
    ]
    return torch.cat(blocks).numpy()


class ScaledNetworks(nn.Module):
    """Networks with the scaling of their features. Returns logarithms of probabilities (n, C)."""

    shift: Tensor
    size: Tensor

    def __init__(self, ensemble: Ensemble, member: Member):
        super().__init__()
        shift, size = ensemble.scaler.shift_and_size(member.candidate.scaling)
        self.register_buffer("shift", torch.tensor(shift, dtype=torch.float32))
        self.register_buffer("size", torch.tensor(size, dtype=torch.float32))
        self.input_shape, self.adjustment = ensemble.input_shape, ensemble.adjustment
        self.networks = nn.ModuleList(copy.deepcopy(member.networks)).float()
        self.temperature = member.temperature * ensemble.temperature

    def forward(self, features: Tensor) -> Tensor:
        scaled = ((features.flatten(1) - self.shift) / self.size).reshape(-1, *self.input_shape)
        mean = torch.stack([net(scaled).softmax(1) for net in self.networks]).mean(0)
        return adjusted(mean.clamp_min(1e-6).log().div(self.temperature), self.adjustment).log_softmax(1)


def ensemble(
    trainer: Trainer, leaders: Leaders, temperature: float, adjustment: tuple[float, ...] = (), *, refit: bool = False
) -> Ensemble:
    """Fit the leaders to all rows; without ``refit`` networks are the mean of those of the folds.

    The ``temperature`` is the one with which the mean explains noisy labels best. Of new rows it is never sharpened.
    """
    members: list[Member] = []
    failures: list[Exception] = []
    for k, (one, likely, weight) in enumerate(zip(leaders.members, leaders.temperatures, leaders.weights, strict=True)):
        each = max(likely, SHARPEST)
        try:
            if one.epoch is None:
                members.append(Member(one.candidate, each, trainer.fitted(one.candidate), weight=weight))
                continue
            networks = (
                leaders.networks[k] if not refit else [trainer.network_on_all(one.candidate, one.epoch).module(0)]
            )
        except ValueError as error:  # it could be fitted to every fold, and the others stand for it
            failures.append(error)
        else:
            exact = tuple(precise(net, one.candidate) for net in networks)
            members.append(Member(one.candidate, each, None, exact, weight))
    if not members:
        raise failures[0]
    data = trainer.data
    return Ensemble(data.scaler, tuple(members), max(temperature, 1.0), data.num_classes, data.input_shape, adjustment)
