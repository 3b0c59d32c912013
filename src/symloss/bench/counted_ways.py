"""Bytes and launches of losses, forward and backward: compiled by inductor, or eager on the meta device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss.bench.counted_work import Traffic, forward_and_backward
from symloss.losses.spec import create_loss
from symloss.losses.validation import plain

EAGER_LOSSES = ("gce", "sgce", "sgce/l2")
"""Losses counted in eager mode; ``/l2`` stands for ``normalize="l2"``."""
COMPILED_SCORES = 2**20
"""Approximate number of scores of the batch that is compiled. Its counts are scaled to all rows."""

Step = Callable[[Tensor, Tensor], Tensor]


def count_eager(n: int, c: int, dtype: torch.dtype) -> Iterator[dict[str, Any]]:
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
        yield {"n": n, "c": c, "dtype": str(dtype).removeprefix("torch."), "loss": name, "way": way} | asdict(counts)


def _eager_ways() -> Iterator[tuple[str, str, Step]]:
    yield "cross-entropy", "torch", F.cross_entropy
    for name in EAGER_LOSSES:
        base, _, normalize = name.partition("/")
        loss, overwriting = (create_loss(base, normalize=normalize or None, overwrite=on) for on in (False, True))
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
