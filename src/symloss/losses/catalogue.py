"""Every loss, one record each. Functions, modules, command-line names, docs and tests are derived from these records.

To add a loss: a record here, and one line with its plain formula in tests/reference.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace

from symloss import checks
from symloss.losses import leaves as phi
from symloss.losses import score_leaves
from symloss.losses.algebra import Loss
from symloss.losses.operators import Insensitive, Symmetrize, blend, complement, dirichlet, relative
from symloss.losses.record import Constants, Facts, Parameter, Record

PAPER = "Lemire Paquin 2026"
SOURCES = {
    PAPER: "Lemire Paquin, Chaib-draa, Giguère: Symmetrization of loss functions for robust training of neural "
    "networks in the presence of noisy labels",
    "Ghosh 2017": "Ghosh, Kumar, Sastry: Robust loss functions under label noise for deep neural networks. AAAI",
    "Lin 2017": "Lin, Goyal, Girshick, He, Dollár: Focal loss for dense object detection. ICCV",
    "Zhang 2018": "Zhang, Sabuncu: Generalized cross entropy loss for deep neural networks with noisy labels. NeurIPS",
    "Amid 2019": "Amid, Warmuth, Anil, Koren: Robust bi-tempered logistic loss based on Bregman divergences. NeurIPS",
    "Wang 2019": "Wang, Ma, Chen, Luo, Yi, Bailey: Symmetric cross entropy for robust learning with noisy labels. ICCV",
    "Feng 2020": "Feng, Shu, Lin, Lv, Li, An: Can cross entropy loss be robust to label noise? IJCAI",
    "Ma 2020": "Ma et al.: Normalized loss functions for deep learning with noisy labels. ICML",
    "Menon 2020": "Menon, Rawat, Reddi, Kumar: Can gradient clipping mitigate label noise? ICLR",
    "Englesson 2021": "Englesson, Azizpour: Generalized Jensen-Shannon divergence loss for noisy labels. NeurIPS",
    "Zhou 2021": "Zhou, Liu, Jiang, Gao, Ji: Asymmetric loss functions for learning with noisy labels. ICML",
    "Wei 2022": "Wei, Liu, Liu, Niu, Sugiyama, Liu: To smooth or not? When label smoothing meets noisy labels. ICML",
    "Ye 2023": "Ye, Li, Dai, Jia, Yin: Active negative loss functions for learning with noisy labels. NeurIPS",
    "textbook": "the negative log-likelihood",
}

LOG_ZERO = -math.log(1e-4)
"""Reverse cross-entropy reads log 0 as log 1e-4."""

# A range ends where float32 has no numbers left for the loss or its gradient, or where the loss says nothing any more.
Q = Parameter("q", 0.7, "(0, 1]", "towards 0 cross-entropy, at 1 MAE")
GAMMA = Parameter("gamma", 0.5, "[0, 100]", "how much confident examples are weighed down")
ALPHA, BETA = (
    Parameter("alpha", 1.0, "[0, 1e6]", "weight of the first loss"),
    Parameter("beta", 1.0, "[0, 1e6]", "weight of the second loss"),
)
AGCE_A = Parameter("a", 0.6, "(0, 1000]", "offset of the probability")
AGCE_Q = Parameter("q", 0.6, "(0, 10]", "exponent; at 1 MAE")
AUL_A = Parameter("a", 5.5, "(1, 1000]", "what the probability is taken from")
AUL_Q = Parameter("q", 3.0, "(0, 10]", "exponent; at 1 MAE")
AEL_A = Parameter("a", 2.5, "[0.001, 1000]", "scale of the probability")
TAU = Parameter("tau", 10.0, "(1, inf)", "largest slope in p")

ROOT = math.sqrt(2)
MAE_STEEPEST, MAE_MOST_BENT = ROOT / 4, math.sqrt(3) / 9
"""sup sqrt 2 (1 - p) p, and sup 2 p (1 - p) (2 p - 1)."""

SYMMETRIC = Facts(symmetric=True)


def _mae() -> phi.MAE:
    return phi.MAE()


def _rce() -> phi.MAE:
    return phi.MAE(scale=LOG_ZERO)


def _nce() -> Loss:
    return relative(phi.CE())


def _nfl(gamma: float) -> Loss:
    return relative(phi.Focal(gamma))


def _steepest_phuber(at: SimpleNamespace) -> float:
    tau: float = at.tau
    return ROOT * (1 - 1 / tau) if tau >= 2 else tau * MAE_STEEPEST


def _most_bent_phuber(at: SimpleNamespace) -> float | None:
    """Where the linear part ends, if that is before tau MAE bends most."""
    return 2 * (1 - 1 / at.tau) * (1 - 2 / at.tau) if at.tau >= 3 + math.sqrt(3) else None


def _steepest_sce(at: SimpleNamespace) -> float:
    """sup sqrt 2 (1 - p) (alpha + beta A p)."""
    alpha, slope = float(at.alpha), float(at.beta * LOG_ZERO)
    return ROOT * (alpha if slope <= alpha else (alpha + slope) ** 2 / (4 * slope))


def _steepest_smoothed(at: SimpleNamespace) -> float:
    """The distance of a wrong one-hot vector to the smoothed label."""
    other = at.r / at.C
    return math.sqrt((1 - other) ** 2 + (1 - at.r + other) ** 2 + (at.C - 2) * other**2)


_RECORDS = (
    # Of the paper.
    Record(
        "unhinged",
        "Unhinged",
        lambda: Symmetrize(phi.CE()),
        "mean_k z_k - z_y",
        PAPER,
        facts=Facts(symmetric=True, convex=True, bounded=False),
        normalize="l2",
        constants=Constants(lambda at: math.sqrt(1 - 1 / at.C), 0.0),
    ),
    Record(
        "sgce",
        "SGCE",
        lambda q: Symmetrize(phi.GCE(q)),
        "(mean_k p_k^q - p_y^q) / q",
        PAPER,
        (Q,),
        SYMMETRIC,
        normalize="l2",
    ),
    Record(
        "alpha-mae",
        "AlphaMAE",
        lambda alpha: blend(_mae(), alpha),
        "(1 - alpha) (mean_k z_k - z_y) + alpha C (1 - p_y)",
        PAPER,
        (Parameter("alpha", 2.0, "[0, 1e6]", "0 unhinged, 1 C times MAE; scales the curvature"),),
        Facts(
            symmetric=True,
            non_increasing=lambda at: at.alpha <= 1,
            convex=lambda at: at.alpha == 0,
            bounded=lambda at: at.alpha == 1,
        ),
        normalize="l2",
        constants=Constants(smoothness=lambda at: at.alpha * at.C * MAE_MOST_BENT),
    ),
    Record(
        "symmetrized-mse",
        "SymmetrizedMSE",
        lambda: Symmetrize(score_leaves.MSE()),
        "2 (mean_k p_k - p_y)",
        PAPER,
        facts=SYMMETRIC,
        constants=Constants(2 * MAE_STEEPEST, 2 * MAE_MOST_BENT),
    ),
    Record(
        "symmetrized-cosine",
        "SymmetrizedCosine",
        lambda: Symmetrize(score_leaves.Cosine()),
        "(mean_k z_k - z_y) / |z|",
        PAPER,
        facts=Facts(symmetric=True, non_increasing=False),
    ),
    # Functions of the label's probability.
    Record(
        "ce",
        "CE",
        phi.CE,
        "-log p_y",
        "textbook",
        facts=Facts(convex=True, bounded=False),
        constants=Constants(ROOT, 0.5),
    ),
    Record(
        "mae",
        "MAE",
        _mae,
        "1 - p_y",
        "Ghosh 2017",
        facts=SYMMETRIC,
        constants=Constants(MAE_STEEPEST, MAE_MOST_BENT),
    ),
    Record(
        "rce",
        "RCE",
        _rce,
        "A (1 - p_y), A = -log 1e-4",
        "Wang 2019",
        facts=SYMMETRIC,
        constants=Constants(LOG_ZERO * MAE_STEEPEST, LOG_ZERO * MAE_MOST_BENT),
    ),
    Record(
        "gce",
        "GCE",
        phi.GCE,
        "(1 - p_y^q) / q",
        "Zhang 2018",
        (Q,),
        Facts(symmetric=lambda at: at.q == 1),
        constants=Constants(lambda at: ROOT * at.q**at.q / (1 + at.q) ** (1 + at.q)),
    ),
    Record(
        "focal",
        "Focal",
        phi.Focal,
        "-(1 - p_y)^gamma log p_y",
        "Lin 2017",
        (GAMMA,),
        Facts(convex=lambda at: at.gamma == 0, bounded=False),
    ),
    Record(
        "agce",
        "AGCE",
        phi.AGCE,
        "((a + 1)^q - (a + p_y)^q) / q",
        "Zhou 2021",
        (AGCE_A, AGCE_Q),
        Facts(symmetric=lambda at: at.q == 1),
    ),
    Record(
        "aul",
        "AUL",
        phi.AUL,
        "((a - p_y)^q - (a - 1)^q) / q",
        "Zhou 2021",
        (AUL_A, AUL_Q),
        Facts(symmetric=lambda at: at.q == 1),
    ),
    Record(
        "ael",
        "AEL",
        phi.AEL,
        "exp(-p_y / a)",
        "Zhou 2021",
        (AEL_A,),
    ),
    Record(
        "taylor-ce",
        "TaylorCE",
        phi.Taylor,
        "sum_{i=1..t} (1 - p_y)^i / i",
        "Feng 2020",
        (Parameter("t", 2, "[1, 100]", "order; 1 is MAE", whole=True),),
        Facts(symmetric=lambda at: at.t == 1),
        constants=Constants(lambda at: ROOT * (1 + at.t) ** (-1 / at.t) * at.t / (1 + at.t)),
    ),
    Record(
        "phuber-ce",
        "PHuberCE",
        phi.PHuberCE,
        "-log p_y if p_y > 1/tau, else 1 + log tau - tau p_y",
        "Menon 2020",
        (TAU,),
        constants=Constants(_steepest_phuber, _most_bent_phuber),
    ),
    Record(
        "phuber-gce",
        "PHuberGCE",
        phi.PHuberGCE,
        "GCE, linear where its slope in p exceeds tau",
        "Menon 2020",
        (Parameter("q", 0.7, "(0, 1)", "exponent of GCE"), TAU),
    ),
    Record(
        "js",
        "JS",
        phi.JS,
        "Jensen-Shannon divergence of e_y and p, weights pi and 1 - pi, scaled",
        "Englesson 2021",
        (Parameter("pi", 0.5, "[1e-30, 1)", "towards 0 cross-entropy, towards 1 MAE"),),
    ),
    # Functions of the whole score vector.
    Record("mse", "MSE", score_leaves.MSE, "1 - 2 p_y + sum_k p_k^2", PAPER),
    Record("cosine", "Cosine", score_leaves.Cosine, "1 - z_y / |z|", PAPER),
    Record(
        "bi-tempered",
        "BiTempered",
        score_leaves.BiTempered,
        "tempered Bregman divergence of e_y and tempered softmax",
        "Amid 2019",
        (
            Parameter("t1", 0.8, "[0, 1]", "of the logarithm; below 1 the loss is bounded"),
            Parameter("t2", 1.2, "[1, 4]", "of the softmax; above 1 its tail is heavy"),
        ),
        Facts(convex=lambda at: at.t1 == at.t2, bounded=lambda at: at.t1 < 1),
    ),
    # Built by operators.
    Record("nce", "NCE", _nce, "CE_y / sum_k CE_k", "Ma 2020", facts=SYMMETRIC),
    Record("nfl", "NFL", _nfl, "FL_y / sum_k FL_k", "Ma 2020", (GAMMA,), SYMMETRIC),
    Record("ngce", "NGCE", lambda q: relative(phi.GCE(q)), "GCE_y / sum_k GCE_k", "Ma 2020", (Q,), SYMMETRIC),
    Record(
        "nnce",
        "NNCE",
        lambda: complement(phi.CE()),
        "1 - (A - CE_y) / sum_k (A - CE_k), A = -log 1e-7",
        "Ye 2023",
        facts=SYMMETRIC,
    ),
    Record(
        "nnfl",
        "NNFL",
        lambda gamma: complement(phi.Focal(gamma)),
        "1 - (A - FL_y) / sum_k (A - FL_k)",
        "Ye 2023",
        (GAMMA,),
        SYMMETRIC,
    ),
    Record(
        "sce",
        "SCE",
        lambda alpha, beta: alpha * phi.CE() + beta * _rce(),
        "alpha CE + beta RCE",
        "Wang 2019",
        (ALPHA, BETA),
        Facts(
            symmetric=lambda at: at.alpha == 0,
            convex=lambda at: at.alpha >= at.beta * LOG_ZERO,
            bounded=lambda at: at.alpha == 0,
        ),
        constants=Constants(_steepest_sce),
    ),
    Record(
        "nce+mae",
        "NCEandMAE",
        lambda alpha, beta: alpha * _nce() + beta * _mae(),
        "alpha NCE + beta MAE",
        "Ma 2020",
        (ALPHA, BETA),
        SYMMETRIC,
    ),
    Record(
        "nce+rce",
        "NCEandRCE",
        lambda alpha, beta: alpha * _nce() + beta * _rce(),
        "alpha NCE + beta RCE",
        "Ma 2020",
        (ALPHA, BETA),
        SYMMETRIC,
    ),
    Record(
        "nfl+mae",
        "NFLandMAE",
        lambda alpha, beta, gamma: alpha * _nfl(gamma) + beta * _mae(),
        "alpha NFL + beta MAE",
        "Ma 2020",
        (ALPHA, BETA, GAMMA),
        SYMMETRIC,
    ),
    Record(
        "nfl+rce",
        "NFLandRCE",
        lambda alpha, beta, gamma: alpha * _nfl(gamma) + beta * _rce(),
        "alpha NFL + beta RCE",
        "Ma 2020",
        (ALPHA, BETA, GAMMA),
        SYMMETRIC,
    ),
    Record(
        "nce+agce",
        "NCEandAGCE",
        lambda alpha, beta, a, q: alpha * _nce() + beta * phi.AGCE(a, q),
        "alpha NCE + beta AGCE",
        "Zhou 2021",
        (ALPHA, BETA, AGCE_A, AGCE_Q),
        Facts(symmetric=lambda at: at.q == 1 or at.beta == 0),
    ),
    Record(
        "nce+aul",
        "NCEandAUL",
        lambda alpha, beta, a, q: alpha * _nce() + beta * phi.AUL(a, q),
        "alpha NCE + beta AUL",
        "Zhou 2021",
        (ALPHA, BETA, AUL_A, AUL_Q),
        Facts(symmetric=lambda at: at.q == 1 or at.beta == 0),
    ),
    Record(
        "nce+ael",
        "NCEandAEL",
        lambda alpha, beta, a: alpha * _nce() + beta * phi.AEL(a),
        "alpha NCE + beta AEL",
        "Zhou 2021",
        (ALPHA, BETA, AEL_A),
        Facts(symmetric=lambda at: at.beta == 0),
    ),
    Record(
        "anl-ce",
        "ANLCE",
        lambda alpha, beta: alpha * _nce() + beta * complement(phi.CE()),
        "alpha NCE + beta NNCE",
        "Ye 2023",
        (ALPHA, BETA),
        SYMMETRIC,
    ),
    Record(
        "anl-fl",
        "ANLFL",
        lambda alpha, beta, gamma: alpha * _nfl(gamma) + beta * complement(phi.Focal(gamma)),
        "alpha NFL + beta NNFL",
        "Ye 2023",
        (ALPHA, BETA, GAMMA),
        SYMMETRIC,
    ),
    Record(
        "label-smoothing",
        "LabelSmoothing",
        lambda r: (1 - r) * phi.CE() + r * Insensitive(phi.CE()),
        "(1 - r) CE_y + r mean_k CE_k",
        "Wei 2022",
        (Parameter("r", 0.1, "[-1e9, 1]", "rate; below 0 labels are sharpened"),),
        Facts(convex=True, bounded=False, non_increasing=lambda at: at.r <= 0),
        constants=Constants(_steepest_smoothed, 0.5),
    ),
    Record(
        "dirichlet-ce",
        "DirichletCE",
        lambda alpha: dirichlet(phi.CE(), alpha),
        "CE_y + (alpha - 1) sum_k CE_k",
        PAPER,
        (Parameter("alpha", 0.5, "(0, 1e6]", "of the Dirichlet prior; below 1 it favours confident outputs"),),
        Facts(
            symmetric=lambda at: math.isclose(at.alpha, 1 - 1 / at.C),
            non_increasing=lambda at: at.alpha <= 1,
            convex=lambda at: at.alpha >= (1 - 1 / at.C) * (1 - 1e-12),
            bounded=False,
        ),
        constants=Constants(smoothness=lambda at: abs(1 + (at.alpha - 1) * at.C) / 2),
    ),
)

RECORDS: Mapping[str, Record] = MappingProxyType({record.name: record for record in _RECORDS})


def find(name: str) -> Record:
    if name not in RECORDS:
        raise ValueError(f"there is no loss named {name!r}; {checks.nearest(name, RECORDS)}")
    return RECORDS[name]
