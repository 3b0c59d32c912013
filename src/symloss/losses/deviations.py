"""Deviations of public implementations from the published formulas. Some published tables need them.

A deviation has a name, and is never a default.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from symloss import checks
from symloss.losses.algebra import Loss
from symloss.losses.potentials import FocalPotential, MAEPotential, Potential, one_minus_exp


@dataclass(frozen=True)
class HeldFocal(Potential):
    """Focal loss whose factor (1-p)^gamma is held constant in the gradient."""

    gamma: float

    def phi(self, logp: Tensor) -> Tensor:
        return self.derivative(logp).detach() * logp

    def derivative(self, logp: Tensor) -> Tensor:
        return -one_minus_exp(logp).pow(self.gamma)


@dataclass(frozen=True)
class Clamped(Potential):
    """A potential of max(p, p_min). Below p_min it is flat, so an improbable label has no gradient."""

    inner: Potential
    p_min: float = 1e-7

    def phi(self, logp: Tensor) -> Tensor:
        return self.inner.phi(logp.clamp_min(math.log(self.p_min)))

    def derivative(self, logp: Tensor) -> Tensor:
        return torch.where(logp > math.log(self.p_min), self.inner.derivative(logp), 0.0)


DEVIATIONS: dict[str, Callable[[Loss], Loss]] = {
    "held-focal-factor": lambda leaf: HeldFocal(leaf.gamma) if isinstance(leaf, FocalPotential) else leaf,
    "clamped-probability": lambda leaf: Clamped(leaf) if isinstance(leaf, Potential) else leaf,
    "doubled-mae": lambda leaf: MAEPotential(scale=2.0) if leaf == MAEPotential() else leaf,
}
"""What each deviation makes of a loss that is made of no others."""


def deviate(loss: Loss, name: str) -> Loss:
    """The loss with a deviation: ``held-focal-factor``, ``clamped-probability`` (at 1e-7) or ``doubled-mae``.

    >>> deviate(MAEPotential(), "doubled-mae")
    2.0 * MAE()
    """
    checks.choice("deviation", name, DEVIATIONS)
    changed = loss.map(DEVIATIONS[name])
    # Labels from very improbable to nearly certain: a deviation must show in a value or a gradient.
    points = torch.tensor([[lead, 0.5, -0.5, 0.0] for lead in (-40, -20, -8, -2, 0, 2, 8, 20)], dtype=torch.float64)
    values = [each.per_class(points) for each in (loss, changed)]
    gradients = [torch.func.vmap(torch.func.jacrev(each.per_class))(points) for each in (loss, changed)]
    if all(torch.allclose(one, other, rtol=1e-9, atol=1e-12) for one, other in (values, gradients)):
        raise ValueError(f"deviation {name!r} changes nothing in {checks.brief(loss)}; leave it out")
    return changed
