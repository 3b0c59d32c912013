"""Weighted sums of two losses, or of a loss and its mean over labels."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.algebra import Loss
from symloss.losses.catalogue.constants import LOG_ZERO, ROOT, SYMMETRIC
from symloss.losses.catalogue.probability import reverse_ce
from symloss.losses.catalogue.references import PAPER
from symloss.losses.compose import complement, dirichlet
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.operators import Insensitive, Relative
from symloss.losses.record import Constants, Facts, Record
from symloss.losses.score_formulas import AMSEFormula

WEIGHTS = {"alpha": "[0, 1e6]", "beta": "[0, 1e6]"}
"""The ranges of the weights of the two losses."""
_NCE = Relative(phi.CEPotential())


def _nfl(gamma: float) -> Loss:
    """The normalized focal loss."""
    return Relative(phi.FocalPotential(gamma))


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

    Reference: Wang et al.: Symmetric cross entropy for robust learning with noisy labels. ICCV 2019.

    >>> import torch, symloss
    >>> symloss.SCE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.4909)
    """

    record = Record(
        "sce",
        "Wang 2019",
        lambda alpha, beta: alpha * phi.CEPotential() + beta * reverse_ce(),
        WEIGHTS,
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

    Reference: Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML 2020.

    >>> import torch, symloss
    >>> symloss.NCEandMAE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.4313)
    """

    record = Record(
        "nce+mae", "Ma 2020", lambda alpha, beta: alpha * _NCE + beta * phi.MAEPotential(), WEIGHTS, facts=SYMMETRIC
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta)


class NCEandRCE(Criterion):
    """Active-passive loss of NCE and RCE: alpha NCE + beta RCE.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        options: those of :class:`symloss.Criterion`.

    Reference: Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML 2020.

    >>> import torch, symloss
    >>> symloss.NCEandRCE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.1798)
    """

    record = Record(
        "nce+rce", "Ma 2020", lambda alpha, beta: alpha * _NCE + beta * reverse_ce(), WEIGHTS, facts=SYMMETRIC
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

    Reference: Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML 2020.

    >>> import torch, symloss
    >>> symloss.NFLandMAE(alpha=1.0, beta=1.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3976)
    """

    record = Record(
        "nfl+mae",
        "Ma 2020",
        lambda alpha, beta, gamma: alpha * _nfl(gamma) + beta * phi.MAEPotential(),
        {**WEIGHTS, "gamma": "[0, 100]"},
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

    Reference: Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML 2020.

    >>> import torch, symloss
    >>> symloss.NFLandRCE(alpha=1.0, beta=1.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.1460)
    """

    record = Record(
        "nfl+rce",
        "Ma 2020",
        lambda alpha, beta, gamma: alpha * _nfl(gamma) + beta * reverse_ce(),
        {**WEIGHTS, "gamma": "[0, 100]"},
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

    Reference: Zhou et al.: Asymmetric loss functions for learning with noisy labels. ICML 2021.

    >>> import torch, symloss
    >>> symloss.NCEandAGCE(alpha=1.0, beta=1.0, a=0.6, q=0.6)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3868)
    """

    record = Record(
        "nce+agce",
        "Zhou 2021",
        lambda alpha, beta, a, q: alpha * _NCE + beta * phi.AGCEPotential(a, q),
        {**WEIGHTS, "a": "(0, 1000]", "q": "(0, 10]"},
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

    Reference: Zhou et al.: Asymmetric loss functions for learning with noisy labels. ICML 2021.

    >>> import torch, symloss
    >>> symloss.NCEandAUL(alpha=1.0, beta=1.0, a=5.5, q=3.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(7.3922)
    """

    record = Record(
        "nce+aul",
        "Zhou 2021",
        lambda alpha, beta, a, q: alpha * _NCE + beta * phi.AULPotential(a, q),
        {**WEIGHTS, "a": "(1, 1000]", "q": "(0, 10]"},
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

    Reference: Zhou et al.: Asymmetric loss functions for learning with noisy labels. ICML 2021.

    >>> import torch, symloss
    >>> symloss.NCEandAEL(alpha=1.0, beta=1.0, a=2.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.8629)
    """

    record = Record(
        "nce+ael",
        "Zhou 2021",
        lambda alpha, beta, a: alpha * _NCE + beta * phi.AELPotential(a),
        {**WEIGHTS, "a": "[0.001, 1000]"},
        facts=Facts(symmetric=lambda at: at.beta == 0),
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, a: float = 2.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta, a=a)


class ANLCE(Criterion):
    """Active negative loss of cross-entropy: alpha NCE + beta NNCE.

    The published recipes add an L1 penalty on the weights: see ``symloss.l1_penalty``.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        options: those of :class:`symloss.Criterion`.

    Reference: Ye et al.: Active negative loss functions for learning with noisy labels. NeurIPS 2023.

    >>> import torch, symloss
    >>> symloss.ANLCE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7405)
    """

    record = Record(
        "anl-ce",
        "Ye 2023",
        lambda alpha, beta: alpha * _NCE + beta * complement(phi.CEPotential()),
        WEIGHTS,
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

    Reference: Ye et al.: Active negative loss functions for learning with noisy labels. NeurIPS 2023.

    >>> import torch, symloss
    >>> symloss.ANLFL(alpha=1.0, beta=1.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7067)
    """

    record = Record(
        "anl-fl",
        "Ye 2023",
        lambda alpha, beta, gamma: alpha * _nfl(gamma) + beta * complement(phi.FocalPotential(gamma)),
        {**WEIGHTS, "gamma": "[0, 100]"},
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

    Reference: Wang et al.: Joint asymmetric loss for learning with noisy labels. ICCV 2025.

    >>> import torch, symloss
    >>> symloss.JALCE(alpha=1.0, beta=1.0, a=30.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(286.9619)
    """

    record = Record(
        "jal-ce",
        "Wang 2025",
        lambda alpha, beta, a: alpha * _NCE + beta * AMSEFormula(a),
        {**WEIGHTS, "a": "[1, 1000]"},
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

    Reference: Wang et al.: Joint asymmetric loss for learning with noisy labels. ICCV 2025.

    >>> import torch, symloss
    >>> symloss.JALFL(alpha=1.0, beta=1.0, a=30.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(286.9282)
    """

    record = Record(
        "jal-fl",
        "Wang 2025",
        lambda alpha, beta, a, gamma: alpha * _nfl(gamma) + beta * AMSEFormula(a),
        {**WEIGHTS, "a": "[1, 1000]", "gamma": "[0, 100]"},
        facts=Facts(symmetric=lambda at: at.beta == 0),
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, a: float = 30.0, gamma: float = 0.5, **options: Unpack[LossOptions]
    ) -> None:
        self._start(options, alpha=alpha, beta=beta, a=a, gamma=gamma)


def _steepest_smoothed(at: SimpleNamespace) -> float:
    """The largest gradient norm: the distance of a wrong one-hot vector to the smoothed label."""
    other = at.r / at.C
    return math.sqrt((1 - other) ** 2 + (1 - at.r + other) ** 2 + (at.C - 2) * other**2)


class LabelSmoothing(Criterion):
    """Label smoothing of cross-entropy: (1 - r) CE_y + r mean_k CE_k.

    Below r = 0 it is negative label smoothing.

    Args:
        r: in [-1e9, 1]; rate; below 0 labels are sharpened.
        options: those of :class:`symloss.Criterion`.

    Reference: Wei et al.: To smooth or not? When label smoothing meets noisy labels. ICML 2022.

    >>> import torch, symloss
    >>> symloss.LabelSmoothing(r=0.1)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.5076)
    """

    record = Record(
        "label-smoothing",
        "Wei 2022",
        lambda r: (1 - r) * phi.CEPotential() + r * Insensitive(phi.CEPotential()),
        {"r": "[-1e9, 1]"},
        facts=Facts(convex=True, bounded=False, non_increasing=lambda at: at.r <= 0),
        constants=Constants(_steepest_smoothed, 0.5),
    )

    def __init__(self, r: float = 0.1, **options: Unpack[LossOptions]) -> None:
        self._start(options, r=r)


class DirichletCE(Criterion):
    """Cross-entropy with a Dirichlet prior on the outputs: CE_y + (alpha - 1) sum_k CE_k.

    At alpha = 1 - 1/C it is the unhinged loss.

    Args:
        alpha: in (0, 1e6]; of the Dirichlet prior; below 1 it favours confident outputs.
        options: those of :class:`symloss.Criterion`.

    Reference: Lemire Paquin et al., appendix E.

    >>> import torch, symloss
    >>> symloss.DirichletCE(alpha=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(-1.7038)
    """

    record = Record(
        "dirichlet-ce",
        PAPER,
        lambda alpha: dirichlet(phi.CEPotential(), alpha),
        {"alpha": "(0, 1e6]"},
        facts=Facts(
            symmetric=lambda at: math.isclose(at.alpha, 1 - 1 / at.C),
            non_increasing=lambda at: at.alpha <= 1,
            convex=lambda at: at.alpha >= (1 - 1 / at.C) * (1 - 1e-12),
            bounded=False,
        ),
        constants=Constants(smoothness=lambda at: abs(1 + (at.alpha - 1) * at.C) / 2),
    )

    def __init__(self, alpha: float = 0.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha)
