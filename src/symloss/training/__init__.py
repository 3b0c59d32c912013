"""Training on noisy labels: one loop, which writes a folder for each run.

``train`` is imported when it is used, because Lightning takes seconds to import and only training needs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from symloss.training.results import EpochRow, Result
from symloss.training.settings import Settings

if TYPE_CHECKING:
    from symloss.training.run import train

__all__ = ["EpochRow", "Result", "Settings", "train"]


def __getattr__(name: str) -> Any:
    if name != "train":
        raise AttributeError(f"module 'symloss.training' has no attribute {name!r}")
    from symloss.training.run import train  # noqa: PLC0415

    return train
