"""Losses and learners of this package inside other libraries, one module for each.

A module is imported when it is used, and imports its own library only:

- ``cleanlab``: the audit of a fit for cleanlab, and what cleanlab found as an audit
- ``hf``: a loss for the Trainer of Hugging Face, and for models that call ``self.loss_function``
- ``hf_causal``: a Trainer of language models that never holds all scores
- ``trl``: supervised fine-tuning with any loss of the label's log-probability
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["cleanlab", "hf", "hf_causal", "trl"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'symloss.adapters' has no attribute {name!r}")
    return importlib.import_module(f"symloss.adapters.{name}")


def __dir__() -> list[str]:
    return __all__
