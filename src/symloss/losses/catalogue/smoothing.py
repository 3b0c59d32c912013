"""Cross-entropy with smoothed labels, and with a prior on the outputs."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.references import PAPER
from symloss.losses.compose import dirichlet
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.operators import Insensitive
from symloss.losses.record import Constants, Facts, Range, Record


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

    Reference: Wei, Liu, Liu, Niu, Sugiyama, Liu: To smooth or not? When label smoothing meets noisy labels.
    ICML.

    >>> import torch, symloss
    >>> symloss.LabelSmoothing(r=0.1)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.5076)
    """

    record = Record(
        "label-smoothing",
        "(1 - r) CE_y + r mean_k CE_k",
        "Wei 2022",
        lambda r: (1 - r) * phi.CEPotential() + r * Insensitive(phi.CEPotential()),
        {"r": Range("[-1e9, 1]", "rate; below 0 labels are sharpened")},
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

    Reference: Lemire Paquin, Chaib-draa, Giguère: Symmetrization of loss functions for robust training of
    neural networks in the presence of noisy labels. Appendix E.

    >>> import torch, symloss
    >>> symloss.DirichletCE(alpha=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(-1.7038)
    """

    record = Record(
        "dirichlet-ce",
        "CE_y + (alpha - 1) sum_k CE_k",
        PAPER,
        lambda alpha: dirichlet(phi.CEPotential(), alpha),
        {"alpha": Range("(0, 1e6]", "of the Dirichlet prior; below 1 it favours confident outputs")},
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
