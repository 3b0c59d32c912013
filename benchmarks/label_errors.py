"""Find mislabelled examples with out-of-fold probabilities: ``symloss.audit`` against cleanlab.

    python benchmarks/label_errors.py FILE.npz ...                    # log_probs, labels, true_labels; about a minute
    python benchmarks/label_errors.py --data digits mnist --root DIR  # probabilities of quick models; an hour
    python benchmarks/label_errors.py --data digits --noise sym:0.4 --models lda     # seconds
    python benchmarks/label_errors.py FILE.npz ... --temperatures     # estimated shares by the temperature; minutes
    python benchmarks/label_errors.py --size 1000000 100              # time and memory, in a process of its own

For each file, or data set, noise and model: average precision of the ranking against the best of cleanlab's scores
(self-confidence, normalized margin, confidence-weighted entropy), F1 of the flags against ``find_label_issues``'s
defaults, estimated share of wrong labels, and the share of flagged wrong labels whose suggestion (or most probable
class) is the true one. ``--rows FILE`` appends them as JSON lines. ``--temperatures`` shows instead how many points the
estimated share of wrong labels is off at other temperatures, and how many standard errors less likely the labels are.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import measure
import numpy as np
import torch
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.decomposition import PCA  # type: ignore[import-untyped]
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis  # type: ignore[import-untyped]
from sklearn.ensemble import RandomForestClassifier  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]
from sklearn.metrics import average_precision_score, f1_score  # type: ignore[import-untyped]
from sklearn.model_selection import StratifiedKFold, cross_val_predict  # type: ignore[import-untyped]
from sklearn.neural_network import MLPClassifier  # type: ignore[import-untyped]

import symloss
from symloss.data import open_data
from symloss.encoders import encode
from symloss.noise import calibrate, corrupt

SCORES = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
NOISE = ("clean", "sym:0.2", "sym:0.4", "sym:0.6", "asym:0.2", "asym:0.4", "pair:0.3", "instance:0.2", "instance:0.4")
SIZES = {"digits": 1797, "mnist": 5000, "cifar10": 4000}
MODELS: Mapping[str, Callable[[], Any]] = {
    "logistic": lambda: LogisticRegression(C=0.01, max_iter=100),
    "logistic, weak penalty": lambda: LogisticRegression(C=10, max_iter=100),
    "lda": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
    "forest": lambda: RandomForestClassifier(random_state=0),
    "forest, leaves of 10": lambda: RandomForestClassifier(min_samples_leaf=10, random_state=0),
    "mlp, 5 epochs": lambda: MLPClassifier(128, max_iter=5, batch_size=64, random_state=0),
    "mlp, 40 epochs": lambda: MLPClassifier(128, max_iter=40, batch_size=64, random_state=0),
}
FACTORS = (0.7, 0.5, 0.25)
"""Of the temperature that was chosen."""
COLUMNS = ("AP", "cleanlab", "F1", "cleanlab", "estimated", "true", "covered", "suggestions", "argmax")

Row = dict[str, Any]
Held = tuple[Any, Any, Any]
"""Out-of-fold probabilities, noisy labels and true ones."""


def compared(held: Held) -> Row:
    """Return the figures of both programs."""
    probabilities, labels, truth = held
    wrong, start = labels != truth, time.perf_counter()
    audit = symloss.audit(labels, probabilities, truth=truth)
    seconds = time.perf_counter() - start
    low, high = audit.n_wrong_interval
    found = audit.flagged & wrong
    theirs = find_label_issues(labels, probabilities, n_jobs=1)
    scores = {name: get_label_quality_scores(labels, probabilities, method=name) for name in SCORES}
    any_wrong = bool(wrong.any())
    return {
        "labels": len(labels),
        "wrong": float(wrong.mean()),
        "estimated": audit.n_wrong / len(labels),
        "covered": bool(low <= wrong.sum() <= high),
        "interval": [low / len(labels), high / len(labels)],
        "ap": audit.average_precision,
        "cleanlab_ap": {
            name: float(average_precision_score(wrong, -each)) for name, each in scores.items() if any_wrong
        },
        "f1": float(f1_score(wrong, audit.flagged)) if any_wrong else None,
        "cleanlab_f1": float(f1_score(wrong, theirs)) if any_wrong else None,
        "cleanlab_estimated": float(theirs.mean()),
        "suggestions": float((audit.suggested == truth)[found].mean()) if found.any() else None,
        "argmax": float((probabilities.argmax(1) == truth)[found].mean()) if found.any() else None,
        "suggestion_alone": int(((audit.suggested == truth) & (probabilities.argmax(1) != truth))[found].sum()),
        "argmax_alone": int(((audit.suggested != truth) & (probabilities.argmax(1) == truth))[found].sum()),
        "seconds": round(seconds, 2),
    }


def explained(scores: torch.Tensor, labels: torch.Tensor, temperature: float) -> tuple[float, torch.Tensor]:
    """Return the share of wrong labels by the most likely transition matrix, and the log-likelihood of each label."""
    true, given = (scores / temperature).softmax(1), torch.nn.functional.one_hot(labels, scores.shape[1]).double()
    transition = 0.3 / scores.shape[1] + 0.7 * torch.eye(scores.shape[1], dtype=torch.float64)
    for _ in range(60):
        joint = true * transition[:, labels].T
        counts = (joint / joint.sum(1, keepdim=True)).T @ given
        transition = counts / counts.sum(1, keepdim=True).clamp_min(1e-300)
    likelihood = (true * transition[:, labels].T).sum(1).clamp_min(1e-300).log()
    return 1 - float(true.mean(0) @ transition.diagonal()), likelihood


def at_temperatures(held: Held) -> Row:
    """Return the error of the estimated share at several temperatures in points, and standard errors of likelihood."""
    probabilities, labels, truth = (torch.from_numpy(each) for each in held)
    scores = (probabilities.double() + 1e-6).log()
    chosen = calibrate(scores, labels, separation=None).temperature
    temperatures = {"most likely": calibrate(scores, labels).temperature, "chosen": chosen}
    temperatures |= {f"x {factor}": factor * chosen for factor in FACTORS}
    right = torch.eye(scores.shape[1], dtype=torch.float64)
    temperatures["of true labels"] = calibrate(scores, truth, right).temperature
    found = {name: explained(scores, labels, temperature) for name, temperature in temperatures.items()}
    likely, wrong = found["most likely"][1], float((labels != truth).double().mean())
    row: Row = {"wrong": wrong}
    for name, (rate, likelihood) in found.items():
        less = likelihood - likely
        error = float(less.std()) / len(less) ** 0.5
        row[name] = (100 * abs(rate - wrong), float(less.mean()) / error if error else 0.0)
    return row


def read(path: Path) -> Held:
    """Return what a file of probabilities holds."""
    with np.load(path, allow_pickle=False) as file:
        probabilities = np.exp(file["log_probs"].astype(np.float64))
        labels, truth = (file[name].astype(np.int64) for name in ("labels", "true_labels"))
    return probabilities / probabilities.sum(1, keepdims=True), labels, truth


def features(name: str, root: Path | None) -> tuple[Any, Any]:
    """Return the features and true labels of a data set: pixels, or EfficientNet-Lite0's features of photos."""
    if name == "digits":
        inputs, truth = load_digits(return_X_y=True)
        return inputs / 16, truth
    data = open_data(name, root=root).train
    assert isinstance(data.inputs, torch.Tensor)
    chosen = torch.from_numpy(np.random.default_rng(0).choice(len(data), SIZES[name], replace=False))
    if name == "cifar10":
        cache = None if root is None else root / "features"
        inputs = np.asarray(encode(data.inputs[chosen], "efficientnet-lite0", cache=cache))
        inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    else:
        inputs = data.inputs[chosen].flatten(1).numpy() / 255
    reduced = PCA(150, random_state=0, svd_solver="randomized").fit_transform(inputs)
    return reduced / reduced.std(), data.labels[chosen].numpy()


def of_models(name: str, noise: list[str], models: list[str], root: Path | None) -> Iterator[tuple[Row, Held]]:
    """Yield the probabilities of quick models of a data set with synthetic noise."""
    inputs, truth = features(name, root)
    for spec in noise:
        labels = corrupt(truth, spec, num_classes=10, seed=0, dataset=name, inputs=inputs).labels.astype(np.int64)
        for model in models:
            folds = StratifiedKFold(5, shuffle=True, random_state=0)
            held_out = cross_val_predict(MODELS[model](), inputs, labels, cv=folds, method="predict_proba")
            yield {"data": name, "noise": spec, "model": model}, (held_out, labels, truth)


def large(size: int, classes: int) -> tuple[float, float, float, float, int, int]:
    """Return seconds and gigabytes of an audit of random probabilities in a memory-mapped file, and the counts."""
    with tempfile.TemporaryDirectory() as folder:
        path, random = Path(folder) / "pred_probs.npy", np.random.default_rng(0)
        array = np.lib.format.open_memmap(path, "w+", np.float32, (size, classes))
        truth = random.integers(0, classes, size)
        for start in range(0, size, 2000):
            scores = random.standard_normal((min(2000, size - start), classes), np.float32)
            scores[np.arange(len(scores)), truth[start : start + 2000]] += np.log(classes) + 3
            exponentials = np.exp(scores)
            array[start : start + 2000] = exponentials / exponentials.sum(1, keepdims=True)
        array.flush()
        del array
        labels = np.where(random.random(size) < 0.2, random.integers(0, classes, size), truth)
        np.save(Path(folder) / "labels.npy", labels)
        found = measure.in_own_process(measured, path)
        return *found[:3], path.stat().st_size / 1e9, found[3], int((labels != truth).sum())


def measured(path: Path) -> tuple[float, float, float, int]:
    """Return seconds, those of the processor, peak memory in gigabytes, and the estimated number of wrong labels."""
    start = time.perf_counter()
    found = symloss.audit(np.load(path.with_name("labels.npy")), np.load(path, mmap_mode="r"))
    return time.perf_counter() - start, time.process_time(), measure.peak_memory() / 1e9, found.n_wrong


def cells(row: Row) -> list[str]:
    """Return a line of the table."""
    theirs = max(row["cleanlab_ap"].values(), default=None)
    shares = (row["ap"], theirs, row["f1"], row["cleanlab_f1"], row["estimated"], row["wrong"])
    shown = ["" if share is None else f"{share:.3f}" for share in (*shares, row["suggestions"], row["argmax"])]
    return [*shown[:6], "yes" if row["covered"] else "no", *shown[6:]]


def summary(rows: list[Row]) -> Iterator[list[str]]:
    """Yield a line for each data set and noise: means over models, and of how many models one program is ahead."""
    for data, noise in dict.fromkeys((row["data"], row["noise"]) for row in rows):
        part = [row for row in rows if (row["data"], row["noise"]) == (data, noise)]
        error, theirs = (
            100 * statistics.mean(abs(row[name] - row["wrong"]) for row in part)
            for name in ("estimated", "cleanlab_estimated")
        )
        line = [data, noise, *([""] * 6)]
        if part[0]["wrong"]:
            best = [max(row["cleanlab_ap"].values()) for row in part]
            means = [
                [row["ap"] for row in part],
                best,
                [row["f1"] for row in part],
                [row["cleanlab_f1"] for row in part],
            ]
            ahead = sum(row["ap"] >= other for row, other in zip(part, best, strict=True))
            better = sum(row["f1"] >= row["cleanlab_f1"] for row in part)
            a, b, c, d = (f"{statistics.mean(each):.3f}" for each in means)
            line = [data, noise, a, b, f"{ahead}/{len(part)}", c, d, f"{better}/{len(part)}"]
        yield [*line, f"{error:.1f}", f"{theirs:.1f}", f"{sum(row['covered'] for row in part)}/{len(part)}"]


def print_temperatures(rows: list[Row]) -> None:
    """Print the mean error at each temperature, and in brackets the mean standard errors of log-likelihood."""
    places = [(row["file"], "") if "file" in row else (row["data"], row["noise"]) for row in rows]
    names = [name for name in rows[0] if isinstance(rows[0][name], tuple)]
    lines = []
    for place in dict.fromkeys(places):
        part = [row for row, other in zip(rows, places, strict=True) if other == place]
        means = [[statistics.mean(row[name][k] for row in part) for k in (0, 1)] for name in names]
        lines.append([*place, f"{part[0]['wrong']:.3f}", *(f"{error:.1f} ({less:.1f})" for error, less in means)])
    measure.print_table(("file or data", "noise", "true", *names), lines, left=2)


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE", help="probabilities with true labels")
    parser.add_argument("--data", nargs="+", default=[], choices=SIZES, help="data sets for quick models")
    parser.add_argument("--noise", nargs="+", default=NOISE, metavar="SPEC", help="clean, sym:0.4 ...")
    parser.add_argument(
        "--models", nargs="+", default=list(MODELS), choices=MODELS, metavar="NAME", help="quick models"
    )
    parser.add_argument("--root", type=Path, help="folder of published data sets")
    parser.add_argument("--temperatures", action="store_true", help="only the estimated share at other temperatures")
    parser.add_argument("--size", nargs=2, type=int, metavar=("N", "C"), help="only time and memory for N labels")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="append JSON lines")
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    measure.print_environment("numpy", "scikit-learn", "cleanlab")
    if chosen.size:
        names = ("seconds", "processor seconds", "GB of memory", "GB of probabilities", "estimated wrong", "wrong")
        found = large(*chosen.size)
        measure.print_table(
            names, [[f"{found[0]:.0f}", f"{found[1]:.0f}", f"{found[2]:.2f}", f"{found[3]:.2f}", *found[4:]]], left=0
        )
        return
    figures = at_temperatures if chosen.temperatures else compared
    rows = [{"file": path.stem} | figures(read(path)) for path in chosen.files]
    for name in chosen.data:
        rows += [place | figures(held) for place, held in of_models(name, chosen.noise, chosen.models, chosen.root)]
    if chosen.rows:
        with chosen.rows.open("a") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    if chosen.temperatures:
        print_temperatures(rows)
        return
    if chosen.files:
        measure.print_table(("file", *COLUMNS), [[row["file"], *cells(row)] for row in rows if "file" in row])
    if chosen.data:
        titles = ("data", "noise", "AP", "cleanlab", "ahead", "F1", "cleanlab", "ahead", "error", "cleanlab", "covered")
        measure.print_table(titles, summary([row for row in rows if "data" in row]), left=2)


if __name__ == "__main__":
    main()
