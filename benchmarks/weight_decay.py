"""How much weight decay tables with wrong labels need: python weight_decay.py (about 10 minutes)

Clean test accuracy of the epoch that noisy validation labels choose, and of the last one.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from sklearn.datasets import make_classification

from symloss.runs.result import in_percent
from symloss.training import resolve, train

SEEDS, LOSSES, DECAYS = range(3), ("ce", "gce", "sgce", "alpha-mae"), (1e-4, 1e-2, 3e-2, 5e-2)


def write_table(path: Path, seed: int) -> None:
    """3,000 rows to train on and 3,000 to test on: 20 numbers, 10 of them informative, 5 classes."""
    x, y = make_classification(6000, 20, n_informative=10, n_redundant=5, n_classes=5, random_state=seed)
    x = x.astype(np.float32)
    np.savez(path, x=x[:3000], y=y[:3000], x_test=x[3000:], y_test=y[3000:])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for seed in SEEDS:
            write_table(root / f"{seed}.npz", seed)
        for loss in LOSSES:
            for decay in DECAYS:
                settings = [
                    resolve(root / f"{seed}.npz", loss, noise="sym:0.25", seed=seed, weight_decay=decay)
                    for seed in SEEDS
                ]
                results = [train(each, root / each.key, accelerator="cpu") for each in settings]
                best, last = (
                    in_percent(row.test_accuracy for row in rows)
                    for rows in ([result.best for result in results], [result.last for result in results])
                )
                assert best is not None
                assert last is not None
                print(f"{loss}, weight decay {decay:g}: best epoch {best.text}, last epoch {last.text}", flush=True)


if __name__ == "__main__":
    main()
