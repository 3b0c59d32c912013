"""Train causal transformers models with any loss, without holding the scores of all tokens."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer
from transformers.modeling_outputs import CausalLMOutput

from symloss.adapters.criterion_of import AnyCriterion, refuse_flat_scores
from symloss.adapters.hf import LanguageHead, next_labels, number_of, summed
from symloss.functional import linear_loss


class CausalTrainer(Trainer):  # type: ignore[misc]
    """A ``transformers.Trainer`` for causal language models, by any loss, that never holds the scores of all tokens.

    The loss is computed by blocks of scores from the last hidden states (:func:`symloss.functional.linear_loss`). It is
    exact under gradient accumulation and in several processes.

    Args:
        args: those of ``transformers.Trainer``, and its keywords.
        loss: a spec such as ``"gce:q=0.5"``, or a symloss loss.
        block_bytes: how many bytes the scores of a block may take, as in ``linear_loss``.
        accumulate: ``torch.float32`` adds up the gradient of the output layer in float32.
        kwargs: the keywords of ``transformers.Trainer``. ``compute_metrics`` is refused: it needs the scores.

    >>> from transformers import LlamaConfig, LlamaForCausalLM, TrainingArguments
    >>> sizes = dict(vocab_size=11, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> model = LlamaForCausalLM(LlamaConfig(**sizes, pad_token_id=0))
    >>> trainer = CausalTrainer(model, TrainingArguments(use_cpu=True, report_to="none"), loss="gce:q=0.5")
    >>> tokens = torch.tensor([[1, 2, 3]])
    >>> model(tokens, labels=tokens).logits is None
    True
    """

    def __init__(
        self,
        *args: Any,
        loss: AnyCriterion,
        block_bytes: int | None = None,
        accumulate: torch.dtype | None = None,
        **kwargs: Any,
    ):
        for name in ("compute_loss_func", "compute_metrics"):
            if kwargs.get(name) is not None:
                raise ValueError(
                    f"CausalTrainer takes no {name}, because it needs the scores; use transformers.Trainer"
                )
        super().__init__(*args, **kwargs)
        if self.args.n_gpu > 1:
            raise ValueError("CausalTrainer needs a process for each GPU; start it by torchrun or accelerate launch")
        if self.label_smoother is not None:
            raise ValueError("CausalTrainer takes no label_smoothing_factor, because it needs the scores")
        without_scores(self.model, loss, block_bytes, accumulate)
        self.model_accepts_loss_kwargs = True


def without_scores(
    model: Any, loss: AnyCriterion, block_bytes: int | None = None, accumulate: torch.dtype | None = None
) -> Any:
    """Make a causal model compute a loss without its scores when it gets labels, in any loop. Returns the model.

    Without labels the model works as before, so that it can generate.

    Args:
        model: a causal transformers model, perhaps in a PEFT adapter.
        loss, block_bytes, accumulate: as in :class:`CausalTrainer`.
    """
    head = LanguageHead.of(model)
    inner = head.model
    criterion = summed(loss)
    refuse_flat_scores(criterion, len(inner.get_output_embeddings().weight))
    if criterion.label_smoothing > 0:
        raise ValueError(f"loss must have label_smoothing=0 here; got {criterion.label_smoothing:g}")
    if getattr(inner.config.get_text_config(), "output_router_logits", False):
        raise ValueError(
            f"{type(inner).__name__} adds a loss of its routers (output_router_logits=True), which would be left out; "
            "use symloss.adapters.hf.install(model, loss), or symloss.adapters.trl"
        )
    forward = inner.forward

    @functools.wraps(type(inner).forward)
    def forward_to_loss(
        *args: Any,
        labels: Tensor | None = None,
        shift_labels: Tensor | None = None,
        num_items_in_batch: Any = None,
        **kwargs: Any,
    ) -> Any:
        if shift_labels is None:
            if labels is None:
                return forward(*args, **kwargs)
            shift_labels = next_labels(labels)
        states = inner.base_model(*args, **{**kwargs, "use_cache": False}).last_hidden_state
        weight, bias = head.parameters()
        targets = shift_labels.to(weight.device)
        items = number_of(targets) if num_items_in_batch is None else num_items_in_batch
        value = linear_loss(
            criterion.loss,
            head.scaled(states.to(weight.device)),
            weight,
            None if bias is None else head.scaled(bias),
            targets,
            normalize=criterion.normalize,
            temperature=criterion.temperature,
            class_weight=None if criterion.weight is None else criterion.weight.to(weight.device),
            num_items=items,
            softcap=head.softcap,
            block_bytes=block_bytes,
            accumulate=accumulate,
        )
        return CausalLMOutput(loss=value)

    inner.forward = forward_to_loss
    inner.accepts_loss_kwargs = True
    return model
