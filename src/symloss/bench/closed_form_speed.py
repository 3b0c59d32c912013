"""Speed and accuracy of the closed form against logistic regression, and its speed against one matrix product."""

from __future__ import annotations

import statistics
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning  # type: ignore[import-untyped]
from sklearn.linear_model import LogisticRegression  # type: ignore[import-untyped]

from symloss.bench import measure
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
"""The iterations of logistic regression."""
FASTER = 100
"""How many times faster than logistic regression the fit must be."""
ROWS, COLUMNS, CLASSES = 1_000_000, 256, 10
SLOWER = 3
"""How many times slower than one product of that shape the fit may be."""


def measure_closed_form(
    repeats: int, root: Path | None, examples: int = EXAMPLES, rows: int = ROWS
) -> Iterator[dict[str, Any]]:
    """Yield two results: first that of noisy digits, then that of a large matrix.

    Args:
        repeats: how many runs of each count.
        root: the folder of data sets. Without MNIST in it, enlarged digits of scikit-learn are used.
        examples: how many images to train on.
        rows: the rows of the large matrix.
    """
    yield against_logistic_regression(repeats, root, examples)
    yield against_a_product(repeats, rows)


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
    """The targets that were missed, each as one line."""
    ours, theirs = (digits["accuracy"][name] for name in ("centroid", "logistic regression"))
    checks = {
        f"{digits['times_faster']:.0f} times faster than logistic regression, target {FASTER}": digits["times_faster"]
        >= FASTER,
        f"accuracy {ours:.4f}, target that of logistic regression, {theirs:.4f}": ours >= theirs,
        f"{matrix['ratios']['fit']:.2f} times one matrix product, target {SLOWER}": matrix["ratios"]["fit"] <= SLOWER,
    }
    return [text for text, met in checks.items() if not met]


Part = tuple[NDArray[np.float32], NDArray[np.int64]]


def _noisy_digits(root: Path | None, examples: int) -> tuple[str, Part, Part]:
    """The source, pixels and noisy labels to train on, and pixels and clean labels to test on."""
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
    return corrupt(labels, NOISE, classes=CLASSES, seed=0).labels


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
