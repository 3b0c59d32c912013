"""Flags, suggestions and measures of an audit, against plain Python."""

import sys

import numpy as np
import pytest
from in_turn import in_turn
from refusals import refused

from symloss.checks import brief
from symloss.extras import MissingExtraError
from symloss.fit import audit_labels

SIZE, CLASSES = 60, 4


@pytest.fixture
def drawn():
    """Labels of which a third is wrong, scores that mostly know it, and probabilities that do not."""
    random = np.random.default_rng(0)
    truth = random.integers(CLASSES, size=SIZE)
    given = np.where(random.random(SIZE) < 0.3, (truth + 1) % CLASSES, truth)
    scores = np.where(given == truth, 1.0, -1.0) + random.normal(size=SIZE)
    return given, scores, random.dirichlet(np.ones(CLASSES), size=SIZE), truth


def test_the_lowest_scores_are_flagged_and_the_most_probable_other_class_is_suggested(drawn):
    given, scores, probabilities, _ = drawn
    found = audit_labels(given, scores, probabilities, n_wrong=7, interval=(5, 9))
    worst = sorted(range(SIZE), key=lambda place: scores[place])[:7]
    assert sorted(np.flatnonzero(found.flagged)) == sorted(worst)
    assert found.order[:7].tolist() == worst
    for place in range(SIZE):
        others = {k: p for k, p in enumerate(probabilities[place]) if k != given[place]}
        expected = max(others, key=others.get) if place in worst else given[place]
        assert found.suggested[place] == expected
    assert (found.n_wrong, found.n_wrong_interval, len(found)) == (7, (5, 9), SIZE)
    assert found.class_names == ("0", "1", "2", "3")
    assert found.positions.tolist() == list(range(SIZE))


def test_flags_of_somebody_else_stand_as_they_are(drawn):
    given, scores, probabilities, _ = drawn
    flags = np.arange(SIZE) % 7 == 0
    found = audit_labels(given, scores, probabilities, flagged=flags)
    assert np.array_equal(found.flagged, flags)
    assert (found.n_wrong, found.n_wrong_interval) == (9, (9, 9))
    assert (found.suggested != given).tolist() == flags.tolist()
    assert audit_labels(given, scores, probabilities, flagged=flags, interval=(3, 12)).n_wrong_interval == (3, 12)


def test_measures_are_as_by_hand(drawn):
    given, scores, probabilities, truth = drawn
    found = audit_labels(given, scores, probabilities, n_wrong=12, truth=truth)
    wrong = [place for place in range(SIZE) if given[place] != truth[place]]
    hits, precisions = 0, []
    for rank, place in enumerate(sorted(range(SIZE), key=lambda place: scores[place]), 1):
        if place in wrong:
            hits += 1
            precisions.append(hits / rank)
    assert found.really_wrong == len(wrong)
    assert found.average_precision == pytest.approx(sum(precisions) / len(wrong))
    flagged = [place for place in range(SIZE) if found.flagged[place]]
    both = set(flagged) & set(wrong)
    assert found.precision == pytest.approx(len(both) / 12)
    assert found.recall == pytest.approx(len(both) / len(wrong))
    right = sum(found.suggested[place] == truth[place] for place in flagged)
    assert found.right_suggestions == pytest.approx(right / 12)

    names = ("average_precision", "precision", "recall", "right_suggestions")
    unknown = audit_labels(given, scores, probabilities)
    assert {getattr(unknown, name) for name in (*names, "really_wrong")} == {None}
    right = audit_labels(truth, scores, probabilities, n_wrong=0, truth=truth)
    assert {getattr(right, name) for name in names} == {None}
    assert right.really_wrong == 0
    none_flagged = audit_labels(given, scores, probabilities, n_wrong=0, truth=truth)
    assert (none_flagged.precision, none_flagged.recall) == (None, 0.0)


@in_turn(
    "changes, message",
    [
        ({"given": np.zeros(3, int)}, "given must be whole numbers of shape (60,)"),
        ({"given": np.zeros(SIZE)}, "given must be whole numbers of shape (60,); got float64"),
        ({"given": np.full(SIZE, CLASSES)}, "given must be from 0 to 3; got 4 to 4"),
        ({"label_scores": np.full(SIZE, np.nan)}, "label_scores must be finite, of shape (60,)"),
        ({"probabilities": np.ones((SIZE, 1))}, "probabilities must be finite, of shape (N, C) with C > 1"),
        ({"n_wrong": SIZE + 1}, "n_wrong must be a whole number in [0, 60]; got 61"),
        ({"flagged": np.zeros(SIZE)}, "flagged must be true or false, of shape (60,); got float64 of (60,)"),
        ({"flagged": np.zeros(2, bool)}, "flagged must be true or false, of shape (60,); got bool of (2,)"),
        ({"flagged": np.zeros(SIZE, bool), "n_wrong": 3}, "n_wrong must be left out where flagged is given; got 3"),
        ({"class_names": ["a"]}, "class_names must have 4 names, one for each column of probabilities; got 1"),
        ({"positions": -np.ones(SIZE, int)}, "positions must be at least 0; got -1 to -1"),
        ({"truth": np.zeros(1, int)}, "truth must be whole numbers of shape (60,)"),
    ],
)
def test_bad_input_is_one_sentence(drawn, changes, message):
    given, scores, probabilities, _ = drawn
    arguments = {"given": given, "label_scores": scores, "probabilities": probabilities} | changes
    with refused(ValueError, message):
        audit_labels(**arguments)


def test_probabilities_in_place_of_margins_are_refused(drawn):
    given, own, probabilities, _ = drawn
    own = probabilities[np.arange(SIZE), given]
    with refused(ValueError, "label_scores must be margins", f"from {own.min():.3g}", "probabilities", "give n_wrong"):
        audit_labels(given, own, probabilities)
    assert audit_labels(given, own, probabilities, n_wrong=7).n_wrong == 7
    assert audit_labels(given, own, probabilities, flagged=own < 0.1).n_wrong == (own < 0.1).sum()


@in_turn("shift, count", [(-0.5, 30), (0.5, 0)])
def test_what_may_be_margins_is_counted(shift, count):
    scores = np.linspace(0, 1, SIZE) + shift
    found = audit_labels(np.zeros(SIZE, int), scores, np.full((SIZE, CLASSES), 1 / CLASSES))
    assert found.n_wrong == count
    assert found.flagged.tolist() == (scores < 0).tolist()
    low, high = found.n_wrong_interval
    assert low <= count < high


def test_the_text_of_an_audit_is_a_summary(drawn):
    given, scores, probabilities, _ = drawn
    scores = scores.copy()
    scores[scores.argmin()] = -9.0
    names = ("cat", "dog", "a\nb", "x" * 1000)
    found = audit_labels(
        given, scores, probabilities, n_wrong=7, interval=(5, 9), class_names=names, positions=np.arange(SIZE) + 1000
    )
    lines = repr(found).splitlines()
    assert lines[0] == "Audit of 60 labels: 7 look wrong (interval 5 to 9)"
    worst = found.order[0]
    old, new = names[given[worst]], names[found.suggested[worst]]
    assert lines[1] == f"  row {1000 + worst}: {brief(old)} -> {brief(new)}, score -9"
    assert lines[-1] == "  and 2 more"
    assert len(lines) == 7
    assert max(map(len, lines)) < 300
    assert "array" not in str(found)
    found = audit_labels([0, 1], [0.0, 1e-9], np.full((2, 2), 0.5), n_wrong=0)
    assert repr(found) == "Audit of 2 labels: 0 look wrong"
    one = audit_labels([0, 1], [0.1, 1e-9], np.full((2, 2), 0.5), n_wrong=1, class_names=["ham", "spam"])
    assert repr(one).splitlines()[1] == "  row 1: 'spam' -> 'ham', score <0.001"


def test_the_frame_has_every_label_with_the_most_suspicious_first(drawn, monkeypatch):
    given, scores, probabilities, _ = drawn
    names = ("cat", "dog", "cow", "hen")
    found = audit_labels(given, scores, probabilities, n_wrong=7, class_names=names, positions=np.arange(SIZE) * 2)
    frame = found.to_frame()
    assert list(frame.columns) == ["row", "given", "suggested", "score", "flagged"]
    assert frame["row"].tolist() == (found.order * 2).tolist()
    assert frame["score"].tolist() == sorted(scores)
    assert frame["flagged"].tolist() == [True] * 7 + [False] * (SIZE - 7)
    for row, old, new in zip(frame["row"] // 2, frame["given"], frame["suggested"], strict=True):
        assert (old, new) == (names[given[row]], names[found.suggested[row]])
    monkeypatch.setitem(sys.modules, "pandas", None)
    with refused(MissingExtraError, "to_frame needs pandas, which is not installed: pip install 'symloss[fit]'"):
        found.to_frame()
