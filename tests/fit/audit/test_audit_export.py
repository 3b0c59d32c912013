"""The files of an audit that was made in Python, and the decisions that come back from the page."""

from __future__ import annotations

import csv
import re

import numpy as np
import pytest
from refusals import refused

from symloss.fit import audit_labels, write_audit

TEXTS = ["The bin is full", "A <b>hole</b> in the road", "Where do I park?", "x" * 2000]
PROBABILITIES = np.array([[0.7, 0.2, 0.1], [0.6, 0.3, 0.1], [0.1, 0.1, 0.8], [0.2, 0.7, 0.1]])
CLASSES = ("waste", "streets", "parking")


def audit(**changes):
    """Four labels. The second and the last are flagged, although the third has a lower score than the last."""
    parts = {"flagged": [False, True, False, True], "class_names": CLASSES, "positions": [5, 6, 7, 8]} | changes
    return audit_labels([0, 2, 2, 0], [0.7, 0.1, 0.2, 0.3], PROBABILITIES, **parts)


def test_the_page_shows_flagged_labels_with_their_texts(tmp_path):
    paths = write_audit(audit(), tmp_path / "new" / "out", columns={"message": TEXTS}, facts=[("Data", "messages")])
    assert [path.name for path in paths] == ["audit.csv", "pred_probs.npy", "audit.html"]
    page = paths[-1].read_text()
    assert re.findall(r'data-index="(\d+)"', page) == ["6", "8"]
    assert "About 2 of 4 labels look wrong" in page
    assert "<dt>Data</dt><dd>messages</dd>" in page
    assert "<dt>message</dt><dd>A &lt;b&gt;hole&lt;/b&gt; in the road</dd>" in page
    assert TEXTS[2] not in page
    assert f"<dd>{'x' * 1439}…</dd>" in page
    assert "symloss.fit.corrections(audit, &quot;corrected.csv&quot;)" in page
    assert np.array_equal(np.load(paths[1]), PROBABILITIES)
    with paths[0].open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["is_label_issue"] for row in rows] == ["False", "True", "False", "True"]
    assert [row["predicted_label"] for row in rows] == ["waste", "waste", "parking", "streets"]


def test_without_probabilities_there_is_no_file_of_them(tmp_path):
    unknown = audit()
    object.__setattr__(unknown, "pred_probs", None)
    assert [path.name for path in write_audit(unknown, tmp_path)] == ["audit.csv", "audit.html"]
    with (tmp_path / "audit.csv").open(newline="") as file:
        predicted = [row["predicted_label"] for row in csv.DictReader(file)]
    assert predicted == ["waste", "waste", "parking", "streets"]
    page = write_audit(audit(truth=[0, 0, 2, 0]), tmp_path)[-1].read_text()
    assert "1 labels really are wrong: average precision 1.000, precision 0.500" in page
    with refused(ValueError, "columns must have 4 values each; got 1 in 'message'"):
        write_audit(audit(), tmp_path, columns={"message": ["one"]})


@pytest.mark.slow
def test_the_browser_has_the_same_examples(tmp_path, browser):
    page = write_audit(audit(), tmp_path, columns={"message": TEXTS})[-1]
    browser.get(page.as_uri())
    shown = browser.execute_script("return [...document.querySelectorAll('.cells dd')].map(e => e.textContent)")
    assert shown[0] == TEXTS[1]
    size = "return ['.cells', '.which'].map(e => parseFloat(getComputedStyle(document.querySelector(e)).fontSize))"
    text, number = browser.execute_script(size)
    assert text > number  # what a person decides by is not in small print
    assert len(shown) == 2
