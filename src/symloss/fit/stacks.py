"""Small networks of one shape that learn side by side, in one batched product each step: perceptrons, linear layers.

A step of a small network costs mostly the calls. One step of sixty stacked perceptrons costs little more than a step of
one.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, nn

from symloss.fit.early_learning import EarlyLearning, is_early_learning
from symloss.training.models import create_model

HIDDEN = 256
PERCEPTRON = f"mlp:hidden={HIDDEN}"
STACKED = {"network": PERCEPTRON, "linear": "linear"}
"""What learners that are trained as stacks are called, and the names of their plain modules."""
FORGET = (0.9, 0.99)
"""How much of the running means of Adam stays with each step."""
KEPT_STATISTICS = 0.9
"""How much of the running means of batch normalisation stays with each step."""
EPS = 1e-5
"""Added to variances by batch normalisation, as torch does."""
STEP = 0.4
"""How much the score of a linear layer may change in a step of Adam, where all features have size 1."""


@dataclass(frozen=True)
class NetworkMember:
    """One of the networks that are trained together."""

    loss: str  # the spec of its loss
    weight_decay: float  # decoupled, as in AdamW
    rows: Tensor  # (n,), the rows it is trained on
    fold: int  # the number of its split. Networks of one split start from the same weights and see the same batches


class Stack(ABC):
    """Networks with the same layers, whose weights are stacked.

    Members with the same loss are next to each other.

    Args:
        members: the networks.
        features: how many an example has.
        num_classes: the number of classes.
        rows: how many examples there are.
        seed: of the initial weights.
    """

    model: str
    """The name of the same network as a plain module."""

    def __init__(self, members: Sequence[NetworkMember], features: int, num_classes: int, rows: int, seed: int):
        self.members, self.step = list(members), 0
        self.decay = torch.tensor([member.weight_decay for member in members]).view(-1, 1, 1)
        self.parameters = [p.requires_grad_() for p in self._initial_parameters(features, num_classes, seed)]
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        remembers = any(is_early_learning(member.loss) for member in members)
        self.history = EarlyLearning.history(len(members), rows, num_classes) if remembers else None

    @abstractmethod
    def _initial_parameters(self, features: int, num_classes: int, seed: int) -> list[Tensor]: ...

    @abstractmethod
    def forward(self, features: Tensor, rows: Tensor, train: bool = True) -> Tensor:
        """Return the scores (M, n, C) of each network at its own rows (M, n) of the features (N, d)."""

    @abstractmethod
    def state(self, k: int) -> dict[str, Tensor]:
        """Return the weights of the k-th network by their names in the plain module."""

    def to(self, device: torch.device | str) -> Self:
        """Move everything to a device."""
        self.parameters = [p.detach().to(device).requires_grad_() for p in self.parameters]
        self.first, self.second = ([state.to(device) for state in states] for states in (self.first, self.second))
        self.decay = self.decay.to(device)
        self.history = None if self.history is None else self.history.to(device)
        return self

    def descend(self, loss: Tensor, rate: float) -> None:
        """Take one step of Adam, with weight decay for the matrices. Each network has a weight decay of its own."""
        gradients = torch.autograd.grad(loss, self.parameters)
        self.step += 1
        first_scale, second_scale = (1 - forget**self.step for forget in FORGET)
        with torch.no_grad():
            for p, g, first, second in zip(self.parameters, gradients, self.first, self.second, strict=True):
                first.lerp_(g, 1 - FORGET[0])
                second.mul_(FORGET[1]).addcmul_(g, g, value=1 - FORGET[1])
                if p.shape[1] > 1:
                    p.mul_(1 - rate * self.decay)
                p.addcdiv_(first, (second / second_scale).sqrt_().add_(1e-8), value=-rate / first_scale)

    def scores(self, features: Tensor, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the scores (n, C) of each network at its own rows, in blocks that take little memory."""
        longest = max(len(r) for r in rows)
        padded = torch.stack([torch.cat([r, r.new_zeros(longest - len(r))]) for r in rows])
        block = max(1, 20_000_000 // (len(rows) * (features.shape[1] + HIDDEN)))
        parts = [self.forward(features, part, train=False) for part in torch.split(padded, block, 1)]
        return [score[: len(r)] for score, r in zip(torch.cat(parts, 1), rows, strict=True)]

    def keep(self, kept: Sequence[int]) -> Self:
        """Return the same with some of the networks only."""
        index = torch.tensor(kept, device=self.decay.device)
        self.members = [self.members[k] for k in kept]
        self.parameters = [p.detach()[index].requires_grad_() for p in self.parameters]
        self.first, self.second = ([state[index] for state in states] for states in (self.first, self.second))
        self.decay = self.decay[index]
        self.history = None if self.history is None else self.history[index]
        return self

    @torch.no_grad()
    def module(self, k: int) -> nn.Module:
        """Return the k-th network as a plain module for features (n, d)."""
        shape, classes = (self.parameters[0].shape[1],), self.parameters[-1].shape[2]
        module = create_model(self.model, input_shape=shape, num_classes=classes, seed=0)
        state = module.state_dict()
        own = {name: value.reshape(state[name].shape).cpu() for name, value in self.state(k).items()}
        module.load_state_dict(state | own)
        return module.eval()


class Perceptrons(Stack):
    """Perceptrons with one hidden layer and batch normalisation."""

    model = PERCEPTRON

    def __init__(self, members: Sequence[NetworkMember], features: int, num_classes: int, rows: int, seed: int):
        super().__init__(members, features, num_classes, rows, seed)
        self.mean = torch.zeros(len(members), 1, HIDDEN)
        self.variance = torch.ones(len(members), 1, HIDDEN)

    def _initial_parameters(self, features: int, num_classes: int, seed: int) -> list[Tensor]:
        """Return weights and biases of the hidden layer, factor and shift of the normalisation, then the last layer."""
        by_fold: dict[int, list[Tensor]] = {}
        for fold in sorted({member.fold for member in self.members}):
            generator = torch.Generator().manual_seed(1000 * seed + fold)
            sizes = [(features, HIDDEN), (HIDDEN, num_classes)]
            by_fold[fold] = [math.sqrt(2 / a) * torch.randn(a, b, generator=generator) for a, b in sizes]
        first, last = (torch.stack([by_fold[member.fold][k] for member in self.members]) for k in (0, 1))
        count = len(self.members)
        hidden = [first, torch.zeros(count, 1, HIDDEN), torch.ones(count, 1, HIDDEN), torch.zeros(count, 1, HIDDEN)]
        return [*hidden, last, torch.zeros(count, 1, num_classes)]

    def to(self, device: torch.device | str) -> Self:
        """Move everything to a device."""
        self.mean, self.variance = self.mean.to(device), self.variance.to(device)
        return super().to(device)

    def forward(self, features: Tensor, rows: Tensor, train: bool = True) -> Tensor:
        """Return the scores (M, n, C) of each network at its own rows (M, n) of the features (N, d)."""
        weight, bias, factor, shift, last_weight, last_bias = self.parameters
        hidden = torch.baddbmm(bias, features[rows], weight)
        if train:
            variance, mean = torch.var_mean(hidden, 1, correction=0, keepdim=True)
            self.mean.lerp_(mean.detach(), 1 - KEPT_STATISTICS)
            self.variance.lerp_(variance.detach(), 1 - KEPT_STATISTICS)
        else:
            mean, variance = self.mean, self.variance
        scale = factor * (variance + EPS).rsqrt()
        return torch.baddbmm(last_bias, (hidden * scale + (shift - mean * scale)).relu(), last_weight)

    def keep(self, kept: Sequence[int]) -> Self:
        """Return the same with some of the networks only."""
        self.mean, self.variance = self.mean[list(kept)], self.variance[list(kept)]
        return super().keep(kept)

    def state(self, k: int) -> dict[str, Tensor]:
        """Return the weights of the k-th network by their names in the plain module."""
        weight, bias, factor, shift, last_weight, last_bias = (p[k] for p in self.parameters)
        names = {"1.weight": weight.T, "1.bias": bias, "2.weight": factor, "2.bias": shift}
        names |= {"2.running_mean": self.mean[k], "2.running_var": self.variance[k]}
        return names | {"4.weight": last_weight.T, "4.bias": last_bias}


class LinearLayers(Stack):
    """Linear layers on features, all of them 0 at first. Those of one split read its rows once."""

    model = STACKED["linear"]

    def _initial_parameters(self, features: int, num_classes: int, seed: int) -> list[Tensor]:
        return [torch.zeros(len(self.members), size, num_classes) for size in (features, 1)]

    def forward(self, features: Tensor, rows: Tensor, train: bool = True) -> Tensor:
        """Return the scores (M, n, C) of each network at its own rows (M, n) of the features (N, d)."""
        weight, bias = self.parameters
        folds = [member.fold for member in self.members]
        count = len(set(folds))
        if folds != folds[:count] * (len(folds) // count):
            return torch.baddbmm(bias, features[rows], weight)
        # Candidate by candidate, each with all splits.
        size, classes = weight.shape[1:]
        side_by_side = weight.view(-1, count, size, classes).permute(1, 2, 0, 3).flatten(2)
        scores = torch.bmm(features[rows[:count]], side_by_side)
        return scores.view(*scores.shape[:2], -1, classes).permute(2, 0, 1, 3).flatten(0, 1) + bias

    def state(self, k: int) -> dict[str, Tensor]:
        """Return the weights of the k-th network by their names in the plain module."""
        weight, bias = (p[k] for p in self.parameters)
        return {"1.weight": weight.T, "1.bias": bias}
