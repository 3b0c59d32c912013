"""A contrastive loss of text pairs for sentence-transformers, with any loss in place of cross-entropy."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from sentence_transformers.util import all_gather_with_grad, cos_sim
from torch import Tensor, nn

from symloss import checks
from symloss.adapters.criterion_of import AnyCriterion, criterion_of_raw_scores


class RobustInfoNCE(nn.Module):
    """InfoNCE with a symloss loss: mismatched text pairs do less harm.

    The texts of a batch are classes. The scores of an anchor are its similarities to all candidates of the batch, times
    ``scale``, and its label is its own positive. With ``loss="ce"`` this is ``MultipleNegativesRankingLoss`` of
    sentence-transformers, and it takes the same data: (anchor, positive) or (anchor, positive, negative, ...).

    Args:
        model: a ``SentenceTransformer``.
        loss: a spec such as ``"gce:q=0.5"``, or a symloss loss. A text has ``normalize=None`` here. The norm of
            the similarities would divide the scale away, so ``normalize="l2"`` is refused.
        scale: what the similarities are multiplied by, above 0. It is the inverse of a temperature.
        similarity_fct: from embeddings (N, d) and (M, d) to similarities (N, M).
        gather_across_devices: whether the candidates of all processes are classes.

    Reference: van den Oord, Li, Vinyals: Representation learning with contrastive predictive coding. 2018. What wrong
    pairs do: Chuang et al.: Robust contrastive learning against noisy views. CVPR 2022.

    >>> from sentence_transformers import SentenceTransformer
    >>> from sentence_transformers.sentence_transformer.modules import BoW
    >>> model = SentenceTransformer(modules=[BoW(vocab=["red", "blue", "sky", "rose"])], device="cpu")
    >>> pairs = [model.preprocess(["red", "blue"]), model.preprocess(["red rose", "blue sky"])]
    >>> RobustInfoNCE(model, "mae", scale=2.0)(pairs)
    tensor(0.1956)
    """

    def __init__(
        self,
        model: nn.Module,
        loss: AnyCriterion,
        scale: float = 20.0,
        similarity_fct: Callable[[Tensor, Tensor], Tensor] = cos_sim,
        gather_across_devices: bool = False,
    ):
        super().__init__()
        self.model = model
        self.criterion = criterion_of_raw_scores(loss, "a norm divides the scale of the similarities away")
        if self.criterion.reduction == "none":
            raise ValueError("loss must have reduction='mean' or 'sum'; got reduction='none'")
        self.scale = checks.number("scale", scale, "(0, inf)")
        self.similarity_fct = similarity_fct
        self.gather_across_devices = gather_across_devices

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        anchors, *candidates = (self.model(features)["sentence_embedding"] for features in sentence_features)
        if not candidates:
            raise ValueError("sentence_features must hold anchors and positives; got one column of texts")
        own = torch.arange(len(anchors), device=anchors.device)
        if self.gather_across_devices and torch.distributed.is_initialized():
            candidates = [all_gather_with_grad(column) for column in candidates]
            own += len(anchors) * torch.distributed.get_rank()
        scores: Tensor = self.similarity_fct(anchors, torch.cat(candidates)) * self.scale
        return self.criterion(scores, own)  # type: ignore[no-any-return]

    def get_config_dict(self) -> dict[str, Any]:
        """Return what the model card shows."""
        similarity = getattr(self.similarity_fct, "__name__", type(self.similarity_fct).__name__)
        config = {"loss": repr(self.criterion.loss), "scale": self.scale, "similarity_fct": similarity}
        return config | {"gather_across_devices": self.gather_across_devices}
