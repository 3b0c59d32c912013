"""What losses read, write and hold, forward and backward, counted and not timed: python benchmarks/counted.py

    python benchmarks/counted.py                # tables in Markdown (three minutes, most of them for the compiler)
    python benchmarks/counted.py --no-compiled  # without torch.compile (20 seconds)
    python benchmarks/counted.py --json         # bytes, for other programs

Neither a GPU nor memory is needed: losses run on tensors of the meta device, as they would on an accelerator.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from symloss.bench import counted_ways
from symloss.environment import hardware_and_versions

COLUMNS = ("loss", "way", "read", "written", "together", "launches", "peak", "kept")


def table(rows: list[dict[str, Any]], scores: float) -> list[str]:
    """Rows in Markdown, with bytes as multiples of those of the scores."""
    lines = ["| " + " | ".join(COLUMNS) + " |", "|---|---|" + "---:|" * (len(COLUMNS) - 2)]
    for row in rows:
        parts = [f"{value / scores:.2f}" for value in (row["read"], row["written"], row["read"] + row["written"])]
        memory = [f"{row[name] / scores:.2f}" for name in ("peak", "kept")]
        lines.append("| " + " | ".join((row["loss"], row["way"], *parts, f"{row['launches']:,}", *memory)) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print bytes as JSON")
    parser.add_argument("--no-compiled", action="store_true", help="leave torch.compile out")
    given = parser.parse_args()
    environment = hardware_and_versions()
    found: list[dict[str, Any]] = []
    if not given.json:
        print(f"Counted, not timed. Python {environment['python']}, torch {environment['torch']}.")
    for n, c, dtype in counted_ways.SIZES:
        rows = list(counted_ways.count_ways(n, c, dtype, compiled=not given.no_compiled))
        found += rows
        if not given.json:
            scores = n * c * dtype.itemsize
            kind = str(dtype).removeprefix("torch.")
            print(f"\n{n:,} x {c:,} {kind}: the scores take {scores / 1e6:,.1f} MB\n", *table(rows, scores), sep="\n")
    if given.json:
        print(json.dumps({"counted, not timed": True, "environment": environment, "rows": found}, indent=2))


if __name__ == "__main__":
    main()
