"""The networks that ``fit`` trains: perceptrons as one stack, and networks of any kind one after the other.

A perceptron with one hidden layer on a small table is so small that a step costs mostly the calls. One step of sixty
stacked perceptrons costs little more than a step of one. Other networks cannot be stacked, because their inside is
unknown. Both kinds are trained by the same loop.
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
from symloss.losses.spec import create_loss
from symloss.training.margins import MarginSums, margins
from symloss.training.models import create_model, has_pretrained_weights, require_scores_of_two, seeded

Factory = Callable[[tuple[int, ...], int], nn.Module]
"""Builds a network from the shape of one input and the number of classes."""

HIDDEN = 256
PERCEPTRON = f"mlp:hidden={HIDDEN}"
SMALL_CNN = "cnn4:width=0.5"
SMALLEST_SIDE = 12
"""Images with fewer pixels a side are flattened. On digits other learners than networks lead."""
LEARNING_RATE, PRETRAINED_RATE = 3e-3, 3e-4
"""Large steps would destroy pretrained weights."""
FORGET = (0.9, 0.99)
"""How much of the running means of Adam stays with each step."""
KEPT_STATISTICS = 0.9
"""How much of the running means of batch normalisation stays with each step."""
EPS = 1e-5
"""Added to variances by batch normalisation, as torch does."""
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


@dataclass(frozen=True)
class NetworkMember:
    """One of the networks that are trained together."""

    loss: str  # the spec of its loss
    weight_decay: float  # decoupled, as in AdamW
    rows: Tensor  # (n,), the rows it is trained on
    fold: int  # the number of its split. Networks of one split start from the same weights and see the same batches


class _Stack:
    """Perceptrons with one hidden layer and batch normalisation, in one batched product each step.

    Members with the same loss are next to each other.
    """

    def __init__(self, members: Sequence[NetworkMember], features: int, num_classes: int, seed: int):
        self.members, self.step = list(members), 0
        self.decay = torch.tensor([member.weight_decay for member in members]).view(-1, 1, 1)
        self.parameters = self._initial_parameters(features, num_classes, seed)
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]
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
        return [p.requires_grad_() for p in (*hidden, last, torch.zeros(count, 1, num_classes))]

    def forward(self, features: Tensor, train: bool = True) -> Tensor:
        """Return the scores (M, n, C) of features (M, n, d)."""
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
        parts = [self.forward(features[part], train=False) for part in torch.split(padded, block, 1)]
        return [score[: len(r)] for score, r in zip(torch.cat(parts, 1), rows, strict=True)]

    def keep(self, kept: Sequence[int]) -> _Stack:
        """Return the same with some of the networks only."""
        index = torch.tensor(kept)
        self.members = [self.members[k] for k in kept]
        self.parameters = [p.detach()[index].requires_grad_() for p in self.parameters]
        self.first, self.second = ([state[index] for state in states] for states in (self.first, self.second))
        self.decay, self.mean, self.variance = self.decay[index], self.mean[index], self.variance[index]
        return self

    @torch.no_grad()
    def module(self, k: int) -> nn.Module:
        """Return the k-th network as a plain module for features (n, d)."""
        weight, bias, factor, shift, last_weight, last_bias = (p[k] for p in self.parameters)
        module = create_model(PERCEPTRON, input_shape=weight.shape[:1], num_classes=last_weight.shape[1], seed=0)
        names = {"1.weight": weight.T, "1.bias": bias, "2.weight": factor, "2.bias": shift}
        names |= {"2.running_mean": self.mean[k], "2.running_var": self.variance[k]}
        names |= {"4.weight": last_weight.T, "4.bias": last_bias}
        state = module.state_dict()
        module.load_state_dict(state | {name: value.reshape(state[name].shape) for name, value in names.items()})
        return module.eval()


class _Single:
    """One network that a factory builds. It has the methods of a stack of one."""

    def __init__(self, member: NetworkMember, net: nn.Module, rate: float):
        self.members, self.net = [member], net
        wanted = [p for p in net.parameters() if p.requires_grad]
        groups = [
            {"params": [p for p in wanted if p.ndim > 1], "weight_decay": member.weight_decay},
            {"params": [p for p in wanted if p.ndim <= 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW([group for group in groups if group["params"]], lr=rate, betas=FORGET)

    def forward(self, features: Tensor) -> Tensor:
        """Return the scores (1, n, C) of features (1, n, *input_shape)."""
        scores: Tensor = self.net.train()(features[0])
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


_Group = _Stack | _Single


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
        model: builds the networks, which are trained one by one; None for stacked perceptrons.
        jobs: worker processes that share networks whose steps are too small to be shared by threads.

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
        model: NetworkModel | None = None,
        jobs: int | None = None,
    ):
        self.features, self.labels, self.weights = features, labels, weights
        self.schedule, self.seed, self.model, self.jobs = schedule, seed, model, jobs
        self.criteria = {m.loss: create_loss(m.loss, scale="ce", reduction="none") for m in members}
        self.epoch = 0
        self.margins: MarginSums | None = None
        self.groups: list[_Group] = (
            [_Stack(members, features.shape[1], num_classes, seed)]
            if model is None
            else [_Single(member, model.build(1000 * seed + member.fold), schedule.rate) for member in members]
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
        if self.model is not None and len(self.groups) > 1 and self.jobs not in (None, 1) and work < LARGE:
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
                self.margins.add(self._order(member, count), own)
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
        order = torch.stack([by_fold[member.fold] for member in group.members])
        losses = groupby(member.loss for member in group.members)
        return _Lesson(
            self.features,
            self.labels,
            self.weights,
            order,
            torch.tensor([[member.fold] for member in group.members]),
            [(self.criteria[loss], len(list(same))) for loss, same in losses],
            self.schedule.rates(self.epoch, steps),
            self._seed(group.members[0]),
            self.margins is not None,
        )

    @torch.no_grad()
    def scores(self, rows: Sequence[Tensor]) -> list[Tensor]:
        """Return the scores (n, C) of each network at its own rows."""
        left = iter(rows)
        wanted = [[next(left) for _ in group.members] for group in self.groups]
        parts = zip(self.groups, wanted, strict=True)
        with threads_for(self._multiply_adds(rows_at_a_time(tuple(self.features.shape[1:])))):
            return [scores for group, some in parts for scores in group.scores(self.features, some)]

    def keep(self, kept: Sequence[int]) -> None:
        """Go on with some of the networks only."""
        places = [(group, k) for group in self.groups for k in range(len(group.members))]
        chosen = groupby((places[k] for k in kept), key=lambda place: id(place[0]))
        by_group = [list(some) for _, some in chosen]
        self.groups = [some[0][0].keep([k for _, k in some]) for some in by_group]

    def module(self, k: int) -> nn.Module:
        """Return a copy of the k-th network as it is now, as a plain module for inputs (n, *input_shape)."""
        group = self.groups[k if self.model is not None else 0]
        if isinstance(group, _Stack):
            return group.module(k)
        assert self.model is not None
        copy = self.model.build(0)
        copy.load_state_dict(group.net.state_dict())
        return copy.eval().requires_grad_(False)


@dataclass(frozen=True, eq=False)
class _Lesson:
    """One epoch of a group of M networks."""

    features: Tensor  # of all rows, as in :class:`Networks`
    labels: Tensor  # of all rows, as in :class:`Networks`
    weights: Tensor  # of all rows, as in :class:`Networks`
    order: Tensor  # (M, n), the rows that each network sees, in their order
    folds: Tensor  # (M, 1), the number of each network's split
    criteria: list[tuple[nn.Module, int]]  # the losses, each with the number of neighbouring networks that have it
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
            scores, weights = group.forward(lesson.features[rows]), lesson.weights[rows]
            if lesson.margins:
                found.append(margins(scores.detach().flatten(0, 1), labels.flatten()).view(2, *rows.shape))
            # The sum of the networks' mean losses. Networks with one loss are evaluated in one call.
            total, start = scores.new_zeros(()), 0
            for criterion, count in lesson.criteria:
                some = slice(start, start + count)
                start += count
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
