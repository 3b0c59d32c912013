"""Losses that read the whole score vector."""

from typing import Unpack

from symloss.losses import score_formulas
from symloss.losses.catalogue.probability import ROOT
from symloss.losses.criterion import LossOptions, NamedLoss
from symloss.losses.published import PAPER
from symloss.losses.record import Constants, Facts, Record


class MSE(NamedLoss):
    """Mean squared error between the label and the probabilities, also called the Brier score: 1 - 2 p_y + sum_k p_k^2.

    Reference: Lemire Paquin et al., section 4.2.

    >>> import torch, symloss
    >>> symloss.MSE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.1801)
    """

    record = Record("mse", PAPER, score_formulas.MSEFormula)


class Cosine(NamedLoss):
    """Cosine loss of raw scores: 1 - z_y / |z|.

    Reference: Lemire Paquin et al., section 4.4.

    >>> import torch, symloss
    >>> symloss.Cosine()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.1056)
    """

    record = Record("cosine", PAPER, score_formulas.CosineFormula)


class BiTempered(NamedLoss):
    """Bi-tempered logistic loss: tempered Bregman divergence of e_y and tempered softmax.

    The loss is -log_t1 p_y - (1 - sum_k p_k^(2 - t1)) / (2 - t1), where p = exp_t2(z - lambda) sums to 1.

    Args:
        t1: in [0, 1]; of the logarithm; below 1 the loss is bounded.
        t2: in [1, 4]; of the softmax; above 1 its tail is heavy.

    Reference: Amid et al.: Robust bi-tempered logistic loss based on Bregman divergences. NeurIPS 2019.

    >>> import torch, symloss
    >>> symloss.BiTempered(t1=0.8, t2=1.2)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3401)
    """

    record = Record(
        "bi-tempered",
        "Amid 2019",
        score_formulas.BiTemperedFormula,
        {"t1": "[0, 1]", "t2": "[1, 4]"},
        facts=Facts(convex=lambda at: at.t1 == at.t2, bounded=lambda at: at.t1 < 1),
    )

    def __init__(self, t1: float = 0.8, t2: float = 1.2, **options: Unpack[LossOptions]) -> None:
        self._start(options, t1=t1, t2=t2)


class LDRKL(NamedLoss):
    """Label-distributionally robust loss: lam log mean_k exp((margin [k != y] + z_k - z_y) / lam).

    At margin = 0 it is cross-entropy of scores that are divided by lam, times lam and less a constant. The authors
    apply it to softplus(z) divided by its mean over the classes; pass such a function as ``normalize`` for that.

    Args:
        lam: in [0.1, 100]; temperature, towards 0 the margin loss of the best wrong class.
        margin: in [0, 5]; how far the label's score shall lead.

    Reference: Zhu et al.: Label distributionally robust losses for multi-class classification: consistency,
    robustness and adaptivity. ICML 2023.

    >>> import torch, symloss
    >>> symloss.LDRKL(lam=1.0, margin=0.1)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(-0.6564)
    """

    record = Record(
        "ldr-kl",
        "Zhu 2023",
        score_formulas.LDRKLFormula,
        {"lam": "[0.1, 100]", "margin": "[0, 5]"},
        facts=Facts(convex=True, bounded=False),
        constants=Constants(ROOT, lambda at: 0.5 / at.lam),
    )

    def __init__(self, lam: float = 1.0, margin: float = 0.1, **options: Unpack[LossOptions]) -> None:
        self._start(options, lam=lam, margin=margin)
