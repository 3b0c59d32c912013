"""Measure which network RobustClassifier should take for images.

    python benchmarks/which_network.py --data-dir FOLDER
    python benchmarks/which_network.py --data digits --models perceptron --seeds 1    # a minute

1,500 images (digits: 1,437) with wrong labels. The fit may try networks only, and labels are not corrected. The figure
is the accuracy on the first 2,000 clean test images (digits: 360); in brackets the seconds of one core.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import measure
import torch
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

from symloss import RobustClassifier
from symloss.data.opening import open_data
from symloss.noise import corrupt

NOISE = {"digits": "sym:0.6", "mnist": "sym:0.6", "cifar10": "asym:0.3"}
MODELS = ("perceptron", "cnn4:width=0.5")
ROWS, TESTED = 1500, 2000


def measured(data: str, model: str, seed: int, root: Path | None) -> tuple[float, float]:
    """Return the accuracy in per cent, and the seconds of the fit."""
    opened = open_data(data, root=root)
    assert opened.test is not None
    parts: Any = opened.train.inputs, opened.train.labels, opened.test.inputs, opened.test.labels
    x, y, test, right = (part.numpy() for part in parts)
    if len(y) > ROWS:
        x, _, y, _ = train_test_split(x, y, train_size=ROWS, stratify=y, random_state=seed)
    noisy = corrupt(y, NOISE[data], num_classes=10, seed=seed, dataset=data).labels
    test, right = test[:TESTED], right[:TESTED]
    if model == "perceptron":
        x, test, model = x.reshape(len(x), -1), test.reshape(len(test), -1), "auto"
    else:
        shape = opened.input_shape if len(opened.input_shape) == 3 else (1, 8, 8)
        x, test = (part.reshape(len(part), *shape) for part in (x, test))
    network = RobustClassifier(model=model, learners=["network"], rounds=1, random_state=seed)
    started = time.process_time()
    network.fit(x, noisy)
    seconds = time.process_time() - started
    return 100 * float(network.score(test, right)), seconds


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--data", nargs="+", choices=NOISE, default=list(NOISE), help="data sets")
    parser.add_argument(
        "--models", nargs="+", default=MODELS, metavar="NAME", help="networks for images, or perceptron"
    )
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds (default: 3)")
    parser.add_argument("--data-dir", type=Path, help="folder with MNIST and CIFAR-10")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print(measure.header("", *chosen.models))
    for data in chosen.data:
        cells = []
        for model in chosen.models:
            runs = [measured(data, model, seed, chosen.data_dir) for seed in range(chosen.seeds)]
            accuracies, seconds = zip(*runs, strict=True)
            cells.append(f"{measure.spread(accuracies, 1)} ({statistics.fmean(seconds):.0f} s)")
        print(measure.row(f"{data}, {NOISE[data]}", *cells), flush=True)


if __name__ == "__main__":
    main()
