"""Networks of any kind, trained one after the other within each epoch.

Such networks cannot be stacked: nobody knows what is inside. From outside they are used as
:class:`symloss.robust.stacked.StackedNetworks` is, and they are trained in the same way.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from symloss.losses.create import create_loss
from symloss.noise.margins import RunningMargins
from symloss.robust.network_model import NetworkModel
from symloss.robust.stacked import FORGET, NetworkSchedule, StackedMember
from symloss.robust.threads import threads_for

NUMBERS = 2**22
"""So many numbers of the input are in memory at a time when networks predict."""


class SingleNetworks:
    """Networks that a factory builds, trained by Adam with decoupled weight decay.

    Args:
        model: builds the networks.
        features: (N, *input_shape), all rows.
        labels: (N,), their labels; or (splits, N) if each split has its own.
        weights: (N,), what each row counts in the loss.
        members: the networks.
        schedule: how long they are trained.
        seed: of initial weights and of the order of rows.

    Attributes:
        margins: of the rows that each network was trained on.
    """

    def __init__(
        self,
        model: NetworkModel,
        features: Tensor,
        labels: Tensor,
        weights: Tensor,
        members: Sequence[StackedMember],
        schedule: NetworkSchedule,
        seed: int,
    ):
        self.model, self.features, self.labels, self.weights = model, features, labels, weights
        self.members, self.schedule, self.seed = list(members), schedule, seed
        self.criteria = {m.loss: create_loss(m.loss, scale="ce", reduction="none") for m in members}
        self.epoch = 0
        self.margins = RunningMargins(len(members), len(features))
        self.networks = [model.build(1000 * seed + member.fold) for member in members]
        self.optimizers = [
            _adam(net, member.weight_decay, schedule.rate) for net, member in zip(self.networks, members, strict=True)
        ]

    def train_epoch(self) -> None:
        """Train every network for one epoch. All make as many steps as the smallest split has batches."""
        count = min(len(member.rows) for member in self.members)
        steps = max(1, count // self.schedule.batch)
        with threads_for(self.schedule.batch * self.model.multiply_adds):
            for k, member in enumerate(self.members):
                with _random(1_000_000 * self.seed + 1000 * member.fold + self.epoch):
                    order = member.rows[torch.randperm(len(member.rows))[:count]]
                    self._train(k, order, steps)
        self.epoch += 1

    def _train(self, k: int, order: Tensor, steps: int) -> None:
        net, optimizer, member = self.networks[k], self.optimizers[k], self.members[k]
        net.train()
        labels = self.labels if self.labels.ndim == 1 else self.labels[member.fold]
        for step in range(steps):
            rows = order[step * self.schedule.batch : (step + 1) * self.schedule.batch]
            progress = (self.epoch + step / steps) / self.schedule.epochs
            for group in optimizer.param_groups:
                group["lr"] = self.schedule.rate * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
            scores = net(self.features[rows])
            self.margins.add(k, rows, scores, labels[rows])
            values = self.criteria[member.loss](scores, labels[rows])
            optimizer.zero_grad(set_to_none=True)
            (values * self.weights[rows]).mean().backward()
            optimizer.step()

    @torch.no_grad()
    def scores(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """The scores (n, C) of each network at rows of its own."""
        block = rows_at_a_time(self.model.input_shape)
        with threads_for(block * self.model.multiply_adds):
            return [
                torch.cat([net(self.features[some]) for some in torch.split(wanted, block)])
                for net, wanted in zip((net.eval() for net in self.networks), rows, strict=True)
            ]

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with some of the networks only."""
        self.members = [self.members[k] for k in kept]
        self.networks = [self.networks[k] for k in kept]
        self.optimizers = [self.optimizers[k] for k in kept]
        self.margins.keep(list(kept))

    def module(self, k: int) -> nn.Module:
        """A copy of the k-th network as it is now, for inputs (n, *input_shape)."""
        copy = self.model.build(0)
        copy.load_state_dict(self.networks[k].state_dict())
        return copy.eval().requires_grad_(False)


def rows_at_a_time(input_shape: tuple[int, ...]) -> int:
    """How many rows networks predict at a time."""
    return max(1, min(4096, NUMBERS // math.prod(input_shape)))


def _adam(net: nn.Module, decay: float, rate: float) -> torch.optim.Optimizer:
    """AdamW whose weight decay is for matrices and filters only."""
    wanted = [p for p in net.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in wanted if p.ndim > 1], "weight_decay": decay},
        {"params": [p for p in wanted if p.ndim <= 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=rate, betas=FORGET)


@contextlib.contextmanager
def _random(seed: int) -> Iterator[None]:
    """Everything random inside, dropout too, comes from the seed. The global random state stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield
