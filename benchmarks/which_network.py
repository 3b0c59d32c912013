"""Which network RobustClassifier should take for images: python benchmarks/which_network.py --data-dir FOLDER

1,500 images (digits: 1,437) with wrong labels. The fit may try networks only, and labels are not corrected. The figure
is the accuracy on the first 2,000 clean test images (digits: 360); in brackets the seconds of one core. ``--data``,
``--models`` and ``--seeds`` take other values.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
from sklearn.model_selection import train_test_split

from symloss import RobustClassifier
from symloss.data.opening import open_data
from symloss.noise import corrupt
from symloss.training.results import Spread

NOISE = {"digits": "sym:0.6", "mnist": "sym:0.6", "cifar10": "asym:0.3"}
MODELS = ("perceptron", "cnn4:width=0.5")
ROWS, TESTED = 1500, 2000


def measured(data: str, model: str, seed: int, root: Path | None) -> tuple[float, float]:
    """The accuracy in per cent, and the seconds of the fit."""
    opened = open_data(data, root=root)
    assert opened.test is not None
    x, y = (part.numpy() for part in (opened.train.inputs, opened.train.labels))
    if len(y) > ROWS:
        x, _, y, _ = train_test_split(x, y, train_size=ROWS, stratify=y, random_state=seed)
    noisy = corrupt(y, NOISE[data], num_classes=10, seed=seed, dataset=data).labels
    test, right = opened.test.inputs.numpy()[:TESTED], opened.test.labels.numpy()[:TESTED]
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", nargs="+", choices=NOISE, default=list(NOISE))
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--data-dir", type=Path, help="where MNIST and CIFAR-10 are")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    print("| | " + " | ".join(chosen.models) + " |\n|---" + "|---:" * len(chosen.models) + "|")
    for data in chosen.data:
        cells = []
        for model in chosen.models:
            runs = [measured(data, model, seed, chosen.data_dir) for seed in range(chosen.seeds)]
            accuracy, seconds = (Spread.of(column) for column in zip(*runs, strict=True))
            cells.append(f"{accuracy.text} ({seconds.mean:.0f} s)")
        print(f"| {data}, {NOISE[data]} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
