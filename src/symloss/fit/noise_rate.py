"""How many labels are wrong: a range, as noisy labels cannot tell noise from overlapping classes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from symloss.fit.training_data import Floats, Rows
from symloss.noise.calibration import calibrate, noise_rate_interval

ERRORS = 2.0
"""The ends of the range are this many standard errors outside of their estimates."""
CERTAIN, FEWEST = 0.2, 30
"""The share of the rows that are predicted with most certainty, and the least number of them."""


def rate_range(scores: Floats, noisy: Rows, certain: Sequence[float] = (CERTAIN,)) -> tuple[float, float]:
    """Return the least and the greatest share of wrong labels that held-out scores (N, C) allow.

    At the upper end all doubt is noise: every label that is not the prediction is wrong. At the lower end all doubt is
    overlap: labels are wrong as often as where the prediction is most certain, or as the most likely transition matrix
    says, whichever is less. ``certain`` has the shares of the rows that count as most certain; the least counts.

    >>> scores = np.repeat([[2.0, 0.0], [0.0, 2.0]], 500, 0)
    >>> noisy = np.repeat([0, 1], 500)
    >>> noisy[::5] = 1 - noisy[::5]
    >>> low, high = rate_range(scores, noisy)
    >>> low < 0.2 < high < 0.25
    True
    """
    rows, labels = torch.from_numpy(scores), torch.from_numpy(noisy)
    likely, _ = noise_rate_interval(calibrate(rows, labels), rows, labels, draws=40)
    differs = scores.argmax(1) != noisy
    order = np.argsort(-rows.softmax(1).amax(1).numpy(), kind="stable")
    lows = [_end(differs[order[: max(FEWEST, int(share * len(noisy)))]], -ERRORS) for share in certain]
    return max(0.0, min(*lows, likely)), min(1.0, _end(differs, ERRORS))


def _end(differs: Rows, errors: float) -> float:
    """Return a share, so many standard errors away. Of few rows without an exception the error is not 0."""
    share = float(differs.mean())
    return share + errors * float(np.sqrt(max(share * (1 - share), 0.25 / len(differs)) / len(differs)))
