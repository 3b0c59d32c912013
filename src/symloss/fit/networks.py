"""The networks that ``fit`` trains: small ones stacked, and networks of any kind one after the other.

Others than perceptrons and linear layers cannot be stacked, because their inside is unknown. Both kinds are trained by
the same loop.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, replace
from itertools import groupby

import joblib  # type: ignore[import-untyped]
import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedParameter
from torch.utils.flop_counter import FlopCounterMode

from symloss import checks
from symloss.fit.early_learning import EarlyLearning, is_early_learning
from symloss.fit.stacks import FORGET, NetworkMember, Perceptrons, Stack
from symloss.losses.spec import create_loss
from symloss.training.margins import MarginRecorder, margins
from symloss.training.models import create_model, has_pretrained_weights, require_scores_of_two, seeded

Factory = Callable[[tuple[int, ...], int], nn.Module]
"""Builds a network from the shape of one input and the number of classes."""

SMALL_CNN = "cnn4:width=0.5"
SMALLEST_SIDE = 12
"""Images with fewer pixels a side are flattened. On digits other learners than networks lead."""
LEARNING_RATE, PRETRAINED_RATE = 3e-3, 3e-4
"""Large steps would destroy pretrained weights."""
NUMBERS = 2**22
"""The most numbers of the input that are in memory at a time when networks predict."""
LARGE = 10**10
"""From this many multiply-adds on, several threads share the work."""
_outside: ContextVar[int] = ContextVar("threads outside of one_thread", default=1)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread of torch inside. Steps of small networks are too short to be shared by threads."""
    token = _outside.set(torch.get_num_threads())
    try:
        with _threads(1):
            yield
    finally:
        _outside.reset(token)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def threads_for(multiply_adds: int) -> contextlib.AbstractContextManager[None]:
    """Inside of :func:`one_thread`, use all the threads from outside if the work of one step is large."""
    before = torch.get_num_threads()
    return _threads(max(before, _outside.get()) if multiply_adds >= LARGE else before)


@dataclass(frozen=True)
class NetworkModel:
    """Builds networks for inputs of one shape."""

    model: str | Factory  # a name for :func:`symloss.training.models.create_model`, or a factory
    input_shape: tuple[int, ...]
    num_classes: int

    def build(self, seed: int) -> nn.Module:
        """Return a network whose weights depend on the seed alone."""
        if isinstance(self.model, str):
            return create_model(self.model, input_shape=self.input_shape, num_classes=self.num_classes, seed=seed)
        with seeded(seed):
            built = self.model(self.input_shape, self.num_classes)
            if not isinstance(built, nn.Module):
                raise TypeError(f"model must return a torch.nn.Module; got {type(built).__name__}")
            if any(isinstance(p, UninitializedParameter) for p in built.parameters()):
                self._try(built.eval())  # Lazy layers get their weights from the first inputs.
        return built

    @property
    def learning_rate(self) -> float:
        """The initial learning rate of Adam."""
        pretrained = isinstance(self.model, str) and has_pretrained_weights(self.model)
        return PRETRAINED_RATE if pretrained else LEARNING_RATE

    @functools.cached_property
    def work(self) -> tuple[int, int]:
        """Multiply-adds of one input, and the number of parameters. The model is tried on two inputs for that."""
        net = self.build(0).eval()
        parameters = sum(p.numel() for p in net.parameters())
        with FlopCounterMode(display=False) as counter:
            self._try(net)
        # Two operations each, for two inputs. Where torch cannot count them, every parameter is used once.
        return max(counter.get_total_flops() // 4, parameters), parameters

    def _try(self, net: nn.Module) -> None:
        require_scores_of_two("model", net, self.input_shape, self.num_classes)

    def seconds(self, rows: int) -> float:
        """Return about how long one core trains one network on this many rows, by a formula."""
        schedule = NetworkSchedule.of(rows)
        steps = schedule.epochs * max(1, rows // schedule.batch)
        multiply_adds, parameters = self.work
        return steps * (3e-3 + 4e-9 * parameters + schedule.batch * multiply_adds * 2.2e-10)


def chosen_model(model: object, input_shape: tuple[int, ...], num_classes: int) -> NetworkModel | None:
    """Return the networks to train one by one; None for stacked perceptrons.

    >>> chosen_model("auto", (64,), 10), chosen_model("auto", (1, 8, 8), 10)
    (None, None)
    >>> chosen_model("auto", (3, 32, 32), 10).model
    'cnn4:width=0.5'
    """
    if model == "auto":
        large = len(input_shape) == 3 and min(input_shape[1:]) >= SMALLEST_SIDE
        return NetworkModel(SMALL_CNN, input_shape, num_classes) if large else None
    if isinstance(model, nn.Module) or not (isinstance(model, str) or callable(model)):
        raise TypeError(
            'model must be "auto", a name, or a function of input_shape and num_classes that returns a module; '
            f"got {checks.brief(model)}"
        )
    return NetworkModel(model, input_shape, num_classes)


@dataclass(frozen=True)
class NetworkSchedule:
    """How long networks are trained."""

    epochs: int  # after this many the learning rate, which falls as a cosine, is zero
    batch: int
    rate: float = LEARNING_RATE

    @classmethod
    def of(cls, rows: int) -> NetworkSchedule:
        """Return 30 epochs of 20 steps; beyond 10,000 rows more steps, and beyond 20,000 fewer epochs."""
        batch = 2 ** round(math.log2(min(max(rows / 20, 16), 512)))
        return cls(30 if rows <= 20_000 else max(8, round(30 * math.sqrt(20_000 / rows))), max(2, min(batch, rows)))

    def rates(self, epoch: int, steps: int) -> list[float]:
        """Return the learning rate of each step of an epoch."""
        shares = (min((epoch * steps + step) / (steps * self.epochs), 1.0) for step in range(steps))
        return [self.rate * 0.5 * (1 + math.cos(math.pi * share)) for share in shares]


class _Single:
    """One network that a factory builds. It has the methods of a stack of one."""

    history = None

    def __init__(self, member: NetworkMember, net: nn.Module, rate: float):
        self.members, self.net = [member], net
        wanted = [p for p in net.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in wanted if p.ndim > 1], "weight_decay": member.weight_decay},
            {"params": [p for p in wanted if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=rate, betas=FORGET)

    def forward(self, features: Tensor, rows: Tensor) -> Tensor:
        """Return the scores (1, n, C) at some rows (1, n) of the inputs (N, *input_shape)."""
        scores: Tensor = self.net.train()(features[rows[0]])
        return scores[None]

    def descend(self, loss: Tensor, rate: float) -> None:
        """Take one step of AdamW, whose weight decay is for matrices and filters only."""
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def scores(self, features: Tensor, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the scores (n, C) at some rows."""
        net = self.net.eval()
        blocks = torch.split(rows[0], rows_at_a_time(tuple(features.shape[1:])))
        return [torch.cat([net(features[some]) for some in blocks])]

    def keep(self, kept: Sequence[int]) -> _Single:
        """Return the network itself."""
        return self


_Group = Stack | _Single


class Networks:
    """Networks of several candidates and splits, trained together by Adam with decoupled weight decay.

    Args:
        features: (N, *input_shape), all rows.
        labels: (N,), their labels; or (splits, N) if each split has its own.
        weights: (N,), the weight of each row in the loss.
        num_classes: the number of classes C.
        members: the networks, those with the same loss next to each other.
        schedule: how long they are trained.
        seed: of initial weights and shuffling.
        model: builds networks that are trained one by one; or the kind of stack.
        jobs: worker processes that share networks whose steps are too small to be shared by threads.
        device: where they are trained.

    Attributes:
        margins: of the rows that each network was trained on; None unless set before the first epoch.
    """

    def __init__(
        self,
        features: Tensor,
        labels: Tensor,
        weights: Tensor,
        num_classes: int,
        members: Sequence[NetworkMember],
        schedule: NetworkSchedule,
        seed: int,
        model: NetworkModel | type[Stack] = Perceptrons,
        jobs: int | None = None,
        device: str = "cpu",
    ):
        self.features, self.labels, self.weights = (part.to(device) for part in (features, labels, weights))
        self.schedule, self.seed, self.jobs, self.device = schedule, seed, jobs, device
        self.model = model if isinstance(model, NetworkModel) else None
        self.criteria = {m.loss: _criterion(m.loss) for m in members}
        self.epoch = 0
        self.margins: MarginRecorder | None = None
        self.groups: list[_Group] = (
            [_Single(member, model.build(1000 * seed + member.fold).to(device), schedule.rate) for member in members]
            if isinstance(model, NetworkModel)
            else [model(members, features.shape[1], num_classes, len(features), seed).to(device)]
        )

    @property
    def members(self) -> list[NetworkMember]:
        """The networks that are still trained."""
        return [member for group in self.groups for member in group.members]

    def train_epoch(self) -> None:
        """Train every network for one epoch. All make as many steps as the smallest split has batches."""
        smallest = min(len(member.rows) for member in self.members)
        steps = max(1, smallest // self.schedule.batch)
        count = min(smallest, steps * self.schedule.batch)
        work = self._multiply_adds(self.schedule.batch)
        lessons = (self._lesson(group, count, steps) for group in self.groups)
        parts = zip(self.groups, lessons, strict=True)
        alone = self.model is not None and len(self.groups) > 1 and self.device == "cpu"
        if alone and self.jobs not in (None, 1) and work < LARGE:
            # Another joblib backend, such as Ray's, can be set from outside. Each process gets a copy of its rows.
            calls = (joblib.delayed(_train_alone)(group, lesson.compact()) for group, lesson in parts)
            trained = list(joblib.Parallel(n_jobs=self.jobs)(calls))
        else:
            with threads_for(work):
                trained = [_train(group, lesson) for group, lesson in parts]
        self.groups = [group for group, _ in trained]
        if self.margins is not None:
            found = torch.cat([torch.cat(steps, 2) for _, steps in trained], 1)
            for member, own in zip(self.members, found.unbind(1), strict=True):
                self.margins.add_margins(self._order(member, count), own.cpu())
        self.epoch += 1

    def _multiply_adds(self, rows: int) -> int:
        """Return the work of a network on this many rows. Stacked perceptrons are too small to be shared by threads."""
        return 0 if self.model is None else rows * self.model.work[0]

    def _order(self, member: NetworkMember, count: int) -> Tensor:
        """Return (count,), the rows of a network in the order of this epoch, which is the same for all of one split."""
        generator = torch.Generator().manual_seed(self._seed(member))
        return member.rows[torch.randperm(len(member.rows), generator=generator)[:count]]

    def _seed(self, member: NetworkMember) -> int:
        return 1_000_000 * self.seed + 1000 * member.fold + self.epoch

    def _lesson(self, group: _Group, count: int, steps: int) -> _Lesson:
        """Return what a group of networks learns from in this epoch."""
        folds = {member.fold: member for member in group.members}
        by_fold = {fold: self._order(member, count) for fold, member in folds.items()}
        order = torch.stack([by_fold[member.fold] for member in group.members]).to(self.device)
        losses = groupby(member.loss for member in group.members)
        return _Lesson(
            self.features,
            self.labels,
            self.weights,
            order,
            torch.tensor([[member.fold] for member in group.members], device=self.device),
            [(self.criteria[loss], len(list(same))) for loss, same in losses],
            self.schedule.rates(self.epoch, steps),
            self._seed(group.members[0]),
            self.margins is not None,
        )

    @torch.no_grad()
    def scores(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the scores (n, C) of each network at its own rows."""
        left = iter([some.to(self.device) for some in rows])
        wanted = [[next(left) for _ in group.members] for group in self.groups]
        parts = zip(self.groups, wanted, strict=True)
        with threads_for(self._multiply_adds(rows_at_a_time(tuple(self.features.shape[1:])))):
            return [scores.cpu() for group, some in parts for scores in group.scores(self.features, some)]

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with some of the networks only."""
        places = [(group, k) for group in self.groups for k in range(len(group.members))]
        chosen = groupby((places[k] for k in kept), key=lambda place: id(place[0]))
        by_group = [list(some) for _, some in chosen]
        self.groups = [some[0][0].keep([k for _, k in some]) for some in by_group]

    def module(self, k: int) -> nn.Module:
        """Return a copy of the k-th network as it is now, as a plain module for inputs (n, *input_shape)."""
        group = self.groups[k if self.model is not None else 0]
        if isinstance(group, Stack):
            return group.module(k)
        assert self.model is not None
        copy = self.model.build(0)
        copy.load_state_dict(group.net.state_dict())  # on the CPU, wherever it was trained
        return copy.eval().requires_grad_(False)


Criterion = nn.Module | EarlyLearning


def _criterion(loss: str) -> Criterion:
    """Return what a spec names, with a value for each example."""
    return EarlyLearning.of(loss) if is_early_learning(loss) else create_loss(loss, scale="ce", reduction="none")


@dataclass(frozen=True, eq=False)
class _Lesson:
    """One epoch of a group of M networks."""

    features: Tensor  # of all rows, as in :class:`Networks`
    labels: Tensor  # of all rows, as in :class:`Networks`
    weights: Tensor  # of all rows, as in :class:`Networks`
    order: Tensor  # (M, n), the rows that each network sees, in their order
    folds: Tensor  # (M, 1), the number of each network's split
    criteria: list[tuple[Criterion, int]]  # the losses, each with the number of neighbouring networks that have it
    rates: list[float]  # the learning rate of each step
    seed: int  # of everything random inside the networks
    margins: bool  # whether to compute the margins of the rows

    def compact(self) -> _Lesson:
        """Return the same for one network, with its own rows only."""
        rows = self.order[0]
        labels = self.labels if self.labels.ndim == 1 else self.labels[self.folds[0, 0]]
        order = torch.arange(len(rows))[None]
        return replace(self, features=self.features[rows], labels=labels[rows], weights=self.weights[rows], order=order)


def _train(group: _Group, lesson: _Lesson) -> tuple[_Group, list[Tensor]]:
    """Train a group of networks for one epoch. Return both margins of its rows too, (2, M, batch) for each step."""
    found = []
    with seeded(lesson.seed):
        for rate, rows in zip(lesson.rates, torch.tensor_split(lesson.order, len(lesson.rates), 1), strict=True):
            labels = lesson.labels[rows] if lesson.labels.ndim == 1 else lesson.labels[lesson.folds, rows]
            scores, weights = group.forward(lesson.features, rows), lesson.weights[rows]
            if lesson.margins:
                found.append(margins(scores.detach().flatten(0, 1), labels.flatten()).view(2, *rows.shape))
            # The sum of the networks' mean losses. Networks with one loss are evaluated in one call.
            total, start = scores.new_zeros(()), 0
            for criterion, count in lesson.criteria:
                some = slice(start, start + count)
                start += count
                if isinstance(criterion, EarlyLearning):
                    assert group.history is not None
                    values = criterion(scores[some], labels[some], group.history[some], rows[some]).flatten()
                else:
                    values = criterion(scores[some].flatten(0, 1), labels[some].flatten())
                total = total + (values * weights[some].flatten()).sum() / rows.shape[1]
            group.descend(total, rate)
    return group, found


def _train_alone(group: _Group, lesson: _Lesson) -> tuple[_Group, list[Tensor]]:
    with one_thread():
        return _train(group, lesson)


def rows_at_a_time(input_shape: tuple[int, ...]) -> int:
    """Return how many rows networks predict at a time."""
    return max(1, min(4096, NUMBERS // math.prod(input_shape)))
