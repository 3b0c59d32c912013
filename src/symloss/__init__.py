"""Losses for training on labels that are wrong.

>>> import torch, symloss
>>> loss = symloss.AlphaMAE(alpha=2.0)           # instead of torch.nn.CrossEntropyLoss()
>>> round(loss(torch.zeros(8, 10), torch.zeros(8, dtype=torch.long)).item(), 4)
18.0
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Names are resolved when they are used: importing symloss must not import torch.
_HOME = {
    "create_loss": "symloss.losses.create",
    "list_losses": "symloss.losses.create",
    "symmetrize": "symloss.losses.criterion",
    "decompose": "symloss.losses.criterion",
    "Criterion": "symloss.losses.criterion",
    "Decomposition": "symloss.losses.criterion",
    "Loss": "symloss.losses.algebra",
    "relative": "symloss.losses.operators",
    "complement": "symloss.losses.operators",
    "blend": "symloss.losses.operators",
    "dirichlet": "symloss.losses.operators",
    "noisy": "symloss.losses.operators",
    "BatchNormScores": "symloss.losses.scores",
    "EpsSoftmax": "symloss.losses.scores",
    "UnitScores": "symloss.losses.scores",
    "append_scores": "symloss.losses.scores",
    "l1_penalty": "symloss.losses.penalty",
    "LinearLoss": "symloss.losses.heads",
    "certify": "symloss.theory.certificates",
}
_MODULES = {
    **{name: f"symloss.{name}" for name in ("closed_form", "data", "functional", "lab", "losses", "models", "noise")},
    **{name: f"symloss.{name}" for name in ("recipes", "report", "runs", "theory", "training")},
    **{name: f"symloss.theory.{name}" for name in ("binary", "bounds", "certificates", "priors", "regression")},
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    # A class of a loss; whatever else is wanted may be a private module, which Python imports once this fails.
    modules = importlib.import_module("symloss.losses.create").MODULES if name[:1].isupper() else {}
    if name in modules:
        return modules[name]
    raise AttributeError(f"module 'symloss' has no attribute {name!r}")


def __dir__() -> list[str]:
    modules = importlib.import_module("symloss.losses.create").MODULES
    return sorted([*_HOME, *_MODULES, *modules, "__version__"])
