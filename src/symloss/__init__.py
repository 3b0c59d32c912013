"""Losses for training on labels that are wrong.

>>> import torch, symloss
>>> loss = symloss.AlphaMAE(alpha=2.0)           # instead of torch.nn.CrossEntropyLoss()
>>> round(loss(torch.zeros(8, 10), torch.zeros(8, dtype=torch.long)).item(), 4)
18.0

Names are imported when they are used: importing symloss does not import torch. ``__init__.pyi`` shows them to tools.
"""

from __future__ import annotations

import importlib
from typing import Any

from symloss.loss_names import LOSS_CLASSES
from symloss.public_names import HOMES, MODULES

__version__ = "0.2.0.dev0"


def __getattr__(name: str) -> Any:
    if name in MODULES:
        return importlib.import_module(MODULES[name])
    home = HOMES.get(name) or LOSS_CLASSES.get(name)
    if home is None:
        raise AttributeError(f"module 'symloss' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted([*HOMES, *MODULES, *LOSS_CLASSES, "__version__"])
