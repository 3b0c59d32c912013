"""Losses that are divided by their sum over the classes."""

from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.catalogue.probability import GAMMA
from symloss.losses.compose import complement, relative
from symloss.losses.criterion import LossOptions, NamedLoss
from symloss.losses.record import SYMMETRIC, Record


class NCE(NamedLoss):
    """Normalized cross-entropy: CE_y / sum_k CE_k.

    Reference: Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML 2020.

    >>> import torch, symloss
    >>> symloss.NCE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.0965)
    """

    record = Record("nce", "Ma 2020", lambda: relative(phi.CEPotential()), facts=SYMMETRIC)


class NFL(NamedLoss):
    """Normalized focal loss: FL_y / sum_k FL_k.

    Args:
        gamma: in [0, 100]; how much confident examples are weighed down.

    Reference: Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML 2020.

    >>> import torch, symloss
    >>> symloss.NFL(gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.0628)
    """

    record = Record("nfl", "Ma 2020", lambda gamma: relative(phi.FocalPotential(gamma)), GAMMA, SYMMETRIC)

    def __init__(self, gamma: float = 0.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, gamma=gamma)


class NGCE(NamedLoss):
    """Normalized generalised cross-entropy: GCE_y / sum_k GCE_k.

    Args:
        q: in (0, 1]; towards 0 NCE, at 1 MAE / (C - 1).

    Reference: Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML 2020.

    >>> import torch, symloss
    >>> symloss.NGCE(q=0.7)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.1469)
    """

    record = Record("ngce", "Ma 2020", lambda q: relative(phi.GCEPotential(q)), {"q": "(0, 1]"}, SYMMETRIC)

    def __init__(self, q: float = 0.7, **options: Unpack[LossOptions]) -> None:
        self._start(options, q=q)


class NNCE(NamedLoss):
    """Normalized negative cross-entropy: 1 - (A - CE_y) / sum_k (A - CE_k), A = -log 1e-7.

    Cross-entropy is cut at A.

    Reference: Ye et al.: Active negative loss functions for learning with noisy labels. NeurIPS 2023.

    >>> import torch, symloss
    >>> symloss.NNCE()(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.6440)
    """

    record = Record("nnce", "Ye 2023", lambda: complement(phi.CEPotential()), facts=SYMMETRIC)


class NNFL(NamedLoss):
    """Normalized negative focal loss: 1 - (A - FL_y) / sum_k (A - FL_k).

    A is the focal loss at p = 1e-7. The focal loss is cut at A.

    Args:
        gamma: in [0, 100]; how much confident examples are weighed down.

    Reference: Ye et al.: Active negative loss functions for learning with noisy labels. NeurIPS 2023.

    >>> import torch, symloss
    >>> symloss.NNFL(gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.6439)
    """

    record = Record("nnfl", "Ye 2023", lambda gamma: complement(phi.FocalPotential(gamma)), GAMMA, SYMMETRIC)

    def __init__(self, gamma: float = 0.5, **options: Unpack[LossOptions]) -> None:
        self._start(options, gamma=gamma)
