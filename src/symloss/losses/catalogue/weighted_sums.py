"""Losses that are weighted sums of two others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.probability import reverse_ce
from symloss.losses.catalogue.ranges import AEL_A, AGCE_A, ALPHA, AUL_A, BETA, EXPONENT, GAMMA
from symloss.losses.catalogue.shared import LOG_ZERO, ROOT, SYMMETRIC
from symloss.losses.compose import relative
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.record import Constants, Facts, Record


def _steepest_sce(at: SimpleNamespace) -> float:
    """The largest gradient norm: sup sqrt 2 (1 - p) (alpha + beta A p)."""
    alpha, slope = float(at.alpha), float(at.beta * LOG_ZERO)
    return ROOT * (alpha if slope <= alpha else (alpha + slope) ** 2 / (4 * slope))


class SCE(Criterion):
    """Symmetric cross-entropy: alpha CE + beta RCE.

    In spite of its name the loss is symmetric only where alpha = 0.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        options: those of :class:`symloss.Criterion`.

    Reference: Wang, Ma, Chen, Luo, Yi, Bailey: Symmetric cross entropy for robust learning with noisy labels.
    ICCV.

    >>> import torch, symloss
    >>> symloss.SCE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.4909)
    """

    record = Record(
        "sce",
        "alpha CE + beta RCE",
        "Wang 2019",
        lambda alpha, beta: alpha * phi.CEPotential() + beta * reverse_ce(),
        {"alpha": ALPHA, "beta": BETA},
        facts=Facts(
            symmetric=lambda at: at.alpha == 0,
            convex=lambda at: at.alpha >= at.beta * LOG_ZERO,
            bounded=lambda at: at.alpha == 0,
        ),
        constants=Constants(_steepest_sce),
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta)


class NCEandMAE(Criterion):
    """Active-passive loss of NCE and MAE: alpha NCE + beta MAE.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        options: those of :class:`symloss.Criterion`.

    Reference: Ma, Huang, Wang, Romano, Erfani, Bailey: Normalized loss functions for deep learning with noisy labels.
    ICML.

    >>> import torch, symloss
    >>> symloss.NCEandMAE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.4313)
    """

    record = Record(
        "nce+mae",
        "alpha NCE + beta MAE",
        "Ma 2020",
        lambda alpha, beta: alpha * relative(phi.CEPotential()) + beta * phi.MAEPotential(),
        {"alpha": ALPHA, "beta": BETA},
        facts=SYMMETRIC,
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta)


class NCEandRCE(Criterion):
    """Active-passive loss of NCE and RCE: alpha NCE + beta RCE.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        options: those of :class:`symloss.Criterion`.

    Reference: Ma, Huang, Wang, Romano, Erfani, Bailey: Normalized loss functions for deep learning with noisy labels.
    ICML.

    >>> import torch, symloss
    >>> symloss.NCEandRCE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.1798)
    """

    record = Record(
        "nce+rce",
        "alpha NCE + beta RCE",
        "Ma 2020",
        lambda alpha, beta: alpha * relative(phi.CEPotential()) + beta * reverse_ce(),
        {"alpha": ALPHA, "beta": BETA},
        facts=SYMMETRIC,
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta)


class NFLandMAE(Criterion):
    """Active-passive loss of NFL and MAE: alpha NFL + beta MAE.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        gamma: in [0, 100]; how much confident examples are weighed down.
        options: those of :class:`symloss.Criterion`.

    Reference: Ma, Huang, Wang, Romano, Erfani, Bailey: Normalized loss functions for deep learning with noisy labels.
    ICML.

    >>> import torch, symloss
    >>> symloss.NFLandMAE(alpha=1.0, beta=1.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3976)
    """

    record = Record(
        "nfl+mae",
        "alpha NFL + beta MAE",
        "Ma 2020",
        lambda alpha, beta, gamma: alpha * relative(phi.FocalPotential(gamma)) + beta * phi.MAEPotential(),
        {"alpha": ALPHA, "beta": BETA, "gamma": GAMMA},
        facts=SYMMETRIC,
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, gamma: float = 0.5, **options: Unpack[LossOptions]
    ) -> None:
        self._start(options, alpha=alpha, beta=beta, gamma=gamma)


class NFLandRCE(Criterion):
    """Active-passive loss of NFL and RCE: alpha NFL + beta RCE.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        gamma: in [0, 100]; how much confident examples are weighed down.
        options: those of :class:`symloss.Criterion`.

    Reference: Ma, Huang, Wang, Romano, Erfani, Bailey: Normalized loss functions for deep learning with noisy labels.
    ICML.

    >>> import torch, symloss
    >>> symloss.NFLandRCE(alpha=1.0, beta=1.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.1460)
    """

    record = Record(
        "nfl+rce",
        "alpha NFL + beta RCE",
        "Ma 2020",
        lambda alpha, beta, gamma: alpha * relative(phi.FocalPotential(gamma)) + beta * reverse_ce(),
        {"alpha": ALPHA, "beta": BETA, "gamma": GAMMA},
        facts=SYMMETRIC,
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, gamma: float = 0.5, **options: Unpack[LossOptions]
    ) -> None:
        self._start(options, alpha=alpha, beta=beta, gamma=gamma)


class NCEandAGCE(Criterion):
    """Active-passive loss of NCE and AGCE: alpha NCE + beta AGCE.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        a: in (0, 1000]; offset of the probability.
        q: in (0, 10]; exponent; at 1 MAE.
        options: those of :class:`symloss.Criterion`.

    Reference: Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML.

    >>> import torch, symloss
    >>> symloss.NCEandAGCE(alpha=1.0, beta=1.0, a=0.6, q=0.6)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3868)
    """

    record = Record(
        "nce+agce",
        "alpha NCE + beta AGCE",
        "Zhou 2021",
        lambda alpha, beta, a, q: alpha * relative(phi.CEPotential()) + beta * phi.AGCEPotential(a, q),
        {"alpha": ALPHA, "beta": BETA, "a": AGCE_A, "q": EXPONENT},
        facts=Facts(symmetric=lambda at: at.q == 1 or at.beta == 0),
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, a: float = 0.6, q: float = 0.6, **options: Unpack[LossOptions]
    ) -> None:
        self._start(options, alpha=alpha, beta=beta, a=a, q=q)


class NCEandAUL(Criterion):
    """Active-passive loss of NCE and AUL: alpha NCE + beta AUL.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        a: in (1, 1000]; what the probability is taken from.
        q: in (0, 10]; exponent; at 1 MAE.
        options: those of :class:`symloss.Criterion`.

    Reference: Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML.

    >>> import torch, symloss
    >>> symloss.NCEandAUL(alpha=1.0, beta=1.0, a=5.5, q=3.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(7.3922)
    """

    record = Record(
        "nce+aul",
        "alpha NCE + beta AUL",
        "Zhou 2021",
        lambda alpha, beta, a, q: alpha * relative(phi.CEPotential()) + beta * phi.AULPotential(a, q),
        {"alpha": ALPHA, "beta": BETA, "a": AUL_A, "q": EXPONENT},
        facts=Facts(symmetric=lambda at: at.q == 1 or at.beta == 0),
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, a: float = 5.5, q: float = 3.0, **options: Unpack[LossOptions]
    ) -> None:
        self._start(options, alpha=alpha, beta=beta, a=a, q=q)


class NCEandAEL(Criterion):
    """Active-passive loss of NCE and AEL: alpha NCE + beta AEL.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        a: in [0.001, 1000]; scale of the probability.
        options: those of :class:`symloss.Criterion`.

    Reference: Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML.

    >>> import torch, symloss
    >>> symloss.NCEandAEL(alpha=1.0, beta=1.0, a=2.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.8629)
    """

    record = Record(
        "nce+ael",
        "alpha NCE + beta AEL",
        "Zhou 2021",
        lambda alpha, beta, a: alpha * relative(phi.CEPotential()) + beta * phi.AELPotential(a),
        {"alpha": ALPHA, "beta": BETA, "a": AEL_A},
        facts=Facts(symmetric=lambda at: at.beta == 0),
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, a: float = 2.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta, a=a)
