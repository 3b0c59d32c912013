"""Data sets: published ones by name, and the user's own.

>>> from symloss.data import open_data
>>> open_data("digits").train.inputs.shape
torch.Size([1437, 1, 8, 8])
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symloss.data.dataset import DataSet, Examples, ImageFiles, Scaling
    from symloss.data.download import get
    from symloss.data.opening import open_data
    from symloss.data.source import KNOWN, DataSource
    from symloss.data.webvision import open_webvision
    from symloss.environment import data_root

__all__ = [
    "KNOWN",
    "DataSet",
    "DataSource",
    "Examples",
    "ImageFiles",
    "Scaling",
    "data_root",
    "get",
    "open_data",
    "open_webvision",
]

# Names are resolved when they are used: fetching data must not import torch.
_HOME = {
    "DataSet": "data.dataset",
    "DataSource": "data.source",
    "Examples": "data.dataset",
    "ImageFiles": "data.dataset",
    "KNOWN": "data.source",
    "Scaling": "data.dataset",
    "data_root": "environment",
    "get": "data.download",
    "open_data": "data.opening",
    "open_webvision": "data.webvision",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'symloss.data' has no attribute {name!r}")
    return getattr(importlib.import_module(f"symloss.{_HOME[name]}"), name)
