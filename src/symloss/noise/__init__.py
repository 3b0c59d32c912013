"""Labels and targets that are wrong on purpose, by an explicit seed, with a manifest of what was done."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symloss.noise.calibration import Calibration, calibrate, noise_rate_interval
    from symloss.noise.corrupt_labels import corrupt
    from symloss.noise.human import human_labels
    from symloss.noise.manifest import Corruption, Manifest, load_corruption
    from symloss.noise.noise_spec import Spec, parse
    from symloss.noise.targets import TargetCorruption, TargetManifest, corrupt_targets, load_target_corruption
    from symloss.noise.transition import transition_matrix

__all__ = [
    "Calibration",
    "Corruption",
    "Manifest",
    "Spec",
    "TargetCorruption",
    "TargetManifest",
    "calibrate",
    "corrupt",
    "corrupt_targets",
    "human_labels",
    "load_corruption",
    "load_target_corruption",
    "noise_rate_interval",
    "parse",
    "transition_matrix",
]

# Names are resolved when they are used: reading the name of a noise must not import torch.
_HOME = {
    "Calibration": "calibration",
    "calibrate": "calibration",
    "noise_rate_interval": "calibration",
    "Corruption": "manifest",
    "Manifest": "manifest",
    "Spec": "noise_spec",
    "TargetCorruption": "targets",
    "TargetManifest": "targets",
    "corrupt": "corrupt_labels",
    "corrupt_targets": "targets",
    "human_labels": "human",
    "load_corruption": "manifest",
    "load_target_corruption": "targets",
    "parse": "noise_spec",
    "transition_matrix": "transition",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'symloss.noise' has no attribute {name!r}")
    return getattr(importlib.import_module(f"symloss.noise.{_HOME[name]}"), name)
