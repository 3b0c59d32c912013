"""Labels and targets that are wrong on purpose, by an explicit seed, with a manifest of what was done."""

from symloss.noise.corrupt import corrupt
from symloss.noise.human import human_labels
from symloss.noise.manifest import Corruption, Manifest, load_corruption
from symloss.noise.noise_spec import Spec, parse
from symloss.noise.targets import TargetCorruption, TargetManifest, corrupt_targets, load_target_corruption
from symloss.noise.transition import transition_matrix

__all__ = [
    "Corruption",
    "Manifest",
    "Spec",
    "TargetCorruption",
    "TargetManifest",
    "corrupt",
    "corrupt_targets",
    "human_labels",
    "load_corruption",
    "load_target_corruption",
    "parse",
    "transition_matrix",
]
