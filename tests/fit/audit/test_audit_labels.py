"""Audits: flags, suggestions and measures against plain Python, counts against SciPy, fits against what they say."""

import csv
import sys

import numpy as np
import pytest
from browsing import data_of
from in_turn import in_turn
from refusals import refused
from scipy.stats import binomtest
from sklearn.datasets import load_wine
from sklearn.exceptions import NotFittedError

from symloss import RobustClassifier, checks
from symloss.extras import MissingExtraError
from symloss.fit import audit_fit, audit_labels, count_wrong, write_audit

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
    # Flags of somebody else stand as they are.
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
    flagged = np.flatnonzero(found.flagged).tolist()
    both = set(flagged) & set(wrong)
    assert (found.precision, found.recall) == pytest.approx((len(both) / 12, len(both) / len(wrong)))
    right = sum(found.suggested[place] == truth[place] for place in flagged)
    assert found.right_suggestions == pytest.approx(right / 12)

    names = ("average_precision", "precision", "recall", "right_suggestions")
    unknown = audit_labels(given, scores, probabilities)
    assert {getattr(unknown, name) for name in (*names, "really_wrong")} == {None}
    right = audit_labels(truth, scores, probabilities, n_wrong=0, truth=truth)
    assert [getattr(right, name) for name in (*names, "really_wrong")] == [None] * 4 + [0]
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
    arguments = dict(zip(("given", "label_scores", "probabilities"), drawn, strict=False)) | changes
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
    options = {"n_wrong": 7, "interval": (5, 9), "class_names": names, "positions": np.arange(SIZE) + 1000}
    found = audit_labels(given, scores, probabilities, **options)
    lines = repr(found).splitlines()
    assert lines[0] == "Audit of 60 labels: 7 look wrong (interval 5 to 9)"
    worst = found.order[0]
    old, new = names[given[worst]], names[found.suggested[worst]]
    assert lines[1] == f"  row {1000 + worst}: {checks.brief(old)} -> {checks.brief(new)}, score -9"
    assert lines[6:] == ["  and 2 more"]
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


NAMES = np.array(["white", "red", "rosé"])  # not in the order of the alphabet


@pytest.fixture(scope="module")
def fitted():
    """Wine with every fourth label wrong; labels, truth, and a model that saw the labels."""
    features, numbers = load_wine(return_X_y=True)
    noisy = numbers.copy()
    noisy[::4] = (noisy[::4] + 1) % 3
    model = RobustClassifier(learners=["closed-form", "logistic"], budget=1).fit(features, NAMES[noisy])
    return model, NAMES[noisy], NAMES[numbers]


def test_it_says_what_the_model_says(fitted):
    model, noisy, truth = fitted
    audit = audit_fit(model, truth=truth)
    names = np.array(audit.class_names)
    assert audit.class_names == ("red", "rosé", "white")
    assert np.array_equal(names[audit.given], noisy)
    assert np.array_equal(model.given_labels_, noisy)
    assert np.array_equal(audit.label_scores, model.label_scores_)
    assert audit.n_wrong == audit.flagged.sum() == model.n_wrong_
    assert audit.really_wrong == (noisy != truth).sum()
    low, high = (share * len(noisy) for share in model.noise_rate_interval_)
    assert audit.n_wrong_interval == (round(low), round(high))
    sure = audit.flagged & (model.suggested_labels_ != noisy)
    assert sure.sum() > 20
    assert np.array_equal(names[audit.suggested][sure], model.suggested_labels_[sure])
    # The posterior knows the label: it would tell cleanlab that a label is right because it was given.
    assert np.allclose(audit.pred_probs, model.oof_probabilities_)
    assert not np.allclose(audit.pred_probs, model.posterior_, atol=0.05)
    places = np.arange(len(noisy)) + 7
    audit = audit_fit(model, class_names=["r", "o", "w"], positions=places)
    assert audit.class_names == ("r", "o", "w")
    assert np.array_equal(audit.positions, places)


def test_other_truths_and_models_without_a_fit_are_refused(fitted):
    with refused(ValueError, "truth must hold classes of the model; got 'green'"):
        audit_fit(fitted[0], truth=["green"] * len(fitted[1]))
    with pytest.raises(NotFittedError):
        audit_fit(RobustClassifier())


TEXTS = ["The bin is full", "A <b>hole</b> in the road", "Where do I park?", "x" * 2000]
PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.2, 0.7, 0.1]])
TOPICS = ("waste", "streets", "parking")


def audit(**changes):
    """Four labels. The second and the last are flagged, although the third has a lower score than the last."""
    parts = {"flagged": [False, True, False, True], "class_names": TOPICS, "positions": [5, 6, 7, 8]} | changes
    return audit_labels([0, 2, 2, 0], [0.7, 0.1, 0.2, 0.3], PROBABILITIES, **parts)


def test_the_page_shows_flagged_labels_with_their_texts(tmp_path):
    paths = write_audit(audit(), tmp_path / "new" / "out", columns={"message": TEXTS}, facts=[("Data", "messages")])
    assert [path.name for path in paths] == ["audit.csv", "pred_probs.npy", "audit.html"]
    page = paths[-1].read_text()
    shown = data_of(page)
    assert (shown["index"], shown["suggested"]) == ([6, 8], [0, 1])
    assert "About 2 of 4 labels look wrong" in page
    assert "<dt>Data</dt><dd>messages</dd>" in page
    assert (shown["columns"], shown["cells"]) == (["message"], [[TEXTS[1]], ["x" * 1439 + "…"]])
    assert "<b>hole" not in page
    # Beside each, the most certain examples of the class that it has, and of the one that is suggested.
    assert {name: each["cells"] for name, each in shown["typical"].items()} == {
        "0": [[TEXTS[0]]],
        "2": [[TEXTS[2]]],
        "1": [],
    }
    assert "symloss.fit.corrections(audit, &quot;corrected.csv&quot;)" in page
    assert np.array_equal(np.load(paths[1]), PROBABILITIES)
    rows = list(csv.DictReader(paths[0].read_text().splitlines()))
    assert [row["is_label_issue"] for row in rows] == ["False", "True", "False", "True"]
    assert [row["predicted_label"] for row in rows] == ["waste", "waste", "parking", "streets"]


def test_without_probabilities_there_is_no_file_of_them(tmp_path):
    unknown = audit()
    object.__setattr__(unknown, "pred_probs", None)
    assert [path.name for path in write_audit(unknown, tmp_path)] == ["audit.csv", "audit.html"]
    rows = csv.DictReader((tmp_path / "audit.csv").read_text().splitlines())
    assert [row["predicted_label"] for row in rows] == ["waste", "waste", "parking", "streets"]
    page = write_audit(audit(truth=[0, 0, 2, 0]), tmp_path)[-1].read_text()
    assert "1 labels really are wrong: average precision 1.000, precision 0.500" in page
    with refused(ValueError, "columns must have 4 values each; got 1 in 'message'"):
        write_audit(audit(), tmp_path, columns={"message": ["one"]})


@pytest.mark.slow
def test_the_browser_has_the_same_examples(tmp_path, browser):
    page = write_audit(audit(), tmp_path, columns={"message": TEXTS})[-1]
    browser.get(page.as_uri())
    shown = browser.execute_script("return [...document.querySelectorAll('.cells dd')].map(e => e.textContent)")
    assert (shown[0], len(shown)) == (TEXTS[1], 2)
    size = "return ['.cells', '.which'].map(e => parseFloat(getComputedStyle(document.querySelector(e)).fontSize))"
    text, number = browser.execute_script(size)
    assert text > number  # what a person decides by is not in small print
