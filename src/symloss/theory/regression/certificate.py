"""Measure whether a regression loss satisfies the continuous symmetry condition, with counter-examples (app. F)."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from symloss import checks
from symloss.losses.operators import unreduced_copy
from symloss.noise.targets import AnyTargetDistribution
from symloss.theory.certificates import CounterExample, Finding
from symloss.theory.regression.losses import LinearRegressionLoss, RegressionLoss, SymmetrizedRegression
from symloss.theory.search import worst_chord

ROUNDING = 1e-9
"""Violations below this, relative to the size of the values, are rounding."""


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
        corruption: q, as in :func:`symmetrize_regression`.
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
    mean = _Mean(_of_x(loss, x), corruption, nodes)
    with torch.no_grad():
        grid = torch.linspace(low, high, points, dtype=torch.float64)
        z = grid.reshape(-1, *(1,) * len(mean.at(x).batch)).expand(-1, *mean.at(x).batch)
        symmetric, error = _symmetric(mean, z, x, _own_error(loss, z, x))
        values = mean.every(z, x)
    convex, affine = (_convex(values, grid, either_side) for either_side in (False, True))
    return RegressionCertificate(symmetric, convex, affine, error, low, high)


class _Mean(SymmetrizedRegression):
    """The mean of a loss under a corruption, always by quadrature."""

    def __init__(self, loss: RegressionLoss, corruption: AnyTargetDistribution, nodes: int):
        super().__init__(loss, corruption, nodes, "none")
        self.residual = None

    def every(self, z: Tensor, x: Any) -> Tensor:
        """The loss at every target of the rule: (targets, predictions, ...)."""
        return self._terms(z, self.at(x).rule(24))[0]


def _of_x(loss: RegressionLoss, x: Any) -> Callable[..., Tensor]:
    """The loss as a function of prediction and target alone."""
    if isinstance(loss, type) or not callable(loss):
        given = loss.__name__ if isinstance(loss, type) else type(loss).__name__
        raise TypeError(f"loss must be a torch module or a function of (input, target); got {given}")
    whole = unreduced_copy(loss)
    function = whole.forward if isinstance(whole, torch.nn.Module) else whole
    try:
        takes_x = "x" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        takes_x = False
    return (lambda z, t: whole(z, t, x=x)) if takes_x else whole


def _own_error(loss: RegressionLoss, z: Tensor, x: Any) -> float:
    """The error of a loss of this package that is computed by quadrature itself."""
    if isinstance(loss, SymmetrizedRegression):
        return float(loss._quadrature_error(z, loss.at(x)).max())
    if isinstance(loss, LinearRegressionLoss) and loss.as_loss is not None:
        return float((loss.as_loss._quadrature_error(z, loss.as_loss.at(x)) * z.abs()).max())
    return 0.0


def _symmetric(mean: _Mean, z: Tensor, x: Any, own_error: float) -> tuple[Finding, float]:
    found = mean.expected(z, x)
    error = float(mean.refuse_rough(z, mean.at(x)).max()) + own_error
    flat = found.flatten(1) if found.dim() > 1 else found[:, None]
    spread = flat.amax(0) - flat.amin(0)
    worst = int(spread.argmax())
    column, measure = flat[:, worst], float(spread[worst])
    size = 1 + float(mean.every(z, x).abs().amax())
    holds = measure <= ROUNDING * size + 2 * error
    top, bottom = int(column.argmax()), int(column.argmin())
    seen = f"the mean under the corruption is {float(column[top]):.6g} at a and {float(column[bottom]):.6g} at b"
    where = z.reshape(len(z), -1)[:, 0]
    example = None if holds else CounterExample(seen, None, {"a": [float(where[top])], "b": [float(where[bottom])]})
    return Finding(holds, measure, example), error


def _convex(values: Tensor, grid: Tensor, either_side: bool) -> Finding:
    """Chords of many lengths between predictions, at every target of the rule."""
    size = 1e-3 + float(values.abs().max())
    chord = worst_chord(values.movedim(1, 0), either_side)
    measure = max(0.0, chord.excess)
    if measure <= ROUNDING * size:
        return Finding(True, measure)
    ends = {"a": [float(grid[chord.start])], "b": [float(grid[chord.end])]}
    side = "away from" if either_side else "above"
    seen = f"midway between a and b the loss is {measure:.6g} {side} the mean of their losses"
    return Finding(False, measure, CounterExample(seen, None, ends))
