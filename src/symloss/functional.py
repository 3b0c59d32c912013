"""Every loss as a function of (input, target), with its parameters and the options of
``torch.nn.functional.cross_entropy``.

>>> import torch
>>> from symloss import functional as F
>>> F.gce(torch.zeros(2, 4), torch.tensor([0, 3]), q=0.5)
tensor(1.)

Written by tools/write_generated.py.
"""

from symloss.losses.catalogue.normalized import NCE, NFL, NGCE, NNCE, NNFL
from symloss.losses.catalogue.paper import SGCE, AlphaMAE, SymmetrizedCosine, SymmetrizedMSE, Unhinged
from symloss.losses.catalogue.probability import (
    AEL,
    AGCE,
    AUL,
    CE,
    GCE,
    JS,
    MAE,
    RCE,
    Focal,
    PHuberCE,
    PHuberGCE,
    TaylorCE,
)
from symloss.losses.catalogue.score_vector import LDRKL, MSE, BiTempered, Cosine
from symloss.losses.catalogue.sums import ANLCE, ANLFL, JALCE, JALFL, SCE, DirichletCE, LabelSmoothing
from symloss.losses.heads import linear_loss, linear_unhinged
from symloss.losses.record import function

__all__ = [
    "ael",
    "agce",
    "alpha_mae",
    "anl_ce",
    "anl_fl",
    "aul",
    "bi_tempered",
    "ce",
    "cosine",
    "dirichlet_ce",
    "focal",
    "gce",
    "jal_ce",
    "jal_fl",
    "js",
    "label_smoothing",
    "ldr_kl",
    "linear_loss",
    "linear_unhinged",
    "mae",
    "mse",
    "nce",
    "nfl",
    "ngce",
    "nnce",
    "nnfl",
    "phuber_ce",
    "phuber_gce",
    "rce",
    "sce",
    "sgce",
    "symmetrized_cosine",
    "symmetrized_mse",
    "taylor_ce",
    "unhinged",
]

unhinged = function(Unhinged)
sgce = function(SGCE)
alpha_mae = function(AlphaMAE)
symmetrized_mse = function(SymmetrizedMSE)
symmetrized_cosine = function(SymmetrizedCosine)
ce = function(CE)
mae = function(MAE)
rce = function(RCE)
gce = function(GCE)
focal = function(Focal)
agce = function(AGCE)
aul = function(AUL)
ael = function(AEL)
taylor_ce = function(TaylorCE)
phuber_ce = function(PHuberCE)
phuber_gce = function(PHuberGCE)
js = function(JS)
mse = function(MSE)
cosine = function(Cosine)
bi_tempered = function(BiTempered)
ldr_kl = function(LDRKL)
nce = function(NCE)
nfl = function(NFL)
ngce = function(NGCE)
nnce = function(NNCE)
nnfl = function(NNFL)
sce = function(SCE)
anl_ce = function(ANLCE)
anl_fl = function(ANLFL)
jal_ce = function(JALCE)
jal_fl = function(JALFL)
label_smoothing = function(LabelSmoothing)
dirichlet_ce = function(DirichletCE)
