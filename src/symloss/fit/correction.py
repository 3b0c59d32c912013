"""Correct labels: the leaders name the wrong ones, and learn again from the corrected ones.

A round takes the mean of the leaders' held-out predictions. A transition matrix is fitted to them
(:func:`symloss.noise.calibrate`). With it and the given label, the most probable true class of each row is the label of
the next round.

Corrections can do harm: where classes overlap, a doubtful example looks like a wrong label. There labels are corrected
only if that helps, by the noisy labels of rows that no correction has seen. A round cannot judge itself, because the
corrected labels that it learns from come from learners that have seen the rows that it holds out: neighbours that were
corrected towards a wrong label then predict that label. With k-NN on overlapping classes, accuracy on noisy labels rose
from 22 to 36 % in this way, and nothing was better. So the rows of a fold are held out twice: from the learners whose
predictions correct the labels, and from those that learn from the corrected labels. With two splits that is impossible.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from scipy.stats import rankdata  # type: ignore[import-untyped]

from symloss.fit.choice import RARE, Judged
from symloss.fit.ensemble import Leaders, adjustment_for, log, mean_scores
from symloss.fit.held_out import LearnerFailed, Trainer
from symloss.fit.learners import Candidate
from symloss.fit.training_data import Floats, Rows, Split, rows_held_out, standard_error
from symloss.noise.calibration import Calibration, calibrate

APART = 0.9
"""Classes are apart if the leaders' mean is as certain as this. Then doubtful labels are wrong ones, not hard ones.

On digits, with any noise that does not depend on the features, it was 0.92 to 0.96; on tables whose classes overlap
0.80 to 0.88, and there a correction was worth a point or cost two.
"""
CLEARLY = 4.0
"""Minimum gain, in paired standard errors, with which noise must explain labels better than overlap.

It was 5 to 11 on digits with 20 to 40 % noise, and 3.3 at the most on four binary tables whose classes overlap, with up
to 40 % noise (symloss fit's own held-out predictions; development data).
"""
IMPOSSIBLE = 1e-4
"""The least probability of a label, so that one surprise does not decide."""
BOLD = 0.15
"""The separation of the bolder correction. The other one leaves to likelihood whether classes overlap.

On digits with 40 % noise that depends on the features the bolder one is right (97.5 % on test data, the other 94.2 %).
On tables whose classes overlap it is worse by a point.
"""
REPORTED = 0.03
"""The separation with which noise is explained where corrections gain nothing.

Likelihood alone decides for overlap: of 30 % noise it found 20 to 27 % on small tables, and with this 26 to 28 %.
"""
FEW = 300
"""In tables with fewer rows labels are corrected only if that helps clearly: a gain of 0 cost six points there."""
HARMLESS, MANY = 0.5, 2000
"""With so many rows, labels are corrected unless that costs more than this many paired standard errors. On photos with
labels of people corrections are worth a point. Noisy labels show half of it, and 5,000 of them cannot tell that from 0.
"""
DIFFERS = 0.02
"""The bolder correction is tried if it corrects more than this share of the labels in another way."""
SURELY = 1.0
"""Minimum gain, in paired standard errors, for more than one correction, and for the bolder one."""
LOSS = "gce"
"""On labels of people its margins found more wrong ones than those of cross-entropy, alpha-MAE and SGCE."""
EPOCHS = 10
"""Longer trainings come to believe the wrong labels too."""
OPEN = 0.7
"""If the features tell the class with less confidence, margins see more than predictions for rows that were held out.

Average precision, predictions alone and with margins, one seed each: 5,000 images with people's labels (confidence 0.6)
0.65 and 0.73; tables (0.80 to 0.88) 0.94 and 0.93.
"""


@dataclass(frozen=True, eq=False)
class Explanation:
    """The transition matrix that makes noisy labels out of predictions."""

    scores: Floats  # (N, C), logarithms of predicted probabilities
    noisy: Rows  # (N,), the labels that are explained
    calibration: Calibration  # how the scores explain them
    # what makes the scores probabilities: the most likely one with the transition matrix of ``calibration``, whose
    # own temperature is lower where classes are taken to be apart
    temperature: float
    separation: float  # how far classes are taken to be apart

    @functools.cached_property
    def posterior(self) -> Floats:
        """(N, C), the probabilities of the true classes, given features and noisy labels."""
        return self.calibration.posterior(torch.from_numpy(self.scores), torch.from_numpy(self.noisy)).numpy()

    @property
    def confidence(self) -> float:
        """The mean probability of the most probable class, without a look at the label."""
        return float(torch.from_numpy(self.scores).div(self.temperature).softmax(1).amax(1).mean())

    @property
    def adjustment(self) -> tuple[float, ...]:
        """What to add to the scores of new rows; nothing if few labels are wrong, or if it costs accuracy on them."""
        if self.calibration.noise_rate < RARE:
            return ()
        return adjustment_for(self.scores / max(self.temperature, 1.0), self.noisy)

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
    """Return whether classes that are apart, and noise, explain labels clearly better than classes that overlap.

    Likelihood alone can rarely tell: with two classes, wrong labels look like overlap. So this is False in doubt.
    """
    rows, classes, predicted = torch.from_numpy(scores), scores.shape[1], scores.argmax(1)
    overlap = calibrate(rows, torch.from_numpy(noisy), torch.eye(classes)).probabilities(rows).numpy()
    by_overlap = np.maximum(overlap[np.arange(len(noisy)), noisy], IMPOSSIBLE)
    counts = np.bincount(classes * predicted + noisy, minlength=classes**2).reshape(classes, classes) + 1.0
    by_noise = (counts / counts.sum(1, keepdims=True))[predicted, noisy]
    gain = np.log(by_noise) - np.log(by_overlap)
    return bool(gain.mean() > CLEARLY * standard_error(gain))


def explain(scores: Floats, noisy: Rows, separation: float) -> Explanation:
    """Fit a transition matrix and a temperature to scores (N, C), logarithms of predicted probabilities.

    ``separation`` says how far noise, and not the overlap of classes, explains what the features leave open.
    """
    rows, given = torch.from_numpy(scores), torch.from_numpy(noisy)
    calibration = calibrate(rows, given, separation=separation)
    likely = calibration if separation == 0 else calibrate(rows, given, calibration.transition)
    return Explanation(scores, noisy, calibration, likely.temperature, separation)


@dataclass(frozen=True, eq=False)
class Round:
    """What one round knows, for all N rows."""

    labels: Rows  # (N,), what the leaders were trained on
    rows: Rows  # (N,), all rows in the order of the splits
    leaders: Leaders  # the candidates, with networks trained on these labels
    explanation: Explanation  # how the mean of their held-out predictions explains noisy labels

    @functools.cached_property
    def apart(self) -> bool:
        """Whether classes are apart: the predictions say so, and noise explains the labels better than overlap does.

        Either alone is not enough: the mean of leaders that agree in their mistakes is certain too.
        """
        averaged = log(np.average([one.predictions for one in self.leaders.members], 0, self.leaders.weights))
        held_out = self.explanation.noisy[self.rows[: len(averaged)]]
        return self.explanation.certain and noise_explains_better(averaged, held_out)


def first_round(members: Sequence[Judged], trainer: Trainer, splits: Sequence[Split]) -> Round:
    """Return the round with the given labels. Members that cannot be fitted on all splits are left out."""
    trainer.progress.phase(f"{len(members)} leaders learn from all folds")
    while True:
        try:
            return _round(members, trainer, splits, separation=0.0)
        except LearnerFailed as failed:
            members = [one for one in members if one.candidate != failed.candidate]
            if not members:
                raise


def last_round(
    first: Round, rounds: int, trainer: Trainer, splits: Sequence[Split], checked: int | None = None
) -> Round:
    """Correct the labels; the first round if that does not help.

    With three ``rounds`` or more, counting the first, a bolder correction is tried too. The rows of the first
    ``checked`` splits decide whether corrections help.
    """
    if rounds == 1:
        return first
    if first.apart:
        return _corrected(first, first.explanation, rounds - 1, trainer, splits)
    found = _helpful(first, rounds > 2, trainer, splits, checked or len(splits))
    if found is not None:
        way, gain = found
        if len(gain) < FEW and gain.mean() <= SURELY * standard_error(gain):
            return replace(first, explanation=explain(first.explanation.scores, first.explanation.noisy, REPORTED))
        if gain.mean() > SURELY * standard_error(gain):
            return _corrected(first, way, rounds - 1, trainer, splits)
    # Rows that were corrected wrongly confirm each other. If corrections gain nothing, the first round knows better
    # which labels are wrong.
    last = first if found is None else _corrected(first, found[0], 1, trainer, splits)
    return replace(last, explanation=explain(first.explanation.scores, first.explanation.noisy, REPORTED))


def _corrected(first: Round, way: Explanation, times: int, trainer: Trainer, splits: Sequence[Split]) -> Round:
    """Correct the labels several times, and learn from them each time."""
    last = replace(first, explanation=way)
    for time in range(1, times + 1):
        labels = last.explanation.corrected
        if labels is None:
            break
        trainer.progress.phase(f"the leaders learn from corrected labels, {time} of {times}")
        try:
            last = _round(first.leaders.members, trainer.with_labels(labels), splits, way.separation)
        except LearnerFailed:
            break
    return last


def _round(members: Sequence[Judged], trainer: Trainer, splits: Sequence[Split], separation: float) -> Round:
    noisy = trainer.data.given
    predictions, networks = trainer.learn(members, splits)
    order = np.argsort(rows_held_out(splits))
    by_row = [one[order] for one in predictions]
    temperatures = tuple(calibrate(torch.from_numpy(log(one)), torch.from_numpy(noisy)).temperature for one in by_row)
    leaders = Leaders(tuple(members), temperatures, networks)
    return Round(
        trainer.data.labels,
        rows_held_out(splits),
        leaders,
        explain(mean_scores(by_row, temperatures, leaders.weights), noisy, separation),
    )


def _helpful(
    first: Round, both: bool, trainer: Trainer, splits: Sequence[Split], checked: int
) -> tuple[Explanation, Floats] | None:
    """Return the explanation whose corrections do no harm, and their gain. None if all do harm, or with two splits."""
    plain, bold = first.explanation, explain(first.explanation.scores, first.explanation.noisy, BOLD)
    differ = np.mean(plain.posterior.argmax(1) != bold.posterior.argmax(1)) > DIFFERS
    ways = [way for way in ((plain, bold) if both and differ else (plain,)) if way.corrected is not None]
    if not ways or len(splits) == 2:
        return None
    trainer.progress.phase("checking whether corrected labels help")
    try:
        without = predictions_without(first.leaders, trainer, splits, checked)
    except LearnerFailed:
        return None
    best: tuple[Explanation, Floats] | None = None
    for way in ways:
        try:
            gain = gain_of_correction(first.leaders, way, without, trainer, splits[:checked])
        except LearnerFailed:
            continue
        more = gain if best is None else gain - best[1]
        least = SURELY if way is bold else -HARMLESS if len(gain) >= MANY else 0.0
        if more.mean() >= least * standard_error(more):
            best = way, gain
    return best


def gain_of_correction(
    leaders: Leaders, way: Explanation, without: Floats, trainer: Trainer, splits: Sequence[Split]
) -> Floats:
    """Return what correcting labels changes for rows that are held out twice.

    Args:
        leaders: the candidates.
        way: how their predictions explain noise without corrections.
        without: the result of :func:`predictions_without` for the splits.
        trainer: trains the leaders.
        splits: whose held-out rows are judged.

    Returns:
        (n,), for each of these rows: by how much its noisy label is predicted better. The mean is a gain of accuracy.
    """
    noisy, rows = trainer.data.given, rows_held_out(splits)
    labels = np.stack([noisy] * len(splits))
    for own, scores, split in zip(labels, without, splits, strict=True):
        # Corrected without a look at the rows that are held out.
        corrected = explain(scores[split.train], noisy[split.train], way.separation).corrected
        if corrected is not None:
            own[split.train] = corrected
    predictions, _ = trainer.with_labels(labels).learn(leaders.members, splits)
    after = trainer.data.correct(mean_scores(predictions, leaders.temperatures, leaders.weights), rows)
    return after - trainer.data.correct(way.scores[rows], rows)


def predictions_without(leaders: Leaders, trainer: Trainer, splits: Sequence[Split], checked: int) -> Floats:
    """Return, for each of the first splits, scores of all rows by learners that never saw its held-out rows.

    Nor did they see the row itself. Every learner serves for two splits.

    Returns:
        (checked, N, C). The rows that the split holds out are left at zero.
    """
    pairs = [(a, b) for a, b in combinations(range(len(splits)), 2) if a < checked]
    both = [
        Split(np.setdiff1d(splits[a].train, splits[b].held_out), rows_held_out([splits[a], splits[b]]))
        for a, b in pairs
    ]
    predictions, _ = trainer.learn(leaders.members, both)
    scores = mean_scores(predictions, leaders.temperatures, leaders.weights)
    found = np.zeros((checked, len(trainer.data), scores.shape[1]))
    start = 0
    for a, b in pairs:
        for rows, other in ((splits[a].held_out, b), (splits[b].held_out, a)):
            if other < checked:
                found[other, rows] = scores[start : start + len(rows)]
            start += len(rows)
    return found


def label_scores(explanation: Explanation, networks: Sequence[Candidate], trainer: Trainer) -> Floats:
    """Return (N,), for each label the probability that it is true; the lower, the more suspicious.

    Where the features leave much open, the probabilities are put into the mean of their own order and that of margins.
    """
    found = explanation.label_scores
    if (explanation.confidence >= OPEN and explanation.says_something) or not networks:
        return found
    order = rankdata(found) + rankdata(audit_margins(networks[0], trainer))
    places = rankdata(order, "ordinal").astype(np.int64) - 1
    sorted_again: Floats = np.sort(found)[places]
    return sorted_again


def audit_margins(network: Candidate, trainer: Trainer) -> Floats:
    """Return the mean margin (N,) of each noisy label over a training on all rows. The lower, the more suspicious."""
    candidate = replace(network, loss=LOSS, settings=(("decay", network["decay"]), ("epochs", EPOCHS)))
    margins = trainer.network_on_all(candidate, EPOCHS, margins=True).margins
    assert margins is not None
    return np.nan_to_num(margins.margin)  # the last rows of an epoch, which fill no batch, may never be seen
