"""Where published data sets are kept."""

from __future__ import annotations

import os
from pathlib import Path


def data_root() -> Path:
    """The folder in the environment variable SYMLOSS_DATA, else ~/.cache/symloss/data."""
    chosen = os.environ.get("SYMLOSS_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "symloss" / "data"
