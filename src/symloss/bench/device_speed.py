"""Time and memory of losses and heads on a GPU, in turns with torch's cross-entropy and with other libraries.

Time is measured by events of the GPU, and memory by its allocator. On the CPU the same code measures seconds, and no
memory, so that it can be tested without a GPU.

Liger-Kernel and Apple's cut-cross-entropy are called as their sources declare it. They need a GPU, and were not run
when this was written. What they refuse is left out with their message.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss import checks
from symloss.bench import measure
from symloss.environment import hardware_and_versions
from symloss.functional import linear_loss
from symloss.losses.spec import create_loss
from symloss.losses.validation import plain

DEVICES = ("cpu", "cuda")
LOSSES = ("gce", "alpha-mae", "alpha-mae/l2", "sgce", "sgce/l2", "unhinged", "unhinged/l2")
"""The losses that are measured; ``/l2`` stands for scores that are divided by their norm."""
LOSS_SIZES = ((4096, 1000, torch.float32), (1024, 50_000, torch.float32), (8192, 151_936, torch.bfloat16))
"""Examples, classes, and the type of the scores."""
HEAD_SIZES = ((1024, 256, 50_000, torch.float32), (8192, 2048, 151_936, torch.bfloat16))
"""Examples, features, classes, and the type of features and weights."""
LOSS_BASE, HEAD_BASE = "torch cross_entropy", "linear + cross_entropy"
PACKAGES = {"Liger": "liger_kernel", "cut-cross-entropy": "cut_cross_entropy"}
"""Other libraries, and the packages that they are imported as."""

Step = Callable[..., Tensor]
COMPILER: Callable[[Step], Step] = functools.partial(torch.compile, dynamic=False, fullgraph=True)
Prepare = Callable[[], Callable[[], object]]
"""Prepares a run, and returns what is measured."""


def check_device(device: str, check: bool) -> None:
    """Raise an error if there is no such device, or if targets are asked for that only the CPU has."""
    checks.choice("device", device, DEVICES)
    if device != "cpu" and check:
        raise ValueError(f"check compares with targets, which only the CPU has; got it with device {device}")
    if device != "cpu" and not torch.cuda.is_available():
        raise ValueError(
            f"device {device} is not there: torch sees no CUDA or ROCm device; leave --device out for the CPU"
        )


def device_environment() -> dict[str, Any]:
    """Versions and the machine, with its GPU and the libraries that are compared."""
    distributions = metadata.packages_distributions()
    there = [name for each in ("triton", *PACKAGES.values()) for name in distributions.get(each, [])[:1]]
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return hardware_and_versions(*there) | {"device": device}


class Gauge:
    """Measures runs on the CPU: their seconds, and no memory."""

    def timed(self, prepare: Prepare) -> measure.Timing:
        """Prepare a run, and measure its seconds."""
        return measure.timed(prepare())

    def extra_bytes(self, prepare: Prepare) -> int:
        """Prepare a run, and measure the peak of its memory beyond what was taken before."""
        prepare()()
        return 0


class GpuGauge(Gauge):
    """Measures runs on a GPU."""

    def timed(self, prepare: Prepare) -> measure.Timing:
        step = prepare()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        start.record()
        step()
        end.record()
        torch.cuda.synchronize()
        return measure.Timing(start.elapsed_time(end) / 1e3, 0)

    def extra_bytes(self, prepare: Prepare) -> int:
        step = prepare()
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before


class Way(NamedTuple):
    """A way to compute a loss."""

    step: Step
    """The loss, of scores and labels, or of features, weights and labels."""
    context: Callable[[], AbstractContextManager[None]] = nullcontext
    """It runs inside of this."""
    foreign: bool = False
    """Whether it belongs to another library, which may refuse what is asked of it."""


class Ways(NamedTuple):
    """What is measured, by name, and a line for everything that is left out."""

    ways: dict[str, Way]
    left_out: list[str]


def loss_ways(compiler: Callable[[Step], Step]) -> Ways:
    """Cross-entropy, our losses by torch operations, plain formulas and compiled, and Liger's cross-entropy.

    Args:
        compiler: ``torch.compile``, or what stands in for it.
    """
    ways = {LOSS_BASE: Way(F.cross_entropy), f"{LOSS_BASE}, compiled": Way(compiler(F.cross_entropy))}
    for name in LOSSES:
        base, _, normalize = name.partition("/")
        loss = create_loss(base, normalize=normalize or None)
        ways[f"{name}, torch operations"] = Way(loss)
        ways[f"{name}, plain formulas"] = Way(loss, plain)
        ways[f"{name}, compiled"] = Way(compiler(loss))
    return _with_others(ways, {"Liger": _liger_loss})


def head_ways() -> Ways:
    """A linear layer with cross-entropy, our heads, and those of other libraries."""

    def head_of(name: str) -> Step:
        base, _, normalize = name.partition("/")
        loss = create_loss(base).loss
        return lambda h, w, y: linear_loss(loss, h, w, None, y, normalize=normalize or None)

    ways = {HEAD_BASE: Way(lambda h, w, y: F.cross_entropy(F.linear(h, w), y))}
    ways |= {f"{name} head": Way(head_of(name)) for name in LOSSES}
    return _with_others(ways, {"Liger": _liger_head, "cut-cross-entropy": _apple_head})


def _with_others(ways: dict[str, Way], others: dict[str, Callable[[], Step]]) -> Ways:
    left_out = []
    for name, load in others.items():
        package = PACKAGES[name]
        if importlib.util.find_spec(package) is None:
            left_out.append(f"{name} is left out: {package} is not installed")
            continue
        try:
            ways[name] = Way(load(), foreign=True)
        except Exception as error:  # another library may fail in any way
            left_out.append(f"{name} is left out: {checks.brief(error)}")
    return Ways(ways, left_out)


def _liger_loss() -> Step:
    made: Step = importlib.import_module("liger_kernel.transformers").LigerCrossEntropyLoss()
    return made


def _liger_head() -> Step:
    head = importlib.import_module("liger_kernel.transformers").LigerFusedLinearCrossEntropyLoss()
    return lambda h, w, y: head(w, h, y)


def _apple_head() -> Step:
    head: Step = importlib.import_module("cut_cross_entropy").linear_cross_entropy
    return head


def measure_losses_on(
    device: str,
    repeats: int,
    gauge: Gauge,
    sizes: Sequence[tuple[int, int, torch.dtype]] = LOSS_SIZES,
    compiler: Callable[[Step], Step] = COMPILER,
) -> Iterator[dict[str, Any]]:
    """Yield one result for each size: forward and backward of every way.

    Args:
        device: where the scores are.
        repeats: how many turns count.
        gauge: measures time and memory.
        sizes: examples, classes, and the type of the scores.
        compiler: ``torch.compile``, or what stands in for it.
    """
    for n, c, dtype in sizes:
        torch.compiler.reset()

        def at(rows: int, c: int = c, dtype: torch.dtype = dtype) -> dict[str, Any]:
            scores = _normal(rows, c, dtype=dtype, device=device)
            labels = torch.arange(rows, device=device) % c
            found = loss_ways(compiler)

            def prepare(step: Step) -> Callable[[], object]:
                z = scores.clone().requires_grad_()  # Liger overwrites the scores
                return lambda: step(z, labels).backward()  # type: ignore[no-untyped-call]

            return {"n": rows, "c": c, "dtype": _name(dtype)} | _compare(found, prepare, gauge, repeats)

        yield _where_it_fits(at, n)


def measure_heads_on(
    device: str, repeats: int, gauge: Gauge, sizes: Sequence[tuple[int, int, int, torch.dtype]] = HEAD_SIZES
) -> Iterator[dict[str, Any]]:
    """Yield one result for each size: a linear layer and its loss, forward and backward, in every way.

    Args:
        device: where features and weights are.
        repeats: how many turns count.
        gauge: measures time and memory.
        sizes: examples, features, classes, and the type of features and weights.
    """
    for n, d, c, dtype in sizes:

        def at(rows: int, d: int = d, c: int = c, dtype: torch.dtype = dtype) -> dict[str, Any]:
            h = _normal(rows, d, dtype=dtype, device=device).requires_grad_()
            w = _normal(c, d, dtype=dtype, device=device).mul_(0.05).requires_grad_()
            labels = torch.arange(rows, device=device) % c

            def prepare(step: Step) -> Callable[[], object]:
                h.grad = w.grad = None
                return lambda: step(h, w, labels).backward()  # type: ignore[no-untyped-call]

            return {"n": rows, "d": d, "c": c, "dtype": _name(dtype)} | _compare(head_ways(), prepare, gauge, repeats)

        yield _where_it_fits(at, n)


def _normal(*shape: int, dtype: torch.dtype, device: str) -> Tensor:
    return torch.randn(*shape, dtype=dtype, device=device, generator=torch.Generator(device).manual_seed(0))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _where_it_fits(at: Callable[[int], dict[str, Any]], rows: int) -> dict[str, Any]:
    """The result with so many rows, or with half as many as often as the memory does not suffice."""
    asked = rows
    while True:
        try:
            result = at(rows)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise ValueError("the memory of the device does not suffice for a single example") from None
            rows //= 2
            continue
        if rows < asked:
            line = f"{asked} examples of {result['c']} classes do not fit into memory: measured with {rows}"
            result["left_out"].insert(0, line)
        return result


def _compare(
    found: Ways, prepare: Callable[[Step], Callable[[], object]], gauge: Gauge, repeats: int
) -> dict[str, Any]:
    """Compare all ways that fit into memory with the first one, which must."""
    runs: dict[str, Prepare] = {}
    memory, left_out = {}, list(found.left_out)
    # Every way that is compiled takes its own place in the cache of the same code.
    with torch._dynamo.config.patch(recompile_limit=8 * len(found.ways)):
        for number, (name, way) in enumerate(found.ways.items()):
            run = functools.partial(_inside, way, prepare)
            try:
                gauge.extra_bytes(run)  # compiles, and chooses among kernels
                memory[name], runs[name] = gauge.extra_bytes(run), run
            except torch.OutOfMemoryError:
                if number == 0:
                    raise
                left_out.append(f"{name} is left out: the memory of the device does not suffice")
            except Exception as error:
                if not way.foreign:
                    raise
                left_out.append(f"{name} is left out: {checks.brief(error)}")
        timed = measure.interleaved(runs, repeats, clock=gauge.timed)
    del timed["page_faults"]
    return timed | {"extra_bytes": memory, "left_out": left_out}


def _inside(way: Way, prepare: Callable[[Step], Callable[[], object]]) -> Callable[[], object]:
    step = prepare(way.step)

    def run() -> None:
        with way.context():
            step()

    return run
