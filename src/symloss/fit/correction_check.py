"""Whether corrections help, by the noisy labels of rows that no correction has seen.

A round of correction cannot judge itself. The corrected labels that it learns from come from learners that have seen
the rows that it holds out: neighbours that were corrected towards a wrong label then predict that label. With k-NN on
classes that overlap, accuracy on noisy labels rose from 22 to 36 % so, and nothing was better. Here the rows of a fold
are held out twice: from the learners whose predictions correct the labels, and from those that learn from the corrected
labels.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from symloss.fit.explanation import Explanation, explain
from symloss.fit.held_out import rows_held_out
from symloss.fit.leaders import Leaders, Material, learn, mean_scores
from symloss.fit.splits import Floats, Rows, Split


def gain_of_correction(leaders: Leaders, way: Explanation, without: Floats, material: Material) -> Floats:
    """What correcting labels changes for rows that are held out twice.

    Args:
        leaders: the candidates.
        way: how their predictions explain noise without corrections.
        without: the result of :func:`predictions_without` for the splits whose rows are looked at.
        material: what the leaders learn from.

    Returns:
        (n,), for each of these rows: by how much its noisy label is predicted better. The mean is a gain of accuracy.
    """
    splits, noisy = material.splits[: len(without)], material.labels.numbers
    numbers = np.stack(
        [_corrected(scores, noisy, split.train, way.separation) for scores, split in zip(without, splits, strict=True)]
    )
    predictions, _ = learn(leaders.members, material.with_labels(numbers), splits)
    rows = rows_held_out(splits)
    after = material.judge.right(mean_scores(predictions, leaders.temperatures), rows)
    return after - material.judge.right(way.scores[rows], rows)


def _corrected(scores: Floats, noisy: Rows, known: Rows, separation: float) -> Rows:
    """(N,), labels in which those of the known rows are corrected, without a look at the others."""
    labels = noisy.copy()
    found = explain(scores[known], noisy[known], separation).corrected
    if found is not None:
        labels[known] = found
    return labels


def predictions_without(leaders: Leaders, material: Material, checked: int) -> Floats:
    """For each of so many splits, scores of all rows by learners that have not seen the rows that it holds out.

    Nor have they seen the row itself. Every learner serves for two splits.

    Returns:
        (checked, N, C). The rows that the split holds out are left at zero.
    """
    splits = material.splits
    pairs = [(a, b) for a, b in combinations(range(len(splits)), 2) if a < checked]
    both = [Split(np.setdiff1d(splits[a].train, splits[b].held_out), _together(splits, a, b)) for a, b in pairs]
    predictions, _ = learn(leaders.members, material, both)
    scores = mean_scores(predictions, leaders.temperatures)
    found = np.zeros((checked, len(material.labels.numbers), scores.shape[1]))
    start = 0
    for a, b in pairs:
        for rows, other in ((splits[a].held_out, b), (splits[b].held_out, a)):
            if other < checked:
                found[other, rows] = scores[start : start + len(rows)]
            start += len(rows)
    return found


def _together(splits: tuple[Split, ...], a: int, b: int) -> Rows:
    return np.concatenate([splits[a].held_out, splits[b].held_out])
