"""Measure how the time to open a table of features grows with its columns.

    python benchmarks/tables.py                     # minutes
    python benchmarks/tables.py --only parquet      # up to 40,000 columns x 2,000 rows
    python benchmarks/tables.py --most 2000000      # small files

On a machine with other work, processor seconds tell more than those of the clock.
"""

from __future__ import annotations

import functools
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import measure
import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

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


def lines(kind: str, sizes: list[tuple[int, int]]) -> Iterator[tuple[str, ...]]:
    """Yield a line of the table for each pair of columns and rows."""
    with tempfile.TemporaryDirectory() as folder:
        for columns, rows in sizes:
            path = Path(folder) / f"table.{kind}"
            WRITERS[kind](path, columns, rows)
            started = time.process_time()
            clock = measure.timed(functools.partial(open_data, str(path))).seconds
            processor = time.process_time() - started
            each = (f"{1e6 * processor / columns:.1f}", f"{1e9 * processor / (columns * rows):.0f}")
            yield kind, f"{columns:,}", f"{rows:,}", f"{clock:.2f}", f"{processor:.2f}", *each


WRITERS = {"parquet": write_parquet, "csv": write_csv}
SIZES = {"parquet": PARQUET, "csv": CSV}


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--only", choices=list(SIZES), help="one kind of file")
    parser.add_argument("--most", type=int, metavar="CELLS", help="skip files with more cells")
    given = parser.parse_args()
    measure.print_environment("numpy", "pandas", "pyarrow")
    kinds = [given.only] if given.only else list(SIZES)
    sizes = {kind: [(c, r) for c, r in SIZES[kind] if given.most is None or c * r <= given.most] for kind in kinds}
    measure.print_table(
        ("file", "columns", "rows", "seconds", "of the processor", "microseconds a column", "nanoseconds a cell"),
        (line for kind in kinds for line in lines(kind, sizes[kind])),
    )


if __name__ == "__main__":
    main()
