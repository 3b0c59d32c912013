"""A loss for OpenMMLab configurations, such as those of MMPretrain: ``dict(type="SymLoss", loss="gce:q=0.7")``."""

from __future__ import annotations

from mmengine.registry import MODELS  # type: ignore[import-not-found, unused-ignore]
from torch import Tensor, nn

from symloss import checks
from symloss.adapters.criterion_of import AnyCriterion, with_reduction


@MODELS.register_module()  # type: ignore[untyped-decorator, unused-ignore]
class SymLoss(nn.Module):
    """A symloss loss, which the heads of OpenMMLab can call with ``avg_factor``.

    Args:
        loss: a spec such as ``"gce:q=0.7"``, or a symloss loss with ``reduction="mean"``.
        loss_weight: what the loss is multiplied by.

    Shapes: scores (N, C) with labels (N,), or with probabilities (N, C). Weights of examples are (N,). The weighted sum
    is divided by ``avg_factor``, or by N without it.

    >>> import torch
    >>> loss = MODELS.build(dict(type="SymLoss", loss="mae"))
    >>> loss(torch.zeros(2, 4), torch.tensor([0, 3]), avg_factor=3)  # 3/4 + 3/4, divided by 3
    tensor(0.5000)
    """

    def __init__(self, loss: AnyCriterion, loss_weight: float = 1.0):
        super().__init__()
        self.criterion = with_reduction(loss, "none")
        self.loss_weight = checks.number("loss_weight", loss_weight, "[0, inf)")

    def forward(
        self, cls_score: Tensor, label: Tensor, weight: Tensor | None = None, avg_factor: float | None = None
    ) -> Tensor:
        values: Tensor = self.criterion(cls_score, label)
        if weight is not None:
            values = values * weight
        return self.loss_weight * values.sum() / (len(values) if avg_factor is None else avg_factor)
