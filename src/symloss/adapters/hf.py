"""Losses for the Hugging Face Trainer and for models that call ``self.loss_function``; the heads of language models."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial
from torch.nn import functional as F  # noqa: N812

from symloss.adapters.criterion_of import AnyCriterion, refuse_flat_scores, with_reduction
from symloss.losses.criterion import Criterion
from symloss.losses.layers import SoftCap

IGNORED = -100  # the label that Hugging Face leaves out, also when it counts the labels of a batch
ALIGNED = ("TokenClassifier", "MaskedLM", "Seq2SeqLM")
"""Outputs whose scores stand at the same position as their label. Those of causal models stand one before it."""
SINGLE = ("ForSequenceClassification", "ForImageClassification", "ForVideoClassification", "ForAudioClassification")
CAUSAL = ("ForCausalLM", "ForConditionalGeneration")


def loss(loss: AnyCriterion, *, shift: bool | None = None) -> TrainerLoss:
    """Return a loss as ``compute_loss_func`` of ``transformers.Trainer``.

    It is exact under gradient accumulation and on several devices: the values are added up and divided by the number of
    labels of the whole batch, which the Trainer counts. A plain mean would be divided by nobody, and with 8 steps of
    accumulation train with gradients that are 8 times too large.

    Args:
        loss: a spec such as ``"gce:q=0.7"``, or a symloss loss with ``reduction="mean"``.
        shift: whether the scores at a position are those of the next label. None decides by the type of the model's
            outputs: yes for language models that are causal, no for classifiers of sequences and of tokens.

    Shapes: logits (N, C) with labels (N,) or probabilities (N, C); logits (N, T, C) with labels (N, T). Labels of -100
    do not count.

    >>> from symloss.adapters import hf
    >>> logits, labels = torch.zeros(2, 3, 4), torch.tensor([[0, 1, -100], [2, -100, -100]])
    >>> hf.loss("mae", shift=False)({"logits": logits}, labels, num_items_in_batch=6)  # 3 of the 6 labels are here
    tensor(0.3750)
    """
    return TrainerLoss(summed(loss), shift)


@dataclass(frozen=True, eq=False)
class TrainerLoss:
    """A loss of a model's outputs. :func:`loss` makes it."""

    criterion: Criterion  # with ``reduction="sum"``
    shift: bool | None

    def __call__(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Any = None) -> Tensor:
        scores = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        if getattr(outputs, "aux_loss", None) is not None:
            raise ValueError(
                f"{type(outputs).__name__} has a loss of routers, which compute_loss_func would leave out; "
                "use symloss.adapters.hf.install(model, loss)"
            )
        if labels is None:
            raise ValueError("labels must be a column of the data set that is called 'labels'; got none")
        if scores.dim() == 3 and self._shifts(type(outputs).__name__):
            scores, labels = scores[:, :-1], labels[:, 1:]
        return mean_over(self.criterion, scores, labels, num_items_in_batch)

    def _shifts(self, kind: str) -> bool:
        if self.shift is None and "CausalLM" not in kind and not any(name in kind for name in ALIGNED):
            raise ValueError(
                f"shift must be True, if the scores at a position are those of the next label, or False; outputs of "
                f"type {kind} do not tell"
            )
        return "CausalLM" in kind if self.shift is None else self.shift


def install(model: Any, loss: AnyCriterion) -> Any:
    """Make a transformers model compute a loss when it gets labels, in any training loop. Returns the model.

    It sets ``model.loss_function``. A model that does not call it is refused: it would go on with cross-entropy.

    Args:
        model: a causal or masked language model, or a classifier of sequences or tokens.
        loss: as in :func:`loss`.

    >>> from transformers import LlamaConfig, LlamaForCausalLM
    >>> sizes = dict(vocab_size=11, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    >>> model = install(LlamaForCausalLM(LlamaConfig(**sizes, pad_token_id=0)), "mae")
    >>> tokens = torch.tensor([[1, 2, 3]])
    >>> 0 < model(tokens, labels=tokens).loss < 1
    tensor(True)
    """
    inner = without_adapter(model)
    kind, name = getattr(inner, "loss_type", None), type(inner).__name__
    if "self.loss_function" not in inspect.getsource(type(inner).forward):
        raise ValueError(
            f"{name} does not call self.loss_function, so it would go on with its own loss; "
            "use Trainer(compute_loss_func=symloss.adapters.hf.loss(...))"
        )
    if kind not in (*SINGLE, *CAUSAL, "ForMaskedLM", "ForTokenClassification"):
        raise ValueError(f"model must be a language model or a classifier of sequences or tokens; got {name}")
    inner.loss_function = ModelLoss(summed(loss), shift=kind in CAUSAL)
    if kind in SINGLE or kind == "ForTokenClassification":
        # These models keep the number of labels of the whole batch to themselves. Then the Trainer has to divide.
        inner.accepts_loss_kwargs = False
    return model


@dataclass(frozen=True, eq=False)
class ModelLoss:
    """A loss as a model calls it. :func:`install` makes it."""

    criterion: Criterion  # with ``reduction="sum"``
    shift: bool

    def __call__(
        self,
        logits: Tensor,
        labels: Tensor | None = None,
        *_: Any,
        pooled_logits: Tensor | None = None,
        shift_labels: Tensor | None = None,
        num_items_in_batch: Any = None,
        **__: Any,
    ) -> Tensor:
        if shift_labels is None:
            assert labels is not None
            shift_labels = next_labels(labels) if self.shift else labels
        scores = logits if pooled_logits is None else pooled_logits
        return mean_over(self.criterion, scores, shift_labels, num_items_in_batch)


def next_labels(labels: Tensor) -> Tensor:
    """Return the label (N, T) that follows each position, as causal models predict it. None follows the last one."""
    return F.pad(labels, (0, 1), value=IGNORED)[..., 1:]


def number_of(labels: Tensor) -> Tensor:
    """Return how many labels count, and 1 if none does, so that a sum can be divided by it."""
    return (labels != IGNORED).sum().clamp(min=1)


def summed(loss: AnyCriterion) -> Criterion:
    """Return a copy of the loss that adds up. Refuse one that does not count labels as Hugging Face does."""
    criterion = with_reduction(loss, "sum")
    if criterion.ignore_index != IGNORED:
        raise ValueError(
            f"loss must have ignore_index={IGNORED}, because Hugging Face counts all other labels; "
            f"got {criterion.ignore_index}"
        )
    return criterion


def mean_over(criterion: Criterion, scores: Tensor, labels: Tensor, num_items: Any) -> Tensor:
    """Return the sum of the loss over scores (..., C), divided by a number of labels.

    ``num_items`` is how many labels the whole batch has, on all devices and in all steps of accumulation; None for the
    number of these labels. From ``DataParallel`` comes one number for each device: the share of each.
    """
    classes, is_soft = scores.shape[-1], labels.shape == scores.shape and labels.is_floating_point()
    if not is_soft and labels.shape != scores.shape[:-1]:
        raise ValueError(
            f"labels must have the shape {tuple(scores.shape[:-1])} of the scores without their classes; "
            f"got {tuple(labels.shape)}"
        )
    refuse_flat_scores(criterion, classes)
    targets = labels.to(scores.device).reshape(-1, *labels.shape[scores.dim() - 1 :])
    total: Tensor = criterion.to(scores.device)(scores.reshape(-1, classes), targets)
    if num_items is None:
        return total / (len(targets) if is_soft else number_of(targets))
    count = torch.as_tensor(num_items, device=scores.device)
    count = count.flatten()[0] * count.numel()
    return total / (count / classes if is_soft else count)  # the Trainer counts probabilities as labels


FACTORS = ("logit_scale", "output_multiplier", "lm_head_multiplier", "logits_scaling")
"""Names under which configurations keep a factor of the scores, or what they are divided by."""
TOKENS = 4  # how many tokens are tried, to verify that the scores are understood


@dataclass(frozen=True, eq=False)
class LanguageHead:
    """How a language model computes scores from its last hidden states. :meth:`of` finds it out."""

    model: Any
    factor: float  # the scores are multiplied by it
    softcap: float | None  # then they are bounded by it, as Gemma does; None if they are not

    @classmethod
    def of(cls, model: Any) -> LanguageHead:
        """Return the head of a model. Refuse scores other than those of a linear layer with a factor and a soft cap."""
        inner = without_adapter(model)
        layer, name = inner.get_output_embeddings(), type(inner).__name__
        if not isinstance(layer, nn.Linear):
            raise ValueError(f"the output layer of {name} must be a plain linear layer; got {type(layer).__name__}")
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
            slack = 1e-2 * float(wanted.abs().max())
            for head in (cls(inner, factor, softcap) for factor in factors):
                if torch.allclose(head.scores(states).float(), wanted, rtol=1e-2, atol=slack):
                    return head
        raise ValueError(
            f"the scores of {name} are not those of its output layer at the last hidden states, so they cannot be "
            "left out; use Trainer(compute_loss_func=symloss.adapters.hf.loss(...))"
        )

    def parameters(self) -> tuple[Tensor, Tensor | None]:
        """Return the weights (C, d) and the bias (C,) of the layer. Sharded ones are put together."""
        layer = self.model.get_output_embeddings()
        return _whole(layer.weight), None if layer.bias is None else _whole(layer.bias)

    def scaled(self, values: Tensor) -> Tensor:
        """Return the values times the factor. Most models have none, and need no second tensor."""
        return values if self.factor == 1 else self.factor * values

    def scores(self, states: Tensor) -> Tensor:
        """Return the scores (..., C) of hidden states (..., d)."""
        weight, bias = self.parameters()
        scores = self.scaled(F.linear(states.to(weight.dtype), weight, bias))
        return scores if self.softcap is None else SoftCap(self.softcap)(scores)


def without_adapter(model: Any) -> Any:
    """Return the model inside a PEFT adapter, or the model itself."""
    return model.get_base_model() if hasattr(model, "get_base_model") else model


def _whole(parameter: Tensor) -> Tensor:
    """Return a parameter in one piece. The gradient of a sharded one is the mean over processes, as in FSDP."""
    if not isinstance(parameter, DTensor):
        return parameter
    whole: Tensor = parameter.full_tensor(grad_placements=[Partial("avg")] * parameter.device_mesh.ndim)
    return whole
