"""Measure how much weight decay your own data with noisy labels needs.

    python benchmarks/weight_decay.py                              # tables (about 10 minutes)
    python benchmarks/weight_decay.py --photos 3000 --epochs 30    # images of CIFAR-10 (about 4 minutes a line)

Clean test accuracy of the epoch that noisy validation labels choose, and of the last one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import measure
import numpy as np
from sklearn.datasets import make_classification  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

from symloss.data.opening import open_data
from symloss.experiments import resolve
from symloss.training import train
from symloss.training.results import in_percent


class Plan(NamedTuple):
    """What is trained on files of one kind."""

    files: list[Path]
    """One for each seed."""
    noise: str
    losses: tuple[str, ...]
    decays: tuple[float, ...]
    epochs: int | None


def write_table(path: Path, seed: int) -> Path:
    """3,000 rows to train on and 3,000 to test on: 20 numbers, 10 of them informative, 5 classes."""
    x, y = make_classification(6000, 20, n_informative=10, n_redundant=5, n_classes=5, random_state=seed)
    x = x.astype(np.float32)
    np.savez(path, x=x[:3000], y=y[:3000], x_test=x[3000:], y_test=y[3000:])
    return path


def write_photos(path: Path, count: int, data_dir: Path | None) -> Path:
    """Images of CIFAR-10 with as many of each class, and 2,000 to test on, as a user's own."""
    data = open_data("cifar10", root=data_dir)
    assert data.test is not None
    parts: dict[str, Any] = {}
    for part, size, suffix in ((data.train, count, ""), (data.test, 2000, "_test")):
        inputs: Any = part.inputs
        labels = part.labels.numpy()
        kept, _ = train_test_split(np.arange(len(labels)), train_size=size, random_state=0, stratify=labels)
        parts |= {f"x{suffix}": inputs.numpy()[kept], f"y{suffix}": labels[kept]}
    np.savez(path, **parts)
    return path


def lines(plan: Plan, root: Path) -> Iterator[str]:
    """Yield a line for each loss and weight decay."""
    for loss in plan.losses:
        for decay in plan.decays:
            settings = [
                resolve(file, loss, noise=plan.noise, seed=seed, weight_decay=decay, epochs=plan.epochs)
                for seed, file in enumerate(plan.files)
            ]
            results = [train(each, root / each.key, accelerator="cpu") for each in settings]
            best, last = (
                in_percent(row.test_accuracy for row in rows)
                for rows in ([result.best for result in results], [result.last for result in results])
            )
            assert best is not None
            assert last is not None
            yield f"{loss}, weight decay {decay:g}: best epoch {best.text}, last epoch {last.text}"


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--photos", type=int, metavar="N", help="train on N images instead of tables")
    parser.add_argument("--epochs", type=int, help="number of epochs (default: that of the data)")
    parser.add_argument("--data-dir", type=Path, help="folder with CIFAR-10")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        if given.photos:
            files = [write_photos(root / "photos.npz", given.photos, given.data_dir)]
            plan = Plan(files, "pair:0.3", ("ce", "gce"), (1e-4, 1e-3, 5e-3), given.epochs)
        else:
            files = [write_table(root / f"{seed}.npz", seed) for seed in range(3)]
            plan = Plan(files, "sym:0.25", ("ce", "gce", "sgce", "alpha-mae"), (1e-4, 1e-2, 3e-2, 5e-2), given.epochs)
        for line in lines(plan, root):
            print(line, flush=True)


if __name__ == "__main__":
    main()
