"""Count the memory traffic of every loss, forward and backward, next to cross-entropy. Nothing is timed.

    python benchmarks/counted.py                    # every loss compiled, 4,096 x 1,000 float32 (5 to 10 minutes)
    python benchmarks/counted.py --losses gce sgce  # these losses only
    python benchmarks/counted.py --full             # a few losses also at 8,192 x 151,936 bfloat16
    python benchmarks/counted.py --eager            # a few losses without a compiler, operation by operation
    python benchmarks/counted.py --json             # bytes instead of Markdown

Compiled losses are counted by torch's own compiler, inductor: what its kernels read and write, as a multiple of the
scores' bytes, and how many kernels it launches. No GPU is needed, but a C++ compiler is.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from unittest.mock import patch

import measure
import torch
from counted_work import Traffic, forward_and_backward
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import symloss
from symloss.losses.validation import plain

SIZE = (4096, 1000, torch.float32)
"""Examples, classes and type of the scores."""
LARGE_SIZE = (8192, 151_936, torch.bfloat16)
LARGE_LOSSES = ("gce", "sgce", "alpha-mae", "nce")
"""Losses that ``--full`` counts at the large size unless ``--losses`` names others."""

EAGER_LOSSES = ("gce", "sgce", "sgce/l2")
"""Losses counted in eager mode; ``/l2`` stands for ``normalize="l2"``."""
COMPILED_SCORES = 2**20
"""Approximate number of scores of the batch that is compiled. Its counts are scaled to all rows."""

BASE = "torch cross_entropy"
NORMALIZE = {"raw": None, "l2": "l2"}
TOLERANCE = 0.1
"""Bytes, in multiples of the scores', that a loss may move beyond cross-entropy without a reason."""

STORED = "the compiler stores a tensor between two loops over a row"
FEW_BYTES = "more kernels over the examples alone, which read no scores"
WHY: dict[str, str] = {
    "unhinged": "the compiler stores which classes are present for backward",
    "bi-tempered": "Newton's method takes several passes over the scores",
} | dict.fromkeys(
    (
        "symmetrized-cosine/l2",
        "mse/l2",
        "ldr-kl/l2",
        "nce+mae/l2",
        "nce+rce/l2",
        "nfl+mae/l2",
        "nfl+rce/l2",
        "nce+agce/l2",
        "nce+aul/l2",
        "nce+ael/l2",
        "jal-ce/l2",
        "jal-fl/l2",
        "label-smoothing/l2",
    ),
    STORED,
)
"""Why a loss needs more bytes than cross-entropy, by name. ``"gce/l2"`` holds for unit scores alone."""

Size = tuple[int, int, torch.dtype]
Row = dict[str, Any]
Step = Callable[[Tensor, Tensor], Tensor]


def count_eager(n: int, c: int, dtype: torch.dtype) -> Iterator[Row]:
    """Yield the counts of cross-entropy and of a few losses in eager mode, as on an accelerator.

    Args:
        n: number of examples.
        c: number of classes.
        dtype: type of the scores.
    """
    scores = torch.empty(n, c, dtype=dtype, device="meta")
    labels = torch.empty(n, dtype=torch.int64, device="meta")
    for name, way, step in _eager_ways():
        counts = forward_and_backward(lambda leaf, step=step: step(leaf, labels), scores)  # type: ignore[misc]
        yield {"n": n, "c": c, "dtype": _name(dtype), "loss": name, "way": way} | asdict(counts)


def _eager_ways() -> Iterator[tuple[str, str, Step]]:
    yield "cross-entropy", "torch", F.cross_entropy
    for name in EAGER_LOSSES:
        base, _, normalize = name.partition("/")
        loss, overwriting = (
            symloss.create_loss(base, normalize=normalize or None, overwrite=on) for on in (False, True)
        )
        yield name, "plain formulas", _plainly(loss)
        yield name, "torch operations", loss
        yield name, "torch operations, overwrite", overwriting


def _plainly(loss: Step) -> Step:
    def step(z: Tensor, y: Tensor) -> Tensor:
        with plain():
            return loss(z, y)

    return step


def compiled_work(step: Step, z: Tensor) -> Traffic:
    """Count what inductor makes of a loss on the CPU, forward and backward.

    Each scheduled kernel counts as one launch. It reads and writes each of its buffers once, as inductor's scheduler
    counts, but a buffer that is only accessed by indices counts by the numbers accessed. A buffer used inside a single
    kernel isn't counted, even where the CPU code stores it in memory. A small batch is compiled, and its bytes are
    scaled to the rows of ``z``. Needs a C++ compiler.

    Args:
        step: the loss, a function of scores and labels that compiles to one graph.
        z: scores on any device, for example ``meta``. Only shape and type are read.
    """
    rows = min(len(z), max(8, COMPILED_SCORES // z.shape[1]))
    scores = torch.zeros(rows, z.shape[1], dtype=z.dtype).requires_grad_()
    labels = torch.zeros(rows, dtype=torch.int64)
    torch._dynamo.reset()
    with _kernels() as kernels:
        torch.compile(step, dynamic=False, fullgraph=True)(scores, labels).backward()  # type: ignore[no-untyped-call]
    read, written = (sum(each) for each in zip(*kernels, strict=True))
    return Traffic(read, written, len(kernels)).times(len(z) / rows)


@contextmanager
def _kernels() -> Iterator[list[tuple[int, int]]]:
    """Collect the bytes that each kernel reads and writes, of all graphs that are compiled inside ``with``."""
    from torch._functorch import config as functions  # noqa: PLC0415 (compilers load slowly)
    from torch._inductor import config as inductor  # noqa: PLC0415
    from torch._inductor.graph import GraphLowering  # noqa: PLC0415

    found: list[tuple[int, int]] = []
    make = GraphLowering.compile_to_module

    def noting(graph: Any) -> Any:
        module = make(graph)
        found.extend((_bytes(graph, node, True), _bytes(graph, node, False)) for node in graph.scheduler.nodes)
        return module

    # A graph from a cache would not be scheduled again.
    caches = (inductor.patch(fx_graph_cache=False), functions.patch(enable_autograd_cache=False))
    with caches[0], caches[1], patch.object(GraphLowering, "compile_to_module", noting):
        yield found


def _bytes(graph: Any, node: Any, reads: bool) -> int:
    from torch._inductor.dependencies import StarDep  # noqa: PLC0415

    accesses = node.get_read_write_buffer_accesses(include_reads=reads, include_writes=not reads)
    dependencies = node.read_writes.reads if reads else node.read_writes.writes
    total = 0
    for name, size in accesses.items():
        own = [each for each in dependencies if each.name == name]
        if not node.is_extern():  # a kernel that scatters into a buffer waits for who filled it, and does not read it
            own = [each for each in own if not isinstance(each, StarDep)]
            size = size if own else 0  # noqa: PLW2901
        if own and all(each.is_indirect() for each in own):
            picked = max(math.prod(int(length) for length in each.size) for each in own)
            size = min(size, picked * graph.get_dtype(name).itemsize)  # noqa: PLW2901
        total += size
    return total


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def count_compiled(names: list[str], size: Size) -> Iterator[Row]:
    """Yield cross-entropy and then each loss, with its bytes and launches on raw and unit scores."""
    n, c, dtype = size
    scores = torch.empty(n, c, dtype=dtype, device="meta")
    common = {"n": n, "c": c, "dtype": _name(dtype)}

    def count(name: str, kind: str, step: Step) -> Row:
        start = time.perf_counter()
        found = compiled_work(step, scores)
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
    """Return the reasons why a loss needs more than cross-entropy; empty if it doesn't."""
    reasons = []
    for kind, key in (("raw", row["loss"]), ("l2", f"{row['loss']}/l2")):
        if row[kind]["multiple"] > base["raw"]["multiple"] + TOLERANCE:
            reasons.append(WHY.get(key) or WHY.get(row["loss"]) or "unexplained")
        elif row[kind]["launches"] > base["raw"]["launches"]:
            reasons.append(FEW_BYTES)
    return "; ".join(dict.fromkeys(reasons))


def compiled_table(rows: list[Row]) -> list[str]:
    """Return rows in Markdown, cross-entropy first."""
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
    """Return rows in Markdown, with bytes as multiples of the scores' bytes."""
    scores = size[0] * size[1] * size[2].itemsize
    lines = ["| loss | way | bytes | launches | peak | kept |", "|---|---|---:|---:|---:|---:|"]
    for row in rows:
        moved, peak, kept = (each / scores for each in (row["read"] + row["written"], row["peak"], row["kept"]))
        lines.append(f"| {row['loss']} | {row['way']} | {moved:.2f} | {row['launches']:,} | {peak:.2f} | {kept:.2f} |")
    return lines


def parse() -> argparse.Namespace:
    parser = measure.options(__doc__)
    parser.add_argument("--losses", nargs="+", metavar="NAME", help="losses to count (default: all of the catalogue)")
    parser.add_argument("--full", action="store_true", help="count also at 8,192 x 151,936 bfloat16")
    parser.add_argument("--eager", action="store_true", help="count a few losses in eager mode, on the meta device")
    parser.add_argument("--json", action="store_true", help="print JSON instead of Markdown")
    given = parser.parse_args()
    if given.eager and given.losses:
        parser.error("--losses requires compiled counts; leave out --eager")
    for name in given.losses or ():
        try:
            symloss.create_loss(name)
        except ValueError as error:
            parser.error(str(error))
    return given


def main() -> None:
    given = parse()
    warnings.filterwarnings("ignore", "normalize='l2' at temperature")  # nothing is trained here
    environment, found = measure.environment(), []
    if not given.json:
        print(f"Counted, not timed. Python {environment['python']}, torch {environment['torch']}.")
    for size in (SIZE, LARGE_SIZE) if given.full else (SIZE,):
        names = given.losses or (list(LARGE_LOSSES) if size is LARGE_SIZE else symloss.list_losses())
        rows = list(count_eager(*size) if given.eager else count_compiled(names, size))
        found += rows
        if not given.json:
            n, c, dtype = size
            print(f"\n{n:,} x {c:,} {_name(dtype)}\n")
            print(*(eager_table(rows, size) if given.eager else compiled_table(rows)), sep="\n")
    if given.json:
        print(json.dumps({"environment": environment, "rows": found}, indent=2))


if __name__ == "__main__":
    main()
