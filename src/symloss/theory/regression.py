"""Symmetric losses for regression, where some of the targets are corrupted (appendix F of the paper)."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.lazy_names import imported
from symloss.losses import validation
from symloss.losses.criterion import REDUCTIONS
from symloss.losses.layers import tensors_of
from symloss.losses.logits import full_precision, reduced
from symloss.losses.operators import unreduced_copy
from symloss.noise.risk import ROUNDING as SAME, NoisyRisk
from symloss.noise.targets import AnyTargetDistribution, TargetDistribution, target_distribution
from symloss.theory.findings import Finding, finding
from symloss.theory.search import ROUNDING, worst_chord
from symloss.theory.target_means import Rule, recognised, rule

if TYPE_CHECKING:
    from symloss.theory.regression_estimators import LinearFamilyRegressor, UnhingedRegressor

__all__ = [
    "BoundedOutput",
    "LinearFamilyRegressor",
    "LinearRegressionLoss",
    "RegressionCertificate",
    "SymmetrizedRegression",
    "UnhingedRegressionLoss",
    "UnhingedRegressor",
    "certify_regression",
    "symmetrize_regression",
    "weight_decay",
]

RegressionLoss = nn.Module | Callable[..., Tensor]

TRUSTED = 1e-2  # a mean with a larger error than this times (1 + mean absolute loss) is refused, since it may not exist


def __getattr__(name: str) -> Any:
    """Import the estimators on first use: they need scikit-learn, and the losses do not."""
    if name in ("LinearFamilyRegressor", "UnhingedRegressor"):
        return imported("symloss.theory.regression_estimators", name, f"symloss.theory.regression.{name}")
    raise AttributeError(f"module 'symloss.theory.regression' has no attribute {name!r}")


class SymmetrizedRegression(nn.Module):
    """The symmetric part L(z, y) - E_{T ~ q} L(z, T) of a regression loss, which corrupted targets do not bias.

    ``symmetrize_regression`` is another name for it. If a share p < 1 of the targets is replaced by draws from q, the
    risk of this loss on the corrupted data is 1 - p times its risk on the clean data (lemma F.2 and corollary F.4).

    Args:
        loss: any differentiable function or module of (input, target) that works entry by entry. Its own reduction is
            ignored.
        corruption: q, as a torch distribution (a batch of them differs from example to example), a sample of
            corrupted targets of shape (M,), or a function of x that returns either; x is then the third argument of
            the call.
        nodes: the number of nodes of the quadrature, where there is no closed form. There are closed forms for torch's
            squared error under any distribution with a variance, and for its absolute error, Huber and smooth L1 loss
            under normal, uniform and Laplace distributions, their mixtures, and samples.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``.

    ``expected(z)`` is the mean, ``method()`` tells how it is computed, and ``error(z)`` estimates its error.

    Shapes: input and target have one shape, to which the batch of a distribution must broadcast. Everything is computed
    in float64, because the two terms nearly cancel, and returned in the input's precision (float32 for half precision).

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

    def __init__(
        self, loss: RegressionLoss, corruption: AnyTargetDistribution, *, nodes: int = 64, reduction: str = "mean"
    ):
        super().__init__()
        _check_callable(loss)
        checks.choice("reduction", reduction, REDUCTIONS)
        self.nodes = int(checks.number("nodes", nodes, "[4, 160]", whole=True))
        self.loss, self.reduction = loss, reduction
        self.residual = recognised(loss)
        self.corruption = corruption if callable(corruption) else target_distribution(corruption)
        self._rules: dict[int, Rule] = {}
        if isinstance(self.corruption, TargetDistribution):
            q = self.corruption
            with torch.no_grad():  # the mean must exist
                z = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64)
                z = z.reshape(3, *(1,) * len(q.batch)).expand(3, *q.batch)
                self._mean(z, q, self.nodes)
                if self._closed(z, q) is None:
                    self.refuse_rough(z, q)

    def forward(self, input: Tensor, target: Tensor, x: Any = None) -> Tensor:
        """Return the symmetrized loss of predictions at targets; a corruption that is a function of x needs x."""
        validation.pair(input, target)
        z = input.double()
        values = self._values(z, target.double()) - self._mean(z, self.at(x), self.nodes)
        return reduced(values.to(full_precision(input).dtype), self.reduction)

    def expected(self, input: Tensor, x: Any = None) -> Tensor:
        """Return E_{T ~ q} L(z, T) for each prediction z: the label-insensitive part (gamma in lemma F.2)."""
        validation.pair(input, input)
        return self._mean(input.double(), self.at(x), self.nodes).to(full_precision(input).dtype)

    def noisy_risk(self, input: Tensor, target: Tensor, p: float, x: Any = None) -> NoisyRisk:
        """Return the risk of the loss itself where a share p of the targets is corrupted, and both sides of lemma F.2.

        Directly, it is a mean over the points of a quadrature or sample, and p Gamma_h + (1 - p) L_D(h) takes the
        closed form of ``expected`` where there is one. Two means over a quadrature are the same numbers.

        >>> from torch.distributions import Normal
        >>> z, y = torch.tensor([0.0, 1.0]), torch.tensor([0.0, 3.0])
        >>> symmetrize_regression(nn.MSELoss(), Normal(0.0, 1.0)).noisy_risk(z, y, p=0.5)
        noisy risk              1.75         computed directly
          p * insensitive term  0.75         p = 0.5, from 1 to 2 over 2 examples
          (1 - p) * clean risk  1            clean risk 2
        by the identity         1.75
        """
        validation.pair(input, target)
        p = checks.number("p", p, "[0, 1)")
        z, q = input.detach().double(), self.at(x)
        with torch.no_grad():
            gamma, clean = self._mean(z, q, self.nodes), self._values(z, target.double())
            values, weights = self._terms(z, self._rule(q, self.nodes))
            direct = p * (weights * values).sum(0) + (1 - p) * clean
            slack = SAME * float((weights * values.abs()).sum(0).max()) + 2 * float(self._quadrature_error(z, q).max())
        low, high = (float(end) for end in gamma.aminmax())
        return NoisyRisk(
            noisy=float(direct.mean()),
            clean=float(clean.mean()),
            insensitive=float(gamma.mean()),
            low=low,
            high=high,
            constant=high - low <= slack,
            p=p,
            remainder=0.0,
            examples=z.numel(),
        )

    def error(self, input: Tensor, x: Any = None) -> Tensor:
        """Return an estimate of the error of ``expected``, for each prediction. It is not a bound.

        0 for a closed form. For a quadrature: 1.5 times the largest difference to rules of two and three times as many
        nodes, plus the terms at the outermost points. For a sample: the standard error of its mean. Where the loss has
        kinks, the estimate is as rough as the quadrature.
        """
        validation.pair(input, input)
        z, q = input.double(), self.at(x)
        if isinstance(q.source, Tensor):
            values, _ = self._terms(z, self._rule(q, self.nodes))
            alone = len(values) == 1
            found = torch.full_like(z, torch.inf) if alone else values.std(0) / math.sqrt(len(values))
        else:
            found = self._quadrature_error(z, q)
        return found.to(full_precision(input).dtype)

    def method(self, x: Any = None) -> str:
        """Return how the mean is computed: ``"closed form"``, ``"sum"`` (finitely many values) or ``"quadrature"``."""
        q = self.at(x)
        if self._closed(torch.zeros((), dtype=torch.float64), q) is not None:
            return "closed form"
        return "sum" if self._rule(q, self.nodes).exact else "quadrature"

    def extra_repr(self) -> str:
        name = getattr(self.loss, "__name__", type(self.loss).__name__)
        name = "" if isinstance(self.loss, nn.Module) else f"{name}, "
        return f"{name}corruption={checks.brief(self.corruption)}, reduction={self.reduction!r}"

    def at(self, x: Any = None) -> TargetDistribution:
        """Return the corruption, at x if it is a function of x."""
        if isinstance(self.corruption, TargetDistribution):
            return self.corruption
        if x is None:
            raise TypeError("x must be given, because the corruption is a function of x; got None")
        return target_distribution(self.corruption(x))

    def _rule(self, q: TargetDistribution, nodes: int) -> Rule:
        if q is not self.corruption:  # a function of x
            return rule(q.source, nodes)
        if nodes not in self._rules:
            self._rules[nodes] = rule(q.source, nodes)
        return self._rules[nodes]

    def _closed(self, z: Tensor, q: TargetDistribution) -> Tensor | None:
        return None if self.residual is None else self.residual.mean(z, q)

    def _mean(self, z: Tensor, q: TargetDistribution, nodes: int) -> Tensor:
        refuse_unfit(q.batch, z)
        found = self._closed(z, q)
        if found is None:
            values, weights = self._terms(z, self._rule(q, nodes))
            found = (weights * values).sum(0)
        if validation.can_look(found) and not bool(found.isfinite().all()) and bool(z.isfinite().all()):
            raise ValueError(f"the mean of the loss under corruption {q!r} is not finite at a prediction of the batch")
        return found

    def _terms(self, z: Tensor, rule: Rule) -> tuple[Tensor, Tensor]:
        """Return the loss of every prediction at every point, and the weights: both (n, *shape of z)."""
        count, *batch = rule.points.shape
        shape = (count, *(1,) * (z.dim() - len(batch)), *batch)
        points, weights = (part.to(z.device).reshape(shape).expand(count, *z.shape) for part in rule[:2])
        values = self._values(z.expand(count, *z.shape), points)
        # The loss may overflow at a point of weight 0.
        return torch.where(weights > 0, values, 0.0), weights

    def _values(self, z: Tensor, t: Tensor) -> Tensor:
        wanted = "the loss must return one value for each prediction (reduction='none')"
        return validation.one_each(wanted, unreduced_copy(self.loss)(z, t), z)

    def _quadrature_error(self, z: Tensor, q: TargetDistribution) -> Tensor:
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

    def refuse_rough(self, z: Tensor, q: TargetDistribution) -> Tensor:
        """Return the error of the quadrature at z; ValueError if it is too large, as where the mean does not exist."""
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


def _check_callable(loss: object) -> None:
    if isinstance(loss, type) or not callable(loss):
        given = loss.__name__ if isinstance(loss, type) else type(loss).__name__
        raise TypeError(f"loss must be a torch module or a function of (input, target); got {given}")


def refuse_unfit(batch: tuple[int, ...], z: Tensor) -> None:
    """Raise ValueError unless the batch of a corruption broadcasts to the shape of the predictions."""
    fits = len(batch) <= z.dim() and all(n in (1, m) for n, m in zip(reversed(batch), reversed(z.shape), strict=False))
    if not fits:
        raise ValueError(
            f"the corruption's batch must broadcast to the predictions' shape {tuple(z.shape)}; got {batch}"
        )


symmetrize_regression = SymmetrizedRegression


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
        corruption: q, as in :class:`SymmetrizedRegression`. None if f has mean zero already.
        bound: z is replaced by bound * tanh(z / bound). With None the loss is unbounded below, and a penalty such as
            :func:`weight_decay` must keep the network finite.
        nodes, reduction: as in :class:`SymmetrizedRegression`.

    >>> from torch.distributions import Exponential
    >>> loss = LinearRegressionLoss(lambda y: -y, Exponential(0.5))  # corrupted targets have mean 2
    >>> loss(torch.tensor([1.0]), torch.tensor([5.0]))
    tensor(-3.)
    """

    origin = 0.0  # where predictions are measured from

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
        self.as_loss = None if corruption is None else SymmetrizedRegression(self._f, corruption, nodes=nodes)

    def _f(self, _: Tensor, target: Tensor) -> Tensor:
        return self.f(target)

    def forward(self, input: Tensor, target: Tensor, x: Any = None) -> Tensor:
        validation.pair(input, target)
        z = full_precision(input)
        slope = validation.one_each("f must return one number for each target", self.f(target.to(z.dtype)), z)
        if self.as_loss is not None:
            refuse_unfit(self.as_loss.at(x).batch, z)
            slope = slope - self.mean(x).to(slope)
        return reduced(slope * self.bounded(z - self.origin), self.reduction)

    def mean(self, x: Any = None) -> Tensor:
        """Return E_{T ~ q} f(T), in the shape of the corruption's batch; 0 without a corruption."""
        return torch.zeros(()) if self.as_loss is None else self.as_loss.expected(self._zero(x), x)

    def error(self, x: Any = None) -> Tensor:
        """Return an estimate of the error of ``mean``, as in :meth:`SymmetrizedRegression.error`."""
        return torch.zeros(()) if self.as_loss is None else self.as_loss.error(self._zero(x), x)

    def _zero(self, x: Any) -> Tensor:
        assert self.as_loss is not None
        return torch.zeros(self.as_loss.at(x).batch, dtype=torch.float64)


class UnhingedRegressionLoss(LinearRegressionLoss):
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
        super().__init__(self._slope, bound=bound, reduction=reduction)
        self.delta = None if delta is None else checks.number("delta", delta, "(0, inf)")
        self.origin = self.corruption_mean = checks.number("corruption_mean", corruption_mean, "(-inf, inf)")

    def _slope(self, target: Tensor) -> Tensor:
        offset = target - self.corruption_mean
        return -offset if self.delta is None else -offset.clamp(-self.delta, self.delta)

    def extra_repr(self) -> str:
        return f"delta={self.delta}, corruption_mean={self.corruption_mean:g}, reduction={self.reduction!r}"


def weight_decay(parameters: nn.Module | Iterable[Tensor], decay: float, layers: int = 1) -> Tensor:
    """Return the penalty decay / 2 * |w|^(2 layers), with the Euclidean norm |w| of all parameters.

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


@dataclass(frozen=True)
class RegressionCertificate:
    """The measured properties of a regression loss, for predictions from low to high."""

    symmetric: Finding
    """Is the mean under the corruption the same at every prediction? Measured: its spread."""
    convex: Finding
    """Is the loss convex in the prediction? Measured: how far the middle of a chord lies below the loss."""
    affine: Finding
    """Is the loss affine in the prediction? Measured: the same, on either side of the chord."""
    error: float
    """The largest error of a mean under the corruption. The symmetry is measured no more precisely than this."""
    low: float
    """The smallest prediction."""
    high: float
    """The largest prediction."""

    def __str__(self) -> str:
        words = {
            "symmetric": "spread of the mean under the corruption",
            "convex": "largest excess over a chord",
            "affine": "largest distance from a chord",
        }
        lines = [f"predictions from {self.low:g} to {self.high:g}"]
        for name, measure in words.items():
            finding: Finding = getattr(self, name)
            lines.append(f"  {'yes' if finding else 'no ':<4} {name:<10} {measure} {finding.measure:.3g}")
            if finding.counter_example is not None:
                lines.append(f"       {finding.counter_example}")
        lines.append(f"  error of the means {self.error:.1g}")
        return "\n".join(lines)


def certify_regression(
    loss: RegressionLoss,
    corruption: AnyTargetDistribution,
    *,
    x: Any = None,
    low: float = -10.0,
    high: float = 10.0,
    points: int = 201,
    nodes: int = 100,
) -> RegressionCertificate:
    """Measure whether the mean of a loss under a corruption is constant in the prediction (definition F.3).

    The mean is computed by quadrature, never by the closed form that the loss itself may use. Differences within the
    error of the quadrature are no violation.

    If the corruption depends on x, the mean must be constant in the prediction at each x, as corollary F.4 needs it.

    Args:
        loss: a function or module of (input, target), or of (input, target, x).
        corruption: q, as in :class:`SymmetrizedRegression`.
        x: the features, for a corruption or a loss that depends on them.
        low, high: the range of predictions.
        points: how many predictions in this range are tried.
        nodes: the number of nodes of the quadrature.

    >>> from torch.distributions import Normal
    >>> unhinged = certify_regression(lambda z, y: -y * z, Normal(0.0, 1.0))
    >>> bool(unhinged.symmetric), bool(unhinged.affine)
    (True, True)
    >>> not_centred = certify_regression(lambda z, y: -y * z, Normal(0.5, 1.0))
    >>> print(not_centred.symmetric.counter_example)
    the mean under the corruption is 5 at a and -5 at b; a = (-10); b = (10)
    """
    low, high = (checks.number(name, end, "(-inf, inf)") for name, end in (("low", low), ("high", high)))
    if not low < high:
        raise ValueError(f"low must be below high; got low = {low:g} and high = {high:g}")
    checks.number("points", points, "[5, 100000]", whole=True)
    mean = SymmetrizedRegression(_of_x(loss, x), corruption, nodes=nodes, reduction="none")
    mean.residual = None  # by quadrature, also where there is a closed form
    q = mean.at(x)
    with torch.no_grad():
        grid = torch.linspace(low, high, points, dtype=torch.float64)
        z = grid.reshape(-1, *(1,) * len(q.batch)).expand(-1, *q.batch)
        values, _ = mean._terms(z, rule(q.source, 24))  # at every target: (targets, predictions, ...)
        error = float(mean.refuse_rough(z, q).max()) + _own_error(loss, z, x)
        symmetric = _symmetric(mean.expected(z, x), z, 1 + float(values.abs().amax()), error)
    convex, affine = (_convex(values, grid, either_side) for either_side in (False, True))
    return RegressionCertificate(symmetric, convex, affine, error, low, high)


def _of_x(loss: RegressionLoss, x: Any) -> Callable[..., Tensor]:
    """Return the loss as a function of prediction and target alone."""
    _check_callable(loss)
    whole = unreduced_copy(loss)
    function = whole.forward if isinstance(whole, torch.nn.Module) else whole
    try:
        takes_x = "x" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        takes_x = False
    return (lambda z, t: whole(z, t, x=x)) if takes_x else whole


def _own_error(loss: RegressionLoss, z: Tensor, x: Any) -> float:
    """Return the error of a loss of this package that is computed by quadrature itself."""
    if isinstance(loss, SymmetrizedRegression):
        return float(loss._quadrature_error(z, loss.at(x)).max())
    if isinstance(loss, LinearRegressionLoss) and loss.as_loss is not None:
        return float((loss.as_loss._quadrature_error(z, loss.as_loss.at(x)) * z.abs()).max())
    return 0.0


def _symmetric(found: Tensor, z: Tensor, size: float, error: float) -> Finding:
    flat = found.flatten(1) if found.dim() > 1 else found[:, None]
    spread = flat.amax(0) - flat.amin(0)
    worst = int(spread.argmax())
    column, measure = flat[:, worst], float(spread[worst])
    top, bottom = int(column.argmax()), int(column.argmin())
    seen = f"the mean under the corruption is {float(column[top]):.6g} at a and {float(column[bottom]):.6g} at b"
    where = z.reshape(len(z), -1)[:, 0]
    return finding(measure <= ROUNDING * size + 2 * error, measure, seen, a=where[top], b=where[bottom])


def _convex(values: Tensor, grid: Tensor, either_side: bool) -> Finding:
    """Try chords of many lengths between predictions, at every target of the rule."""
    size = 1e-3 + float(values.abs().max())
    chord = worst_chord(values.movedim(1, 0), either_side)
    measure = max(0.0, chord.excess)
    side = "away from" if either_side else "above"
    seen = f"midway between a and b the loss is {measure:.6g} {side} the mean of their losses"
    return finding(measure <= ROUNDING * size, measure, seen, a=grid[chord.start], b=grid[chord.end])
