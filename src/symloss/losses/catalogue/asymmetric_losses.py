"""Asymmetric losses: functions of the label's probability alone."""

from __future__ import annotations

from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.ranges import AEL_A, AGCE_A, AUL_A, EXPONENT
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.record import Facts, Record


class AGCE(Criterion):
    """Asymmetric generalised cross-entropy: ((a + 1)^q - (a + p_y)^q) / q.

    Args:
        a: in (0, 1000]; offset of the probability.
        q: in (0, 10]; exponent; at 1 MAE.
        options: those of :class:`symloss.Criterion`.

    Reference: Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML.

    >>> import torch, symloss
    >>> symloss.AGCE(a=0.6, q=0.6)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.2903)
    """

    record = Record(
        "agce",
        "((a + 1)^q - (a + p_y)^q) / q",
        "Zhou 2021",
        phi.AGCEPotential,
        {"a": AGCE_A, "q": EXPONENT},
        facts=Facts(symmetric=lambda at: at.q == 1),
    )

    def __init__(self, a: float = 0.6, q: float = 0.6, **options: Unpack[LossOptions]) -> None:
        self._start(options, a=a, q=q)


class AUL(Criterion):
    """Asymmetric unhinged loss: ((a - p_y)^q - (a - 1)^q) / q.

    Args:
        a: in (1, 1000]; what the probability is taken from.
        q: in (0, 10]; exponent; at 1 MAE.
        options: those of :class:`symloss.Criterion`.

    Reference: Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML.

    >>> import torch, symloss
    >>> symloss.AUL(a=5.5, q=3.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(7.2957)
    """

    record = Record(
        "aul",
        "((a - p_y)^q - (a - 1)^q) / q",
        "Zhou 2021",
        phi.AULPotential,
        {"a": AUL_A, "q": EXPONENT},
        facts=Facts(symmetric=lambda at: at.q == 1),
    )

    def __init__(self, a: float = 5.5, q: float = 3.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, a=a, q=q)


class AEL(Criterion):
    """Asymmetric exponential loss: exp(-p_y / a).

    Args:
        a: in [0.001, 1000]; scale of the probability.
        options: those of :class:`symloss.Criterion`.

    Reference: Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML.

    >>> import torch, symloss
    >>> symloss.AEL(a=2.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7664)
    """

    record = Record(
        "ael",
        "exp(-p_y / a)",
        "Zhou 2021",
        phi.AELPotential,
        {"a": AEL_A},
    )

    def __init__(self, a: float = 2.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, a=a)
