"""The names of the published data sets, and the folder where they are kept. It loads no data and no torch."""

from __future__ import annotations

import os
from pathlib import Path

VOUCHED = ("digits", "mnist", "fashion-mnist", "cifar10", "cifar100")
"""Data sets whose publishers vouch for the training labels. Those of WebVision were scraped; others are the user's."""
KNOWN = (*VOUCHED, "webvision-mini", "webvision-mini-imagenet")


def data_root() -> Path:
    """The folder in the environment variable SYMLOSS_DATA, else ~/.cache/symloss/data."""
    chosen = os.environ.get("SYMLOSS_DATA")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "symloss" / "data"
