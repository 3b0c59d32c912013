"""How predictions for rows that were held out explain their noisy labels, and which labels they would correct."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import torch

from symloss.fit.choice import RARE
from symloss.fit.splits import Floats, Rows, standard_error
from symloss.noise.calibration import Calibration, calibrate

APART = 0.9
"""Classes are apart if the leaders' mean is as certain as this. Then doubtful labels are wrong ones, not hard ones.

On digits, with any noise that does not depend on the features, it was 0.92 to 0.96; on tables whose classes overlap
0.80 to 0.88, and there a correction was worth a point or cost two.
"""
CLEARLY = 4.0
"""So many paired standard errors must noise explain labels better than overlap.

It was 5 to 11 on digits with 20 to 40 % noise, and 3.3 at the most on four binary tables whose classes overlap, with up
to 40 % noise (symloss fit's own held-out predictions; development data).
"""
IMPOSSIBLE = 1e-4
"""The least probability of a label, so that one surprise does not decide."""


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
    def certain(self) -> bool:
        """Whether the predictions take the classes to be apart."""
        return self.confidence >= APART and self.says_something

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


def noise_explains_better(scores: Floats, noisy: Rows) -> bool:
    """Whether classes that are apart, and noise, explain labels clearly better than classes that overlap.

    Likelihood alone can rarely tell: with two classes, wrong labels look like overlap. So this is False in doubt.

    Args:
        scores: (N, C), logarithms of predicted probabilities, not calibrated.
        noisy: (N,), the labels.
    """
    rows, classes, predicted = torch.from_numpy(scores), scores.shape[1], scores.argmax(1)
    overlap = calibrate(rows, torch.from_numpy(noisy), torch.eye(classes)).probabilities(rows).numpy()
    by_overlap = np.maximum(overlap[np.arange(len(noisy)), noisy], IMPOSSIBLE)
    counts = np.bincount(classes * predicted + noisy, minlength=classes**2).reshape(classes, classes) + 1.0
    by_noise = (counts / counts.sum(1, keepdims=True))[predicted, noisy]
    gain = np.log(by_noise) - np.log(by_overlap)
    return bool(gain.mean() > CLEARLY * standard_error(gain))


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
