"""How well ``RobustClassifier`` and its rivals learn from wrong labels, measured on clean test data."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np
from sklearn.metrics import average_precision_score  # type: ignore[import-untyped]

from symloss.bench.fit_examples import Labels, NoisyCell, open_cell
from symloss.bench.fit_plan import Place, Row, has_cleanlab, read_rows
from symloss.bench.fit_rivals import RIVALS, Tuning, quietly_fitted, with_probabilities
from symloss.environment import hardware_and_versions, versions
from symloss.fit.estimator import RobustClassifier
from symloss.fit.splits import Floats
from symloss.fit.threads import one_thread
from symloss.writing import write_whole


def environment() -> Row:
    """Hardware, versions and the commit, as every row keeps them."""
    packages = ("numpy", "scikit-learn", *(["cleanlab"] if has_cleanlab() else []))
    return {**hardware_and_versions(*packages), "commit": versions()["commit"]}


def measure_all(folder: Path, places: Sequence[Place], root: Path | None = None) -> Iterator[Row]:
    """Measure what is not finished yet. Each row is kept in a file as soon as it is there.

    Args:
        folder: of the rows.
        places: what to measure.
        root: the folder of published data.
    """
    found = environment()  # of the start: the checkout may change while this runs
    opened: tuple[tuple[str, str, int], NoisyCell, Tuning] | None = None
    with one_thread():
        for place in places:
            key = (place.data, place.noise, place.seed)
            if opened is None or opened[0] != key:
                cell = open_cell(*key, root)
                opened = (key, cell, Tuning(cell))
            row = {**asdict(place), **_measured(place, *opened[1:], folder), "environment": found}
            path = place.path(folder)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, (json.dumps(row, indent=1) + "\n").encode())
            yield row


def _measured(place: Place, cell: NoisyCell, tuning: Tuning, folder: Path) -> Row:
    wall, processor = time.perf_counter(), time.process_time()
    if place.method == "symloss":
        found = _symloss(cell)
    elif place.method == "cleanlab":
        found = _cleanlab(place, cell, tuning, folder)
    else:
        found = _rival(place.method, cell, tuning)
    scores, predicted, margins = found.pop("label_scores"), found.pop("predicted"), found.pop("margins", None)
    probabilities = found.pop("probabilities", None)
    return {
        **found,
        "accuracy": float((predicted == cell.test_labels).mean()),
        "calibration_error": None if probabilities is None else calibration_error(probabilities, cell.test_labels),
        "average_precision": _average_precision(cell, scores),
        "average_precision_of_margins": _average_precision(cell, margins),
        "noise_rate": cell.noise_rate,
        "seconds": time.perf_counter() - wall,
        "processor_seconds": time.process_time() - processor,
        "rows": len(cell.noisy),
        "test_rows": len(cell.test_labels),
    }


def calibration_error(probabilities: Floats, labels: Labels, bins: int = 15) -> float:
    """The expected calibration error: how far confidence is from accuracy, over bins of equal width.

    Args:
        probabilities: (N, C).
        labels: (N,), class numbers.
        bins: of the confidence.

    >>> calibration_error(np.array([[0.9, 0.1], [0.9, 0.1]]), np.array([0, 1]))
    0.4
    """
    confidence = probabilities.max(1)
    gap = (probabilities.argmax(1) == labels) - confidence
    sums = np.bincount(np.minimum((confidence * bins).astype(int), bins - 1), gap)
    return float(np.abs(sums).sum() / len(labels))


def _average_precision(cell: NoisyCell, scores: Floats | None) -> float | None:
    if scores is None:
        return None
    known = np.isfinite(scores)
    wrong = (cell.noisy != cell.clean)[known]
    return float(average_precision_score(wrong, -scores[known])) if wrong.any() else None


def _symloss(cell: NoisyCell) -> Row:
    model = RobustClassifier(random_state=cell.seed).fit(cell.features, cell.noisy)
    probabilities = model.predict_proba(cell.test)
    return {
        "setting": {"learner": model.learner_, "loss": model.loss_, "epoch": model.epoch_},
        "noisy_accuracy": float(np.max(model.candidates_["noisy_accuracy"])),
        "noise_rate_estimate": model.noise_rate_,
        "noise_rate_interval": list(model.noise_rate_interval_),
        "label_scores": model.label_scores_,
        "predicted": model.classes_[probabilities.argmax(1)],
        "probabilities": probabilities,
    }


def _rival(name: str, cell: NoisyCell, tuning: Tuning) -> Row:
    chosen = tuning.choose(name)
    fitted = quietly_fitted(tuning.estimator(name, chosen.setting), tuning.features(name), cell.noisy)
    test = tuning.test(name)
    return {
        "setting": chosen.setting,
        "noisy_accuracy": chosen.noisy_accuracy,
        "label_scores": chosen.held_out[np.arange(len(cell.noisy)), cell.noisy],
        "predicted": fitted.predict(test),
        "probabilities": fitted.predict_proba(test) if hasattr(fitted, "predict_proba") else None,
        "margins": getattr(fitted, "margins_", None),
    }


def _cleanlab(place: Place, cell: NoisyCell, tuning: Tuning, folder: Path) -> Row:
    """CleanLearning over the rival with the best accuracy on noisy labels. What that choice took is not in its time."""
    from cleanlab.classification import CleanLearning  # noqa: PLC0415

    rivals = read_rows(folder, [Place(place.data, place.noise, place.seed, one) for one in RIVALS])
    best = max(rivals, key=lambda row: row["noisy_accuracy"])
    estimator = with_probabilities(tuning.estimator(best["method"], best["setting"]))
    cleaned = quietly_fitted(
        CleanLearning(estimator, cv_n_folds=len(tuning.splits), seed=cell.seed, find_label_issues_kwargs={"n_jobs": 1}),
        tuning.features(best["method"]),
        cell.noisy,
    )
    test = tuning.test(best["method"])
    joint = np.asarray(cleaned.confident_joint)
    return {
        "setting": {"over": best["method"], **best["setting"]},
        "noisy_accuracy": best["noisy_accuracy"],
        "noise_rate_estimate": float(1 - np.trace(joint) / joint.sum()),
        "label_scores": cleaned.get_label_issues()["label_quality"].to_numpy(),
        "predicted": cleaned.predict(test),
        "probabilities": cleaned.predict_proba(test),
    }
