"""Scores of a batch: exact log-probabilities, classes that are masked out, and maps of the scores."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation


class _once:  # noqa: N801
    """A property that is computed once. functools.cached_property takes a lock, which torch.compile cannot trace."""

    def __init__(self, compute: Callable[[Any], Tensor]):
        self.compute = compute

    def __get__(self, instance: Any, owner: type) -> Tensor:
        name = self.compute.__name__
        if name not in instance.__dict__:
            instance.__dict__[name] = self.compute(instance)
        value: Tensor = instance.__dict__[name]
        return value


class Scores:
    """A batch of score vectors, and all that a loss reads from them.

    Classes lie along ``dim``. A score of ``-inf`` masks a class out: it leaves every sum, every mean and the count.
    Sums, means and picked entries keep the dimension, with size 1.
    """

    def __init__(self, z: Tensor, dim: int = -1):
        self.z, self.dim = z, dim
        self.present = z != -torch.inf

    @property
    def classes(self) -> int:
        return self.z.shape[self.dim]

    @_once
    def count(self) -> Tensor:
        """How many classes are present, example by example."""
        return self.present.sum(self.dim, keepdim=True).to(self.z.dtype)

    @_once
    def index(self) -> Tensor:
        return self.align(torch.arange(self.classes, device=self.z.device))

    @_once
    def behind(self) -> Tensor:
        """How far each score lies behind the leading one (0 where masked).

        The leader's own 0 is a constant, so its gradient is collected from the others alone. Then 1 - p is never
        formed by subtraction: ``log_softmax`` is ten percent off once an entry leads by 15.
        """
        top, leader = self.z.max(self.dim, keepdim=True)
        own = (top - top).detach()  # NaN, where the scores hold it
        return torch.where(self.present & (self.index != leader), self.z - top, own)

    @_once
    def logp(self) -> Tensor:
        """log softmax, with a gradient that is right for confident examples too."""
        leader = self.z.argmax(self.dim, keepdim=True)
        others = torch.where(self.index != leader, self.behind.exp(), 0.0)
        return self.behind - self.sum(others).log1p()

    @_once
    def p(self) -> Tensor:
        return self.logp.exp()

    @_once
    def shifted(self) -> Tensor:
        """log p up to a constant that differs from example to example: the scores, without a softmax."""
        top = self.z.detach().amax(self.dim, keepdim=True)
        # The gradient is the same at all scores, and would be at NaN.
        return torch.where(self.present, (self.z - top) * torch.where(top.isnan(), top, 1.0), 0.0)

    def align(self, vector: Tensor) -> Tensor:
        """One entry for each class, shaped to broadcast against the scores."""
        shape = [1] * self.z.dim()
        shape[self.dim] = vector.shape[0]
        return vector.reshape(shape)

    def select(self, values: Tensor, labels: Tensor | None) -> Tensor:
        """The label's entry; every entry where labels is None."""
        return values if labels is None else values.expand_as(self.z).gather(self.dim, labels)

    def sum(self, values: Tensor) -> Tensor:
        return torch.where(self.present, values, 0.0).sum(self.dim, keepdim=True)

    def mean(self, values: Tensor) -> Tensor:
        return self.sum(values) / self.count

    def sum_others(self, values: Tensor, labels: Tensor | None) -> Tensor:
        """The sum over all classes but the label."""
        if labels is None:
            return self.sum(values) - values
        return self.sum(torch.where(self.index != labels, values, 0.0))


class WithoutSoftmax(Scores):
    """Scores that pass for log p, without the log-sum-exp: for what does not change when log p moves by a constant."""

    def __init__(self, s: Scores):
        super().__init__(s.z, s.dim)
        self._scores = s

    @_once
    def logp(self) -> Tensor:
        return self._scores.shifted


def unit(z: Tensor, dim: int, eps: float = 1e-5) -> Tensor:
    """z / max(|z|, eps) along dim, masked classes left out.

    Entries are taken relative to the largest one, which reads its value from the others: the gradient keeps its
    digits when one score dominates, and squares neither overflow nor vanish.
    """
    s = Scores(z, dim)
    finite = torch.where(s.present, z, 0.0)
    size, leader = finite.abs().max(dim, keepdim=True)
    leads = s.index == leader
    scale = finite.gather(dim, leader)
    # So small that the norm is below eps, whatever the others are: there the ratio is not used, nor can be.
    tiny = size < eps / s.classes
    ratio = torch.where(leads, 1.0, finite / torch.where(tiny, 1.0, scale))
    root = (1 + torch.where(leads, 0.0, ratio.square()).sum(dim, keepdim=True)).sqrt()
    direction = ratio * torch.where(scale < 0, -1.0, torch.where(scale.isnan(), scale, 1.0)) / root
    short = tiny | (size * root <= eps)
    return torch.where(s.present, torch.where(short, finite / eps, direction), -torch.inf)


class UnitScores(nn.Module):
    """Scores divided by temperature * max(norm, eps). Temperature 1 is the paper's; LogitNorm is 0.04.

    Below eps the gradient is that of z / eps, up to 1/eps in size: more than float16 can hold for a lone zero vector.
    """

    def __init__(self, temperature: float = 1.0, eps: float = 1e-5):
        super().__init__()
        self.temperature = checks.number("temperature", temperature, "(0, inf)")
        self.eps = checks.number("eps", eps, "(0, inf)")

    def forward(self, scores: Tensor) -> Tensor:
        return unit(scores, validation.class_dim(scores), self.eps) / self.temperature

    def extra_repr(self) -> str:
        return f"temperature={self.temperature:g}, eps={self.eps:g}"


HALF = (torch.float16, torch.bfloat16)
"""Types whose scores are turned into float32: in these no loss is computed."""


def full_precision(part: Tensor) -> Tensor:
    """Half precision as float32; anything else as it is."""
    return part.float() if part.dtype in HALF else part


class EpsSoftmax(nn.Module):
    """Scores whose softmax is (p + m e_argmax) / (m + 1) (Wang et al. 2024).

    >>> EpsSoftmax(m=1.0)(torch.tensor([0.0, 0.0, 1.0])).softmax(0)
    tensor([0.1060, 0.1060, 0.7881])
    """

    def __init__(self, m: float):
        super().__init__()
        self.m = checks.number("m", m, "[0, inf)")

    def forward(self, scores: Tensor) -> Tensor:
        s = Scores(scores, validation.class_dim(scores))
        leader = scores.argmax(s.dim, keepdim=True)
        raised = s.logp
        if self.m > 0:  # log(p + m) from logarithms: its gradient is a number where p is 0, too
            added = torch.logaddexp(s.logp, torch.full_like(s.logp, math.log(self.m)))
            raised = torch.where(s.index == leader, added, s.logp)
        return torch.where(s.present, raised, -torch.inf)

    def extra_repr(self) -> str:
        return f"m={self.m:g}"


class BatchNormScores(nn.Module):
    """Batch normalisation of the scores, the paper's alternative to dividing by the norm.

    The parameters are made for the number of classes of the first batch, or now, if ``classes`` is given.
    """

    def __init__(self, classes: int | None = None, **options: Any):
        super().__init__()
        if classes is not None:
            checks.number("classes", classes, "[1, inf)", whole=True)
        self.norm: nn.modules.batchnorm._BatchNorm
        self.norm = nn.LazyBatchNorm1d(**options) if classes is None else nn.BatchNorm1d(classes, **options)

    def forward(self, scores: Tensor) -> Tensor:
        if scores.dim() < 2:
            raise ValueError(f"batch-norm scores need shape (N, C) or (N, C, d1, ...); got {tuple(scores.shape)}")
        flat = scores.flatten(2) if scores.dim() > 3 else scores
        normed: Tensor = self.norm(flat)
        return normed.reshape(scores.shape)


def append_scores(model: nn.Module, layer: nn.Module | None = None) -> nn.Sequential:
    """The model, followed by a map of its scores (batch normalisation unless another is given).

    >>> append_scores(nn.Linear(4, 3), UnitScores(temperature=0.04))
    Sequential(
      (model): Linear(in_features=4, out_features=3, bias=True)
      (scores): UnitScores(temperature=0.04, eps=1e-05)
    )
    """
    chain = nn.Sequential()
    for argument, name, part in (("model", "model", model), ("layer", "scores", layer or BatchNormScores())):
        if not isinstance(part, nn.Module):
            raise TypeError(f"{argument} must be a torch.nn.Module; got {type(part).__name__}")
        chain.add_module(name, part)
    return chain
