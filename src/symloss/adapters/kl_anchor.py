"""An anchor that keeps a language model near the one that it started as: KL(start || model) at every token."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from symloss.adapters.language_head import LanguageHead

BLOCK = 2**26
"""So many scores of a block are held at a time."""


class KLAnchor:
    """The divergence of a model from the one that it started as, for each token.

    With an adapter of PEFT the start is the model with the adapter switched off. Otherwise it is a copy, which takes
    the memory of the weights once more.

    Args:
        model: a causal model of transformers, perhaps in an adapter of PEFT, before training.
    """

    def __init__(self, model: Any):
        self.model = model
        self.head = LanguageHead.of(model)
        self.has_adapter = hasattr(model, "disable_adapter")
        start = self.head.model if self.has_adapter else copy.deepcopy(self.head.model).requires_grad_(False)
        self.start = LanguageHead(start, self.head.factor, self.head.softcap)
        self.states: Tensor | None = None
        self.head.model.base_model.register_forward_hook(self._keep)

    def _keep(self, module: Any, inputs: Any, outputs: Any) -> None:
        self.states = outputs.last_hidden_state

    def __call__(self, inputs: dict[str, Any], mask: Tensor) -> Tensor:
        """The divergence (N, T) of each token, 0 where the mask is False. Call it after the model's forward pass.

        Args:
            inputs: those of the backbone, such as ``input_ids`` and ``attention_mask``.
            mask: (N, T), which of the first T positions count.
        """
        assert self.states is not None
        mine = self.states[:, : mask.shape[1]][mask]
        theirs = self._start_states(inputs)[:, : mask.shape[1]][mask]
        self.states = None
        rows = max(1, BLOCK // len(self.head.parameters()[0]))
        parts = [
            checkpoint(self._divergence, own, other, use_reentrant=False)
            for own, other in zip(torch.split(mine, rows), torch.split(theirs, rows), strict=True)
        ]
        return mine.new_zeros(mask.shape, dtype=torch.float32).masked_scatter(mask, torch.cat(parts))

    def _start_states(self, inputs: dict[str, Any]) -> Tensor:
        was_training, start = self.model.training, self.start.model
        with torch.no_grad(), self.model.disable_adapter() if self.has_adapter else contextlib.nullcontext():
            start.eval()
            states: Tensor = start.base_model(**inputs, use_cache=False).last_hidden_state
        if self.has_adapter:
            self.model.train(was_training)
        return states

    def _divergence(self, states: Tensor, start: Tensor) -> Tensor:
        log_probs = self.head.scores(states).float().log_softmax(-1)
        with torch.no_grad():
            target = self.start.scores(start).float().log_softmax(-1)
        return F.kl_div(log_probs, target, reduction="none", log_target=True).sum(-1)
