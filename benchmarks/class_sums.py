"""What it costs to add up the features of each class: python benchmarks/class_sums.py

Rows of 256 numbers in float32, whose classes come in any order, or sorted. 50,000 rows are added up, and five times as
many of the same classes: the difference is what further rows cost, without the table of sums, which is made once.
Median and range of nine turns.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
from numpy.typing import NDArray

from symloss.closed_form.sums import class_sums

MANY, FEW, FEATURES, TURNS = 250_000, 50_000, 256, 9


def seconds(features: NDArray[np.float32], labels: NDArray[np.int64], classes: int) -> float:
    started = time.perf_counter()
    class_sums(features, labels, classes=classes)
    return time.perf_counter() - started


def main() -> None:
    random = np.random.default_rng(0)
    features = random.standard_normal((MANY, FEATURES), dtype=np.float32)
    print("| classes | order | seconds for a million rows | range |\n|---:|---|---:|---:|")
    for classes in (10, 1_000, 100_000):
        drawn = random.integers(classes, size=FEW)
        ordered = np.sort(drawn)
        for order, few, many in (
            ("any", drawn, np.tile(drawn, MANY // FEW)),
            ("sorted", ordered, np.repeat(ordered, MANY // FEW)),
        ):
            turns = [seconds(features, many, classes) - seconds(features[:FEW], few, classes) for _ in range(TURNS)]
            million = sorted(turn * 1e6 / (MANY - FEW) for turn in turns)
            spread = f"{million[0]:.2f} to {million[-1]:.2f}"
            print(f"| {classes:,} | {order} | {statistics.median(million):.2f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
