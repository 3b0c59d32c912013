"""Wrong labels of digits: the audit of ``RobustClassifier``, cleanlab, and both together.

    OMP_NUM_THREADS=1 python benchmarks/cleanlab_audit.py                                        # about 15 minutes
    OMP_NUM_THREADS=1 python benchmarks/cleanlab_audit.py --noise asym:0.4 --seeds 1 --methods logistic

A table for each noise: how good the ranking and the flags are, how many labels are flagged in per cent of those that
really are wrong, accuracy on clean test data after learning without what was flagged, and seconds of one core. Methods
that build on our fit share it; it is in the seconds of the first of them.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from typing import NamedTuple

import measure
import numpy as np
from cleanlab.classification import CleanLearning
from cleanlab.filter import find_label_issues
from noisy_cells import NoisyCell, open_cell
from sklearn.calibration import CalibratedClassifierCV  # type: ignore[import-untyped]
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.model_selection import GridSearchCV, cross_val_predict  # type: ignore[import-untyped]

from symloss.adapters import cleanlab
from symloss.closed_form import UnhingedClassifier
from symloss.fit import Audit, RobustClassifier, audit_fit

NOISES = ("sym:0.4", "asym:0.4", "pair:0.3", "instance:0.4")
STRENGTHS = {"C": [0.001, 0.01, 0.1, 1.0]}


class Found(NamedTuple):
    audit: Audit
    predicted: np.ndarray | None
    """For the test rows; None where nothing was learned."""


class Cell:
    """The data of one noise and seed, and the fit that several methods share."""

    def __init__(self, noise: str, seed: int):
        self.data: NoisyCell = open_cell("digits", noise, seed)
        self.seed = seed
        self._ours: RobustClassifier | None = None

    def ours(self) -> RobustClassifier:
        if self._ours is None:
            self._ours = RobustClassifier(random_state=self.seed).fit(self.data.features, self.data.noisy)
        return self._ours

    def clean_learning(self, learner: object) -> Found:
        """cleanlab's own loop: five folds, flags, and a last fit without what was flagged."""
        cleaned = CleanLearning(learner, seed=self.seed, find_label_issues_kwargs={"n_jobs": 1})
        cleaned.fit(self.data.features, self.data.noisy)
        audit = cleanlab.audit_from_issues(cleaned.get_label_issues(), truth=self.data.clean)
        return Found(audit, cleaned.predict(self.data.test))


def symloss(cell: Cell) -> Found:
    model = cell.ours()
    return Found(audit_fit(model, truth=cell.data.clean), model.predict(cell.data.test))


def logistic(cell: Cell) -> Found:
    return cell.clean_learning(LogisticRegression())


def tuned_logistic(cell: Cell) -> Found:
    """Choose among four strengths of regularisation by accuracy on noisy labels."""
    search = GridSearchCV(LogisticRegression(max_iter=300), STRENGTHS, cv=5).fit(cell.data.features, cell.data.noisy)
    return cell.clean_learning(search.best_estimator_)


def plain_find_label_issues(cell: Cell) -> Found:
    """Follow the recipe of cleanlab's first page, without CleanLearning."""
    labels = cell.data.noisy
    chances = cross_val_predict(LogisticRegression(), cell.data.features, labels, cv=5, method="predict_proba")
    flags = find_label_issues(labels, chances, n_jobs=1)
    return Found(cleanlab.audit_from_flags(flags, labels, chances, truth=cell.data.clean), None)


def our_probabilities(cell: Cell) -> Found:
    return Found(cleanlab.find_label_issues(audit_fit(cell.ours(), truth=cell.data.clean)), None)


def our_posterior(cell: Cell) -> Found:
    """Make a mistake: these probabilities have seen the label."""
    labels, chances = cell.data.noisy, cell.ours().posterior_
    flags = find_label_issues(labels, chances, n_jobs=1)
    return Found(cleanlab.audit_from_flags(flags, labels, chances, truth=cell.data.clean), None)


def our_flags(cell: Cell) -> Found:
    """Logistic regression of the labels that we do not flag."""
    audit = audit_fit(cell.ours(), truth=cell.data.clean)
    cleaned = CleanLearning(LogisticRegression(), seed=cell.seed)
    cleaned.fit(cell.data.features, cell.data.noisy, label_issues=cleanlab.issues_frame(audit))
    return Found(audit, cleaned.predict(cell.data.test))


def unhinged(cell: Cell) -> Found:
    return cell.clean_learning(UnhingedClassifier())


def calibrated_unhinged(cell: Cell) -> Found:
    return cell.clean_learning(CalibratedClassifierCV(UnhingedClassifier(), cv=3))


def robust(cell: Cell) -> Found:
    return cell.clean_learning(RobustClassifier(budget=5, random_state=cell.seed))


METHODS: dict[str, tuple[str, Callable[[Cell], Found]]] = {
    "symloss": ("`RobustClassifier`, its audit", symloss),
    "plain": ("`find_label_issues`, logistic regression", plain_find_label_issues),
    "logistic": ("`CleanLearning(LogisticRegression())`", logistic),
    "tuned-logistic": ("the same, C chosen", tuned_logistic),
    "our-probabilities": ("`find_label_issues`, our probabilities", our_probabilities),
    "our-posterior": ("a mistake: `find_label_issues`, `posterior_`", our_posterior),
    "our-flags": ("`CleanLearning(LogisticRegression())`, our flags", our_flags),
    "unhinged": ("`CleanLearning(UnhingedClassifier())`", unhinged),
    "calibrated-unhinged": ("the same, calibrated", calibrated_unhinged),
    "robust": ("`CleanLearning(RobustClassifier(budget=5))`", robust),
}
HEAD = ("", "average precision", "precision", "recall", "flagged, % of the wrong", "clean accuracy, %", "seconds")


def row(found: Found, cell: Cell, seconds: float) -> tuple[float | None, ...]:
    audit = found.audit
    assert audit.really_wrong
    right = None if found.predicted is None else 100 * float(np.mean(found.predicted == cell.data.test_labels))
    flagged = 100 * audit.n_wrong / audit.really_wrong
    return audit.average_precision, audit.precision, audit.recall, flagged, right, seconds


def table(noise: str, seeds: int, methods: list[str]) -> Iterator[str]:
    """Yield the lines of one noise."""
    rows: dict[str, list[tuple[float | None, ...]]] = {method: [] for method in methods}
    for seed in range(seeds):
        cell = Cell(noise, seed)
        for method in methods:
            started = time.process_time()
            found = METHODS[method][1](cell)
            rows[method].append(row(found, cell, time.process_time() - started))
    yield f"**{noise}** ({seeds} seed{'s' if seeds > 1 else ''}, mean ± standard deviation)\n"
    yield measure.header(*HEAD)
    for method, measured in rows.items():
        digits = (3, 3, 3, 0, 1, 1)
        cells = [measure.spread(values, each) for values, each in zip(zip(*measured, strict=True), digits, strict=True)]
        yield measure.row(METHODS[method][0], *cells)
    yield ""


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--noise", nargs="+", default=NOISES, metavar="SPEC", help=f"default: {' '.join(NOISES)}")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=list(METHODS), metavar="NAME", help=", ".join(METHODS)
    )
    given = parser.parse_args()
    warnings.simplefilter("ignore", ConvergenceWarning)
    for noise in given.noise:
        for line in table(noise, given.seeds, given.methods):
            print(line, flush=True)
    measure.print_environment("scikit-learn", "cleanlab")


if __name__ == "__main__":
    main()
