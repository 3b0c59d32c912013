# The public names of symloss.noise, imported on first use (lazy_names.py).
from symloss.noise.calibration import Calibration as Calibration
from symloss.noise.calibration import calibrate as calibrate
from symloss.noise.calibration import noise_rate_interval as noise_rate_interval
from symloss.noise.labels import corrupt as corrupt
from symloss.noise.labels import human_labels as human_labels
from symloss.noise.manifest import Corruption as Corruption
from symloss.noise.manifest import Manifest as Manifest
from symloss.noise.manifest import load_corruption as load_corruption
from symloss.noise.spec import Spec as Spec
from symloss.noise.spec import parse as parse
from symloss.noise.targets import TargetCorruption as TargetCorruption
from symloss.noise.targets import TargetManifest as TargetManifest
from symloss.noise.targets import corrupt_targets as corrupt_targets
from symloss.noise.targets import load_target_corruption as load_target_corruption
from symloss.noise.transition import transition_matrix as transition_matrix
