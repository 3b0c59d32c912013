"""Data with noisy labels to learn from and clean rows to test on, and what is measured on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_wine, make_classification  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]

from symloss import checks
from symloss.data.opening import open_data
from symloss.data.table_encoder import TableEncoder
from symloss.environment import data_root
from symloss.noise import corrupt

Features = NDArray[np.float32]
Labels = NDArray[np.int64]
Part = tuple[Features, Labels]

TABLE_ROWS, TABLE_TEST = 3000, 1000
LEVELS = (4, 6, 8)
"""Number of values of a table's three categories."""
MISSING = 0.05
"""The share of a table's numbers that is missing."""


@dataclass(frozen=True)
class Place:
    """The measurement that a row holds."""

    data: str
    noise: str
    seed: int
    method: str

    def __str__(self) -> str:
        return f"{self.data} {self.noise}, seed {self.seed}, {self.method}"

    @property
    def cell(self) -> tuple[str, str, int]:
        """Data, noise and seed."""
        return self.data, self.noise, self.seed


@dataclass(frozen=True)
class Plan:
    """Measurements, cell by cell, and a line for all that is left out."""

    places: list[Place]
    left_out: list[str]


@dataclass(frozen=True)
class NoisySource:
    """A data set and the noise that is measured on it.

    Args:
        open: returns clean training and test rows; called with a seed and the folder of published data.
        noises: default specs of noise.
        seeds: default number of seeds.
        scaling: how rivals scale features: "raw" for pixels, "standard" for columns with different units.
        dataset: data set whose confusions asymmetric noise takes; None if it has none.
        rows: size of the random subset to train on; None for all rows.
    """

    open: Callable[[int, Path | None], tuple[Part, Part]]
    noises: tuple[str, ...]
    seeds: int
    scaling: str
    dataset: str | None = None
    rows: int | None = None


@dataclass(frozen=True, eq=False)
class NoisyCell:
    """Training data with noisy labels, and clean test data.

    Args:
        features: training rows (N, ...).
        noisy: their noisy labels (N,).
        clean: their true labels (N,), used to measure and never to learn.
        test: test rows (M, ...).
        test_labels: their true labels (M,).
        scaling: how rivals scale features.
        seed: random seed of the learners.
    """

    features: Features
    noisy: Labels
    clean: Labels
    test: Features
    test_labels: Labels
    scaling: str
    seed: int

    @property
    def classes(self) -> int:
        """The number of classes."""
        return int(self.clean.max()) + 1

    @property
    def noise_rate(self) -> float:
        """The share of wrong labels."""
        return float((self.noisy != self.clean).mean())


def open_cell(data: str, noise: str, seed: int, root: Path | None = None) -> NoisyCell:
    """Open a data set and corrupt its training labels.

    Args:
        data: one of ``SOURCES``.
        noise: a spec of :func:`symloss.noise.corrupt`; counts are exact.
        seed: random seed for noise, for the split of data without one, and for subsets.
        root: the folder of published data.

    >>> cell = open_cell("wine", "sym:0.3", seed=0)
    >>> cell.features.shape, cell.test.shape, round(cell.noise_rate, 2)
    ((133, 13), (45, 13), 0.3)
    """
    checks.choice("data", data, tuple(SOURCES))
    source = SOURCES[data]
    (features, clean), (test, test_labels) = source.open(seed, root)
    kept = _kept(clean, source.rows, seed)
    # Human labels are of all images, in the publisher's order. All other noise is drawn for the subset.
    drawn = slice(None) if noise.startswith("human") else kept
    corruption = corrupt(
        clean[drawn],
        noise,
        num_classes=int(clean.max()) + 1,
        seed=seed,
        dataset=source.dataset,
        inputs=features[drawn] if noise.startswith("instance") else None,
        root=data_root() if root is None else root,
    )
    noisy = corruption.labels[kept] if noise.startswith("human") else corruption.labels
    return NoisyCell(features[kept], noisy, clean[kept], test, test_labels, source.scaling, seed)


def _kept(labels: Labels, count: int | None, seed: int) -> Any:
    """Return the positions of the rows to keep, a stratified subset."""
    if count is None or count >= len(labels):
        return np.arange(len(labels))
    kept, _ = train_test_split(np.arange(len(labels)), train_size=count, random_state=seed, stratify=labels)
    return np.sort(kept)


def _published(name: str, flat: bool) -> Callable[[int, Path | None], tuple[Part, Part]]:
    def opened(seed: int, root: Path | None) -> tuple[Part, Part]:
        data = open_data(name, root=root)
        assert data.test is not None
        train, test = (
            ((part.inputs.flatten(1) if flat else part.inputs).float().div(255).numpy(), part.labels.numpy())  # type: ignore[union-attr]
            for part in (data.train, data.test)
        )
        return train, test

    return opened


def _split(load: Callable[..., Any]) -> Callable[[int, Path | None], tuple[Part, Part]]:
    def opened(seed: int, root: Path | None) -> tuple[Part, Part]:
        features, labels = load(return_X_y=True)
        x, test_x, y, test_y = train_test_split(features, labels, test_size=0.25, random_state=seed, stratify=labels)
        return (x.astype(np.float32), y.astype(np.int64)), (test_x.astype(np.float32), test_y.astype(np.int64))

    return opened


def _table(seed: int, root: Path | None) -> tuple[Part, Part]:
    """Return a table with twenty numbers, some missing, three categories and five classes."""
    shape = {"n_features": 23, "n_informative": 12, "n_redundant": 4, "n_classes": 5}
    features, labels = make_classification(TABLE_ROWS + TABLE_TEST, **shape, class_sep=1.5, random_state=seed)
    rng = np.random.default_rng(seed)
    numbers = np.where(rng.random((len(features), 20)) < MISSING, np.nan, features[:, 3:])
    columns: dict[str, Any] = {f"number {k}": numbers[:, k] for k in range(20)}
    for k, levels in enumerate(LEVELS):
        edges = np.quantile(features[:, k], np.linspace(0, 1, levels + 1)[1:-1])
        columns[f"category {k}"] = [f"level {place}" for place in np.digitize(features[:, k], edges)]
    train, test = (
        {name: column[part] for name, column in columns.items()}
        for part in (slice(TABLE_ROWS), slice(TABLE_ROWS, None))
    )
    encoder = TableEncoder().fit(train)
    y = labels.astype(np.int64)
    return (encoder.transform(train), y[:TABLE_ROWS]), (encoder.transform(test), y[TABLE_ROWS:])


DIGITS_NOISES = ("clean", "sym:0.2", "sym:0.4", "sym:0.6", "sym:0.8", "asym:0.4", "pair:0.3", "instance:0.4")
SOURCES = {
    "digits": NoisySource(_published("digits", flat=True), DIGITS_NOISES, 5, "raw", "digits"),
    "wine": NoisySource(_split(load_wine), ("sym:0.3",), 3, "standard"),
    "breast-cancer": NoisySource(_split(load_breast_cancer), ("sym:0.3",), 3, "standard"),
    "table": NoisySource(_table, ("sym:0.25", "pair:0.3"), 3, "standard"),
    "mnist": NoisySource(_published("mnist", flat=False), ("sym:0.6", "asym:0.4"), 3, "raw", "mnist", 10_000),
    "mnist-all": NoisySource(_published("mnist", flat=False), ("sym:0.6",), 1, "raw", "mnist"),
    "photos": NoisySource(_published("cifar10", flat=False), ("asym:0.3",), 3, "raw", "cifar10", 3000),
    "cifar10n": NoisySource(_published("cifar10", flat=False), ("human:worst",), 3, "raw", "cifar10", 5000),
}
PUBLISHED = {"mnist": "mnist", "mnist-all": "mnist", "photos": "cifar10", "cifar10n": "cifar10"}
"""The published data set that each of these needs."""
