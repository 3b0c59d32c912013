"""How the time to open a table of features grows with its columns: python tables.py"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from symloss.data import open_data

PARQUET = ((5_000, 2_000), (10_000, 2_000), (20_000, 2_000), (40_000, 2_000))
CSV = ((20_000, 100), (40_000, 100), (80_000, 100), (250_000, 4), (500_000, 4), (1_000_000, 4))


def write_parquet(path: Path, columns: int, rows: int) -> None:
    values = np.random.default_rng(0).standard_normal((columns, rows))
    table = {f"gene {i}": column for i, column in enumerate(values)}
    pq.write_table(pa.table(table | {"label": [f"class {i % 5}" for i in range(rows)]}), path)


def write_csv(path: Path, columns: int, rows: int) -> None:
    values = np.random.default_rng(0).standard_normal((rows, columns))
    with path.open("w") as file:
        file.write(",".join([*(f"gene {i}" for i in range(columns)), "label"]) + "\n")
        for i, row in enumerate(values):
            file.write(",".join([*(f"{value:.4f}" for value in row), f"class {i % 5}"]) + "\n")


def seconds(path: Path) -> tuple[float, float]:
    """By the clock, and of the processor: on a machine with other work the second tells more."""
    started = time.perf_counter(), time.process_time()
    open_data(str(path))
    return time.perf_counter() - started[0], time.process_time() - started[1]


def main() -> None:
    print("| file | columns | rows | seconds | of the processor | microseconds a column | nanoseconds a cell |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        for kind, write, sizes in (("parquet", write_parquet, PARQUET), ("csv", write_csv, CSV)):
            for columns, rows in sizes:
                path = Path(folder) / f"table.{kind}"
                write(path, columns, rows)
                clock, processor = seconds(path)
                each = f"{1e6 * processor / columns:.1f} | {1e9 * processor / (columns * rows):.0f}"
                print(f"| {kind} | {columns:,} | {rows:,} | {clock:.2f} | {processor:.2f} | {each} |", flush=True)


if __name__ == "__main__":
    main()
