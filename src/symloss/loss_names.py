"""The names of the losses. Written by tools/write_generated.py."""

from typing import Literal

LossName = Literal[
    "unhinged", "sgce", "alpha-mae", "symmetrized-mse", "symmetrized-cosine", "ce", "mae", "rce", "gce", "focal",
    "agce", "aul", "ael", "taylor-ce", "phuber-ce", "phuber-gce", "js", "mse", "cosine", "bi-tempered", "ldr-kl",
    "nce", "nfl", "ngce", "nnce", "nnfl", "sce", "nce+mae", "nce+rce", "nfl+mae", "nfl+rce", "nce+agce", "nce+aul",
    "nce+ael", "anl-ce", "anl-fl", "jal-ce", "jal-fl", "label-smoothing", "dirichlet-ce",
]  # fmt: skip
