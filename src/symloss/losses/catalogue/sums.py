"""Losses divided by their sum over the classes; weighted sums of two losses, or of a loss and its mean over labels."""

import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Unpack

from symloss.losses import potentials as phi
from symloss.losses.base import Loss
from symloss.losses.catalogue.probability import AEL, AGCE, AUL, CE, GAMMA, LOG_ZERO, MAE, RCE, ROOT
from symloss.losses.compose import complement, dirichlet, relative
from symloss.losses.criterion import LossOptions, NamedLoss
from symloss.losses.operators import Insensitive, Relative
from symloss.losses.published import PAPER
from symloss.losses.record import SYMMETRIC, Constants, Facts, Parameter, Record
from symloss.losses.score_formulas import AMSEFormula


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


WEIGHT = "[0, 1e6]"  # the range of the weight of each of two losses
WEIGHTS = {"alpha": WEIGHT, "beta": WEIGHT}


def _build(one: type[NamedLoss], other: type[NamedLoss]) -> Callable[..., Loss]:
    """Return the function that makes alpha L + beta M, from the weights and the parameters of both losses."""
    records: list[Record] = [one.record, other.record]

    def build(alpha: float, beta: float, **values: float) -> Loss:
        first, second = (record.build(**{key: values[key] for key in record.defaults}) for record in records)
        return alpha * first + beta * second

    return build


def weighted_sum(name: str, source: str, one: type[NamedLoss], other: type[NamedLoss]) -> Record:
    """Return the record of alpha L + beta M. It has no class: its name, or a sum of the two losses, makes it."""
    symmetric = [one.record.facts.symmetric, other.record.facts.symmetric]

    def both(at: SimpleNamespace) -> bool:
        pairs = zip((at.alpha, at.beta), symmetric, strict=True)
        return all(weight == 0 or (fact(at) if callable(fact) else fact) for weight, fact in pairs)

    record = Record(name, source, _build(one, other), facts=SYMMETRIC if symmetric == [True] * 2 else Facts(both))
    record.formula = f"alpha {one.__name__} + beta {other.__name__}"
    record.text = f"Weighted sum of {one.__name__} and {other.__name__}: {record.formula}."
    weights = {"alpha": "weight of the first loss", "beta": "weight of the second loss"}
    own = [Parameter(each, 1.0, WEIGHT, meaning) for each, meaning in weights.items()]
    record.parameters = (*own, *one.record.parameters, *other.record.parameters)
    record.defaults = {each.name: each.default for each in record.parameters}
    return record


def _steepest_sce(at: SimpleNamespace) -> float:
    """Return the largest gradient norm: sup sqrt 2 (1 - p) (alpha + beta A p)."""
    alpha, slope = float(at.alpha), float(at.beta * LOG_ZERO)
    return ROOT * (alpha if slope <= alpha else (alpha + slope) ** 2 / (4 * slope))


class SCE(NamedLoss):
    """Symmetric cross-entropy: alpha CE + beta RCE.

    In spite of its name the loss is symmetric only where alpha = 0.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.

    Reference: Wang et al.: Symmetric cross entropy for robust learning with noisy labels. ICCV 2019.

    >>> import torch, symloss
    >>> symloss.SCE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(3.4909)
    """

    record = Record(
        "sce",
        "Wang 2019",
        _build(CE, RCE),
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


nce_mae = weighted_sum("nce+mae", "Ma 2020", NCE, MAE)
nce_rce = weighted_sum("nce+rce", "Ma 2020", NCE, RCE)
nfl_mae = weighted_sum("nfl+mae", "Ma 2020", NFL, MAE)
nfl_rce = weighted_sum("nfl+rce", "Ma 2020", NFL, RCE)
nce_agce = weighted_sum("nce+agce", "Zhou 2021", NCE, AGCE)
nce_aul = weighted_sum("nce+aul", "Zhou 2021", NCE, AUL)
nce_ael = weighted_sum("nce+ael", "Zhou 2021", NCE, AEL)


class ANLCE(NamedLoss):
    """Active negative loss of cross-entropy: alpha NCE + beta NNCE.

    The published recipes add an L1 penalty on the weights: see ``symloss.losses.l1_penalty``.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.

    Reference: Ye et al.: Active negative loss functions for learning with noisy labels. NeurIPS 2023.

    >>> import torch, symloss
    >>> symloss.losses.ANLCE(alpha=1.0, beta=1.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7405)
    """

    record = Record("anl-ce", "Ye 2023", _build(NCE, NNCE), WEIGHTS, facts=SYMMETRIC)

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta)


class ANLFL(NamedLoss):
    """Active negative loss of the focal loss: alpha NFL + beta NNFL.

    The published recipes add an L1 penalty on the weights: see ``symloss.losses.l1_penalty``.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        gamma: in [0, 100]; how much confident examples are weighed down.

    Reference: Ye et al.: Active negative loss functions for learning with noisy labels. NeurIPS 2023.

    >>> import torch, symloss
    >>> symloss.losses.ANLFL(alpha=1.0, beta=1.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(0.7067)
    """

    record = Record("anl-fl", "Ye 2023", _build(NFL, NNFL), {**WEIGHTS, **GAMMA}, facts=SYMMETRIC)

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, gamma: float = 0.5, **options: Unpack[LossOptions]
    ) -> None:
        self._start(options, alpha=alpha, beta=beta, gamma=gamma)


class JALCE(NamedLoss):
    """Joint asymmetric loss of cross-entropy: alpha NCE + beta AMSE, AMSE = |a e_y - p|^2 / C.

    AMSE is (MSE + 2 (a - 1) MAE) / C and a constant: for a large a it is mostly MAE. With a = 30 and 10 classes the
    loss is NCE + 5.8 MAE + 0.1 MSE. The published recipes add an L1 penalty on the weights: see
    ``symloss.losses.l1_penalty``.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        a: in [1, 1000]; what the label's probability is drawn to, at 1 MSE / C.

    Reference: Wang et al.: Joint asymmetric loss for learning with noisy labels. ICCV 2025.

    >>> import torch, symloss
    >>> symloss.losses.JALCE(alpha=1.0, beta=1.0, a=30.0)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(286.9619)
    """

    record = Record(
        "jal-ce",
        "Wang 2025",
        lambda alpha, beta, a: alpha * Relative(phi.CEPotential()) + beta * AMSEFormula(a),
        {**WEIGHTS, "a": "[1, 1000]"},
        facts=Facts(symmetric=lambda at: at.beta == 0),
    )

    def __init__(self, alpha: float = 1.0, beta: float = 1.0, a: float = 30.0, **options: Unpack[LossOptions]) -> None:
        self._start(options, alpha=alpha, beta=beta, a=a)


class JALFL(NamedLoss):
    """Joint asymmetric loss of the focal loss: alpha NFL + beta AMSE, AMSE = |a e_y - p|^2 / C.

    It is :class:`symloss.losses.JALCE` with the normalized focal loss in place of NCE.

    Args:
        alpha: in [0, 1e6]; weight of the first loss.
        beta: in [0, 1e6]; weight of the second loss.
        a: in [1, 1000]; what the label's probability is drawn to, at 1 MSE / C.
        gamma: in [0, 100]; how much confident examples are weighed down.

    Reference: Wang et al.: Joint asymmetric loss for learning with noisy labels. ICCV 2025.

    >>> import torch, symloss
    >>> symloss.losses.JALFL(alpha=1.0, beta=1.0, a=30.0, gamma=0.5)(torch.tensor([[2.0, 1.0, 0.0]]), torch.tensor([0]))
    tensor(286.9282)
    """

    record = Record(
        "jal-fl",
        "Wang 2025",
        lambda alpha, beta, a, gamma: alpha * Relative(phi.FocalPotential(gamma)) + beta * AMSEFormula(a),
        {**WEIGHTS, "a": "[1, 1000]", **GAMMA},
        facts=Facts(symmetric=lambda at: at.beta == 0),
    )

    def __init__(
        self, alpha: float = 1.0, beta: float = 1.0, a: float = 30.0, gamma: float = 0.5, **options: Unpack[LossOptions]
    ) -> None:
        self._start(options, alpha=alpha, beta=beta, a=a, gamma=gamma)


def _steepest_smoothed(at: SimpleNamespace) -> float:
    """Return the largest gradient norm: the distance of a wrong one-hot vector to the smoothed label."""
    other = at.r / at.C
    return math.sqrt((1 - other) ** 2 + (1 - at.r + other) ** 2 + (at.C - 2) * other**2)


class LabelSmoothing(NamedLoss):
    """Label smoothing of cross-entropy: (1 - r) CE_y + r mean_k CE_k.

    Below r = 0 it is negative label smoothing.

    Args:
        r: in [-1e9, 1]; rate; below 0 labels are sharpened.

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


class DirichletCE(NamedLoss):
    """Cross-entropy with a Dirichlet prior on the outputs: CE_y + (alpha - 1) sum_k CE_k.

    At alpha = 1 - 1/C it is the unhinged loss.

    Args:
        alpha: in (0, 1e6]; of the Dirichlet prior; below 1 it favours confident outputs.

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
