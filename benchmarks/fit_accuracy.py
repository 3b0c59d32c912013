"""Measure how well ``RobustClassifier`` and its rivals learn from noisy labels, on clean test data.

    OMP_NUM_THREADS=1 python benchmarks/fit_accuracy.py                 # hours
    OMP_NUM_THREADS=1 python benchmarks/fit_accuracy.py --data digits --noise sym:0.6 --seeds 0 1 --methods symloss svc

Prints accuracy, rank, audit, noise rate and time as Markdown. Rivals choose among up to four settings by the same noisy
folds. Every finished row is kept at once as a JSON file and isn't measured again: rerun the same command to resume.
Data sets whose files are missing are left out with a line.
"""

from __future__ import annotations

import importlib.util
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import fit_table
import measure
import numpy as np
from fit_rivals import RIVALS, Tuning, with_probabilities
from fit_table import Row
from noisy_cells import PUBLISHED, SOURCES, Labels, NoisyCell, Place, Plan, open_cell
from real_rivals import quietly_fitted
from sklearn.metrics import average_precision_score  # type: ignore[import-untyped]

from symloss import RobustClassifier
from symloss.data.opening import open_data
from symloss.environment import data_root, versions
from symloss.fit.networks import one_thread
from symloss.fit.training_data import Floats
from symloss.noise import parse
from symloss.noise.labels import human_file, require_human_file
from symloss.writing import write_whole

METHODS = ("symloss", *RIVALS, "cleanlab")
ROWS = Path("docs/results/fit")


def row_file(place: Place, folder: Path) -> Path:
    """Return the file of a row."""
    return folder / place.data / f"{re.sub(r'[^a-z0-9.]+', '-', place.noise.lower())}-{place.seed}-{place.method}.json"


def planned(
    data: Sequence[str],
    noises: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] = METHODS,
    root: Path | None = None,
) -> Plan:
    """Return what to measure. cleanlab comes last in a cell, and brings along the rivals that it builds on.

    Args:
        data: names of ``SOURCES``.
        noises: specs of noise; None for those of each data set.
        seeds: None for as many as each data set has.
        methods: some of ``METHODS``.
        root: the folder of published data.

    >>> [str(place) for place in planned(["wine"], seeds=[0, 2], methods=["svc"]).places]
    ['wine sym:0.3, seed 0, svc', 'wine sym:0.3, seed 2, svc']
    """
    missing = {name: _missing(name, root) for name in data}
    left_out = [f"{name} is left out: {reason}" for name, reason in missing.items() if reason]
    cleaning = "cleanlab" in methods
    if cleaning and not has_cleanlab():
        cleaning = False
        left_out.append("cleanlab is left out: it is not installed (pip install 'symloss[cleanlab]')")
    named = {*methods, *(RIVALS if cleaning else ())} - (set() if cleaning else {"cleanlab"})
    specs = None if noises is None else [str(parse(noise)) for noise in noises]
    places = [
        Place(name, noise, seed, method)
        for name, reason in missing.items()
        if not reason
        for noise in (SOURCES[name].noises if specs is None else specs)
        for seed in (range(SOURCES[name].seeds) if seeds is None else seeds)
        for method in METHODS
        if method in named
    ]
    return Plan(places, left_out)


def _missing(name: str, root: Path | None) -> str:
    """Return why a published data set cannot be opened; empty if it can."""
    if name not in PUBLISHED:
        return ""
    folder = data_root() if root is None else root
    try:
        open_data(PUBLISHED[name], root=folder)
        for noise in SOURCES[name].noises:
            if noise.startswith("human"):
                require_human_file(human_file(parse(noise), folder))
    except FileNotFoundError as error:
        return str(error)
    return ""


def read_rows(folder: Path, places: Sequence[Place]) -> list[Row]:
    """Return the rows that are finished."""
    return [json.loads(file.read_text()) for file in (row_file(place, folder) for place in places) if file.exists()]


def has_cleanlab() -> bool:
    """Return whether cleanlab is installed."""
    return importlib.util.find_spec("cleanlab") is not None


def environment() -> Row:
    """Return hardware, versions and the commit, as every row keeps them."""
    packages = ("numpy", "scikit-learn", *(["cleanlab"] if has_cleanlab() else []))
    return {**measure.environment(*packages), "commit": versions()["commit"]}


def measure_all(folder: Path, places: Sequence[Place], root: Path | None = None) -> Iterator[Row]:
    """Measure, and keep each row in a file as soon as it is there.

    Args:
        folder: of the rows.
        places: what to measure.
        root: the folder of published data.
    """
    found = environment()  # of the start: the checkout may change while this runs
    opened: tuple[tuple[str, str, int], NoisyCell, Tuning] | None = None
    with one_thread():
        for place in places:
            if opened is None or opened[0] != place.cell:
                cell = open_cell(*place.cell, root)
                opened = (place.cell, cell, Tuning(cell))
            row = {**asdict(place), **_measured(place, *opened[1:], folder), "environment": found}
            path = row_file(place, folder)
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
    """Return the expected calibration error: how far confidence is from accuracy, over bins of equal width.

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

    rivals = read_rows(folder, [Place(*place.cell, one) for one in RIVALS])
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


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--data", nargs="+", choices=SOURCES, metavar="NAME", help=", ".join(SOURCES))
    parser.add_argument("--noise", nargs="+", metavar="SPEC", help="clean, sym:0.6 ... (default: by data set)")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="default: 5 for digits, 3 for other data")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=METHODS, metavar="NAME",
        help=f"{', '.join(METHODS)}; cleanlab builds on the best of the others and brings them along",
    )  # fmt: skip
    parser.add_argument("--rows", type=Path, default=ROWS, help=f"folder of finished rows (default: {ROWS})")
    parser.add_argument("--only-show", action="store_true", help="measure nothing; show finished rows")
    parser.add_argument("--data-dir", type=Path, help="folder with MNIST, CIFAR-10 and CIFAR-10N")
    given = parser.parse_args()
    data = given.data or [name for name in SOURCES if name != "mnist-all"]
    plan = planned(data, given.noise, given.seeds, given.methods, given.data_dir)
    for line in plan.left_out:
        print(line, file=sys.stderr)
    left = [] if given.only_show else [place for place in plan.places if not row_file(place, given.rows).exists()]
    measure.with_progress(measure_all(given.rows, left, given.data_dir), [str(place) for place in left])
    finished = read_rows(given.rows, plan.places)
    if not finished:
        parser.error(f"no finished row of these measurements in {str(given.rows)!r}; leave out --only-show")
    print(fit_table.markdown(finished), end="")


if __name__ == "__main__":
    main()
