# The public names of symloss.noise, imported on first use (lazy_names.py).
from symloss.noise.calibration import (
    Calibration as Calibration,
    calibrate as calibrate,
    noise_rate_interval as noise_rate_interval,
)
from symloss.noise.labels import corrupt as corrupt, human_labels as human_labels
from symloss.noise.manifest import Corruption as Corruption, Manifest as Manifest, load_corruption as load_corruption
from symloss.noise.risk import NoisyRisk as NoisyRisk, noisy_risk as noisy_risk
from symloss.noise.spec import Spec as Spec, parse as parse
from symloss.noise.targets import (
    TargetCorruption as TargetCorruption,
    TargetManifest as TargetManifest,
    corrupt_targets as corrupt_targets,
    load_target_corruption as load_target_corruption,
)
from symloss.noise.transition import transition_matrix as transition_matrix
