"""How predictions for rows that were held out explain their noisy labels, and which labels they would correct."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch

from symloss.noise.calibration import Calibration, calibrate
from symloss.robust.choice import RARE
from symloss.robust.splits import Floats, Rows


@dataclass(frozen=True, eq=False)
class Explanation:
    """The transition matrix that makes noisy labels out of predictions.

    Args:
        scores: (N, C), logarithms of predicted probabilities.
        noisy: (N,), the labels that are explained.
        calibration: how the scores explain them.
        temperature: what makes the scores probabilities: the most likely one with the transition matrix of
            ``calibration``, whose own temperature is lower where classes are taken to be apart.
        separation: how far classes are taken to be apart.
    """

    scores: Floats
    noisy: Rows
    calibration: Calibration
    temperature: float
    separation: float

    @functools.cached_property
    def posterior(self) -> Floats:
        """(N, C), the probabilities of the true classes, given features and noisy labels."""
        return self.calibration.posterior(torch.from_numpy(self.scores), torch.from_numpy(self.noisy)).numpy()

    @property
    def confidence(self) -> float:
        """The mean probability of the most probable class, without a look at the label."""
        return float(torch.from_numpy(self.scores).div(self.temperature).softmax(1).amax(1).mean())

    @property
    def says_something(self) -> bool:
        """Whether noise explains less than 95 % of what it would if labels were drawn by chance.

        Predictions that say nothing of the labels are explained as well by certain classes and noise that hides them.
        """
        classes = int(self.scores.shape[1])
        return self.calibration.noise_rate < 0.95 * (classes - 1) / classes

    @property
    def label_scores(self) -> Floats:
        """(N,), the probability that the noisy label is the true one."""
        found: Floats = self.posterior[np.arange(len(self.noisy)), self.noisy]
        return found

    @property
    def corrected(self) -> Rows | None:
        """(N,), the most probable true classes. None if few labels are wrong, or if a class would lose all examples.

        If few are wrong, the hardest examples would be taken for wrong ones. On clean digits that cost 0.7 points.
        """
        if self.calibration.noise_rate < RARE:
            return None
        labels: Rows = self.posterior.argmax(1).astype(np.int64)
        return labels if len(np.unique(labels)) == len(np.unique(self.noisy)) else None


def explain(scores: Floats, noisy: Rows, separation: float) -> Explanation:
    """Fit a transition matrix and a temperature.

    Args:
        scores: (N, C), logarithms of predicted probabilities.
        noisy: (N,), the labels.
        separation: how far the noise, and not the overlap of classes, explains what the features leave open.
    """
    rows, given = torch.from_numpy(scores), torch.from_numpy(noisy)
    calibration = calibrate(rows, given, separation=separation)
    likely = calibration if separation == 0 else calibrate(rows, given, calibration.transition)
    return Explanation(scores, noisy, calibration, likely.temperature, separation)
