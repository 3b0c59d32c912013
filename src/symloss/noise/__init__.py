"""Corrupt labels and targets by an explicit seed, with a manifest of what was done; and estimate label noise."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symloss.noise.calibration import Calibration, calibrate, noise_rate_interval
    from symloss.noise.labels import corrupt, human_labels
    from symloss.noise.manifest import Corruption, Manifest, load_corruption
    from symloss.noise.spec import Spec, parse
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

# Names are resolved on first use: reading the name of a noise must not import torch.
_HOMES = {
    "calibration": ("Calibration", "calibrate", "noise_rate_interval"),
    "labels": ("corrupt", "human_labels"),
    "manifest": ("Corruption", "Manifest", "load_corruption"),
    "spec": ("Spec", "parse"),
    "targets": ("TargetCorruption", "TargetManifest", "corrupt_targets", "load_target_corruption"),
    "transition": ("transition_matrix",),
}


def __getattr__(name: str) -> Any:
    for home, names in _HOMES.items():
        if name in names:
            return getattr(importlib.import_module(f"symloss.noise.{home}"), name)
    raise AttributeError(f"module 'symloss.noise' has no attribute {name!r}")
