"""The symmetric part of any regression loss under a corruption of the targets (app. F)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.criterion import REDUCTIONS
from symloss.losses.logits import full_precision
from symloss.losses.operators import unreduced_copy
from symloss.noise.target_distribution import WANTED, AnyTargetDistribution
from symloss.theory.regression.quadrature import Rule
from symloss.theory.regression.residual import recognised
from symloss.theory.regression.target_noise import Sample, TargetNoise, target_noise

RegressionLoss = nn.Module | Callable[..., Tensor]

TRUSTED = 1e-2
"""A mean with a larger error than this times (1 + mean absolute loss) is refused, since it may not exist."""


def check_pair(input: object, target: object) -> None:
    """Check that predictions and targets have one shape. Broadcasting is refused, since it is mostly a mistake."""
    for name, value in (("input", input), ("target", target)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name} must be a tensor; got {type(value).__name__}")
    assert isinstance(input, Tensor)
    assert isinstance(target, Tensor)
    if not input.is_floating_point():
        raise TypeError(f"input must hold floating-point predictions; got {input.dtype}")
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must hold real numbers; got {target.dtype}")
    if input.shape != target.shape:
        raise ValueError(
            f"target must have the input's shape {tuple(input.shape)}, one number for each prediction; "
            f"got {tuple(target.shape)}"
        )


def reduced(values: Tensor, reduction: str) -> Tensor:
    """The mean or the sum of the values, or the values themselves for ``"none"``."""
    if reduction == "none":
        return values
    return values.sum() if reduction == "sum" else values.mean()


class SymmetrizedRegression(nn.Module):
    """The loss L(z, y) - E_{T ~ q} L(z, T). :func:`symmetrize_regression` returns it.

    Args:
        loss, corruption, nodes, reduction: as in :func:`symmetrize_regression`.

    Shapes: input and target have one shape, to which the batch of a distribution must broadcast. Everything is computed
    in float64, because the two terms nearly cancel, and returned in the input's precision (float32 for half precision).
    """

    def __init__(
        self, loss: RegressionLoss, corruption: AnyTargetDistribution, nodes: int = 64, reduction: str = "mean"
    ):
        super().__init__()
        if isinstance(loss, type) or not callable(loss):
            given = loss.__name__ if isinstance(loss, type) else type(loss).__name__
            raise TypeError(f"loss must be a torch module or a function of (input, target); got {given}")
        checks.choice("reduction", reduction, REDUCTIONS)
        self.nodes = int(checks.number("nodes", nodes, "[4, 160]", whole=True))
        self.loss, self.reduction = loss, reduction
        self.residual = recognised(loss)
        self.of_x = callable(corruption) and not isinstance(corruption, TargetNoise)
        self.corruption = corruption if self.of_x else target_noise(corruption)
        self._rules: dict[int, Rule] = {}
        if not self.of_x:
            self._refuse_no_mean()

    def forward(self, input: Tensor, target: Tensor, x: Any = None) -> Tensor:
        """The symmetrized loss of predictions at targets. x is the argument of a corruption that is a function of x."""
        check_pair(input, target)
        z = input.double()
        values = self._values(z, target.double()) - self._mean(z, self.at(x), self.nodes)
        return reduced(values.to(full_precision(input).dtype), self.reduction)

    def expected(self, input: Tensor, x: Any = None) -> Tensor:
        """E_{T ~ q} L(z, T) for each prediction z: the label-insensitive part of the loss (gamma in lemma F.2)."""
        check_pair(input, input)
        return self._mean(input.double(), self.at(x), self.nodes).to(full_precision(input).dtype)

    def error(self, input: Tensor, x: Any = None) -> Tensor:
        """An estimate of the error of ``expected``, for each prediction. It is not a bound.

        0 for a closed form. For a quadrature: 1.5 times the largest difference to rules of two and three times as many
        nodes, plus the terms at the outermost points. For a sample: the standard error of its mean. Where the loss has
        kinks, the estimate is as rough as the quadrature.
        """
        check_pair(input, input)
        return self._error(input.double(), self.at(x)).to(full_precision(input).dtype)

    def method(self, x: Any = None) -> str:
        """How the mean is computed: ``"closed form"``, ``"sum"`` (finitely many values) or ``"quadrature"``."""
        q = self.at(x)
        if self._closed(torch.zeros((), dtype=torch.float64), q) is not None:
            return "closed form"
        return "sum" if self._rule(q, self.nodes).exact else "quadrature"

    def extra_repr(self) -> str:
        name = (
            "" if isinstance(self.loss, nn.Module) else f"{getattr(self.loss, '__name__', type(self.loss).__name__)}, "
        )
        return f"{name}corruption={checks.brief(self.corruption)}, reduction={self.reduction!r}"

    def at(self, x: Any = None) -> TargetNoise:
        """The corruption, at x if it is a function of x."""
        if not self.of_x:
            assert isinstance(self.corruption, TargetNoise)
            return self.corruption
        if x is None:
            raise TypeError("x must be given, because the corruption is a function of x; got None")
        assert callable(self.corruption)
        return target_noise(self.corruption(x))

    def _rule(self, q: TargetNoise, nodes: int) -> Rule:
        if self.of_x:
            return q.rule(nodes)
        if nodes not in self._rules:
            self._rules[nodes] = q.rule(nodes)
        return self._rules[nodes]

    def _closed(self, z: Tensor, q: TargetNoise) -> Tensor | None:
        return None if self.residual is None else self.residual.mean(z, q)

    def _mean(self, z: Tensor, q: TargetNoise, nodes: int) -> Tensor:
        refuse_unfit(q.batch, z)
        found = self._closed(z, q)
        if found is None:
            values, weights = self._terms(z, self._rule(q, nodes))
            found = (weights * values).sum(0)
        if validation.can_look(found) and not bool(found.isfinite().all()) and bool(z.isfinite().all()):
            raise ValueError(f"the mean of the loss under corruption {q!r} is not finite at a prediction of the batch")
        return found

    def _terms(self, z: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
        """The loss of every prediction at every point, and the weights: both (n, *shape of z)."""
        count, *batch = rule.points.shape
        shape = (count, *(1,) * (z.dim() - len(batch)), *batch)
        points, weights = (part.to(z.device).reshape(shape).expand(count, *z.shape) for part in rule[:2])
        values = self._values(z.expand(count, *z.shape), points)
        # The loss may overflow at a point of weight 0.
        return torch.where(weights > 0, values, 0.0), weights

    def _values(self, z: Tensor, t: Tensor) -> Tensor:
        values = unreduced_copy(self.loss)(z, t)
        if not isinstance(values, Tensor) or values.shape != z.shape:
            given = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                "the loss must return one value for each prediction (reduction='none'), "
                f"shape {tuple(z.shape)}; got {given}"
            )
        return values

    def _error(self, z: Tensor, q: TargetNoise) -> Tensor:
        if isinstance(q, Sample):
            values, _ = self._terms(z, self._rule(q, self.nodes))
            alone = len(values) == 1
            return torch.full_like(z, torch.inf) if alone else values.std(0) / math.sqrt(len(values))
        return self._quadrature_error(z, q)

    def _quadrature_error(self, z: Tensor, q: TargetNoise) -> Tensor:
        refuse_unfit(q.batch, z)
        if self._closed(z, q) is not None:
            return torch.zeros_like(z)
        rule = self._rule(q, self.nodes)
        if rule.exact:
            return torch.zeros_like(z)
        values, weights = self._terms(z, rule)
        terms = weights * values
        found = terms.sum(0)
        finer = [(found - self._mean(z, q, factor * self.nodes)).abs() for factor in (2, 3)]
        ends = terms[list(rule.ends)].abs().sum(0)
        # At a kink the error falls with the square of the distance of nodes: a finer rule has a quarter of it left.
        return 1.5 * torch.maximum(*finer) + ends + rule.lost * found.abs()

    def _refuse_no_mean(self) -> None:
        q = self.at()
        z = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64).reshape(3, *(1,) * len(q.batch)).expand(3, *q.batch)
        with torch.no_grad():
            self._mean(z, q, self.nodes)
            if self._closed(z, q) is None:
                self.refuse_rough(z, q)

    def refuse_rough(self, z: Tensor, q: TargetNoise) -> Tensor:
        """The error of the quadrature at z; ValueError if it is too large, as where the mean does not exist."""
        values, weights = self._terms(z, self._rule(q, self.nodes))
        error, size = self._quadrature_error(z, q), (weights * values.abs()).sum(0)
        off = ~(error <= TRUSTED * (1 + size))
        if bool(off.any()):
            doubt, where = (float(part[off].flatten()[0]) for part in (error, z))
            raise ValueError(
                f"the mean of the loss under corruption {q!r} does not exist or needs more nodes: with {self.nodes} "
                f"its error is {doubt:.2g} at the prediction {where:g}"
            )
        return error


def refuse_unfit(batch: tuple[int, ...], z: Tensor) -> None:
    """Raise ValueError unless the batch of a corruption broadcasts to the shape of the predictions."""
    fits = len(batch) <= z.dim() and all(n in (1, m) for n, m in zip(reversed(batch), reversed(z.shape), strict=False))
    if not fits:
        raise ValueError(
            f"the corruption's batch must broadcast to the predictions' shape {tuple(z.shape)}; got {batch}"
        )


def symmetrize_regression(
    loss: RegressionLoss, corruption: AnyTargetDistribution, *, nodes: int = 64, reduction: str = "mean"
) -> SymmetrizedRegression:
    """The symmetric part L(z, y) - E_{T ~ q} L(z, T) of a regression loss, which corrupted targets do not bias.

    If a share p < 1 of the targets is replaced by draws from q, the risk of this loss on the corrupted data is 1 - p
    times its risk on the clean data (lemma F.2 and corollary F.4).

    Args:
        loss: any differentiable function or module of (input, target) that works entry by entry. Its own reduction is
            ignored.
        corruption: q, as a distribution of torch (a batch of them differs from example to example), a sample of
            corrupted targets of shape (M,), or a function of x that returns either; x is then the third argument of
            the call.
        nodes: the number of nodes of the quadrature, where there is no closed form. There are closed forms for torch's
            squared error under any distribution with a variance, and for its absolute error, Huber and smooth L1 loss
            under normal, uniform and Laplace distributions, their mixtures, and samples.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    Of the result, ``expected(z)`` is the mean, ``method()`` tells how it is computed, and ``error(z)`` estimates its
    error.

    >>> from torch.distributions import Normal
    >>> robust = symmetrize_regression(nn.MSELoss(), Normal(0.0, 1.0))
    >>> robust(torch.tensor([3.0]), torch.tensor([2.0]))  # -2 z y + y^2 - 1
    tensor(-9.)
    >>> robust.method()
    'closed form'
    >>> logcosh = symmetrize_regression(lambda z, y: (z - y).cosh().log(), Normal(0.0, 1.0), reduction="none")
    >>> logcosh.method(), bool(logcosh.error(torch.tensor([0.5])) < 1e-8)
    ('quadrature', True)
    """
    if corruption is None:
        raise TypeError(f"corruption {WANTED}; got None")
    return SymmetrizedRegression(loss, corruption, nodes, reduction)
