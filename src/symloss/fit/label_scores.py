"""Which labels look wrong: what held-out predictions say of them, and a network that is trained to see the rest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import rankdata  # type: ignore[import-untyped]

from symloss.fit.candidates import Candidate
from symloss.fit.explanation import Explanation
from symloss.fit.held_out import stack
from symloss.fit.leaders import Material
from symloss.fit.splits import Floats, Split
from symloss.noise.margins import RunningMargins

LOSS = "gce"
"""On labels of people its margins found more wrong ones than those of cross-entropy, alpha-MAE and SGCE."""
EPOCHS = 10
"""Longer trainings come to believe the wrong labels too."""
OPEN = 0.7
"""If the features tell the class with less confidence, margins see more than predictions for rows that were held out.

Average precision, predictions alone and with margins, one seed each: 5,000 images with people's labels (confidence 0.6)
0.65 and 0.73; tables (0.80 to 0.88) 0.94 and 0.93.
"""


def label_scores(explanation: Explanation, networks: Sequence[Candidate], material: Material) -> Floats:
    """(N,), for each label the probability that it is true; the lower, the more suspicious.

    Where the features leave much open, the probabilities are put into the mean of their own order and that of margins.

    Args:
        explanation: of the noisy labels.
        networks: the networks that were tried, the best first.
        material: the rows with their noisy labels.
    """
    found = explanation.label_scores
    if (explanation.confidence >= OPEN and explanation.says_something) or not networks:
        return found
    order = rankdata(found) + rankdata(audit_margins(networks[0], material))
    places = rankdata(order, "ordinal").astype(np.int64) - 1
    sorted_again: Floats = np.sort(found)[places]
    return sorted_again


def audit_margins(network: Candidate, material: Material) -> Floats:
    """The mean margin (N,) of each noisy label over a training on all rows. The lower, the more suspicious.

    Args:
        network: whose model, weight decay and scaling are taken.
        material: the rows with their noisy labels.
    """
    candidate = replace(network, loss=LOSS, settings=(("decay", network["decay"]), ("epochs", EPOCHS)))
    rows = np.arange(len(material.labels.numbers))
    whole = [Split(rows, rows[:0])]
    networks = stack([candidate], material.table, material.labels, whole, material.seed)
    networks.margins = RunningMargins(models=1, examples=len(rows))
    for _ in range(EPOCHS):
        networks.train_epoch()
    return networks.margins.means(0).numpy()
