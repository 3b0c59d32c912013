"""Losses of the residual z - t with a closed form of their mean: a square, and hinges of power 1 or 2."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn
from torch.nn import functional

from symloss.theory.regression.target_noise import TargetNoise


class ResidualHinge(NamedTuple):
    """factor * (u - knot)_+^power on the right, factor * (-u - knot)_+^power on the left."""

    factor: float
    knot: float
    power: int
    right: bool


@dataclass(frozen=True)
class Residual:
    """The loss square * u^2 + hinges, of u = z - t.

    The absolute error is two hinges of power 1 at 0. Huber's loss is u^2/2 minus the halves of two hinges of power 2 at
    delta.
    """

    square: float
    hinges: tuple[ResidualHinge, ...] = ()

    def mean(self, z: Tensor, q: TargetNoise) -> Tensor | None:
        """The mean of the loss at z under the corruption, or None where no formula is known."""
        total = z * 0
        if self.square:
            moments = q.moments()
            if moments is None:
                return None
            mean, variance = (part.to(z.device) for part in moments)
            total = total + self.square * ((z - mean).square() + variance)
        for factor, knot, power, right in self.hinges:
            # u - knot = (z - knot) - t, and -u - knot = t - (z + knot).
            part = q.below(z - knot, power) if right else q.above(z + knot, power)
            if part is None:
                return None
            total = total + factor * part
        return total


def _both(factor: float, knot: float, power: int) -> tuple[ResidualHinge, ResidualHinge]:
    return ResidualHinge(factor, knot, power, True), ResidualHinge(factor, knot, power, False)


def huber(delta: float, factor: float = 1.0) -> Residual:
    """Huber's loss times a factor: u^2/2 up to delta, and linear beyond."""
    return Residual(factor / 2, _both(-factor / 2, delta, 2))


ABSOLUTE = Residual(0.0, _both(1.0, 0.0, 1))
SQUARED = Residual(1.0)

_FUNCTIONS: dict[Callable[..., Tensor], Residual] = {
    functional.mse_loss: SQUARED,
    functional.l1_loss: ABSOLUTE,
    functional.huber_loss: huber(1.0),
    functional.smooth_l1_loss: huber(1.0),
}


def recognised(loss: object) -> Residual | None:
    """The :class:`Residual` of a loss of torch; None for any other loss."""
    if type(loss) is nn.MSELoss:
        return SQUARED
    if type(loss) is nn.L1Loss:
        return ABSOLUTE
    if type(loss) is nn.HuberLoss:
        return huber(float(loss.delta))
    if type(loss) is nn.SmoothL1Loss:
        return huber(float(loss.beta), 1 / loss.beta) if loss.beta else ABSOLUTE
    return _FUNCTIONS.get(loss) if callable(loss) and getattr(loss, "__hash__", None) else None
