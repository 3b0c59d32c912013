"""Losses f(y) z, which are linear in the prediction and symmetric if f has mean zero under the corruption (app. F)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses.criterion import REDUCTIONS
from symloss.losses.layers import tensors_of
from symloss.losses.logits import full_precision
from symloss.noise.target_distribution import AnyTargetDistribution
from symloss.theory.regression.symmetrize import SymmetrizedRegression, check_pair, reduced, refuse_unfit


def clipped(values: Tensor, delta: float | None) -> Tensor:
    """chi_delta: values clipped to [-delta, delta]; unchanged if delta is None."""
    return values if delta is None else values.clamp(-delta, delta)


class BoundedOutput(nn.Module):
    """The map center + bound * tanh((z - center) / bound), which keeps predictions within center -+ bound.

    It does not read the target. So a symmetric loss stays symmetric, and a linear loss becomes bounded.

    Args:
        bound: the largest distance from the center.
        center: the middle of the range.

    >>> BoundedOutput(2.0)(torch.tensor([0.01, 100.0]))
    tensor([0.0100, 2.0000])
    """

    def __init__(self, bound: float, center: float = 0.0):
        super().__init__()
        self.bound = checks.number("bound", bound, "(0, inf)")
        self.center = checks.number("center", center, "(-inf, inf)")

    def forward(self, input: Tensor) -> Tensor:
        return self.center + self.bound * torch.tanh((input - self.center) / self.bound)

    def extra_repr(self) -> str:
        return f"bound={self.bound:g}, center={self.center:g}"


class LinearRegressionLoss(nn.Module):
    """The loss (f(y) - E_{T ~ q} f(T)) z. Every linear loss that is symmetric under q has this form (app. F).

    Args:
        f: a function of a tensor of targets, entry by entry. The unhinged loss has f(y) = -y.
        corruption: q, as in :func:`symmetrize_regression`. None if f has mean zero already.
        bound: z is replaced by bound * tanh(z / bound). With None the loss is unbounded below, and a penalty such as
            :func:`weight_decay` must keep the network finite.
        nodes, reduction: as in :func:`symmetrize_regression`.

    >>> from torch.distributions import Exponential
    >>> loss = LinearRegressionLoss(lambda y: -y, Exponential(0.5))  # corrupted targets have mean 2
    >>> loss(torch.tensor([1.0]), torch.tensor([5.0]))
    tensor(-3.)
    """

    def __init__(
        self,
        f: Callable[[Tensor], Tensor],
        corruption: AnyTargetDistribution | None = None,
        *,
        bound: float | None = None,
        nodes: int = 160,
        reduction: str = "mean",
    ):
        super().__init__()
        if not callable(f):
            raise TypeError(f"f must be a function of a tensor of targets; got {checks.brief(f)}")
        checks.choice("reduction", reduction, REDUCTIONS)
        self.f, self.reduction = f, reduction
        self.bounded = nn.Identity() if bound is None else BoundedOutput(bound)
        # As a loss, f does not read the prediction. Its mean is what symmetrization subtracts.
        self.as_loss = None if corruption is None else SymmetrizedRegression(self._f, corruption, nodes, "none")

    def _f(self, _: Tensor, target: Tensor) -> Tensor:
        return self.f(target)

    def forward(self, input: Tensor, target: Tensor, x: Any = None) -> Tensor:
        check_pair(input, target)
        z = full_precision(input)
        slope = self.f(target.to(z.dtype))
        if not isinstance(slope, Tensor) or slope.shape != z.shape:
            given = f"shape {tuple(slope.shape)}" if isinstance(slope, Tensor) else type(slope).__name__
            raise ValueError(f"f must return one number for each target, shape {tuple(z.shape)}; got {given}")
        if self.as_loss is not None:
            refuse_unfit(self.as_loss.at(x).batch, z)
            slope = slope - self.mean(x).to(slope)
        return reduced(slope * self.bounded(z), self.reduction)

    def mean(self, x: Any = None) -> Tensor:
        """E_{T ~ q} f(T), in the shape of the corruption's batch; 0 without a corruption."""
        return torch.zeros(()) if self.as_loss is None else self.as_loss.expected(self._zero(x), x)

    def error(self, x: Any = None) -> Tensor:
        """An estimate of the error of ``mean``, as in :meth:`SymmetrizedRegression.error`."""
        return torch.zeros(()) if self.as_loss is None else self.as_loss.error(self._zero(x), x)

    def _zero(self, x: Any) -> Tensor:
        assert self.as_loss is not None
        return torch.zeros(self.as_loss.at(x).batch, dtype=torch.float64)


class UnhingedRegressionLoss(nn.Module):
    """The unhinged loss of regression, -chi_delta(y - m) (z - m) (examples F.5 and F.7).

    Without delta it is half the symmetrization of the squared error, up to terms without z, for any corruption of
    mean m. With delta it is the linear approximation at m of the symmetrized Huber loss, for any corruption that is
    symmetric about m.

    Args:
        delta: targets are clipped to m -+ delta; None for no clipping.
        corruption_mean: m, the mean of corrupted targets.
        bound: z is replaced by m + bound * tanh((z - m) / bound). With None the loss is unbounded below, and a penalty
            such as :func:`weight_decay` must keep the network finite.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    >>> UnhingedRegressionLoss(delta=2.0)(torch.tensor([1.0, 1.0]), torch.tensor([1.0, 50.0]))
    tensor(-1.5000)
    """

    def __init__(
        self,
        delta: float | None = None,
        corruption_mean: float = 0.0,
        *,
        bound: float | None = None,
        reduction: str = "mean",
    ):
        super().__init__()
        checks.choice("reduction", reduction, REDUCTIONS)
        self.delta = None if delta is None else checks.number("delta", delta, "(0, inf)")
        self.corruption_mean = checks.number("corruption_mean", corruption_mean, "(-inf, inf)")
        self.bounded = nn.Identity() if bound is None else BoundedOutput(bound, self.corruption_mean)
        self.reduction = reduction

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        check_pair(input, target)
        z = full_precision(input)
        offset = target.to(z.dtype) - self.corruption_mean
        values = -clipped(offset, self.delta) * (self.bounded(z) - self.corruption_mean)
        return reduced(values, self.reduction)

    def extra_repr(self) -> str:
        return f"delta={self.delta}, corruption_mean={self.corruption_mean:g}, reduction={self.reduction!r}"


def weight_decay(parameters: nn.Module | Iterable[Tensor], decay: float, layers: int = 1) -> Tensor:
    """The penalty decay / 2 * |w|^(2 layers), with the Euclidean norm |w| of all parameters.

    Add it to a linear loss, which is unbounded below without it. The output of a bias-free network of l layers grows
    like |w|^l, and a linear loss falls as fast. So plain weight decay (layers=1, as in the paper) bounds the loss of a
    linear model only, and a deeper network needs its number of layers.

    Args:
        parameters: a module, or tensors.
        decay: the factor.
        layers: the number of layers of the network.

    >>> weight_decay([torch.tensor([3.0, 4.0])], decay=0.1)
    tensor(1.2500)
    """
    decay = checks.number("decay", decay, "(0, inf)")
    layers = int(checks.number("layers", layers, "[1, inf)", whole=True))
    squares = torch.stack([tensor.square().sum() for tensor in tensors_of(parameters)]).sum()
    return decay / 2 * squares**layers
