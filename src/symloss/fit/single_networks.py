"""Networks of any kind, trained one after the other within each epoch.

Such networks cannot be stacked: nobody knows what is inside. From outside they are used as
:class:`symloss.fit.stacked.StackedNetworks` is, and they are trained in the same way.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import joblib  # type: ignore[import-untyped]
import torch
from torch import Tensor, nn

from symloss.fit.network_model import NetworkModel
from symloss.fit.stacked import FORGET, NetworkSchedule, StackedMember
from symloss.fit.threads import LARGE, one_thread, threads_for
from symloss.losses.spec import create_loss
from symloss.noise.margins import RunningMargins, margins

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
        jobs: processes that share the networks, where the steps of one are too small to be shared by threads.

    Attributes:
        margins: of the rows that each network was trained on; None unless somebody sets it before the first epoch.
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
        jobs: int | None = None,
    ):
        self.jobs = jobs
        self.model, self.features, self.labels, self.weights = model, features, labels, weights
        self.members, self.schedule, self.seed = list(members), schedule, seed
        self.criteria = {m.loss: create_loss(m.loss, scale="ce", reduction="none") for m in members}
        self.epoch = 0
        self.margins: RunningMargins | None = None
        self.networks = [model.build(1000 * seed + member.fold) for member in members]
        self.optimizers = [
            _adam(net, member.weight_decay, schedule.rate) for net, member in zip(self.networks, members, strict=True)
        ]

    def train_epoch(self) -> None:
        """Train every network for one epoch. All make as many steps as the smallest split has batches."""
        count = min(len(member.rows) for member in self.members)
        steps = max(1, count // self.schedule.batch)
        work = self.schedule.batch * self.model.multiply_adds
        spread = self.jobs not in (None, 1) and work < LARGE
        with threads_for(work):
            # One by one, as each has a copy of its rows.
            lessons = (self._lesson(k, count, steps) for k in range(len(self.members)))
            parts = zip(self.networks, self.optimizers, lessons, strict=True)
            trained = _in_processes(parts, self.jobs) if spread else [_trained(*part) for part in parts]
        for k, (net, optimizer, rows, margin) in enumerate(trained):
            self.networks[k], self.optimizers[k] = net, optimizer
            if self.margins is not None:
                self.margins.add(k, rows, margin)
        self.epoch += 1

    def _lesson(self, k: int, count: int, steps: int) -> _Lesson:
        """What the k-th network learns from in this epoch."""
        member = self.members[k]
        seed = 1_000_000 * self.seed + 1000 * member.fold + self.epoch
        with _random(seed):
            rows = member.rows[torch.randperm(len(member.rows))[: steps * self.schedule.batch]]
        labels = self.labels if self.labels.ndim == 1 else self.labels[member.fold]
        rates = [
            self.schedule.rate
            * 0.5
            * (1 + math.cos(math.pi * min((self.epoch + k / steps) / self.schedule.epochs, 1.0)))
            for k in range(steps)
        ]
        return _Lesson(
            self.features[rows], labels[rows], self.weights[rows], rows, self.criteria[member.loss], rates, seed
        )

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

    def module(self, k: int) -> nn.Module:
        """A copy of the k-th network as it is now, for inputs (n, *input_shape)."""
        copy = self.model.build(0)
        copy.load_state_dict(self.networks[k].state_dict())
        return copy.eval().requires_grad_(False)


@dataclass(frozen=True, eq=False)
class _Lesson:
    """One epoch of one network: the rows in their order, the loss, the learning rate of each step, and a seed."""

    features: Tensor
    labels: Tensor
    weights: Tensor
    rows: Tensor
    criterion: nn.Module
    rates: list[float]
    seed: int


_Trained = tuple[nn.Module, torch.optim.Optimizer, Tensor, Tensor]


def _trained(net: nn.Module, optimizer: torch.optim.Optimizer, lesson: _Lesson) -> _Trained:
    """Train for one epoch. Returns rows and their margins, too."""
    net.train()
    parts = (torch.tensor_split(one, len(lesson.rates)) for one in (lesson.features, lesson.labels, lesson.weights))
    found = []
    with _random(lesson.seed):
        for rate, features, labels, weights in zip(lesson.rates, *parts, strict=True):
            for group in optimizer.param_groups:
                group["lr"] = rate
            scores = net(features)
            optimizer.zero_grad(set_to_none=True)
            (lesson.criterion(scores, labels) * weights).mean().backward()
            optimizer.step()
            found.append(scores.detach())
    optimizer.zero_grad(set_to_none=True)
    return net, optimizer, lesson.rows, margins(torch.cat(found), lesson.labels)[0]


def _in_processes(
    parts: Iterable[tuple[nn.Module, torch.optim.Optimizer, _Lesson]], jobs: int | None
) -> list[_Trained]:
    """The same in processes. Whoever sets another backend of joblib, such as Ray's, has it used."""
    return list(joblib.Parallel(n_jobs=jobs)(joblib.delayed(_trained_alone)(*part) for part in parts))


def _trained_alone(net: nn.Module, optimizer: torch.optim.Optimizer, lesson: _Lesson) -> _Trained:
    with one_thread():
        return _trained(net, optimizer, lesson)


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
