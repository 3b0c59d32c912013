"""Losses, margins and the noisy accuracy for the Hugging Face Trainer, losses for models that call
``self.loss_function``, and the heads of language models.
"""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Partial
from torch.nn import functional as F  # noqa: N812
from transformers import TrainerCallback

from symloss.adapters.criterion_of import AnyCriterion, refuse_flat_scores, with_reduction
from symloss.adapters.margin_callbacks import MarginAudit, WithIndex
from symloss.losses.criterion import Criterion
from symloss.losses.layers import SoftCap
from symloss.noise.manifest import read_arrays, write_arrays
from symloss.training.margins import MarginRecorder, margins

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
        if scores.dim() == 3 and shifts(outputs, self.shift):
            scores, labels = scores[:, :-1], labels[:, 1:]
        return mean_over(self.criterion, scores, labels, num_items_in_batch)


def shifts(outputs: Any, shift: bool | None) -> bool:
    """Return whether the scores at a position are those of the next label. None decides by the type of the outputs."""
    kind = type(outputs).__name__
    if shift is None and "CausalLM" not in kind and not any(name in kind for name in ALIGNED):
        raise ValueError(
            f"shift must be True, if the scores at a position are those of the next label, or False; outputs of "
            f"type {kind} do not tell"
        )
    return "CausalLM" in kind if shift is None else shift


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


def noisy_accuracy(prediction: Any, *, shift: bool = False) -> dict[str, float]:
    """Return the accuracy on labels that may be wrong, as ``compute_metrics`` of ``transformers.Trainer``.

    Choose the best epoch by it: ``metric_for_best_model="noisy_accuracy"``. The default, ``eval_loss``, prefers models
    that are never sure, because confident ones pay for every wrong label.

    Args:
        prediction: predictions and labels, by the Trainer. The predictions are logits, perhaps with other outputs
            behind them, or class numbers (by :func:`predicted_classes`). Labels of -100 do not count.
        shift: whether the scores at a position are those of the next label, as in causal language models.

    >>> from transformers import EvalPrediction
    >>> logits = np.array([[2.0, 1.0], [0.0, 1.0], [3.0, 0.0]])
    >>> noisy_accuracy(EvalPrediction(predictions=logits, label_ids=np.array([0, 0, -100])))
    {'noisy_accuracy': 0.5}
    """
    predictions, labels = prediction.predictions, prediction.label_ids
    # With eval_do_concat_batches=False there is a list of batches.
    pairs = zip(predictions, labels, strict=True) if isinstance(predictions, list) else [(predictions, labels)]
    hits = count = 0
    for outputs, numbers in pairs:
        given = np.asarray(numbers)
        found = np.asarray(outputs[0] if isinstance(outputs, tuple) else outputs)
        if found.ndim == given.ndim + 1:
            found = found.argmax(-1)
        if found.shape != given.shape or found.dtype.kind not in "iu" or given.dtype.kind not in "iu":
            raise ValueError(
                "predictions must be logits (..., C) or class numbers, and labels (...) class numbers; got "
                f"{found.dtype} of {found.shape} and {given.dtype} of {given.shape}"
            )
        if shift:
            found, given = found[:, :-1], given[:, 1:]
        hits += int((found == given)[given != IGNORED].sum())
        count += int((given != IGNORED).sum())
    if not count:
        raise ValueError(f"No label to compare with: all are {IGNORED}.")
    return {"noisy_accuracy": hits / count}


def predicted_classes(logits: Any, labels: Any = None) -> Tensor:
    """Return the class with the largest score, as ``preprocess_logits_for_metrics`` of ``transformers.Trainer``.

    Without it the Trainer keeps the logits of all evaluation examples in memory: C times as much.

    Args:
        logits: (..., C), perhaps with other outputs behind them.
        labels: not used; the Trainer passes them.

    >>> predicted_classes(torch.tensor([[2.0, 1.0], [0.0, 1.0]]))
    tensor([0, 1])
    """
    classes: Tensor = (logits[0] if isinstance(logits, tuple | list) else logits).argmax(-1)
    return classes


INDEX = "symloss_index"  # the key under which a batch says which examples it has
SUMS = "margin_sums.npz"  # what a checkpoint keeps of the margins
AT_ONCE = 2**24  # number of scores whose margins are computed together


class MarginCallback(MarginAudit, TrainerCallback):  # type: ignore[misc]
    """Record the mean margin of each training example of a ``transformers.Trainer``, to find mislabelled ones.

    It adds itself to the Trainer, and an index to the examples of ``train_dataset``. It reads the outputs of every
    training batch, whichever loss is used. Gradient accumulation, several processes and ``resume_from_checkpoint``
    change nothing::

        trainer = Trainer(model, arguments, train_dataset=data, compute_loss_func=hf.loss("gce:q=0.7"))
        margins = hf.MarginCallback(trainer)
        trainer.train()
        audit = margins.audit(noisy_labels, probabilities)

    A classifier of sequences or images has one margin for each example. A token classifier has one for each labelled
    token (:meth:`by_token`), and a language model the mean over the labelled tokens of each example. With TRL, whose
    fused output layer holds no logits, the margin is log(p / (1 - p)) of the label's probability.

    Args:
        trainer: a Trainer with ``train_dataset``, before ``train()``. The data set has a length.
        shift: as in :func:`loss`.

    Attributes:
        recorder: the margins, a :class:`symloss.MarginRecorder`. Its index counts the examples, or all labelled tokens.

    Reference: Pleiss et al.: Identifying mislabeled data using the area under the margin ranking. NeurIPS 2020.
    """

    def __init__(self, trainer: Any, *, shift: bool | None = None):
        data, self.shift, self._trainer = trainer.train_dataset, shift, trainer
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise ValueError(f"train_dataset must have a length and examples by number; got {type(data).__name__}")
        if getattr(trainer.args, "packing", False):
            raise ValueError("packing must be False, because a packed row has tokens of several examples")
        self._labelled = None
        if "TokenClassification" in type(without_adapter(trainer.model)).__name__:
            self._labelled = [_labelled(data[number]) for number in range(len(data))]
        sizes = [1] * len(data) if self._labelled is None else [int(each.sum()) for each in self._labelled]
        self._sizes = torch.tensor(sizes)
        self._starts = self._sizes.cumsum(0) - self._sizes
        self._checkpoint: Any = None
        self.recorder = MarginRecorder(sum(sizes))
        trainer.train_dataset = WithIndex(data, INDEX)
        trainer.data_collator = IndexCollator(trainer.data_collator)
        # The Trainer removes columns that the model does not take.
        trainer._set_signature_columns_if_needed()
        trainer._signature_columns.append(INDEX)
        self._loss_of, self._train = trainer.compute_loss, trainer.train
        trainer.compute_loss, trainer.train = self._compute_loss, self._train_from
        trainer.add_callback(self)

    def by_token(self) -> list[NDArray[np.float32]]:
        """Return the mean margins of a token classifier: for each example (T,), nan where a token has no label."""
        if self._labelled is None:
            raise ValueError("by_token needs a token classifier; use recorder.margin")
        found = [np.full(len(each), np.nan, np.float32) for each in self._labelled]
        parts = np.split(self.recorder.margin, self._starts[1:].numpy())
        for row, labelled, part in zip(found, self._labelled, parts, strict=True):
            row[labelled] = part
        return found

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start from nothing, or where a checkpoint was written. The Trainer calls this."""
        self.recorder = MarginRecorder(len(self.recorder))
        if not state.global_step:
            return
        given = self._checkpoint if isinstance(self._checkpoint, str | os.PathLike) else _checkpoint(args, state)
        if not (Path(given) / SUMS).exists():
            warnings.warn(f"No margins found in {str(given)!r}. They are recorded from here on.", stacklevel=2)
            return
        sums, epochs = read_arrays(Path(given) / SUMS, "sums", "epochs")
        self.recorder.load_state_dict({"sums": torch.from_numpy(sums), "epochs": epochs})

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Add up the shares of all processes. The Trainer calls this."""
        self.recorder.end_epoch(self._summed)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Put the sums into a checkpoint. The Trainer calls this, in all processes."""
        self.recorder.join(self._summed)
        folder = _checkpoint(args, state)
        if args.should_save and folder.is_dir():
            kept = self.recorder.state_dict()
            write_arrays(folder / SUMS, sums=kept["sums"].cpu().numpy(), epochs=np.asarray(kept["epochs"]))

    def _summed(self, share: Tensor) -> Any:
        place = self._trainer.accelerator
        return place.reduce(share.to(place.device), reduction="sum")

    def _train_from(self, resume_from_checkpoint: Any = None, *args: Any, **kwargs: Any) -> Any:
        self._checkpoint = resume_from_checkpoint
        return self._train(resume_from_checkpoint, *args, **kwargs)

    def _compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the Trainer's own. In training, record the margins of the outputs that it computes its loss from."""
        index, labels = inputs.pop(INDEX, None), inputs.get("labels")
        if not model.training:
            return self._loss_of(model, inputs, *args, **kwargs)
        if index is None or labels is None:
            what = "'labels'" if labels is None else "their index; train_dataset must be as it was for MarginCallback"
            raise ValueError(f"training batches must have {what}; got the keys {list(inputs)}")

        def record(module: nn.Module, given: Any, outputs: Any) -> None:
            hook.remove()  # TRL may call the model again, for its metrics
            self._record(index, outputs, labels)

        hook = model.register_forward_hook(record)
        try:
            return self._loss_of(model, inputs, *args, **kwargs)
        finally:
            hook.remove()

    def _record(self, index: Tensor, outputs: Any, labels: Tensor) -> None:
        if index.shape != labels.shape[:1]:
            raise ValueError(f"labels must have {len(index)} rows, one for each example; got {tuple(labels.shape)}")
        logits = outputs.get("logits") if isinstance(outputs, Mapping) else None
        if (log_probs := getattr(outputs, "log_probs", None)) is not None:  # of TRL
            kept, found = outputs.label_mask, log_probs.detach().float()[outputs.label_mask].clamp(max=-1e-6)
            found = torch.stack([found - torch.log(-torch.expm1(found)), torch.full_like(found, torch.nan)])
        elif logits is None or logits.dim() not in (2, 3):
            shape = None if logits is None else tuple(logits.shape)
            raise ValueError(f"the model must return a dictionary with logits (N, C) or (N, T, C); got {shape}")
        elif logits.dim() == 2:
            kept = labels != IGNORED if labels.shape == index.shape else slice(None)
            return self.recorder.add(index[kept], logits[kept], labels[kept])
        else:
            if shifts(outputs, self.shift):
                logits, labels = logits[:, :-1], labels[:, 1:]
            kept = labels != IGNORED
            size = max(1, AT_ONCE // logits.shape[-1])
            places = zip(*(torch.split(each, size) for each in kept.nonzero(as_tuple=True)), strict=True)
            found = torch.cat([margins(logits.detach()[place], labels[place]) for place in places], 1)
        counts, row = kept.sum(1), kept.nonzero(as_tuple=True)[0]
        if self._labelled is None:
            total = found.new_zeros(2, len(index)).index_add_(1, row, found)
            return self.recorder.add_margins(index[counts > 0], (total / counts)[:, counts > 0])
        index = index.cpu()
        if not torch.equal(counts.cpu(), self._sizes[index]):
            raise ValueError(
                f"batches must have all labels of an example, {self._sizes[index].tolist()}; got {counts.tolist()}"
            )
        place = self._starts[index].to(row.device)[row] + kept.cumsum(1)[kept] - 1
        return self.recorder.add_margins(place, found)


@dataclass(frozen=True)
class IndexCollator:
    """A data collator that passes on which examples a batch has, for :class:`MarginCallback`."""

    collator: Any

    def __call__(self, features: list[Any]) -> Any:
        """Return the batch of the collator, which does not see the index, with the index."""
        index = [each[INDEX] for each in features if isinstance(each, Mapping) and INDEX in each]
        if len(index) < len(features):  # of an evaluation
            return self.collator(features)
        batch = self.collator([{name: each[name] for name in each if name != INDEX} for each in features])
        batch[INDEX] = torch.tensor(index)
        return batch


def _labelled(example: Any) -> NDArray[np.bool_]:
    """Return which tokens of an example have a label."""
    labels = np.asarray(example.get("labels", example.get("label")))
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise ValueError(f"examples must have 'labels', a class number for each token; got the keys {list(example)}")
    kept: NDArray[np.bool_] = labels != IGNORED
    return kept


def _checkpoint(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"


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
