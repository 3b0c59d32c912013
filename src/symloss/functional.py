"""Every loss as a function of (input, target), with its parameters and the options of
``torch.nn.functional.cross_entropy``.

>>> import torch
>>> from symloss import functional as F
>>> F.gce(torch.zeros(2, 4), torch.tensor([0, 3]), q=0.5)
tensor(1.)

Written by tools/write_generated.py.
"""

from symloss.losses.catalogue import paper, probability, score_vector, sums
from symloss.losses.heads import linear_loss, linear_unhinged
from symloss.losses.record import function

__all__ = [
    "ael", "agce", "alpha_mae", "anl_ce", "anl_fl", "aul", "bi_tempered", "ce", "cosine", "dirichlet_ce", "focal",
    "gce", "jal_ce", "jal_fl", "js", "label_smoothing", "ldr_kl", "linear_loss", "linear_unhinged", "mae", "mse",
    "nce", "nfl", "ngce", "nnce", "nnfl", "phuber_ce", "phuber_gce", "rce", "sce", "sgce", "symmetrized_cosine",
    "symmetrized_mse", "taylor_ce", "unhinged",
]  # fmt: skip

unhinged = function(paper.Unhinged)
sgce = function(paper.SGCE)
alpha_mae = function(paper.AlphaMAE)
symmetrized_mse = function(paper.SymmetrizedMSE)
symmetrized_cosine = function(paper.SymmetrizedCosine)
ce = function(probability.CE)
mae = function(probability.MAE)
rce = function(probability.RCE)
gce = function(probability.GCE)
focal = function(probability.Focal)
agce = function(probability.AGCE)
aul = function(probability.AUL)
ael = function(probability.AEL)
taylor_ce = function(probability.TaylorCE)
phuber_ce = function(probability.PHuberCE)
phuber_gce = function(probability.PHuberGCE)
js = function(probability.JS)
mse = function(score_vector.MSE)
cosine = function(score_vector.Cosine)
bi_tempered = function(score_vector.BiTempered)
ldr_kl = function(score_vector.LDRKL)
nce = function(sums.NCE)
nfl = function(sums.NFL)
ngce = function(sums.NGCE)
nnce = function(sums.NNCE)
nnfl = function(sums.NNFL)
sce = function(sums.SCE)
anl_ce = function(sums.ANLCE)
anl_fl = function(sums.ANLFL)
jal_ce = function(sums.JALCE)
jal_fl = function(sums.JALFL)
label_smoothing = function(sums.LabelSmoothing)
dirichlet_ce = function(sums.DirichletCE)
