"""How many labels are wrong: against SciPy's interval, and both ways in which the number is found."""

import numpy as np
import pytest
from refusals import refused
from scipy.stats import binomtest

from symloss.fit import count_wrong

MARGINS = np.r_[np.full(30, -1.0), np.full(70, 2.0)]


def held_out(size, other, classes=4):
    """Labels, and probabilities that put another class first for so many of them."""
    labels = np.arange(size) % classes
    probabilities = np.full((size, classes), 0.1)
    probabilities[np.arange(size), (labels + (np.arange(size) < other)) % classes] = 0.7
    return labels, probabilities


def wilson(hits, size, level=0.95):
    interval = binomtest(hits, size).proportion_ci(level, method="wilson")
    return interval.low, interval.high


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_negative_margins_count_where_nothing_was_held_out(level):
    found = count_wrong(MARGINS, level=level)
    assert (found.n_wrong, found.method) == (30, "negative margins")
    low, high = wilson(30, 100, level)
    assert found.interval == (np.floor(100 * low), np.ceil(100 * high))


def test_negative_margins_count_where_held_out_labels_agree():
    found = count_wrong(MARGINS, *held_out(50, 18))
    assert (found.n_wrong, found.method) == (30, "negative margins")
    low, high = wilson(18, 50)
    assert low < 0.3 < high
    assert found.interval == (np.floor(100 * low), np.ceil(100 * high))


@pytest.mark.parametrize(("other", "expected"), [(40, 80), (2, 4)])
def test_held_out_labels_count_where_they_contradict_the_margins(other, expected):
    """Too few negative margins: the network has learnt wrong labels by heart. Too many: it has hardly learnt."""
    found = count_wrong(MARGINS, *held_out(50, other))
    assert (found.n_wrong, found.method) == (expected, "held-out labels")
    assert found.interval[0] <= expected <= found.interval[1]


@pytest.mark.parametrize("hits", [0, 7])
def test_the_ends_stay_within_the_labels(hits):
    found = count_wrong(np.where(np.arange(7) < hits, -1.0, 1.0))
    assert found.n_wrong == hits
    assert 0 <= found.interval[0] <= hits <= found.interval[1] <= 7


def test_what_is_no_margin_is_refused():
    for margins in ([], [[1.0]], [np.nan]):
        with refused(ValueError, "margins must be finite numbers of shape (N,)"):
            count_wrong(margins)
    with refused(ValueError, "level must be a number in (0, 1); got 1"):
        count_wrong(MARGINS, level=1)
    labels, probabilities = held_out(5, 1)
    with refused(ValueError, "held_out_probabilities must have shape (M, C)", "(5, 4) and (4,)"):
        count_wrong(MARGINS, labels[1:], probabilities)
