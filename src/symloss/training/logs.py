"""Metrics for other programs to show, besides the file that every run writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from symloss.training.results import EpochRow


class TensorBoard:
    """Writes event files below the run's folder; called with the metrics of every epoch."""

    def __init__(self, folder: Path):
        try:
            import torch.utils.tensorboard  # noqa: F401, PLC0415
        except ImportError:
            raise ValueError("--log tensorboard needs a package: pip install symloss[tensorboard]") from None
        self.folder = folder / "tensorboard"
        # Opened by the first epoch, in whichever process that is.
        self.writer: Any = None

    def __call__(self, row: EpochRow) -> None:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415

        epoch = row.epoch
        if self.writer is None:
            # What a run that was cut off wrote after its checkpoint is dropped by the reader.
            self.writer = SummaryWriter(str(self.folder), purge_step=epoch)
        for name, value in row.to_json().items():
            if name != "epoch" and value is not None:
                self.writer.add_scalar(name, value, epoch)
        self.writer.flush()

    def close(self) -> None:
        """Finish the event file, if an epoch was written."""
        if self.writer is not None:
            self.writer.close()
