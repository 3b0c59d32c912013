"""Rounds of correction: the leaders name the wrong labels, and learn again from the corrected ones.

A round takes the mean of the leaders' predictions for rows that they were not trained on. A transition matrix is
fitted to them (:func:`symloss.noise.calibrate`). With it and the label that was given, the most probable true class
of each row is the label of the next round.

Corrections can do harm: where classes overlap, a doubtful example looks like a wrong label. There labels are corrected
only if :mod:`symloss.fit.correction_check` finds that it helps. With two splits it cannot find out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from symloss.fit.choice import Judged
from symloss.fit.correction_check import gain_of_correction, predictions_without
from symloss.fit.explanation import Explanation, explain
from symloss.fit.held_out import LearnerFailed, rows_held_out
from symloss.fit.leaders import Leaders, Material, learn, log, mean_scores
from symloss.fit.splits import Floats, Rows, standard_error
from symloss.noise.calibration import calibrate

BOLD = 0.15
"""The separation of the bolder correction. The other one leaves to likelihood whether classes overlap.

On digits with 40 % noise that depends on the features the bolder one is right (97.5 % on test data, the other 94.2 %).
On tables whose classes overlap it is worse by a point.
"""
REPORTED = 0.03
"""The separation with which noise is explained where corrections gain nothing.

Likelihood alone decides for overlap: of 30 % noise it found 20 to 27 % on small tables, and with this 26 to 28 %.
"""
DIFFERS = 0.02
"""The bolder correction is tried if it corrects more than this share of the labels in another way."""
SURELY = 1.0
"""So many paired standard errors must a gain have, for more than one correction, and for the bolder one."""


@dataclass(frozen=True, eq=False)
class Round:
    """What one round knows, for all N rows.

    Args:
        labels: (N,), what the leaders were trained on.
        leaders: the candidates, with networks trained on these labels.
        explanation: how the mean of their predictions, for rows that they were not trained on, explains noisy labels.
    """

    labels: Rows
    leaders: Leaders
    explanation: Explanation


def first_round(members: Sequence[Judged], material: Material) -> Round:
    """The round whose labels are those that were given. Members that cannot be fitted on all splits are left out."""
    material.progress.phase(f"{len(members)} leaders learn from all folds")
    while True:
        try:
            return _round(members, material, material.labels.numbers, separation=0.0)
        except LearnerFailed as failed:
            members = [one for one in members if one.candidate != failed.candidate]
            if not members:
                raise


def last_round(first: Round, rounds: int, material: Material, checked: int | None = None) -> Round:
    """Correct the labels; the first round if that does not help.

    Args:
        first: the round without corrections.
        rounds: so many, with the first. With three or more, a bolder correction is tried beside the other.
        material: what the leaders learn from.
        checked: the rows of so many splits decide whether corrections help; None for all.
    """
    if rounds == 1:
        return first
    if first.explanation.certain:
        return _corrected(first, first.explanation, rounds - 1, material)
    found = _helpful(first, rounds > 2, material, checked or len(material.splits))
    if found is not None:
        way, gain = found
        if gain.mean() > SURELY * standard_error(gain):
            return _corrected(first, way, rounds - 1, material)
    # Rows that were corrected wrongly confirm each other. Where corrections gain nothing, the first round knows better
    # which labels are wrong.
    last = first if found is None else _corrected(first, found[0], 1, material)
    return replace(last, explanation=explain(first.explanation.scores, first.explanation.noisy, REPORTED))


def _corrected(first: Round, way: Explanation, times: int, material: Material) -> Round:
    """Correct the labels so many times, and learn from them each time."""
    last = replace(first, explanation=way)
    for time in range(1, times + 1):
        numbers = last.explanation.corrected
        if numbers is None:
            break
        material.progress.phase(f"the leaders learn from corrected labels, {time} of {times}")
        try:
            last = _round(first.leaders.members, material, numbers, way.separation)
        except LearnerFailed:
            break
    return last


def _helpful(first: Round, both: bool, material: Material, checked: int) -> tuple[Explanation, Floats] | None:
    """The explanation whose corrections do no harm, and their gain. None if all do harm, or it cannot be found out."""
    plain, bold = first.explanation, explain(first.explanation.scores, first.explanation.noisy, BOLD)
    ways = [way for way in (plain, *([bold] if both and _differ(plain, bold) else [])) if way.corrected is not None]
    if not ways or len(material.splits) == 2:
        return None
    material.progress.phase("checking whether corrected labels help")
    try:
        without = predictions_without(first.leaders, material, checked)
    except LearnerFailed:
        return None
    best: tuple[Explanation, Floats] | None = None
    for way in ways:
        try:
            gain = gain_of_correction(first.leaders, way, without, material)
        except LearnerFailed:
            continue
        more = gain if best is None else gain - best[1]
        if more.mean() >= (SURELY * standard_error(more) if way is bold else 0.0):
            best = way, gain
    return best


def _differ(one: Explanation, other: Explanation) -> bool:
    return bool(np.mean(one.posterior.argmax(1) != other.posterior.argmax(1)) > DIFFERS)


def _round(members: Sequence[Judged], material: Material, labels: Rows, separation: float) -> Round:
    noisy = material.labels.numbers
    predictions, networks = learn(members, material.with_labels(labels), material.splits)
    order = np.argsort(rows_held_out(material.splits))
    by_row = [one[order] for one in predictions]
    temperatures = tuple(calibrate(torch.from_numpy(log(one)), torch.from_numpy(noisy)).temperature for one in by_row)
    leaders = Leaders(tuple(members), temperatures, networks)
    return Round(labels, leaders, explain(mean_scores(by_row, temperatures), noisy, separation))
