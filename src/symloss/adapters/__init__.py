"""Losses and learners of this package inside other libraries, one module for each.

A module is imported when it is used, and imports its own library only:

- ``boosting``: classifiers of XGBoost and LightGBM with any loss
- ``cleanlab``: the audit of a fit for cleanlab, and what cleanlab found as an audit
- ``hf``: a loss for the Trainer of Hugging Face, and for models that call ``self.loss_function``
- ``hf_causal``: a Trainer of language models that never holds all scores
- ``keras``: a loss for Keras 3 on torch, which is saved and loaded with the model
- ``lightning``: a callback that keeps the mean margin of each training example, to find wrong labels
- ``openmmlab``: a loss for configurations of OpenMMLab, such as those of MMPretrain
- ``sentence_transformers``: a contrastive loss of pairs of texts, with any loss in the place of cross-entropy
- ``trl``: supervised fine-tuning with any loss of the label's log-probability
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = [
    "boosting",
    "cleanlab",
    "hf",
    "hf_causal",
    "keras",
    "lightning",
    "openmmlab",
    "sentence_transformers",
    "trl",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'symloss.adapters' has no attribute {name!r}")
    return importlib.import_module(f"symloss.adapters.{name}")


def __dir__() -> list[str]:
    return __all__
