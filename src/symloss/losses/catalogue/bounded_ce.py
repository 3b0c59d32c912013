"""Cross-entropy made bounded: functions of the label's probability alone."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.ranges import TAU
from symloss.losses.catalogue.shared import MAE_STEEPEST, ROOT
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.record import Constants, Facts, Range, Record


def _steepest_phuber(at: SimpleNamespace) -> float:
    tau: float = at.tau
    return ROOT * (1 - 1 / tau) if tau >= 2 else tau * MAE_STEEPEST


def _most_bent_phuber(at: SimpleNamespace) -> float | None:
    """The curvature where the linear part ends, if it is the largest. For a small tau it is not, and is None."""
    return 2 * (1 - 1 / at.tau) * (1 - 2 / at.tau) if at.tau >= 3 + math.sqrt(3) else None


class TaylorCE(Criterion):
    """Taylor cross-entropy: sum_{i=1..t} (1 - p_y)^i / i.

    It is the Taylor series of cross-entropy at p_y = 1, cut after t terms.

    Args:
        t: in [1, 100]; order; 1 is MAE.
        options: those of :class:`symloss.Criterion`.

    Reference: Feng, Shu, Lin, Lv, Li, An: Can cross entropy loss be robust to label noise? IJCAI.

    >>> import torch, symloss
    >>> symloss.TaylorCE(t=2)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3908)
    """

    record = Record(
        "taylor-ce",
        "sum_{i=1..t} (1 - p_y)^i / i",
        "Feng 2020",
        phi.TaylorCEPotential,
        {"t": Range("[1, 100]", "order; 1 is MAE", whole=True)},
        facts=Facts(symmetric=lambda at: at.t == 1),
        constants=Constants(lambda at: ROOT * (1 + at.t) ** (-1 / at.t) * at.t / (1 + at.t)),
    )

    def __init__(self, t: int = 2, **options: Unpack[LossOptions]) -> None:
        self._start(options, t=t)


class PHuberCE(Criterion):
    """Partially Huberised cross-entropy: -log p_y if p_y > 1/tau, else 1 + log tau - tau p_y.

    It is linear in p_y where cross-entropy is steeper than tau.

    Args:
        tau: in (1, inf); largest slope in p.
        options: those of :class:`symloss.Criterion`.

    Reference: Menon, Rawat, Reddi, Kumar: Can gradient clipping mitigate label noise? ICLR.

    >>> import torch, symloss
    >>> symloss.PHuberCE(tau=10.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.4076)
    """

    record = Record(
        "phuber-ce",
        "-log p_y if p_y > 1/tau, else 1 + log tau - tau p_y",
        "Menon 2020",
        phi.PHuberCEPotential,
        {"tau": TAU},
        constants=Constants(_steepest_phuber, _most_bent_phuber),
    )

    def __init__(self, tau: float = 10.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, tau=tau)


class PHuberGCE(Criterion):
    """Partially Huberised generalised cross-entropy: GCE, linear where its slope in p exceeds tau.

    It is linear in p_y where GCE is steeper than tau.

    Args:
        q: in (0, 1); exponent of GCE.
        tau: in (1, inf); largest slope in p.
        options: those of :class:`symloss.Criterion`.

    Reference: Menon, Rawat, Reddi, Kumar: Can gradient clipping mitigate label noise? ICLR.

    >>> import torch, symloss
    >>> symloss.PHuberGCE(q=0.7, tau=10.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3546)
    """

    record = Record(
        "phuber-gce",
        "GCE, linear where its slope in p exceeds tau",
        "Menon 2020",
        phi.PHuberGCEPotential,
        {"q": Range("(0, 1)", "exponent of GCE"), "tau": TAU},
    )

    def __init__(self, q: float = 0.7, tau: float = 10.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, q=q, tau=tau)


class JS(Criterion):
    """Jensen-Shannon loss: Jensen-Shannon divergence of e_y and p, weights pi and 1 - pi, scaled.

    With m = pi + (1 - pi) p_y it is 1 - p_y - (p_y log(m / p_y) + pi / (1 - pi) log m) / -log(1 - pi).

    Args:
        pi: in [1e-30, 1); towards 0 cross-entropy, towards 1 MAE.
        options: those of :class:`symloss.Criterion`.

    Reference: Englesson, Azizpour: Generalized Jensen-Shannon divergence loss for learning with noisy labels. NeurIPS.

    >>> import torch, symloss
    >>> symloss.JS(pi=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3836)
    """

    record = Record(
        "js",
        "Jensen-Shannon divergence of e_y and p, weights pi and 1 - pi, scaled",
        "Englesson 2021",
        phi.JSPotential,
        {"pi": Range("[1e-30, 1)", "towards 0 cross-entropy, towards 1 MAE")},
    )

    def __init__(self, pi: float = 0.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, pi=pi)
