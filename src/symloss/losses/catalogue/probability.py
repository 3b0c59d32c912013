"""Cross-entropy and its best known relatives: functions of the label's probability alone."""

from __future__ import annotations

from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.ranges import GAMMA
from symloss.losses.catalogue.shared import LOG_ZERO, MAE_MOST_BENT, MAE_STEEPEST, ROOT, SYMMETRIC
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.record import Constants, Facts, Range, Record


def reverse_ce() -> phi.MAEPotential:
    """Reverse cross-entropy, which is a multiple of MAE."""
    return phi.MAEPotential(scale=LOG_ZERO)


class CE(Criterion):
    """Cross-entropy: -log p_y.

    It is ``torch.nn.CrossEntropyLoss`` with the options of this package. It is not robust to wrong labels.

    Args:
        options: those of :class:`symloss.Criterion`.

    Reference: the negative log-likelihood.

    >>> import torch, symloss
    >>> symloss.CE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.4076)
    """

    record = Record(
        "ce",
        "-log p_y",
        "textbook",
        phi.CEPotential,
        facts=Facts(convex=True, bounded=False),
        constants=Constants(ROOT, 0.5),
    )

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        self._start(options)


class MAE(Criterion):
    """Mean absolute error: 1 - p_y.

    It is symmetric, so it is robust to uniform label noise. It learns slowly when there are many classes.

    Args:
        options: those of :class:`symloss.Criterion`.

    Reference: Ghosh, Kumar, Sastry: Robust loss functions under label noise for deep neural networks. AAAI.

    >>> import torch, symloss
    >>> symloss.MAE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3348)
    """

    record = Record(
        "mae",
        "1 - p_y",
        "Ghosh 2017",
        phi.MAEPotential,
        facts=SYMMETRIC,
        constants=Constants(MAE_STEEPEST, MAE_MOST_BENT),
    )

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        self._start(options)


class RCE(Criterion):
    """Reverse cross-entropy: A (1 - p_y), A = -log 1e-4.

    It is a multiple of MAE, because log 0 is read as log 1e-4.

    Args:
        options: those of :class:`symloss.Criterion`.

    Reference: Wang, Ma, Chen, Luo, Yi, Bailey: Symmetric cross entropy for robust learning with noisy labels.
    ICCV.

    >>> import torch, symloss
    >>> symloss.RCE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.0832)
    """

    record = Record(
        "rce",
        "A (1 - p_y), A = -log 1e-4",
        "Wang 2019",
        reverse_ce,
        facts=SYMMETRIC,
        constants=Constants(LOG_ZERO * MAE_STEEPEST, LOG_ZERO * MAE_MOST_BENT),
    )

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        self._start(options)


class GCE(Criterion):
    """Generalised cross-entropy: (1 - p_y^q) / q.

    Between q = 0 and q = 1 it lies between cross-entropy and MAE. Above 1 improbable labels count for even less than
    in MAE; with language models such losses are used for fine-tuning. Below 0 float32 has no numbers for improbable
    labels, so q ends at 0.

    Args:
        q: in [0, 10]; at 0 cross-entropy, at 1 MAE, above 1 improbable labels count for less than in MAE.
        options: those of :class:`symloss.Criterion`.

    Reference: Zhang, Sabuncu: Generalized cross entropy loss for training deep neural networks with noisy labels.
    NeurIPS. For q above 1: Li, Qiu, Chen, Ji, Tong: Beyond log likelihood (arXiv 2510.00526).

    >>> import torch, symloss
    >>> symloss.GCE(q=0.7)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3546)
    """

    record = Record(
        "gce",
        "(1 - p_y^q) / q",
        "Zhang 2018",
        lambda q: phi.GCEPotential(q) if q > 0 else phi.CEPotential(),
        {"q": Range("[0, 10]", "at 0 cross-entropy, at 1 MAE, above 1 improbable labels count for less than in MAE")},
        facts=Facts(symmetric=lambda at: at.q == 1, convex=lambda at: at.q == 0, bounded=lambda at: at.q > 0),
        constants=Constants(lambda at: ROOT * at.q**at.q / (1 + at.q) ** (1 + at.q)),
    )

    def __init__(self, q: float = 0.7, **options: Unpack[LossOptions]) -> None:
        self._start(options, q=q)


class Focal(Criterion):
    """Focal loss: -(1 - p_y)^gamma log p_y.

    At gamma = 0 it is cross-entropy. It is not robust to wrong labels.

    Args:
        gamma: in [0, 100]; how much confident examples are weighed down.
        options: those of :class:`symloss.Criterion`.

    Reference: Lin, Goyal, Girshick, He, Dollár: Focal loss for dense object detection. ICCV.

    >>> import torch, symloss
    >>> symloss.Focal(gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.2358)
    """

    record = Record(
        "focal",
        "-(1 - p_y)^gamma log p_y",
        "Lin 2017",
        phi.FocalPotential,
        {"gamma": GAMMA},
        facts=Facts(convex=lambda at: at.gamma == 0, bounded=False),
    )

    def __init__(self, gamma: float = 0.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, gamma=gamma)
