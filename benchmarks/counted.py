"""Count the memory traffic of every loss, forward and backward, next to cross-entropy. Nothing is timed.

    python benchmarks/counted.py                    # every loss compiled, 4,096 x 1,000 float32 (5 to 10 minutes)
    python benchmarks/counted.py --losses gce,sgce  # these losses only
    python benchmarks/counted.py --full             # a few losses also at 8,192 x 151,936 bfloat16
    python benchmarks/counted.py --eager            # a few losses without a compiler, operation by operation
    python benchmarks/counted.py --json             # bytes instead of Markdown

Compiled losses are counted by torch's own compiler, inductor: what its kernels read and write, as a multiple of the
scores' bytes, and how many kernels it launches. No GPU is needed, but a C++ compiler is.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import torch
from torch.nn import functional as F  # noqa: N812

import symloss
from symloss.bench import counted_ways
from symloss.environment import hardware_and_versions

SIZE = (4096, 1000, torch.float32)
"""Examples, classes and type of the scores."""
LARGE_SIZE = (8192, 151_936, torch.bfloat16)
LARGE_LOSSES = ("gce", "sgce", "alpha-mae", "nce")
"""Losses that ``--full`` counts at the large size unless ``--losses`` names others."""

BASE = "torch cross_entropy"
NORMALIZE = {"raw": None, "l2": "l2"}
TOLERANCE = 0.1
"""Bytes, in multiples of the scores', that a loss may move beyond cross-entropy without a reason."""

STORED = "the compiler stores a tensor between two loops over a row"
FOCAL = "the focal formula reads log p so often that the compiler stores intermediate tensors"
FEW_BYTES = "more kernels over the examples alone, which read no scores"
WHY: dict[str, str] = {
    "unhinged": "the compiler stores which classes are present for backward",
    "bi-tempered": "Newton's method takes several passes over the scores",
    "nfl": FOCAL,
    "nnfl": FOCAL,
    "nfl+mae": FOCAL,
    "nfl+rce": FOCAL,
    "anl-fl": FOCAL,
    "jal-fl": FOCAL,
} | dict.fromkeys(
    (
        "symmetrized-cosine/l2",
        "mse/l2",
        "ldr-kl/l2",
        "nce+mae/l2",
        "nce+rce/l2",
        "nce+agce/l2",
        "nce+aul/l2",
        "nce+ael/l2",
        "jal-ce/l2",
        "label-smoothing/l2",
    ),
    STORED,
)
"""Why a loss needs more bytes than cross-entropy, by name. ``"gce/l2"`` holds for unit scores alone."""

Size = tuple[int, int, torch.dtype]
Row = dict[str, Any]


def count_compiled(names: list[str], size: Size) -> Iterator[Row]:
    """Yield cross-entropy and then each loss, with its bytes and launches on raw and unit scores."""
    n, c, dtype = size
    scores = torch.empty(n, c, dtype=dtype, device="meta")
    common = {"n": n, "c": c, "dtype": str(dtype).removeprefix("torch.")}

    def count(name: str, kind: str, step: counted_ways.Step) -> Row:
        start = time.perf_counter()
        found = counted_ways.compiled_work(step, scores)
        multiple = found.moved / (scores.numel() * dtype.itemsize)
        seconds = time.perf_counter() - start
        print(f"{name}, {kind}: {multiple:.2f}, {found.launches} launches ({seconds:.0f} s)", file=sys.stderr)
        return asdict(found) | {"multiple": multiple}

    yield common | {"loss": BASE, "raw": count(BASE, "raw", F.cross_entropy)}
    for number, name in enumerate(names, start=1):
        print(f"{number} of {len(names)}: ", end="", file=sys.stderr)
        losses = {kind: symloss.create_loss(name, normalize=norm) for kind, norm in NORMALIZE.items()}
        yield common | {"loss": name} | {kind: count(name, kind, loss) for kind, loss in losses.items()}


def why(row: Row, base: Row) -> str:
    """The reasons for what a loss needs beyond cross-entropy; empty if it needs no more."""
    reasons = []
    for kind, key in (("raw", row["loss"]), ("l2", f"{row['loss']}/l2")):
        if row[kind]["multiple"] > base["raw"]["multiple"] + TOLERANCE:
            reasons.append(WHY.get(key) or WHY.get(row["loss"]) or "unexplained")
        elif row[kind]["launches"] > base["raw"]["launches"]:
            reasons.append(FEW_BYTES)
    return "; ".join(dict.fromkeys(reasons))


def compiled_table(rows: list[Row]) -> list[str]:
    """Rows in Markdown, cross-entropy first."""
    base, *losses = rows
    lines = [
        "| loss | raw bytes | raw launches | l2 bytes | l2 launches | why |",
        "|---|---:|---:|---:|---:|---|",
        f"| {BASE} | {base['raw']['multiple']:.2f} | {base['raw']['launches']} | - | - | |",
    ]
    for row in losses:
        cells = [f"{row[kind]['multiple']:.2f} | {row[kind]['launches']}" for kind in NORMALIZE]
        reason = why(row, base)
        lines.append(f"| {row['loss']} | {' | '.join(cells)} |{' ' + reason if reason else ''} |")
    return lines


def eager_table(rows: list[Row], size: Size) -> list[str]:
    """Rows in Markdown, with bytes as multiples of the scores' bytes."""
    scores = size[0] * size[1] * size[2].itemsize
    lines = ["| loss | way | bytes | launches | peak | kept |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        moved, peak, kept = (each / scores for each in (row["read"] + row["written"], row["peak"], row["kept"]))
        lines.append(f"| {row['loss']} | {row['way']} | {moved:.2f} | {row['launches']:,} | {peak:.2f} | {kept:.2f} |")
    return lines


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", metavar="A,B", help="comma-separated names; default: every loss of the catalogue")
    parser.add_argument("--full", action="store_true", help="count also at 8,192 x 151,936 bfloat16")
    parser.add_argument("--eager", action="store_true", help="count a few losses in eager mode, on the meta device")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    given = parser.parse_args()
    if given.eager and given.losses:
        parser.error("--losses requires compiled counts; leave out --eager")
    given.names = given.losses.split(",") if given.losses else None
    for name in given.names or ():
        try:
            symloss.create_loss(name)
        except ValueError as error:
            parser.error(str(error))
    return given


def main() -> None:
    given = parse()
    warnings.filterwarnings("ignore", "normalize='l2' at temperature")  # nothing is trained here
    environment, found = hardware_and_versions(), []
    if not given.json:
        print(f"Counted, not timed. Python {environment['python']}, torch {environment['torch']}.")
    for size in (SIZE, LARGE_SIZE) if given.full else (SIZE,):
        names = given.names or (list(LARGE_LOSSES) if size is LARGE_SIZE else symloss.list_losses())
        rows = list(counted_ways.count_eager(*size) if given.eager else count_compiled(names, size))
        found += rows
        if not given.json:
            n, c, dtype = size
            print(f"\n{n:,} x {c:,} {str(dtype).removeprefix('torch.')}\n")
            print(*(eager_table(rows, size) if given.eager else compiled_table(rows)), sep="\n")
    if given.json:
        print(json.dumps({"environment": environment, "rows": found}, indent=2))


if __name__ == "__main__":
    main()
