"""The audit of a fitted ``RobustClassifier``: which of the labels that it learned from look wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted  # type: ignore[import-untyped]

from symloss import checks
from symloss.fit.audit import Audit, audit_labels
from symloss.fit.classifier import NOTHING_LEARNT, RobustClassifier

MANY_LOOK_WRONG = (
    "If you expect far fewer wrong labels, these features do not tell the classes apart, and difficult examples look "
    "wrong: check some before you trust the list."
)
MANY = 0.3
"""The share of wrong labels above which a fit says what else it may mean."""


def audit_fit(
    model: RobustClassifier,
    *,
    classes: Sequence[str] | None = None,
    positions: ArrayLike | None = None,
    truth: ArrayLike | None = None,
) -> Audit:
    """Audit the labels that a :class:`symloss.RobustClassifier` was fitted to.

    The labels are ranked by ``label_scores_``, and as many are flagged as ``n_wrong_`` says. A suggestion is the class
    that is most probable given features and label. ``pred_probs`` are those of rows that were held out, without a look
    at the label. Other programs want these.

    Args:
        model: fitted.
        classes: the names of the classes; None for ``classes_`` of the model, as text.
        positions: (N,), which examples of a data set these are; None for all, in order.
        truth: (N,), the true labels as those of ``fit`` were written, to measure by; None where they are not known.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> noisy = y.copy()
    >>> noisy[::5] = (y[::5] + 1) % 3
    >>> model = RobustClassifier(learners=["closed-form", "logistic"]).fit(X, noisy)
    >>> audit = audit_fit(model, truth=y)
    >>> audit.n_wrong == model.n_wrong_, audit.average_precision > 0.9
    (True, True)
    """
    check_is_fitted(model)
    names = model.classes_
    low, high = (round(share * len(model.given_labels_)) for share in model.noise_rate_interval_)
    found = audit_labels(
        np.searchsorted(names, model.given_labels_),
        model.label_scores_,
        model.posterior_,
        n_wrong=model.n_wrong_,
        interval=(low, high),
        classes=[str(name) for name in names] if classes is None else classes,
        positions=positions,
        truth=None if truth is None else _numbers(truth, names),
    )
    # Where margins have put the scores into another order, the rest of the probability moves with them.
    rest = np.divide(
        1 - found.label_scores, 1 - found.given_probs, where=found.given_probs < 1, out=np.ones(len(found))
    )
    suggested = np.where(found.flagged, np.minimum(found.suggested_probs * rest, 1.0), found.label_scores)
    return replace(
        found,
        given_probs=found.label_scores,
        suggested_probs=suggested,
        pred_probs=model.oof_probabilities_.astype(np.float64),
    )


def warning_of_fit(model: RobustClassifier) -> str:
    """What to say before anybody trusts the list of a fit; empty if there is nothing to say."""
    if not model.learned_:
        return NOTHING_LEARNT
    if model.classes_apart_ or model.noise_rate_ <= MANY:
        return ""
    return MANY_LOOK_WRONG


def _numbers(truth: ArrayLike, names: np.ndarray) -> np.ndarray:
    labels = np.asarray(truth)
    unknown = labels[~np.isin(labels, names)]
    if len(unknown):
        raise ValueError(f"truth must hold classes of the model; got {checks.brief(unknown[0].item())}")
    return np.searchsorted(names, labels)
