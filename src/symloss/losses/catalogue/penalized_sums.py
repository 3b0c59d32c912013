"""Weighted sums whose published recipes add an L1 penalty on the weights of the model."""

from __future__ import annotations

from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.ranges import ALPHA, BETA, GAMMA
from symloss.losses.catalogue.shared import SYMMETRIC
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.operators import complement, relative
from symloss.losses.record import Record


class ANLCE(Criterion):
    """Active negative loss of cross-entropy: alpha NCE + beta NNCE.

    The published recipes add an L1 penalty on the weights: see ``symloss.l1_penalty``.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Ye, Li, Dai, Jia, Yin: Active negative loss functions for learning with noisy labels. NeurIPS.

    >>> import torch, symloss
    >>> symloss.ANLCE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7405)
    """

    record = Record(
        "anl-ce",
        "alpha NCE + beta NNCE",
        "Ye 2023",
        lambda alpha, beta: alpha * relative(phi.CE()) + beta * complement(phi.CE()),
        {"alpha": ALPHA, "beta": BETA},
        facts=SYMMETRIC,
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(alpha=alpha, beta=beta), **self.record.options(options))


class ANLFL(Criterion):
    """Active negative loss of the focal loss: alpha NFL + beta NNFL.

    The published recipes add an L1 penalty on the weights: see ``symloss.l1_penalty``.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        gamma: in [0, 100]; how much confident examples are weighed down.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Ye, Li, Dai, Jia, Yin: Active negative loss functions for learning with noisy labels. NeurIPS.

    >>> import torch, symloss
    >>> symloss.ANLFL(alpha=1.0, beta=1.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7067)
    """

    record = Record(
        "anl-fl",
        "alpha NFL + beta NNFL",
        "Ye 2023",
        lambda alpha, beta, gamma: alpha * relative(phi.Focal(gamma)) + beta * complement(phi.Focal(gamma)),
        {"alpha": ALPHA, "beta": BETA, "gamma": GAMMA},
        facts=SYMMETRIC,
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, gamma: float = 0.5, **options: Unpack[LossOptions]
    ) -> None:
        super().__init__(self.record.loss(alpha=alpha, beta=beta, gamma=gamma), **self.record.options(options))
