"""The scores of a batch, with exact log-probabilities and masked classes; and layers that map scores to scores."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation

PAPERS_CLASSES = 10
"""The number of classes at which ``temperature="auto"`` is the paper's temperature, 1."""


class _once:  # noqa: N801
    """A property that is computed once. torch.compile cannot trace functools.cached_property, which takes a lock."""

    def __init__(self, compute: Callable[[Any], Tensor]):
        self.compute = compute

    def __get__(self, instance: Any, owner: type) -> Tensor:
        name = self.compute.__name__
        if name not in instance.__dict__:
            instance.__dict__[name] = self.compute(instance)
        value: Tensor = instance.__dict__[name]
        return value


class Scores:
    """A batch of score vectors, and the quantities that losses read from them.

    A score of ``-inf`` masks a class out: the class is left out of every sum, every mean and the count. Sums, means and
    selected entries keep the dimension of the classes, with size 1.

    Args:
        z: scores of any shape.
        dim: the dimension of the classes.
    """

    def __init__(self, z: Tensor, dim: int = -1):
        self.z, self.dim = z, dim
        self.present = z != -torch.inf

    @property
    def classes(self) -> int:
        """The number of classes, masked ones included."""
        return self.z.shape[self.dim]

    @_once
    def count(self) -> Tensor:
        """How many classes of each example are present."""
        return self.present.sum(self.dim, keepdim=True).to(self.z.dtype)

    @_once
    def index(self) -> Tensor:
        """The number of each class, shaped to broadcast against the scores."""
        return self.align(torch.arange(self.classes, device=self.z.device))

    @_once
    def behind(self) -> Tensor:
        """Each score minus the largest one, and 0 at masked classes.

        The 0 of the largest score is a constant, so the gradient there is collected from the other classes alone. So
        1 - p is never computed by a subtraction. (The gradient of ``log_softmax`` is ten percent off if a score leads
        by 15.)
        """
        top, leader = self.z.max(self.dim, keepdim=True)
        zero = (top - top).detach()  # NaN if the scores hold NaN
        return torch.where(self.present & (self.index != leader), self.z - top, zero)

    @_once
    def logp(self) -> Tensor:
        """The log-softmax. Its gradient is exact for confident examples too."""
        leader = self.z.argmax(self.dim, keepdim=True)
        others = torch.where(self.index != leader, self.behind.exp(), 0.0)
        return self.behind - self.sum(others).log1p()

    @_once
    def p(self) -> Tensor:
        """The softmax."""
        return self.logp.exp()

    @_once
    def shifted(self) -> Tensor:
        """The scores minus the largest one: log p up to a constant in each example. It needs no softmax."""
        top = self.z.detach().amax(self.dim, keepdim=True)
        # The gradient does not depend on the scores. The factor makes it NaN if the scores hold NaN.
        return torch.where(self.present, (self.z - top) * torch.where(top.isnan(), top, 1.0), 0.0)

    def align(self, vector: Tensor) -> Tensor:
        """A vector (C,), shaped to broadcast against the scores."""
        shape = [1] * self.z.dim()
        shape[self.dim] = vector.shape[0]
        return vector.reshape(shape)

    def select(self, values: Tensor, labels: Tensor | None) -> Tensor:
        """The entry of each label; every entry if labels is None."""
        return values if labels is None else values.expand_as(self.z).gather(self.dim, labels)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over the classes that are present."""
        return torch.where(self.present, values, 0.0).sum(self.dim, keepdim=True)

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the classes that are present."""
        return self.sum(values) / self.count

    def sum_others(self, values: Tensor, labels: Tensor | None) -> Tensor:
        """The sum over the classes that are present, without the label; for every label if labels is None."""
        if labels is None:
            return self.sum(values) - values
        return self.sum(torch.where(self.index != labels, values, 0.0))


class WithoutSoftmax(Scores):
    """Scores that stand in for log p, without the log-sum-exp. They serve losses that ignore a constant in log p."""

    def __init__(self, s: Scores):
        super().__init__(s.z, s.dim)
        self._scores = s

    @_once
    def logp(self) -> Tensor:
        return self._scores.shifted


def unit(z: Tensor, dim: int, eps: float = 1e-5) -> Tensor:
    """z / max(|z|, eps) along dim. Masked classes are left out.

    All entries are divided by the largest one first. So squares neither overflow nor vanish. The gradient of the
    largest entry is collected from the others, so it keeps its digits if one score dominates.

    Args:
        z: scores of any shape.
        dim: the dimension of the classes.
        eps: the smallest norm by which scores are divided.
    """
    s = Scores(z, dim)
    finite = torch.where(s.present, z, 0.0)
    size, leader = finite.abs().max(dim, keepdim=True)
    leads = s.index == leader
    scale = finite.gather(dim, leader)
    # Scores so small that the norm is below eps in any case. There the ratio is not used.
    tiny = size < eps / s.classes
    ratio = torch.where(leads, 1.0, finite / torch.where(tiny, 1.0, scale))
    root = (1 + torch.where(leads, 0.0, ratio.square()).sum(dim, keepdim=True)).sqrt()
    direction = ratio * torch.where(scale < 0, -1.0, torch.where(scale.isnan(), scale, 1.0)) / root
    short = tiny | (size * root <= eps)
    return torch.where(s.present, torch.where(short, finite / eps, direction), -torch.inf)


Temperature = float | Literal["auto"]
"""What unit scores are divided by."""


def checked_temperature(value: object) -> Temperature:
    """The temperature as a number, or "auto". Anything else raises an error."""
    if not isinstance(value, str):
        return checks.number("temperature", value, "(0, inf)")
    if value != "auto":
        raise ValueError(f"temperature must be a number in (0, inf) or 'auto'; got {checks.brief(value)}")
    return "auto"


def auto_temperature(classes: int) -> float:
    """The temperature at which unit scores reach the same largest probability as with 10 classes at temperature 1.

    The label of unit scores is most probable if all other scores are equal. With s = sqrt(C / (C-1)) its probability at
    the temperature T is 1 / (1 + (C-1) exp(-s/T)), which is 0.24 for 10 classes at temperature 1. Up to 10 classes the
    temperature is 1: there the probabilities are larger, or no temperature gives 0.24.

    Args:
        classes: the number of classes.

    >>> [round(auto_temperature(classes), 3) for classes in (3, 10, 100, 1000, 151_936)]
    [1.0, 1.0, 0.291, 0.174, 0.093]
    """
    if classes <= PAPERS_CLASSES:
        return 1.0
    most, others = math.sqrt(PAPERS_CLASSES / (PAPERS_CLASSES - 1)), classes - 1
    return math.sqrt(classes / others) / (most + math.log(others / (PAPERS_CLASSES - 1)))


class UnitScores(nn.Module):
    """A layer that divides scores by temperature * max(norm, eps). The paper uses temperature 1, LogitNorm 0.04.

    Below eps the gradient is that of z / eps. It may be as large as 1/eps, which float16 cannot hold.

    Args:
        temperature: above 0; or ``"auto"``, :func:`auto_temperature` of the number of classes, masked ones included.
        eps: the smallest norm by which scores are divided.

    Shapes: scores (C,), (N, C) or (N, C, d1, ...). The result has the same shape.

    Reference: section 7.2 of the paper; Wei et al.: Mitigating neural network overconfidence with logit normalization.
    ICML 2022.

    >>> UnitScores()(torch.tensor([3.0, 4.0]))
    tensor([0.6000, 0.8000])
    """

    def __init__(self, temperature: Temperature = 1.0, eps: float = 1e-5):
        super().__init__()
        self.temperature = checked_temperature(temperature)
        self.eps = checks.number("eps", eps, "(0, inf)")

    def temperature_for(self, classes: int) -> float:
        """The temperature for this number of classes."""
        return auto_temperature(classes) if self.temperature == "auto" else self.temperature

    def forward(self, scores: Tensor) -> Tensor:
        dim = validation.class_dim(scores)
        return unit(scores, dim, self.eps) / self.temperature_for(scores.shape[dim])

    def extra_repr(self) -> str:
        shown = "auto" if self.temperature == "auto" else f"{self.temperature:g}"
        return f"temperature={shown}, eps={self.eps:g}"


class SoftCap(nn.Module):
    """A layer that keeps scores between -cap and cap: cap * tanh(z / cap). A class that is masked out stays so.

    Args:
        cap: above 0.

    Shapes: any. The result has the same shape.

    >>> SoftCap(30.0)(torch.tensor([0.0, 30.0, 1000.0]))
    tensor([ 0.0000, 22.8478, 30.0000])
    """

    def __init__(self, cap: float):
        super().__init__()
        self.cap = checks.number("cap", cap, "(0, inf)")

    def forward(self, scores: Tensor) -> Tensor:
        capped = self.cap * (scores / self.cap).tanh()
        return torch.where(scores == -torch.inf, -torch.inf, capped)

    def extra_repr(self) -> str:
        return f"cap={self.cap:g}"


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Inside ``with`` products keep the type of their factors."""
    # The meta device has no autocast that could be switched off.
    available = torch.amp.is_autocast_available(device.type)
    return torch.autocast(device.type, enabled=False) if available else nullcontext()


HALF = (torch.float16, torch.bfloat16)
"""Types in which no loss is computed. Such scores are turned into float32."""


def working_type(part: Tensor) -> torch.dtype:
    """The type in which losses of such scores are computed."""
    return torch.float32 if part.dtype in HALF else part.dtype


def full_precision(part: Tensor) -> Tensor:
    """The tensor as float32 if it is in half precision; else the tensor itself."""
    return part.float() if part.dtype in HALF else part


class EpsSoftmax(nn.Module):
    """A layer that sharpens scores: the softmax of its result is (p + m e_argmax) / (m + 1).

    Args:
        m: at least 0. At 0 the probabilities stay as they are.

    Shapes: scores (C,), (N, C) or (N, C, d1, ...). The result has the same shape.

    Reference: Wang et al.: epsilon-softmax. NeurIPS 2024.

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
        if self.m > 0:  # log(p + m) is computed from log p, so its gradient is finite where p is 0 too
            added = torch.logaddexp(s.logp, torch.full_like(s.logp, math.log(self.m)))
            raised = torch.where(s.index == leader, added, s.logp)
        return torch.where(s.present, raised, -torch.inf)

    def extra_repr(self) -> str:
        return f"m={self.m:g}"


class BatchNormScores(nn.Module):
    """A layer of batch normalisation for scores. The paper compares it with a division by the norm.

    Args:
        classes: the number of classes; None takes it from the first batch.
        options: those of ``torch.nn.BatchNorm1d``.

    Shapes: scores (N, C) or (N, C, d1, ...). The result has the same shape.

    Reference: section 7.2 of the paper.

    >>> BatchNormScores(classes=3)(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
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
    """The model, followed by a layer that maps its scores.

    Args:
        model: returns scores.
        layer: maps scores to scores of the same shape; by default :class:`BatchNormScores`, where the model is, and of
            its precision.

    >>> append_scores(nn.Linear(4, 3), UnitScores(temperature=0.04))
    Sequential(
      (model): Linear(in_features=4, out_features=3, bias=True)
      (scores): UnitScores(temperature=0.04, eps=1e-05)
    )
    """
    _check_module("model", model)
    scores = _batch_norm_for(model) if layer is None else layer
    _check_module("layer", scores)
    return nn.Sequential(OrderedDict(model=model, scores=scores))


def _check_module(argument: str, given: object) -> None:
    if not isinstance(given, nn.Module):
        raise TypeError(f"{argument} must be a torch.nn.Module; got {type(given).__name__}")


def _batch_norm_for(model: nn.Module) -> BatchNormScores:
    parts = list(model.parameters())
    return BatchNormScores(device=parts[-1].device, dtype=working_type(parts[-1])) if parts else BatchNormScores()
