"""Functions of the label's probability alone: cross-entropy and its relatives, bounded ones, asymmetric ones."""

import math
from types import SimpleNamespace
from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.criterion import LossOptions, NamedLoss
from symloss.losses.record import SYMMETRIC, Constants, Facts, Record

LOG_ZERO = -math.log(1e-4)  # reverse cross-entropy reads log 0 as log 1e-4
ROOT = math.sqrt(2)
MAE_STEEPEST = ROOT / 4  # the largest gradient norm of MAE: sup sqrt 2 (1 - p) p
MAE_MOST_BENT = math.sqrt(3) / 9  # the largest curvature of MAE: sup 2 p (1 - p) (2 p - 1)
GAMMA = {"gamma": "[0, 100]"}  # the range of the exponent of focal losses
SYMMETRIC_AT_1 = Facts(symmetric=lambda at: at.q == 1)


def reverse_ce() -> phi.MAEPotential:
    """Reverse cross-entropy, which is a multiple of MAE."""
    return phi.MAEPotential(scale=LOG_ZERO)


class CE(NamedLoss):
    """Cross-entropy: -log p_y.

    It is ``torch.nn.CrossEntropyLoss`` with the options of this package. It is not robust to wrong labels.

    Reference: the negative log-likelihood.

    >>> import torch, symloss
    >>> symloss.CE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.4076)
    """

    record = Record("ce", "textbook", phi.CEPotential, {}, Facts(convex=True, bounded=False), Constants(ROOT, 0.5))


class MAE(NamedLoss):
    """Mean absolute error: 1 - p_y.

    It is symmetric, so it is robust to uniform label noise. It learns slowly when there are many classes.

    Reference: Ghosh et al.: Robust loss functions under label noise for deep neural networks. AAAI 2017.

    >>> import torch, symloss
    >>> symloss.MAE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3348)
    """

    record = Record("mae", "Ghosh 2017", phi.MAEPotential, {}, SYMMETRIC, Constants(MAE_STEEPEST, MAE_MOST_BENT))


class RCE(NamedLoss):
    """Reverse cross-entropy: A (1 - p_y), A = -log 1e-4.

    It is a multiple of MAE, because log 0 is read as log 1e-4.

    Reference: Wang et al.: Symmetric cross entropy for robust learning with noisy labels. ICCV 2019.

    >>> import torch, symloss
    >>> symloss.RCE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.0832)
    """

    record = Record(
        "rce", "Wang 2019", reverse_ce, {}, SYMMETRIC, Constants(LOG_ZERO * MAE_STEEPEST, LOG_ZERO * MAE_MOST_BENT)
    )


class GCE(NamedLoss):
    """Generalised cross-entropy: (1 - p_y^q) / q.

    Between q = 0 and q = 1 it lies between cross-entropy and MAE. Above 1 improbable labels count for even less than
    in MAE; with language models such losses are used for fine-tuning. Below 0 float32 has no numbers for improbable
    labels, so q ends at 0.

    Args:
        q: in [0, 10]; at 0 cross-entropy, at 1 MAE, above 1 improbable labels count for less than in MAE.

    Reference: Zhang and Sabuncu: Generalized cross entropy loss for training deep neural networks with noisy
    labels. NeurIPS 2018. For q above 1: Li, Qiu, Chen, Ji, Tong: Beyond log likelihood (arXiv 2510.00526).

    >>> import torch, symloss
    >>> symloss.GCE(q=0.7)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3546)
    """

    record = Record(
        "gce",
        "Zhang 2018",
        lambda q: phi.GCEPotential(q) if q > 0 else phi.CEPotential(),
        {"q": "[0, 10]"},
        facts=Facts(symmetric=lambda at: at.q == 1, convex=lambda at: at.q == 0, bounded=lambda at: at.q > 0),
        constants=Constants(lambda at: ROOT * at.q**at.q / (1 + at.q) ** (1 + at.q)),
    )

    def __init__(self, q: float = 0.7, **options: Unpack[LossOptions]) -> None:
        self._start(options, q=q)


class Focal(NamedLoss):
    """Focal loss: -(1 - p_y)^gamma log p_y.

    At gamma = 0 it is cross-entropy. It is not robust to wrong labels.

    Args:
        gamma: in [0, 100]; how much confident examples are weighed down.

    Reference: Lin et al.: Focal loss for dense object detection. ICCV 2017.

    >>> import torch, symloss
    >>> symloss.Focal(gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.2358)
    """

    record = Record(
        "focal", "Lin 2017", phi.FocalPotential, GAMMA, Facts(convex=lambda at: at.gamma == 0, bounded=False)
    )

    def __init__(self, gamma: float = 0.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, gamma=gamma)


class AGCE(NamedLoss):
    """Asymmetric generalised cross-entropy: ((a + 1)^q - (a + p_y)^q) / q.

    Args:
        a: in (0, 1000]; offset of the probability.
        q: in (0, 10]; exponent; at 1 MAE.

    Reference: Zhou et al.: Asymmetric loss functions for learning with noisy labels. ICML 2021.

    >>> import torch, symloss
    >>> symloss.AGCE(a=0.6, q=0.6)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.2903)
    """

    record = Record("agce", "Zhou 2021", phi.AGCEPotential, {"a": "(0, 1000]", "q": "(0, 10]"}, SYMMETRIC_AT_1)

    def __init__(self, a: float = 0.6, q: float = 0.6, **options: Unpack[LossOptions]) -> None:
        self._start(options, a=a, q=q)


class AUL(NamedLoss):
    """Asymmetric unhinged loss: ((a - p_y)^q - (a - 1)^q) / q.

    Args:
        a: in (1, 1000]; what the probability is taken from.
        q: in (0, 10]; exponent; at 1 MAE.

    Reference: Zhou et al.: Asymmetric loss functions for learning with noisy labels. ICML 2021.

    >>> import torch, symloss
    >>> symloss.AUL(a=5.5, q=3.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(7.2957)
    """

    record = Record("aul", "Zhou 2021", phi.AULPotential, {"a": "(1, 1000]", "q": "(0, 10]"}, SYMMETRIC_AT_1)

    def __init__(self, a: float = 5.5, q: float = 3.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, a=a, q=q)


class AEL(NamedLoss):
    """Asymmetric exponential loss: exp(-p_y / a).

    Args:
        a: in [0.001, 1000]; scale of the probability.

    Reference: Zhou et al.: Asymmetric loss functions for learning with noisy labels. ICML 2021.

    >>> import torch, symloss
    >>> symloss.AEL(a=2.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7664)
    """

    record = Record("ael", "Zhou 2021", phi.AELPotential, {"a": "[0.001, 1000]"})

    def __init__(self, a: float = 2.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, a=a)


def _steepest_phuber(at: SimpleNamespace) -> float:
    tau: float = at.tau
    return ROOT * (1 - 1 / tau) if tau >= 2 else tau * MAE_STEEPEST


def _most_bent_phuber(at: SimpleNamespace) -> float | None:
    """Return the curvature where the linear part ends, if it is the largest. For a small tau it is not, and is None."""
    return 2 * (1 - 1 / at.tau) * (1 - 2 / at.tau) if at.tau >= 3 + math.sqrt(3) else None


OF_PHUBER = Constants(_steepest_phuber, _most_bent_phuber)


class TaylorCE(NamedLoss):
    """Taylor cross-entropy: sum_{i=1..t} (1 - p_y)^i / i.

    It is the Taylor series of cross-entropy at p_y = 1, cut after t terms.

    Args:
        t: in [1, 100]; order; 1 is MAE.

    Reference: Feng et al.: Can cross entropy loss be robust to label noise? IJCAI 2020.

    >>> import torch, symloss
    >>> symloss.TaylorCE(t=2)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3908)
    """

    record = Record(
        "taylor-ce",
        "Feng 2020",
        phi.TaylorCEPotential,
        {"t": "[1, 100]"},
        facts=Facts(symmetric=lambda at: at.t == 1),
        constants=Constants(lambda at: ROOT * (1 + at.t) ** (-1 / at.t) * at.t / (1 + at.t)),
    )

    def __init__(self, t: int = 2, **options: Unpack[LossOptions]) -> None:
        self._start(options, t=t)


class PHuberCE(NamedLoss):
    """Partially Huberised cross-entropy: -log p_y if p_y > 1/tau, else 1 + log tau - tau p_y.

    It is linear in p_y where cross-entropy is steeper than tau.

    Args:
        tau: in (1, inf); largest slope in p.

    Reference: Menon et al.: Can gradient clipping mitigate label noise? ICLR 2020.

    >>> import torch, symloss
    >>> symloss.PHuberCE(tau=10.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.4076)
    """

    record = Record("phuber-ce", "Menon 2020", phi.PHuberCEPotential, {"tau": "(1, inf)"}, Facts(), OF_PHUBER)

    def __init__(self, tau: float = 10.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, tau=tau)


class PHuberGCE(NamedLoss):
    """Partially Huberised generalised cross-entropy: GCE, linear where its slope in p exceeds tau.

    It is linear in p_y where GCE is steeper than tau.

    Args:
        q: in (0, 1); exponent of GCE.
        tau: in (1, inf); largest slope in p.

    Reference: Menon et al.: Can gradient clipping mitigate label noise? ICLR 2020.

    >>> import torch, symloss
    >>> symloss.PHuberGCE(q=0.7, tau=10.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3546)
    """

    record = Record("phuber-gce", "Menon 2020", phi.PHuberGCEPotential, {"q": "(0, 1)", "tau": "(1, inf)"})

    def __init__(self, q: float = 0.7, tau: float = 10.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, q=q, tau=tau)


class JS(NamedLoss):
    """Jensen-Shannon loss: Jensen-Shannon divergence of e_y and p, weights pi and 1 - pi, scaled.

    With m = pi + (1 - pi) p_y it is 1 - p_y - (p_y log(m / p_y) + pi / (1 - pi) log m) / -log(1 - pi).

    Args:
        pi: in [1e-30, 1); towards 0 cross-entropy, towards 1 MAE.

    Reference: Englesson and Azizpour: Generalized Jensen-Shannon divergence loss for learning with noisy labels.
    NeurIPS 2021.

    >>> import torch, symloss
    >>> symloss.JS(pi=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.3836)
    """

    record = Record("js", "Englesson 2021", phi.JSPotential, {"pi": "[1e-30, 1)"})

    def __init__(self, pi: float = 0.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, pi=pi)
