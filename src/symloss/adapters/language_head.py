"""The last layer of a language model of transformers: a linear layer, perhaps with a factor and a soft cap."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial
from torch.nn import functional as F  # noqa: N812

from symloss.losses.layers import SoftCap

FACTORS = ("logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
"""Names under which configurations keep a factor of the scores, or what they are divided by."""
TOKENS = 4
"""So many are tried to see that the scores are understood."""


@dataclass(frozen=True, eq=False)
class LanguageHead:
    """How a language model computes scores from its last hidden states. :meth:`of` finds it out.

    Args:
        model: a causal model of transformers.
        factor: the scores are multiplied by it.
        softcap: then they are bounded by it, as Gemma does; None if they are not.
    """

    model: Any
    factor: float
    softcap: float | None

    @classmethod
    def of(cls, model: Any) -> LanguageHead:
        """The head of a model. An error if its scores are not those of a linear layer with a factor and a soft cap.

        Args:
            model: a causal model of transformers, perhaps in an adapter of PEFT.
        """
        inner = without_adapter(model)
        layer, name = inner.get_output_embeddings(), type(inner).__name__
        if not isinstance(layer, nn.Linear):
            kind = type(layer).__name__
            raise ValueError(f"the output layer of {name} must be a plain linear layer; got {kind}")
        config = inner.config.get_text_config()
        values = [getattr(config, each, None) for each in FACTORS]
        factors = [1.0, *(f for value in values if value for f in (float(value), 1 / value))]
        softcap = getattr(config, "final_logit_softcapping", None)
        tokens = torch.arange(TOKENS, device=layer.weight.device)[None] % len(layer.weight)
        was_training = inner.training
        with torch.no_grad():
            inner.eval()
            wanted = inner(input_ids=tokens, use_cache=False).logits.float()
            states = inner.base_model(input_ids=tokens, use_cache=False).last_hidden_state
            inner.train(was_training)
            for factor in factors:
                head = cls(inner, factor, softcap)
                if torch.allclose(
                    head.scores(states).float(), wanted, rtol=1e-2, atol=1e-2 * float(wanted.abs().max())
                ):
                    return head
        raise ValueError(
            f"the scores of {name} are not those of its output layer at the last hidden states, so they cannot be "
            "left out; use Trainer(compute_loss_func=symloss.adapters.hf.loss(...))"
        )

    def parameters(self) -> tuple[Tensor, Tensor | None]:
        """The weights (C, d) and the bias (C,) of the layer. Sharded ones are put together."""
        layer = self.model.get_output_embeddings()
        weight, bias = (_whole(p) if isinstance(p, DTensor) else p for p in (layer.weight, layer.bias))
        return weight, bias

    def scaled(self, values: Tensor) -> Tensor:
        """The values times the factor. Most models have none, and need no second tensor."""
        return values if self.factor == 1 else self.factor * values

    def scores(self, states: Tensor) -> Tensor:
        """The scores (..., C) of hidden states (..., d)."""
        weight, bias = self.parameters()
        scores = self.scaled(F.linear(states.to(weight.dtype), weight, bias))
        return scores if self.softcap is None else SoftCap(self.softcap)(scores)


def without_adapter(model: Any) -> Any:
    """The model itself, if it is inside an adapter of PEFT."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _whole(parameter: DTensor) -> Tensor:
    """A sharded parameter in one piece. Its gradient is the mean over processes, as FSDP takes it of all others."""
    whole: Tensor = parameter.full_tensor(grad_placements=[Partial("avg")] * parameter.device_mesh.ndim)
    return whole
