"""Supervised fine-tuning with any loss of the label's log-probability, on the fused output layer of TRL."""

from __future__ import annotations

import contextlib
import copy
import warnings
from typing import Any

import torch
import trl
from torch import Tensor
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

from symloss import checks
from symloss.adapters.criterion_of import AnyCriterion
from symloss.adapters.hf import LanguageHead
from symloss.losses.of_logp import of_logp

IMPROBABLE, SLOW = 0.1, 0.3
"""Warn below this mean probability of the tokens, if the loss learns this much slower than cross-entropy."""
OF_THE_HEAD = {"fused_lm_head", "labels", "shift_labels", "num_items_in_batch", "output_router_logits", "use_cache"}
"""Arguments of a language model that its backbone does not take, or that :class:`KLAnchor` sets."""


class SFTTrainer(trl.SFTTrainer):  # type: ignore[misc]
    """A ``trl.SFTTrainer`` with any loss of the label's log-probability. The scores of all tokens are never in memory.

    ``"ce"`` trains as ``loss_type="nll"`` does, and ``"mae"`` as ``loss_type="dft"``; ``"gce:q=0.5"`` lies between.
    TRL's metrics stay, and ``mean_token_probability`` joins them: robust losses help where it is above 0.5, and below
    0.1 cross-entropy learns better.

    Args:
        model: as in ``trl.SFTTrainer``.
        args: as in ``trl.SFTTrainer``, with ``loss_type="nll"``.
        more: further arguments of ``trl.SFTTrainer``.
        loss: a spec such as ``"gce:q=0.5"``, or a loss that :func:`symloss.of_logp` takes.
        kl_anchor: the weight of KL(start || model) at each token, which preserves what the model knew; 0 for none.
        kwargs: the keywords of ``trl.SFTTrainer``. ``compute_loss_func`` is refused.

    Reference: Wu et al.: On the generalization of SFT (2025), whose dynamic fine-tuning is MAE. Zhu et al.: Anchored
    supervised fine-tuning (2025), for the anchor.

    >>> issubclass(SFTTrainer, trl.SFTTrainer)
    True
    """

    def __init__(
        self, model: Any, args: Any = None, *more: Any, loss: AnyCriterion, kl_anchor: float = 0.0, **kwargs: Any
    ):
        self.loss_of_logp = of_logp(loss)
        self.kl_strength = checks.number("kl_anchor", kl_anchor, "[0, inf)")
        if kwargs.get("compute_loss_func") is not None:
            raise ValueError("compute_loss_func must be None, because loss= says what is minimised")
        if args is not None and args.loss_type != "nll":
            raise ValueError(f"loss_type must be 'nll' if loss= says what is minimised; got {args.loss_type!r}")
        if args is not None and args.label_smoothing_factor > 0:
            raise ValueError("label_smoothing_factor must be 0: the log-probability of the label is all that is known")
        super().__init__(model, args, *more, **kwargs)
        parallel = getattr(self.accelerator, "parallelism_config", None)
        if parallel is not None and parallel.sp_enabled and parallel.sp_backend == "deepspeed":
            raise ValueError("loss= needs another way than DeepSpeed's sequence parallelism, which has its own loss")
        self.anchor = KLAnchor(self.model) if self.kl_strength else None
        self._is_warned = False

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Call TRL's own, with a model whose log-probabilities are the negative losses of the tokens."""

        def forward(**arguments: Any) -> Any:
            outputs = model(**arguments)
            if arguments.get("fused_lm_head"):
                outputs.log_probs = -self._token_losses(outputs, arguments)
            return outputs

        return super().compute_loss(forward, inputs, return_outputs, num_items_in_batch)

    def _token_losses(self, outputs: Any, inputs: dict[str, Any]) -> Tensor:
        """Return the loss of each token, 0 where there is no label."""
        mask, metrics = outputs.label_mask, self._metrics["train" if self.model.training else "eval"]
        losses = self.loss_of_logp(outputs.log_probs)
        if self.anchor is not None:
            divergence = self.anchor({name: inputs[name] for name in inputs.keys() - OF_THE_HEAD}, mask)
            metrics["kl_anchor"].append(self._mean(divergence, mask))
            losses = losses + self.kl_strength * divergence
        probability = self._mean(outputs.log_probs.exp(), mask)
        metrics["mean_token_probability"].append(probability)
        self._warn_once(probability)
        return torch.where(mask, losses, 0.0)

    def _mean(self, values: Tensor, mask: Tensor) -> float:
        """Return the mean over the tokens of all processes that count; 0 if there is none."""
        sums = torch.stack([torch.where(mask, values.detach(), 0.0).sum(), mask.sum()])
        total, count = self.accelerator.gather_for_metrics(sums[None]).sum(0).tolist()
        return float(total / max(count, 1))

    def _warn_once(self, probability: float) -> None:
        if self._is_warned or not 0 < probability < IMPROBABLE:
            return
        logp = torch.tensor(probability).log().requires_grad_()
        slope = -float(torch.autograd.grad(self.loss_of_logp(logp), logp)[0])
        if slope < SLOW:
            self._is_warned = True
            warnings.warn(
                f"the mean probability of the tokens is {probability:.3f}; there {self.loss_of_logp!r} learns "
                f"{slope:.2g} times as fast as cross-entropy, which is the better loss below {IMPROBABLE}",
                stacklevel=2,
            )


BLOCK = 2**26  # number of scores that a block holds at a time


class KLAnchor:
    """An anchor that keeps a language model near its start: KL(start || model) at every token.

    With a PEFT adapter the start is the model with the adapter switched off. Otherwise it is a copy, which takes
    the memory of the weights once more.

    Args:
        model: a causal transformers model, perhaps in a PEFT adapter, before training.
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
        """Return the divergence (N, T) of each token, 0 where the mask is False, after a forward pass of the model."""
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
