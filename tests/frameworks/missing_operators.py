"""torchvision beside a CPU build of torch. Import this module before any library that imports torchvision.

Wheels of torchvision hold operators for CUDA. They do not load beside a CPU build of torch, and torchvision cannot be
imported without them. No test uses the operators, so it is enough that they are declared.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import torch

DECLARED = torch.library.Library("torchvision", "FRAGMENT")
"""The declarations hold as long as it lives."""


def _declare() -> None:
    found = importlib.util.find_spec("torchvision")
    if found is None or found.origin is None:
        return
    try:
        torch.ops.load_library(Path(found.origin).with_name("_C.so"))
    except OSError:
        for name in ("nms", "qnms"):  # what torchvision looks for when it is imported
            DECLARED.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


_declare()
