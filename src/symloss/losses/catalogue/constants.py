"""Facts and numbers that several losses share."""

import math

from symloss.losses.record import Facts

SYMMETRIC = Facts(symmetric=True)

LOG_ZERO = -math.log(1e-4)
"""Reverse cross-entropy reads log 0 as log 1e-4."""
ROOT = math.sqrt(2)
MAE_STEEPEST = ROOT / 4
"""The largest gradient norm of MAE: sup sqrt 2 (1 - p) p."""
MAE_MOST_BENT = math.sqrt(3) / 9
"""The largest curvature of MAE: sup 2 p (1 - p) (2 p - 1)."""
