"""The ways to compute a loss whose work is counted: eager, by a fused kernel, and compiled."""

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

from symloss.bench.counted_work import CountedWork, Counts, extent, forward_and_backward
from symloss.bench.fused_switch import fused_kernels
from symloss.losses.create import create_loss
from symloss.losses.fused.fused_kernel import FusedKernel
from symloss.losses.switches import plain

SIZES = ((4096, 1000, torch.float32), (8192, 151_936, torch.bfloat16))
"""Examples, classes, and the type of the scores."""
LOSSES = ("gce", "sgce", "sgce/l2")
"""``/l2`` stands for scores that are divided by their norm, as SGCE does by default."""
COMPILED_SCORES = 2**20
"""Compiled ways are counted on rows with about so many scores."""

Step = Callable[[Tensor, Tensor], Tensor]


def count_ways(n: int, c: int, dtype: torch.dtype, compiled: bool = True) -> Iterator[dict[str, Any]]:
    """Yield the work of each way, forward and backward, as soon as it is counted.

    Args:
        n: the number of examples.
        c: the number of classes.
        dtype: the type of the scores.
        compiled: whether ``torch.compile`` is counted too, which takes a minute.
    """
    scores = torch.empty(n, c, dtype=dtype, device="meta")
    labels = torch.empty(n, dtype=torch.int64, device="meta")
    for name, way, count in _ways(compiled):
        work = count(scores, labels)
        yield {"n": n, "c": c, "dtype": str(dtype).removeprefix("torch."), "loss": name, "way": way} | asdict(work)


def _ways(compiled: bool) -> Iterator[tuple[str, str, Callable[[Tensor, Tensor], Counts]]]:
    yield "cross-entropy", "torch, eager", _eager(F.cross_entropy)
    if compiled:
        yield "cross-entropy", "torch, compiled", lambda z, y: compiled_work(F.cross_entropy, z)
    for name in LOSSES:
        base, _, normalize = name.partition("/")
        loss, overwriting = (create_loss(base, normalize=normalize or None, overwrite=on) for on in (False, True))
        yield name, "plain formulas, eager", _eager(_plainly(loss))
        if compiled:
            yield name, "plain formulas, compiled", lambda z, y, loss=loss: compiled_work(loss, z)  # type: ignore[misc]
        yield name, "operations of torch", _eager(loss)
        yield name, "fused kernel", _fused(loss)
        yield name, "fused kernel, overwrite", _fused(overwriting)


def _plainly(loss: Step) -> Step:
    def step(z: Tensor, y: Tensor) -> Tensor:
        with plain():
            return loss(z, y)

    return step


def _eager(step: Step) -> Callable[[Tensor, Tensor], Counts]:
    return lambda z, y: forward_and_backward(lambda leaf: step(leaf, y), z)


def _fused(step: Step) -> Callable[[Tensor, Tensor], Counts]:
    return lambda z, y: fused_work(step, z, y)


def fused_work(step: Step, z: Tensor, y: Tensor) -> Counts:
    """The work of a loss by its fused kernel: the real code around it, and in place of the launch its bytes.

    Args:
        step: the loss.
        z: scores on the meta device.
        y: labels on the meta device.
    """
    counted = CountedWork()
    launcher = property(lambda kernel: _Launcher(kernel, counted))
    with fused_kernels(True), patch.object(FusedKernel, "function", launcher):
        return forward_and_backward(lambda leaf: step(leaf, y), z, counted)


class _Launcher:
    """Stands in for Triton's function: a launch is counted, and computes nothing."""

    def __init__(self, kernel: FusedKernel, counted: CountedWork) -> None:
        self.kernel, self.counted = kernel, counted

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        def launch(z: Tensor, y: Tensor, share: Tensor, values: Tensor, out: Tensor, *_: Any, **__: Any) -> None:
            read = self.kernel.reads * extent(z) + extent(y) + extent(share)
            self.counted.launch("fused kernel", read, extent(values) + extent(out))

        return launch


def compiled_work(step: Step, z: Tensor) -> Counts:
    """The work of what inductor makes of a step for the CPU, from few rows, scaled to the rows of ``z``.

    Each scheduled kernel counts as a launch. It reads and writes each of its buffers once, as inductor itself counts,
    but a buffer that is only accessed by indices counts by the numbers accessed. Memory is what the allocator gives.

    Args:
        step: the loss.
        z: scores of any device. Only their shape and type count.
    """
    rows = min(len(z), max(8, COMPILED_SCORES // z.shape[1]))
    scores = torch.zeros(rows, z.shape[1], dtype=z.dtype).requires_grad_()
    labels = torch.zeros(rows, dtype=torch.int64)
    torch._dynamo.reset()
    compiled = torch.compile(step, dynamic=False)
    with _kernels() as kernels:
        compiled(scores, labels).backward()  # type: ignore[no-untyped-call]
    scores.grad = None
    peak, kept = _allocated(compiled, scores, labels)
    read, written = (sum(each) for each in zip(*kernels, strict=True))
    return Counts(read, written, len(kernels), peak, kept).times(len(z) / rows)


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


def _allocated(step: Step, scores: Tensor, labels: Tensor) -> tuple[int, int]:
    """The peak of the memory that a step takes, and what it keeps for backward."""
    from torch.profiler import profile  # noqa: PLC0415

    changes: list[int] = []
    kept = 0
    value = None
    for _ in range(2):
        with profile(profile_memory=True) as profiled:
            if value is None:
                value = step(scores, labels)
            else:
                value.backward()  # type: ignore[no-untyped-call]
        events = [each for each in profiled.profiler.kineto_results.events() if each.name() == "[memory]"]
        changes += [each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())]
        kept = kept or sum(changes) - value.element_size()
    level, peak = 0, 0
    for change in changes:
        level += change
        peak = max(peak, level)
    return peak, kept
