"""Exchange audits with cleanlab, in both directions.

Labels are class numbers from 0 here, as cleanlab wants them. ``CleanLearning`` takes our estimators as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
from cleanlab import filter, rank
from numpy.typing import ArrayLike, NDArray

from symloss import checks
from symloss.fit import Audit, RobustClassifier, audit_fit, audit_labels

SCORES = ("label_quality", "label_score")  # what CleanLearning and Datalab call the same column


def find_label_issues(found: RobustClassifier | Audit, **options: Any) -> Audit:
    """Let cleanlab find the wrong labels, from our probabilities for rows that were held out.

    Args:
        found: a fitted ``RobustClassifier``, or its audit. The audit of a run has probabilities for examples that the
            network was trained on, with which cleanlab finds too few.
        options: for ``cleanlab.filter.find_label_issues``, such as ``filter_by="low_normalized_margin"``. It works in
            one process unless ``n_jobs`` says otherwise: a process that has loaded torch is not forked without need.

    Returns:
        cleanlab's verdict, ranked by its label quality. ``flagged`` is the mask that cleanlab returned.

    >>> probabilities = [[0.9, 0.1], [0.8, 0.2], [0.1, 0.9], [0.2, 0.8], [0.1, 0.9]]
    >>> audit = audit_labels([0, 0, 1, 1, 0], np.zeros(5), probabilities, n_wrong=0)
    >>> find_label_issues(audit).flagged.tolist()
    [False, False, False, False, True]
    """
    audit = found if isinstance(found, Audit) else audit_fit(found)
    if audit.pred_probs is None:
        raise ValueError("the audit must have probabilities of the classes for cleanlab; got one without pred_probs")
    flags = filter.find_label_issues(audit.given, audit.pred_probs, **{"n_jobs": 1} | options)
    verdict = audit_from_flags(flags, audit.given, audit.pred_probs, class_names=audit.class_names, truth=audit.truth)
    return replace(verdict, positions=audit.positions)


def issues_frame(audit: Audit) -> pd.DataFrame:
    """Return an audit as cleanlab's table of label issues, for ``CleanLearning(...).fit(X, y, label_issues=...)``.

    Args:
        audit: of N labels.

    Returns:
        N rows: ``is_label_issue``, ``label_quality`` (lower is more suspicious), and as class numbers ``given_label``
        and ``predicted_label``.

    >>> audit = audit_labels([0, 1], [0.9, 0.2], [[0.9, 0.1], [0.8, 0.2]], n_wrong=1)
    >>> issues_frame(audit).to_dict("records")[1]
    {'is_label_issue': True, 'label_quality': 0.2, 'given_label': 1, 'predicted_label': 0}
    """
    likely = audit.given if audit.pred_probs is None else audit.pred_probs.argmax(1)
    return pd.DataFrame(
        {
            "is_label_issue": audit.flagged,
            "label_quality": audit.label_scores,
            "given_label": audit.given,
            "predicted_label": np.where(audit.flagged, audit.suggested, likely),
        }
    )


def audit_from_flags(
    flags: ArrayLike,
    labels: ArrayLike,
    pred_probs: ArrayLike,
    *,
    class_names: Sequence[str] | None = None,
    truth: ArrayLike | None = None,
) -> Audit:
    """Return an audit of what ``cleanlab.filter.find_label_issues`` returned.

    Args:
        flags: (N,), true where a label looks wrong; or the numbers of these labels.
        labels: (N,), class numbers.
        pred_probs: (N, C), what cleanlab was given. The most probable other class is the suggestion.
        class_names: the names of the C classes; None for their numbers.
        truth: (N,), the true labels, to measure by; None where they are not known.

    >>> audit_from_flags([1], labels=[0, 1], pred_probs=[[0.9, 0.1], [0.8, 0.2]]).suggested.tolist()
    [0, 0]
    """
    given, chances = np.asarray(labels), np.asarray(pred_probs, dtype=np.float64)
    scores = rank.get_label_quality_scores(given, chances)
    return audit_labels(given, scores, chances, flagged=_mask(flags, len(given)), class_names=class_names, truth=truth)


def audit_from_issues(
    issues: pd.DataFrame,
    *,
    pred_probs: ArrayLike | None = None,
    class_names: Sequence[str] | None = None,
    truth: ArrayLike | None = None,
) -> Audit:
    """Return an audit of ``CleanLearning.get_label_issues()`` or ``Datalab.get_issues("label")``.

    Args:
        issues: N rows: ``is_label_issue``, ``label_quality`` or ``label_score``, ``given_label``, ``predicted_label``.
            Labels that are whole numbers are class numbers. Others are names.
        pred_probs: (N, C), to keep in the audit; nothing is computed from them.
        class_names: the names of the classes, in the order of their numbers; None for those that the labels have.
        truth: (N,), the true labels as class numbers, to measure by; None where they are not known.

    >>> frame = pd.DataFrame({"is_label_issue": [False, True], "label_score": [0.9, 0.2]})
    >>> audit = audit_from_issues(frame.assign(given_label=["ham", "spam"], predicted_label=["ham", "ham"]))
    >>> audit.class_names, audit.suggested.tolist()
    (('ham', 'spam'), [0, 0])
    """
    scores = next((name for name in SCORES if name in issues), SCORES[0])
    missing = [name for name in ("is_label_issue", scores, "given_label", "predicted_label") if name not in issues]
    if missing:
        raise ValueError(f"issues must have the columns of cleanlab's label issues; got a table without {missing[0]!r}")
    labels = issues[["given_label", "predicted_label"]]
    known: Any = np.unique(labels.to_numpy()) if class_names is None else class_names
    if class_names is None and known.dtype.kind in "iu":
        known = range(int(known.max()) + 1)
    names = tuple(map(str, known))
    given, predicted = (_numbers(labels[name], names) for name in labels)
    flagged = issues["is_label_issue"].to_numpy(dtype=bool)
    certain = np.eye(len(names))[predicted]  # as far as the table says
    audit = audit_labels(
        given, issues[scores].to_numpy(float), certain, flagged=flagged, class_names=names, truth=truth
    )
    kept = None if pred_probs is None else np.asarray(pred_probs, dtype=np.float64)
    return replace(audit, suggested=np.where(flagged, predicted, given), pred_probs=kept)


def _mask(flags: ArrayLike, size: int) -> NDArray[np.bool_]:
    array: NDArray[Any] = np.asarray(flags)
    if array.dtype == bool:
        return array
    mask = np.zeros(size, dtype=bool)
    if array.size and (array.dtype.kind not in "iu" or array.min() < 0 or array.max() >= size):
        raise ValueError(f"flags must be a mask, or numbers from 0 to {size - 1}; got {checks.brief(flags)}")
    mask[array.astype(np.int64)] = True
    return mask


def _numbers(labels: pd.Series, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the class numbers of labels."""
    if labels.dtype.kind == "f":
        raise ValueError(f"{labels.name} must be classes; got {labels.dtype}, as of a regression")
    whole = labels.dtype.kind in "iu"
    places = {number if whole else name: number for number, name in enumerate(names)}
    unknown = [label for label in labels if (label if whole else str(label)) not in places]
    if unknown:
        raise ValueError(f"{labels.name} must be one of {checks.brief(list(places))}; got {checks.brief(unknown[0])}")
    return np.array([places[label if whole else str(label)] for label in labels])
