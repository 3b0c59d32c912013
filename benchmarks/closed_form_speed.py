"""Compare the centroid classifier with logistic regression on noisy MNIST, and its fit with one matrix product.

    OMP_NUM_THREADS=1 python benchmarks/closed_form_speed.py --check
    OMP_NUM_THREADS=1 python benchmarks/closed_form_speed.py --class-sums    # the sums of many classes

Without MNIST, scikit-learn's digits are enlarged and repeated up to the same size.

--class-sums adds up rows of 256 numbers whose classes come in any order, or sorted: 50,000 rows, and five times as many
of the same classes. The difference is what further rows cost, without the table of sums, which is made once. Median and
range of nine turns.
"""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import measure
import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from symloss.closed_form.sums import class_sums
from symloss.closed_form.unhinged import UnhingedClassifier
from symloss.data.dataset import DataSet, Examples
from symloss.data.opening import open_data
from symloss.data.published import open_digits
from symloss.noise import corrupt

NOISE = "sym:0.8"
EXAMPLES = 60_000
PIXELS = 28
"""Width and height of an image of MNIST."""
ITERATIONS = 60
"""Iterations of logistic regression."""
FASTER = 100
"""How many times faster than logistic regression the fit must be."""
ROWS, COLUMNS, CLASSES = 1_000_000, 256, 10
SLOWER = 3
"""How many times slower than one product of that shape the fit may be."""
MANY, FEW, TURNS = 250_000, 50_000, 9
"""Rows whose class sums are timed, and the number of turns."""


def against_logistic_regression(repeats: int, root: Path | None, examples: int = EXAMPLES) -> dict[str, Any]:
    """Compare seconds of a fit and accuracy on clean test data. Four of five training labels are drawn at random."""
    source, (x, noisy), (test_x, test_y) = _noisy_digits(root, examples)
    ours, theirs = UnhingedClassifier(), LogisticRegression(max_iter=ITERATIONS)
    before = [_seconds(ours, x, noisy) for _ in range(repeats)]
    slow = _seconds(theirs, x, noisy)
    fast = statistics.median(before + [_seconds(ours, x, noisy) for _ in range(repeats)])
    return {
        "data": source,
        "shape": list(x.shape),
        "noise": NOISE,
        "repeats": 2 * repeats,
        "seconds": {"centroid": fast, "logistic regression": slow},
        "accuracy": {
            "centroid": float(ours.score(test_x, test_y)),
            "centroid, not centred": float(UnhingedClassifier(center=False).fit(x, noisy).score(test_x, test_y)),
            "logistic regression": float(theirs.score(test_x, test_y)),
        },
        "times_faster": slow / fast,
    }


def against_a_product(repeats: int, rows: int = ROWS) -> dict[str, Any]:
    """Compare a fit to float32 features with the product X^T Y, where Y has the labels as indicator columns."""
    random = np.random.default_rng(0)
    x = random.standard_normal((rows, COLUMNS), dtype=np.float32)
    y = random.integers(CLASSES, size=rows)
    columns = np.zeros((rows, CLASSES), np.float32)
    columns[np.arange(rows), y] = 1
    runs: dict[str, Any] = {"product": lambda: x.T @ columns, "fit": lambda: UnhingedClassifier().fit(x, y)}
    return {"shape": [rows, COLUMNS], "classes": CLASSES, **measure.interleaved(runs, repeats)}


def closed_form_failures(digits: dict[str, Any], matrix: dict[str, Any]) -> list[str]:
    """Return the targets that were missed, one line each."""
    ours, theirs = (digits["accuracy"][name] for name in ("centroid", "logistic regression"))
    checks = {
        f"{digits['times_faster']:.0f} times faster than logistic regression, target {FASTER}": digits["times_faster"]
        >= FASTER,
        f"accuracy {ours:.4f}, target that of logistic regression, {theirs:.4f}": ours >= theirs,
        f"{matrix['ratios']['fit']:.2f} times one matrix product, target {SLOWER}": matrix["ratios"]["fit"] <= SLOWER,
    }
    return [text for text, met in checks.items() if not met]


def class_sum_rows(many: int = MANY, few: int = FEW) -> Iterator[tuple[str, ...]]:
    """Yield classes, order, and the median and range of the seconds that a million further rows cost."""
    random = np.random.default_rng(0)
    features = random.standard_normal((many, COLUMNS), dtype=np.float32)
    for classes in (10, 1_000, 100_000):
        drawn = random.integers(classes, size=few)
        ordered = np.sort(drawn)
        orders = {
            "any": (drawn, np.tile(drawn, many // few)),
            "sorted": (ordered, np.repeat(ordered, many // few)),
        }

        def seconds(labels: NDArray[np.int64], classes: int = classes) -> float:
            return measure.timed(lambda: class_sums(features[: len(labels)], labels, num_classes=classes)).seconds

        for order, (less, more) in orders.items():
            million = sorted((seconds(more) - seconds(less)) * 1e6 / (many - few) for _ in range(TURNS))
            spread = f"{million[0]:.2f} to {million[-1]:.2f}"
            yield f"{classes:,}", order, f"{statistics.median(million):.2f}", spread


Part = tuple[NDArray[np.float32], NDArray[np.int64]]


def _noisy_digits(root: Path | None, examples: int) -> tuple[str, Part, Part]:
    """Return the source, pixels and noisy labels to train on, and pixels and clean labels to test on."""
    try:
        data = open_data("mnist", root=root)
    except FileNotFoundError:
        data = open_digits()
        (x, y), (test_x, test_y) = _parts(data)
        x, test_x = _enlarged(x), _enlarged(test_x)
        # Copies of an image share its wrong label. With different labels, a vote among them would give the true one.
        copies = np.arange(examples) % len(x)
        source = "digits, enlarged and tiled to the size of MNIST"
        return source, (x[copies], _corrupted(y)[copies]), (test_x, test_y)
    (x, y), (test_x, test_y) = _parts(data)
    return "MNIST", (x[:examples], _corrupted(y[:examples])), (test_x, test_y)


def _corrupted(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    return corrupt(labels, NOISE, num_classes=CLASSES, seed=0).labels


def _parts(data: DataSet) -> tuple[Part, Part]:
    """Pixels in [0, 1] as rows of float32, and labels, to train and to test on."""
    assert data.test is not None
    return _arrays(data.train), _arrays(data.test)


def _arrays(examples: Examples) -> Part:
    inputs: Any = examples.inputs
    return inputs.flatten(1).float().div(255).numpy(), examples.labels.numpy()


def _enlarged(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Images of 8 x 8 pixels, enlarged to 24 x 24 with a margin of two."""
    images = x.reshape(-1, 8, 8).repeat(3, 1).repeat(3, 2)
    margin = (PIXELS - images.shape[1]) // 2
    return np.pad(images, ((0, 0), (margin, margin), (margin, margin))).reshape(len(x), -1)


def _seconds(model: Any, x: NDArray[np.float32], y: Any) -> float:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the iterations are limited on purpose
        return measure.timed(lambda: model.fit(x, y)).seconds


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="timed runs of each; the median counts (default: 7)")
    parser.add_argument("--examples", type=int, default=EXAMPLES, help="training images (default: 60,000)")
    parser.add_argument("--rows", type=int, default=ROWS, help="rows of the large matrix (default: 1,000,000)")
    parser.add_argument("--class-sums", action="store_true", help="time the sums of each class instead")
    parser.add_argument("--data-dir", type=Path, help="folder with MNIST")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    given = parser.parse_args()
    measure.print_environment("numpy", "scikit-learn")
    if given.class_sums:
        measure.print_table(("classes", "order", "seconds for a million rows", "range"), class_sum_rows())
        return
    digits = against_logistic_regression(given.repeats, given.data_dir, given.examples)
    n, d = digits["shape"]
    print(f"{digits['data']}, {n:,} x {d}, {digits['noise']}: {digits['times_faster']:.0f} times faster\n")
    seconds = {name: f"{each:.3f}" for name, each in digits["seconds"].items()}
    measure.print_table(
        ("classifier", "seconds", "accuracy on clean test data"),
        ((name, seconds.get(name, "-"), f"{100 * each:.1f} %") for name, each in digits["accuracy"].items()),
    )
    matrix = against_a_product(given.repeats, given.rows)
    n, d = matrix["shape"]
    print(
        f"\nfit of {n:,} x {d} float32, {matrix['classes']} classes: {matrix['seconds']['fit']:.3f} s, "
        f"{matrix['ratios']['fit']:.2f} times one product X^T Y (medians of {matrix['repeats']} in turns)"
    )
    if given.check:
        measure.judge(closed_form_failures(digits, matrix))


if __name__ == "__main__":
    main()
