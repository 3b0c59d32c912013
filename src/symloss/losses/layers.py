"""Layers that map scores to scores, such as division by the norm."""

import math
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.logits import Scores, unit, working_type

PAPERS_CLASSES = 10  # the number of classes at which ``temperature="auto"`` is the paper's temperature, 1

Temperature = float | Literal["auto"]  # what unit scores are divided by


def checked_temperature(value: object) -> Temperature:
    """Return the temperature as a number, or "auto". Anything else raises an error."""
    if isinstance(value, str) and value != "auto":
        raise ValueError(f"temperature must be a number in (0, inf) or 'auto'; got {checks.brief(value)}")
    return "auto" if isinstance(value, str) else checks.number("temperature", value, "(0, inf)")


def auto_temperature(classes: int) -> float:
    """Return the temperature at which unit scores reach the largest probability of 10 classes at temperature 1.

    The label of unit scores is most probable if all other scores are equal. With s = sqrt(C / (C-1)) its probability at
    the temperature T is 1 / (1 + (C-1) exp(-s/T)), which is 0.24 for 10 classes at temperature 1. Up to 10 classes the
    temperature is 1: there the probabilities are larger, or no temperature gives 0.24.

    >>> [round(auto_temperature(classes), 3) for classes in (3, 10, 100, 1000, 151_936)]
    [1.0, 1.0, 0.291, 0.174, 0.093]
    """
    if classes <= PAPERS_CLASSES:
        return 1.0
    most, others = math.sqrt(PAPERS_CLASSES / (PAPERS_CLASSES - 1)), classes - 1
    return math.sqrt(classes / others) / (most + math.log(others / (PAPERS_CLASSES - 1)))


def resolved_temperature(temperature: Temperature, classes: int) -> float:
    """Return the temperature for this number of classes."""
    return auto_temperature(classes) if temperature == "auto" else temperature


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

    def forward(self, scores: Tensor) -> Tensor:
        dim = validation.class_dim(scores)
        vectors, temperature = unit(scores, dim, self.eps), resolved_temperature(self.temperature, scores.shape[dim])
        return vectors if temperature == 1 else vectors * (1 / temperature)

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
        num_classes: None takes it from the first batch.
        options: those of ``torch.nn.BatchNorm1d``.

    Shapes: scores (N, C) or (N, C, d1, ...). The result has the same shape.

    Reference: section 7.2 of the paper.

    >>> BatchNormScores(num_classes=3)(torch.zeros(2, 3)).shape
    torch.Size([2, 3])
    """

    def __init__(self, num_classes: int | None = None, **options: Any):
        super().__init__()
        if num_classes is not None:
            checks.number("num_classes", num_classes, "[1, inf)", whole=True)
        self.norm: nn.modules.batchnorm._BatchNorm
        self.norm = nn.LazyBatchNorm1d(**options) if num_classes is None else nn.BatchNorm1d(num_classes, **options)

    def forward(self, scores: Tensor) -> Tensor:
        if scores.dim() < 2:
            raise ValueError(f"batch-norm scores need shape (N, C) or (N, C, d1, ...); got {tuple(scores.shape)}")
        flat = scores.flatten(2) if scores.dim() > 3 else scores
        normed: Tensor = self.norm(flat)
        return normed.reshape(scores.shape)


def append_scores(model: nn.Module, layer: nn.Module | None = None) -> nn.Sequential:
    """Return the model, followed by a layer that maps its scores.

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
    for argument, given in (("model", model), ("layer", model if layer is None else layer)):
        if not isinstance(given, nn.Module):
            raise TypeError(f"{argument} must be a torch.nn.Module; got {type(given).__name__}")
    if layer is None:
        last = [None, *model.parameters()][-1]
        layer = BatchNormScores() if last is None else BatchNormScores(device=last.device, dtype=working_type(last))
    return nn.Sequential(OrderedDict(model=model, scores=layer))


def l1_penalty(parameters: nn.Module | Iterable[Tensor], delta: float) -> Tensor:
    """Return the L1 penalty, delta times the sum of the absolute values of all parameters, to add to the loss.

    Args:
        parameters: a module, or tensors of any shapes.
        delta: weight of the penalty, at least 0.

    Reference: Ye et al.: Active negative loss functions for learning with noisy labels. NeurIPS 2023.

    >>> l1_penalty([torch.tensor([1.0, -2.0])], delta=0.5)
    tensor(1.5000)
    """
    delta = checks.number("delta", delta, "[0, inf)")
    return delta * torch.stack([tensor.abs().sum() for tensor in tensors_of(parameters)]).sum()


def tensors_of(parameters: nn.Module | Iterable[Tensor]) -> list[Tensor]:
    """Return the parameters as a list of tensors. Raise an error if there are none, or if one is no tensor."""
    tensors = list(parameters.parameters() if isinstance(parameters, nn.Module) else parameters)
    if not tensors:
        raise ValueError("parameters must hold at least one tensor; got none")
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"parameters must hold tensors; got {type(tensor).__name__}")
    return tensors
