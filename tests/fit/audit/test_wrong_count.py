"""How many labels are wrong: against SciPy's interval, and both ways in which the number is found."""

import numpy as np
from in_turn import in_turn
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


@in_turn(
    "held, level, expected, method",
    [
        (None, 0.5, 30, "negative margins"),
        (None, 0.95, 30, "negative margins"),
        (18, 0.95, 30, "negative margins"),  # held-out labels agree
        (40, 0.95, 80, "held-out labels"),  # the network has learnt wrong labels by heart
        (2, 0.95, 4, "held-out labels"),  # it has hardly learnt
    ],
)
def test_negative_margins_count_unless_held_out_labels_contradict_them(held, level, expected, method):
    found = count_wrong(MARGINS, *(() if held is None else held_out(50, held)), level=level)
    assert (found.n_wrong, found.method) == (expected, method)
    low, high = wilson(30, 100, level) if held is None else wilson(held, 50)
    assert (low < 0.3 < high) == (method == "negative margins")
    assert found.interval == (np.floor(100 * low), np.ceil(100 * high))


@in_turn("hits", [0, 7])
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
