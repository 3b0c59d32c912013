"""What is counted while a model trains."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from lightning_fabric import Fabric
from torch import Tensor

from symloss.runs.result import EpochRow


@dataclass
class Tally:
    """Counts that are kept on the device, and summed over the processes at the end of an epoch."""

    fabric: Fabric

    def __post_init__(self) -> None:
        self.sums = torch.zeros(6, device=self.fabric.device, dtype=torch.float32)
        self.knows_clean = False

    def add(self, scores: Tensor, loss: Tensor | None, labels: Tensor, clean: Tensor | None) -> None:
        found = scores.argmax(1)
        hit = found == labels
        rows = [hit.sum(), torch.tensor(len(labels), device=self.sums.device)]
        rows.append(torch.zeros_like(self.sums[0]) if loss is None else loss * len(labels))
        if clean is not None:
            wrong = labels != clean
            rows += [(found == clean).sum(), wrong.sum(), (hit & wrong).sum()]
            self.knows_clean = True
        self.sums[: len(rows)] += torch.stack([row.to(self.sums.dtype) for row in rows])

    def accuracy(self) -> float:
        """The share of examples whose label had the largest score."""
        hits, count, *_ = self._totals()
        return hits / count

    def row(self, epoch: int, lr: float) -> EpochRow:
        """The metrics of an epoch of training."""
        hits, count, loss, clean, wrong, memorised = self._totals()
        return EpochRow(
            epoch=epoch,
            lr=lr,
            loss=loss / count,
            train_accuracy=hits / count,
            clean_accuracy=clean / count if self.knows_clean else None,
            memorised=memorised / wrong if wrong else None,
        )

    def _totals(self) -> list[float]:
        total = self.fabric.all_reduce(self.sums, reduce_op="sum") if self.fabric.world_size > 1 else self.sums
        assert isinstance(total, Tensor)
        return total.tolist()
