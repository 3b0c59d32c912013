"""Losses that are a function of the label's probability alone."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.ranges import AEL_A, AGCE_A, AUL_A, EXPONENT, GAMMA, TAU, Q
from symloss.losses.catalogue.shared import LOG_ZERO, MAE_MOST_BENT, MAE_STEEPEST, ROOT, SYMMETRIC
from symloss.losses.criterion import Criterion, LossOptions
from symloss.losses.record import Constants, Facts, Range, Record


def reverse_ce() -> phi.MAE:
    """Reverse cross-entropy, which is a multiple of MAE."""
    return phi.MAE(scale=LOG_ZERO)


def _steepest_phuber(at: SimpleNamespace) -> float:
    tau: float = at.tau
    return ROOT * (1 - 1 / tau) if tau >= 2 else tau * MAE_STEEPEST


def _most_bent_phuber(at: SimpleNamespace) -> float | None:
    """Where the linear part ends, if that is before tau MAE bends most."""
    return 2 * (1 - 1 / at.tau) * (1 - 2 / at.tau) if at.tau >= 3 + math.sqrt(3) else None


class CE(Criterion):
    """Cross-entropy: -log p_y.

    It is ``torch.nn.CrossEntropyLoss`` with the options of this package. It is not robust to wrong labels.

    Args:
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: the negative log-likelihood.

    >>> import torch, symloss
    >>> symloss.CE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.4076)
    """

    record = Record(
        "ce",
        "-log p_y",
        "textbook",
        phi.CE,
        facts=Facts(convex=True, bounded=False),
        constants=Constants(ROOT, 0.5),
    )

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(), **self.record.options(options))


class MAE(Criterion):
    """Mean absolute error: 1 - p_y.

    It is symmetric, so it is robust to uniform label noise. It learns slowly when there are many classes.

    Args:
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Ghosh, Kumar, Sastry: Robust loss functions under label noise for deep neural networks. AAAI.

    >>> import torch, symloss
    >>> symloss.MAE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3348)
    """

    record = Record(
        "mae",
        "1 - p_y",
        "Ghosh 2017",
        phi.MAE,
        facts=SYMMETRIC,
        constants=Constants(MAE_STEEPEST, MAE_MOST_BENT),
    )

    def __init__(self, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(), **self.record.options(options))


class RCE(Criterion):
    """Reverse cross-entropy: A (1 - p_y), A = -log 1e-4.

    It is a multiple of MAE, because log 0 is read as log 1e-4.

    Args:
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

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
        super().__init__(self.record.loss(), **self.record.options(options))


class GCE(Criterion):
    """Generalised cross-entropy: (1 - p_y^q) / q.

    It lies between cross-entropy and MAE.

    Args:
        q: in (0, 1]; towards 0 cross-entropy, at 1 MAE.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Zhang, Sabuncu: Generalized cross entropy loss for deep neural networks with noisy labels.
    NeurIPS.

    >>> import torch, symloss
    >>> symloss.GCE(q=0.7)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3546)
    """

    record = Record(
        "gce",
        "(1 - p_y^q) / q",
        "Zhang 2018",
        phi.GCE,
        {"q": Q},
        facts=Facts(symmetric=lambda at: at.q == 1),
        constants=Constants(lambda at: ROOT * at.q**at.q / (1 + at.q) ** (1 + at.q)),
    )

    def __init__(self, q: float = 0.7, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(q=q), **self.record.options(options))


class Focal(Criterion):
    """Focal loss: -(1 - p_y)^gamma log p_y.

    At gamma = 0 it is cross-entropy. It is not robust to wrong labels.

    Args:
        gamma: in [0, 100]; how much confident examples are weighed down.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Lin, Goyal, Girshick, He, Dollár: Focal loss for dense object detection. ICCV.

    >>> import torch, symloss
    >>> symloss.Focal(gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.2358)
    """

    record = Record(
        "focal",
        "-(1 - p_y)^gamma log p_y",
        "Lin 2017",
        phi.Focal,
        {"gamma": GAMMA},
        facts=Facts(convex=lambda at: at.gamma == 0, bounded=False),
    )

    def __init__(self, gamma: float = 0.5, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(gamma=gamma), **self.record.options(options))


class AGCE(Criterion):
    """Asymmetric generalised cross-entropy: ((a + 1)^q - (a + p_y)^q) / q.

    Args:
        a: in (0, 1000]; offset of the probability.
        q: in (0, 10]; exponent; at 1 MAE.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML.

    >>> import torch, symloss
    >>> symloss.AGCE(a=0.6, q=0.6)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.2903)
    """

    record = Record(
        "agce",
        "((a + 1)^q - (a + p_y)^q) / q",
        "Zhou 2021",
        phi.AGCE,
        {"a": AGCE_A, "q": EXPONENT},
        facts=Facts(symmetric=lambda at: at.q == 1),
    )

    def __init__(self, a: float = 0.6, q: float = 0.6, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(a=a, q=q), **self.record.options(options))


class AUL(Criterion):
    """Asymmetric unhinged loss: ((a - p_y)^q - (a - 1)^q) / q.

    Args:
        a: in (1, 1000]; what the probability is taken from.
        q: in (0, 10]; exponent; at 1 MAE.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML.

    >>> import torch, symloss
    >>> symloss.AUL(a=5.5, q=3.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(7.2957)
    """

    record = Record(
        "aul",
        "((a - p_y)^q - (a - 1)^q) / q",
        "Zhou 2021",
        phi.AUL,
        {"a": AUL_A, "q": EXPONENT},
        facts=Facts(symmetric=lambda at: at.q == 1),
    )

    def __init__(self, a: float = 5.5, q: float = 3.0, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(a=a, q=q), **self.record.options(options))


class AEL(Criterion):
    """Asymmetric exponential loss: exp(-p_y / a).

    Args:
        a: in [0.001, 1000]; scale of the probability.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML.

    >>> import torch, symloss
    >>> symloss.AEL(a=2.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7664)
    """

    record = Record(
        "ael",
        "exp(-p_y / a)",
        "Zhou 2021",
        phi.AEL,
        {"a": AEL_A},
    )

    def __init__(self, a: float = 2.5, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(a=a), **self.record.options(options))


class TaylorCE(Criterion):
    """Taylor cross-entropy: sum_{i=1..t} (1 - p_y)^i / i.

    It is the Taylor series of cross-entropy at p_y = 1, cut after t terms.

    Args:
        t: in [1, 100]; order; 1 is MAE.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Feng, Shu, Lin, Lv, Li, An: Can cross entropy loss be robust to label noise? IJCAI.

    >>> import torch, symloss
    >>> symloss.TaylorCE(t=2)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3908)
    """

    record = Record(
        "taylor-ce",
        "sum_{i=1..t} (1 - p_y)^i / i",
        "Feng 2020",
        phi.Taylor,
        {"t": Range("[1, 100]", "order; 1 is MAE", whole=True)},
        facts=Facts(symmetric=lambda at: at.t == 1),
        constants=Constants(lambda at: ROOT * (1 + at.t) ** (-1 / at.t) * at.t / (1 + at.t)),
    )

    def __init__(self, t: int = 2, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(t=t), **self.record.options(options))


class PHuberCE(Criterion):
    """Partially Huberised cross-entropy: -log p_y if p_y > 1/tau, else 1 + log tau - tau p_y.

    It is linear in p_y where cross-entropy is steeper than tau.

    Args:
        tau: in (1, inf); largest slope in p.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Menon, Rawat, Reddi, Kumar: Can gradient clipping mitigate label noise? ICLR.

    >>> import torch, symloss
    >>> symloss.PHuberCE(tau=10.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.4076)
    """

    record = Record(
        "phuber-ce",
        "-log p_y if p_y > 1/tau, else 1 + log tau - tau p_y",
        "Menon 2020",
        phi.PHuberCE,
        {"tau": TAU},
        constants=Constants(_steepest_phuber, _most_bent_phuber),
    )

    def __init__(self, tau: float = 10.0, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(tau=tau), **self.record.options(options))


class PHuberGCE(Criterion):
    """Partially Huberised generalised cross-entropy: GCE, linear where its slope in p exceeds tau.

    It is linear in p_y where GCE is steeper than tau.

    Args:
        q: in (0, 1); exponent of GCE.
        tau: in (1, inf); largest slope in p.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Menon, Rawat, Reddi, Kumar: Can gradient clipping mitigate label noise? ICLR.

    >>> import torch, symloss
    >>> symloss.PHuberGCE(q=0.7, tau=10.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3546)
    """

    record = Record(
        "phuber-gce",
        "GCE, linear where its slope in p exceeds tau",
        "Menon 2020",
        phi.PHuberGCE,
        {"q": Range("(0, 1)", "exponent of GCE"), "tau": TAU},
    )

    def __init__(self, q: float = 0.7, tau: float = 10.0, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(q=q, tau=tau), **self.record.options(options))


class JS(Criterion):
    """Jensen-Shannon loss: Jensen-Shannon divergence of e_y and p, weights pi and 1 - pi, scaled.

    With m = pi + (1 - pi) p_y it is 1 - p_y - (p_y log(m / p_y) + pi / (1 - pi) log m) / -log(1 - pi).

    Args:
        pi: in [1e-30, 1); towards 0 cross-entropy, towards 1 MAE.
        options: those of :class:`symloss.Criterion`.

    Shapes: input (N, C), target (N,), and all others of :class:`symloss.Criterion`.

    Reference: Englesson, Azizpour: Generalized Jensen-Shannon divergence loss for noisy labels. NeurIPS.

    >>> import torch, symloss
    >>> symloss.JS(pi=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3836)
    """

    record = Record(
        "js",
        "Jensen-Shannon divergence of e_y and p, weights pi and 1 - pi, scaled",
        "Englesson 2021",
        phi.JS,
        {"pi": Range("[1e-30, 1)", "towards 0 cross-entropy, towards 1 MAE")},
    )

    def __init__(self, pi: float = 0.5, **options: Unpack[LossOptions]) -> None:
        super().__init__(self.record.loss(pi=pi), **self.record.options(options))
