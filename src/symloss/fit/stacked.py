"""Many small networks trained at once: all folds and candidates in one batched product.

A network with one hidden layer on a small table is so small that a step costs mostly the calls. One step of sixty
networks costs little more than a step of one.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor, nn

from symloss.losses.spec import create_loss
from symloss.noise.margins import RunningMargins, margins
from symloss.training.models import create_model

HIDDEN = 256
LEARNING_RATE = 3e-3
FORGET = (0.9, 0.99)
"""How much of the running means of Adam stays with each step."""
KEPT_STATISTICS = 0.9
"""How much of the running means of batch normalisation stays with each step."""
EPS = 1e-5
"""Added to variances by batch normalisation, as torch does."""


@dataclass(frozen=True)
class StackedMember:
    """One network of a stack.

    Args:
        loss: the spec of its loss.
        weight_decay: decoupled, as in AdamW.
        rows: (n,), the rows it is trained on.
        fold: the number of its split. Networks of one split start from the same weights and see the same batches.
    """

    loss: str
    weight_decay: float
    rows: Tensor
    fold: int


@dataclass(frozen=True)
class NetworkSchedule:
    """How long networks are trained.

    Args:
        epochs: after so many the learning rate, which falls as a cosine, is zero.
        batch: examples in each step.
        rate: the learning rate at the start.
    """

    epochs: int
    batch: int
    rate: float = LEARNING_RATE

    @classmethod
    def of(cls, rows: int) -> NetworkSchedule:
        """Twenty steps an epoch and thirty epochs; beyond 10,000 rows more steps, and beyond 20,000 fewer epochs."""
        batch = 2 ** round(math.log2(min(max(rows / 20, 16), 512)))
        return cls(30 if rows <= 20_000 else max(8, round(30 * math.sqrt(20_000 / rows))), max(2, min(batch, rows)))


class StackedNetworks:
    """Perceptrons with one hidden layer and batch normalisation, trained together by Adam.

    Args:
        features: (N, d), all rows.
        labels: (N,), their labels; or (splits, N) if each split has its own.
        weights: (N,), what each row counts in the loss.
        classes: the number of classes C.
        members: the networks, those with the same loss next to each other.
        schedule: how long they are trained.
        seed: of initial weights and of the order of rows.

    Attributes:
        margins: of the rows that each network was trained on; None unless somebody sets it before the first epoch.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        weights: Tensor,
        classes: int,
        members: Sequence[StackedMember],
        schedule: NetworkSchedule,
        seed: int,
    ):
        self.features, self.labels, self.weights, self.classes = features, labels, weights, classes
        self.members, self.schedule, self.seed = list(members), schedule, seed
        self.criteria = {m.loss: create_loss(m.loss, scale="ce", reduction="none") for m in members}
        self.epoch, self.step = 0, 0
        self.parameters = self._initial_parameters()
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
        self.mean = torch.zeros(len(members), 1, HIDDEN)
        self.variance = torch.ones(len(members), 1, HIDDEN)
        self.margins: RunningMargins | None = None

    def _initial_parameters(self) -> list[Tensor]:
        """Weights and biases of the hidden layer, factor and shift of the normalisation, then the last layer."""
        by_fold: dict[int, list[Tensor]] = {}
        for fold in sorted({member.fold for member in self.members}):
            generator = torch.Generator().manual_seed(1000 * self.seed + fold)
            sizes = [(self.features.shape[1], HIDDEN), (HIDDEN, self.classes)]
            by_fold[fold] = [math.sqrt(2 / a) * torch.randn(a, b, generator=generator) for a, b in sizes]
        first, last = (torch.stack([by_fold[member.fold][k] for member in self.members]) for k in (0, 1))
        count = len(self.members)
        hidden = [first, torch.zeros(count, 1, HIDDEN), torch.ones(count, 1, HIDDEN), torch.zeros(count, 1, HIDDEN)]
        return [p.requires_grad_() for p in (*hidden, last, torch.zeros(count, 1, self.classes))]

    def train_epoch(self) -> None:
        """Train every network for one epoch. All make as many steps as the smallest split has batches."""
        order = self._order()
        decay = torch.tensor([member.weight_decay for member in self.members]).view(-1, 1, 1)
        steps = max(1, order.shape[1] // self.schedule.batch)
        for start in range(0, steps * self.schedule.batch, self.schedule.batch):
            rows = order[:, start : start + self.schedule.batch]
            gradients = torch.autograd.grad(self._loss(rows), self.parameters)
            progress = self.step / (steps * self.schedule.epochs)
            self._move(gradients, self.schedule.rate * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))), decay)
        self.epoch += 1

    def _order(self) -> Tensor:
        """(M, n), the rows of each network in the order of this epoch, which is the same for all of one split."""
        count = min(len(member.rows) for member in self.members)
        by_fold: dict[int, Tensor] = {}
        for member in self.members:
            if member.fold not in by_fold:
                generator = torch.Generator().manual_seed(1_000_000 * self.seed + 1000 * member.fold + self.epoch)
                by_fold[member.fold] = member.rows[torch.randperm(len(member.rows), generator=generator)[:count]]
        return torch.stack([by_fold[member.fold] for member in self.members])

    def _loss(self, rows: Tensor) -> Tensor:
        """The sum of the networks' mean losses. Networks with one loss are evaluated in one call."""
        scores, weights = self._forward(self.features[rows], train=True), self.weights[rows]
        if self.labels.ndim == 1:
            labels = self.labels[rows]
        else:
            labels = self.labels[torch.tensor([[member.fold] for member in self.members]), rows]
        if self.margins is not None:
            margin = margins(scores.detach().flatten(0, 1), labels.flatten())[0]
            self.margins.add(slice(None), rows, margin.view(rows.shape))
        total, start = scores.new_zeros(()), 0
        for loss, group in groupby(self.members, key=lambda member: member.loss):
            part = slice(start, start + len(list(group)))
            start = part.stop
            values = self.criteria[loss](scores[part].flatten(0, 1), labels[part].flatten())
            total = total + (values * weights[part].flatten()).sum() / rows.shape[1]
        return total

    def _forward(self, features: Tensor, train: bool) -> Tensor:
        """Scores (M, n, C) of features (M, n, d)."""
        weight, bias, factor, shift, last_weight, last_bias = self.parameters
        hidden = torch.baddbmm(bias, features, weight)
        if train:
            variance, mean = torch.var_mean(hidden, 1, correction=0, keepdim=True)
            self.mean.lerp_(mean.detach(), 1 - KEPT_STATISTICS)
            self.variance.lerp_(variance.detach(), 1 - KEPT_STATISTICS)
        else:
            mean, variance = self.mean, self.variance
        scale = factor * (variance + EPS).rsqrt()
        return torch.baddbmm(last_bias, (hidden * scale + (shift - mean * scale)).relu(), last_weight)

    @torch.no_grad()
    def _move(self, gradients: Sequence[Tensor], rate: float, decay: Tensor) -> None:
        """One step of Adam, with weight decay for the matrices."""
        self.step += 1
        first_scale, second_scale = (1 - forget**self.step for forget in FORGET)
        for p, g, first, second in zip(self.parameters, gradients, self.first, self.second, strict=True):
            first.lerp_(g, 1 - FORGET[0])
            second.mul_(FORGET[1]).addcmul_(g, g, value=1 - FORGET[1])
            if p.shape[1] > 1:
                p.mul_(1 - rate * decay)
            p.addcdiv_(first, (second / second_scale).sqrt_().add_(1e-8), value=-rate / first_scale)

    @torch.no_grad()
    def scores(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """The scores (n, C) of each network at rows of its own, in blocks that take little memory."""
        longest = max(len(r) for r in rows)
        padded = torch.stack([torch.cat([r, r.new_zeros(longest - len(r))]) for r in rows])
        block = max(1, 20_000_000 // (len(rows) * (self.features.shape[1] + HIDDEN)))
        parts = [self._forward(self.features[part], train=False) for part in torch.split(padded, block, 1)]
        return [score[: len(r)] for score, r in zip(torch.cat(parts, 1), rows, strict=True)]

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with some of the networks only."""
        index = torch.tensor(kept)
        self.members = [self.members[k] for k in kept]
        self.parameters = [p.detach()[index].requires_grad_() for p in self.parameters]
        self.first, self.second = ([state[index] for state in states] for states in (self.first, self.second))
        self.mean, self.variance = self.mean[index], self.variance[index]

    @torch.no_grad()
    def module(self, k: int) -> nn.Module:
        """The k-th network as a plain module for features (n, d)."""
        module = create_model(
            f"mlp:hidden={HIDDEN}", input_shape=(self.features.shape[1],), num_classes=self.classes, seed=0
        )
        weight, bias, factor, shift, last_weight, last_bias = (p[k] for p in self.parameters)
        names = {"1.weight": weight.T, "1.bias": bias, "2.weight": factor, "2.bias": shift}
        names |= {"2.running_mean": self.mean[k], "2.running_var": self.variance[k]}
        names |= {"4.weight": last_weight.T, "4.bias": last_bias}
        state = module.state_dict()
        module.load_state_dict(state | {name: value.reshape(state[name].shape) for name, value in names.items()})
        return module.eval()
