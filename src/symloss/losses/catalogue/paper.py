"""The losses of the paper: symmetric parts of others, and a blend."""

import math
from types import SimpleNamespace
from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.probability import MAE_MOST_BENT, MAE_STEEPEST
from symloss.losses.compose import blend
from symloss.losses.criterion import LossOptions, NamedLoss
from symloss.losses.operators import Symmetrize
from symloss.losses.published import PAPER
from symloss.losses.record import SYMMETRIC, Constants, Facts, Record
from symloss.losses.score_formulas import CosineFormula, MSEFormula


class Unhinged(NamedLoss):
    """Unhinged loss: mean_k z_k - z_y.

    It is the symmetric part of cross-entropy. It is linear in the scores and needs no softmax. It has no lower
    bound, so the scores are divided by their norm unless you say otherwise.

    Args:
        options: those of :class:`symloss.Criterion`. ``normalize="l2"`` is the default here.

    Reference: Lemire Paquin et al., section 4.1.

    >>> import torch, symloss
    >>> symloss.Unhinged()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(-0.4472)
    """

    record = Record(
        "unhinged",
        PAPER,
        lambda: Symmetrize(phi.CEPotential()),
        facts=Facts(symmetric=True, convex=True, bounded=False),
        normalize="l2",
        constants=Constants(lambda at: math.sqrt(1 - 1 / at.C), 0.0),
    )


class SGCE(NamedLoss):
    """Symmetrized generalised cross-entropy: (mean_k p_k^q - p_y^q) / q.

    It is the symmetric part of GCE. Towards q = 0 it is the unhinged loss, at q = 1 it is MAE less a constant.

    Args:
        q: in (0, 1]; towards 0 unhinged, at 1 MAE.
        options: those of :class:`symloss.Criterion`. ``normalize="l2"`` is the default here.

    Reference: Lemire Paquin et al., section 4.3.

    >>> import torch, symloss
    >>> symloss.SGCE(q=0.7)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(-0.2116)
    """

    record = Record(
        "sgce", PAPER, lambda q: Symmetrize(phi.GCEPotential(q)), {"q": "(0, 1]"}, SYMMETRIC, normalize="l2"
    )

    def __init__(self, q: float = 0.7, **options: Unpack[LossOptions]) -> None:
        self._start(options, q=q)


def _share(at: SimpleNamespace) -> float:
    """alpha, also where kappa is given."""
    return float(at.alpha if at.kappa is None else at.kappa / (at.kappa + at.C))


class AlphaMAE(NamedLoss):
    """Alpha-MAE, a blend of the unhinged loss and MAE: (1 - alpha) (mean_k z_k - z_y) + alpha C (1 - p_y).

    By alpha all members have the same gradient at equal scores. alpha scales the curvature.

    By kappa the loss is (mean_k z_k - z_y) + kappa (1 - p_y), whatever the number of classes. That is the loss with
    alpha = kappa / (kappa + C), divided by 1 - alpha. For many classes, such as tokens, take kappa: by alpha the
    gradient in a label's score grows to about alpha C / 4, by kappa to 1 + kappa / 4.

    Args:
        alpha: in [0, 1e6]; 0 unhinged, 1 C times MAE; scales the curvature. The default is 2.
        kappa: in [0, 1e6]; instead of alpha: the weight of MAE next to the unhinged loss.
        options: those of :class:`symloss.Criterion`. ``normalize="l2"`` is the default here.

    Reference: Lemire Paquin et al., section 6.

    >>> import torch, symloss
    >>> symloss.AlphaMAE(alpha=2.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.5179)
    >>> symloss.AlphaMAE(kappa=3.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))  # at C = 3 alpha = 1/2
    tensor(1.0881)
    """

    record = Record(
        "alpha-mae",
        PAPER,
        lambda alpha, kappa: (
            blend(phi.MAEPotential(), alpha)
            if kappa is None
            else Symmetrize(phi.CEPotential()) + kappa * phi.MAEPotential()
        ),
        {"alpha": "[0, 1e6]", "kappa": "[0, 1e6]"},
        either={"alpha": 2.0, "kappa": None},
        facts=Facts(
            symmetric=True,
            non_increasing=lambda at: _share(at) <= 1,
            convex=lambda at: _share(at) == 0,
            bounded=lambda at: _share(at) == 1,
        ),
        normalize="l2",
        constants=Constants(smoothness=lambda at: (at.alpha * at.C if at.kappa is None else at.kappa) * MAE_MOST_BENT),
    )

    def __init__(self, alpha: float | None = None, kappa: float | None = None, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, kappa=kappa)


class SymmetrizedMSE(NamedLoss):
    """Symmetrized mean squared error: 2 (mean_k p_k - p_y).

    It is the symmetric part of MSE: twice MAE less a constant.

    Reference: Lemire Paquin et al., section 4.2.

    >>> import torch, symloss
    >>> symloss.SymmetrizedMSE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(-0.6638)
    """

    record = Record(
        "symmetrized-mse",
        PAPER,
        lambda: Symmetrize(MSEFormula()),
        {},
        SYMMETRIC,
        Constants(2 * MAE_STEEPEST, 2 * MAE_MOST_BENT),
    )


class SymmetrizedCosine(NamedLoss):
    """Symmetrized cosine loss: (mean_k z_k - z_y) / |z|.

    It is the unhinged loss of scores that are divided by their norm.

    Reference: Lemire Paquin et al., section 4.4.

    >>> import torch, symloss
    >>> symloss.SymmetrizedCosine()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(-0.4472)
    """

    record = Record(
        "symmetrized-cosine",
        PAPER,
        lambda: Symmetrize(CosineFormula()),
        {},
        Facts(symmetric=True, non_increasing=False),
    )
