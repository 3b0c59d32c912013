"""What we hand to cleanlab and take back from it, against cleanlab itself."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest
from browsing import data_of
from refusals import all_refused, refused
from sklearn.calibration import CalibratedClassifierCV
from sklearn.linear_model import LogisticRegression

pytest.importorskip("cleanlab", reason="cleanlab is not installed: pip install 'symloss[cleanlab]'")

import pandas as pd
from cleanlab.classification import CleanLearning
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from noisy_cells import open_cell

from symloss import RobustClassifier
from symloss.adapters import cleanlab as ours
from symloss.closed_form import UnhingedClassifier
from symloss.fit import audit_fit, corrections, write_audit

NAMES = ("Barolo", "Grignolino", "Barbera")
LEARNERS = {"learners": ["closed-form", "logistic"], "budget": 1}
ONE_PROCESS = {"find_label_issues_kwargs": {"n_jobs": 1}}
"""Processes that cleanlab forks do not end where another test has started Ray."""


@pytest.fixture(scope="module")
def wine():
    """Wine, standardised, 30 % of its labels wrong."""
    cell = open_cell("wine", "sym:0.3", seed=0)
    mean, spread = cell.features.mean(0), cell.features.std(0)
    return replace(cell, features=(cell.features - mean) / spread, test=(cell.test - mean) / spread)


@pytest.fixture(scope="module")
def model(wine):
    return RobustClassifier(**LEARNERS).fit(wine.features, wine.noisy)


@pytest.fixture(scope="module")
def audit(model, wine):
    return audit_fit(model, class_names=NAMES, truth=wine.clean)


def same(one, other, *, but=()):
    """Whether two audits say the same of every label."""
    fields = {"given", "suggested", "label_scores", "flagged", "n_wrong", "class_names", "positions", "pred_probs"}
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in (fields | {"truth"}) - set(but))


def test_cleanlab_gets_held_out_probabilities_and_its_flags_come_back(model, audit, wine):
    found = ours.find_label_issues(model)
    assert np.array_equal(found.flagged, find_label_issues(wine.noisy, model.oof_probabilities_, n_jobs=1))
    assert np.array_equal(found.label_scores, get_label_quality_scores(wine.noisy, model.oof_probabilities_))
    assert found.n_wrong == found.flagged.sum() > 30
    assert np.array_equal(found.suggested[found.flagged], model.oof_probabilities_.argmax(1)[found.flagged])
    assert same(found, ours.find_label_issues(audit), but=("class_names", "truth"))
    # Options are cleanlab's.
    few = ours.find_label_issues(model, frac_noise=0.5)
    theirs = find_label_issues(wine.noisy, model.oof_probabilities_, frac_noise=0.5, n_jobs=1)
    assert np.array_equal(few.flagged, theirs)
    assert few.n_wrong < found.n_wrong
    assert same(ours.find_label_issues(model, return_indices_ranked_by="self_confidence"), found)
    half = replace(found, positions=np.arange(len(wine.noisy)) * 2, truth=wine.clean)
    assert np.array_equal(ours.find_label_issues(half).positions, half.positions)
    assert ours.find_label_issues(half).recall > 0.7


def test_our_table_and_back_is_the_same_audit(audit):
    frame = ours.issues_frame(audit)
    assert list(frame) == ["is_label_issue", "label_quality", "given_label", "predicted_label"]
    assert np.array_equal(frame["predicted_label"][~audit.flagged], audit.pred_probs.argmax(1)[~audit.flagged])
    back = ours.audit_from_issues(frame, pred_probs=audit.pred_probs, class_names=NAMES, truth=audit.truth)
    assert same(back, audit)
    without = ours.audit_from_issues(frame, class_names=NAMES, truth=audit.truth)
    assert without.pred_probs is None
    assert without.average_precision == audit.average_precision
    assert ours.issues_frame(without)["predicted_label"].tolist() == without.suggested.tolist()


def test_clean_learning_leaves_out_what_we_flagged(audit, wine):
    features = wine.features
    cleaned = CleanLearning(LogisticRegression()).fit(features, wine.noisy, label_issues=ours.issues_frame(audit))
    kept = ~audit.flagged
    alone = LogisticRegression().fit(features[kept], wine.noisy[kept])
    assert np.allclose(cleaned.predict_proba(features), alone.predict_proba(features))
    everything = LogisticRegression().fit(features, wine.noisy)
    assert not np.allclose(cleaned.predict_proba(features), everything.predict_proba(features), atol=0.05)


@pytest.mark.slow
def test_clean_learning_around_our_estimators_and_its_table_as_an_audit(wine):
    for learner in (CalibratedClassifierCV(UnhingedClassifier(), cv=3), RobustClassifier(**LEARNERS, rounds=1)):
        cleaned = CleanLearning(learner, cv_n_folds=3, seed=0, **ONE_PROCESS).fit(wine.features, wine.noisy)
        issues = cleaned.get_label_issues()
        found = ours.audit_from_issues(issues, truth=wine.clean)
        assert np.array_equal(found.given, wine.noisy)
        assert np.array_equal(found.flagged, issues["is_label_issue"])
        assert np.array_equal(found.label_scores, issues["label_quality"])
        assert np.array_equal(found.suggested[found.flagged], issues["predicted_label"][found.flagged])
        assert found.average_precision > 0.8
        assert np.mean(cleaned.predict(wine.test) == wine.test_labels) > 0.9


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.rename is deprecated")  # of cleanlab, by pandas
def test_datalab_reads_our_probabilities_and_its_issues_come_back(audit, wine):
    pytest.importorskip("datasets", reason="Datalab needs datasets: pip install 'cleanlab[datalab]'")
    from cleanlab import Datalab  # noqa: PLC0415

    for labels in (audit.given, np.array(NAMES)[audit.given]):
        lab = Datalab({"label": labels}, label_name="label", verbosity=0)
        # Datalab numbers names by the alphabet.
        chances = audit.pred_probs if labels is audit.given else audit.pred_probs[:, np.argsort(NAMES)]
        lab.find_issues(pred_probs=chances, issue_types={"label": {"clean_learning_kwargs": ONE_PROCESS}})
        issues = lab.get_issues("label")
        found = ours.audit_from_issues(issues, class_names=NAMES, pred_probs=audit.pred_probs, truth=wine.clean)
        assert found.n_wrong == lab.get_issue_summary("label")["num_issues"].item()
        assert np.array_equal(found.label_scores, issues["label_score"])
        assert same(found, ours.find_label_issues(audit))


def test_the_page_and_the_corrections_show_what_cleanlab_found(audit, tmp_path):
    found = ours.find_label_issues(audit)
    page = write_audit(found, tmp_path, columns={"bottle": [f"no. {k}" for k in range(len(found))]})[-1].read_text()
    flagged = np.flatnonzero(found.flagged).tolist()
    assert sorted(data_of(page)["cells"]) == sorted([f"no. {place}"] for place in flagged)
    assert corrections(found) == {place: NAMES[found.suggested[place]] for place in flagged}


def test_names_without_a_list_are_sorted():
    frame = pd.DataFrame({"is_label_issue": [True, False], "label_quality": [0.1, 0.9]})
    found = ours.audit_from_issues(frame.assign(given_label=["b", "c"], predicted_label=["a", "c"]))
    assert (found.class_names, found.given.tolist(), found.suggested.tolist()) == (("a", "b", "c"), [1, 2], [0, 2])
    kept = ours.audit_from_issues(frame.assign(given_label=["b", "c"], predicted_label=["b", "c"]))
    assert (kept.flagged.tolist(), kept.suggested.tolist()) == ([True, False], [0, 1])
    numbered = ours.audit_from_issues(frame.assign(given_label=[1, 2], predicted_label=[4, 2]))
    assert (numbered.class_names, numbered.suggested.tolist()) == (("0", "1", "2", "3", "4"), [4, 2])


def test_a_table_that_is_none_of_cleanlabs_and_flags_that_are_no_mask_are_refused(audit):
    def read(**changes):
        columns = {"is_label_issue": [True, False], "label_quality": [0.1, 0.9], "given_label": ["a", "b"]}
        columns |= {"predicted_label": ["b", "b"]} | changes
        frame = pd.DataFrame({name: values for name, values in columns.items() if values is not None})
        return lambda: ours.audit_from_issues(frame, class_names=["a", "b"])

    all_refused(
        (ValueError, "got a table without 'label_quality'", read(label_quality=None)),
        (ValueError, "got a table without 'given_label'", read(given_label=None)),
        (ValueError, "given_label must be one of ['a', 'b']; got 'x'", read(given_label=["a", "x"])),
        (ValueError, "predicted_label must be one of [0, 1]; got 2", read(predicted_label=[0, 2])),
        (ValueError, "given_label must be classes; got float64, as of a regression", read(given_label=[0.5, 1.0])),
    )
    for flags in ([5], [-1], [0.5]):
        with refused(ValueError, f"flags must be a mask, or numbers from 0 to 1; got {flags}"):
            ours.audit_from_flags(flags, [0, 1], [[0.9, 0.1], [0.8, 0.2]])
    assert not ours.audit_from_flags([], [0, 1], [[0.9, 0.1], [0.2, 0.8]]).n_wrong
    with refused(ValueError, "the audit must have probabilities of the classes for cleanlab; got one without"):
        ours.find_label_issues(ours.audit_from_issues(ours.issues_frame(audit), class_names=NAMES))


def test_without_datasets_all_but_datalab_works(monkeypatch):
    """As cleanlab is installed without its extra."""
    for name in [name for name in sys.modules if name.split(".")[0] in ("cleanlab", "datasets")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "datasets", None)
    import cleanlab  # noqa: PLC0415

    labels, chances = np.array([0, 0, 0, 1, 1, 1]), np.array([[0.9, 0.1]] * 4 + [[0.2, 0.8]] * 2)
    assert cleanlab.filter.find_label_issues(labels, chances, n_jobs=1).tolist() == [False] * 3 + [True] + [False] * 2
    with pytest.raises(ImportError, match=r"cleanlab\[datalab\]"):
        cleanlab.Datalab({"label": [0, 1]}, label_name="label")
