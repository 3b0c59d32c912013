"""Learning rates as a function of time: no state, so nothing to save and nothing to get out of step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from symloss import checks

USAGE = (
    "'constant', 'cosine', 'step:190' or 'step:190,0.1' (factor every so many epochs), 'exponential:0.1/10000' (factor "
    "every so many steps, at every step) or 'epochs:0.97' (factor every epoch)"
)


@dataclass(frozen=True)
class Schedule:
    """A factor of the learning rate.

    >>> half = Schedule.parse("cosine").factor(epoch=60, epochs=120, step=0)
    >>> round(half, 6), Schedule.parse("step:190").factor(epoch=190, epochs=200, step=0)
    (0.5, 0.1)
    """

    kind: str
    gamma: float = 1.0
    every: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Schedule:
        kind, _, rest = text.partition(":")
        try:
            if kind in ("constant", "cosine") and not rest:
                return cls(kind)
            if kind == "step":
                epoch, _, gamma = rest.partition(",")
                return cls(kind, _positive(gamma or "0.1"), _positive(epoch))
            if kind == "exponential":
                gamma, _, every = rest.partition("/")
                return cls(kind, _positive(gamma), _positive(every))
            if kind == "epochs":
                return cls(kind, _positive(rest))
        except ValueError:
            pass
        raise ValueError(f"schedule must be {USAGE}; got {checks.brief(text)}")

    def factor(self, *, epoch: int, epochs: int, step: int) -> float:
        """At a step, counted from the start of training, of an epoch, counted from 0."""
        if self.kind == "cosine":
            return (1 + math.cos(math.pi * epoch / epochs)) / 2
        if self.kind == "step":
            return math.pow(self.gamma, epoch // self.every)
        if self.kind == "exponential":
            return math.pow(self.gamma, step / self.every)
        return math.pow(self.gamma, epoch) if self.kind == "epochs" else 1.0


def _positive(text: str) -> float:
    value = float(text)
    if not 0 < value < math.inf:
        raise ValueError(text)
    return value
