"""Weighted sums whose published recipes add an L1 penalty on the weights of the model."""

from __future__ import annotations

from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.ranges import ALPHA, AMSE_A, BETA, GAMMA
from symloss.losses.catalogue.shared import SYMMETRIC
from symloss.losses.compose import complement, relative
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.record import Facts, Record
from symloss.losses.score_formulas import AMSEFormula


class ANLCE(Criterion):
    """Active negative loss of cross-entropy: alpha NCE + beta NNCE.

    The published recipes add an L1 penalty on the weights: see ``symloss.l1_penalty``.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        options: those of :class:`symloss.Criterion`.

    Reference: Ye, Li, Dai, Liu, Sun, Tong: Active negative loss functions for learning with noisy labels. NeurIPS.

    >>> import torch, symloss
    >>> symloss.ANLCE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7405)
    """

    record = Record(
        "anl-ce",
        "alpha NCE + beta NNCE",
        "Ye 2023",
        lambda alpha, beta: alpha * relative(phi.CEPotential()) + beta * complement(phi.CEPotential()),
        {"alpha": ALPHA, "beta": BETA},
        facts=SYMMETRIC,
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta)


class ANLFL(Criterion):
    """Active negative loss of the focal loss: alpha NFL + beta NNFL.

    The published recipes add an L1 penalty on the weights: see ``symloss.l1_penalty``.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        gamma: in [0, 100]; how much confident examples are weighed down.
        options: those of :class:`symloss.Criterion`.

    Reference: Ye, Li, Dai, Liu, Sun, Tong: Active negative loss functions for learning with noisy labels. NeurIPS.

    >>> import torch, symloss
    >>> symloss.ANLFL(alpha=1.0, beta=1.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7067)
    """

    record = Record(
        "anl-fl",
        "alpha NFL + beta NNFL",
        "Ye 2023",
        lambda alpha, beta, gamma: (
            alpha * relative(phi.FocalPotential(gamma)) + beta * complement(phi.FocalPotential(gamma))
        ),
        {"alpha": ALPHA, "beta": BETA, "gamma": GAMMA},
        facts=SYMMETRIC,
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, gamma: float = 0.5, **options: Unpack[LossOptions]
    ) -> None:
        self._start(options, alpha=alpha, beta=beta, gamma=gamma)


class JALCE(Criterion):
    """Joint asymmetric loss of cross-entropy: alpha NCE + beta AMSE, AMSE = |a e_y - p|^2 / C.

    AMSE is (MSE + 2 (a - 1) MAE) / C and a constant: for a large a it is mostly MAE. With a = 30 and 10 classes the
    loss is NCE + 5.8 MAE + 0.1 MSE. The published recipes add an L1 penalty on the weights: see
    ``symloss.l1_penalty``.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        a: in [1, 1000]; what the label's probability is drawn to, at 1 MSE / C.
        options: those of :class:`symloss.Criterion`.

    Reference: Wang, Liu, Zhou, Hu, Zhai, Jiang, Ji: Joint asymmetric loss for learning with noisy labels. ICCV.

    >>> import torch, symloss
    >>> symloss.JALCE(alpha=1.0, beta=1.0, a=30.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(286.9619)
    """

    record = Record(
        "jal-ce",
        "alpha NCE + beta AMSE, AMSE = |a e_y - p|^2 / C",
        "Wang 2025",
        lambda alpha, beta, a: alpha * relative(phi.CEPotential()) + beta * AMSEFormula(a),
        {"alpha": ALPHA, "beta": BETA, "a": AMSE_A},
        facts=Facts(symmetric=lambda at: at.beta == 0),
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, a: float = 30.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta, a=a)


class JALFL(Criterion):
    """Joint asymmetric loss of the focal loss: alpha NFL + beta AMSE, AMSE = |a e_y - p|^2 / C.

    It is :class:`symloss.JALCE` with the normalized focal loss in place of NCE.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        a: in [1, 1000]; what the label's probability is drawn to, at 1 MSE / C.
        gamma: in [0, 100]; how much confident examples are weighed down.
        options: those of :class:`symloss.Criterion`.

    Reference: Wang, Liu, Zhou, Hu, Zhai, Jiang, Ji: Joint asymmetric loss for learning with noisy labels. ICCV.

    >>> import torch, symloss
    >>> symloss.JALFL(alpha=1.0, beta=1.0, a=30.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(286.9282)
    """

    record = Record(
        "jal-fl",
        "alpha NFL + beta AMSE, AMSE = |a e_y - p|^2 / C",
        "Wang 2025",
        lambda alpha, beta, a, gamma: alpha * relative(phi.FocalPotential(gamma)) + beta * AMSEFormula(a),
        {"alpha": ALPHA, "beta": BETA, "a": AMSE_A, "gamma": GAMMA},
        facts=Facts(symmetric=lambda at: at.beta == 0),
    )

    def __init__(
        self,
        alpha: float = 1.0,
        beta: float = 1.0,
        a: float = 30.0,
        gamma: float = 0.5,
        **options: Unpack[LossOptions],
    ) -> None:
        self._start(options, alpha=alpha, beta=beta, a=a, gamma=gamma)
