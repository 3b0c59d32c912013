"""Time losses and linear heads on a GPU, with their memory, in turns with torch's cross-entropy and other libraries.

    python benchmarks/gpu_speed.py             # losses, and linear layers with a loss
    python benchmarks/gpu_speed.py --losses    # losses only

Time is measured by events of the GPU, and memory by its allocator. --device cpu measures seconds, and no memory, so
that this can be tested without a GPU.

Losses are compared as torch operations, as plain formulas and compiled. Liger-Kernel and Apple's cut-cross-entropy are
called as their sources declare it. They need a GPU, and were not run when this was written. What they refuse is left
out with their message.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import metadata
from typing import Any, NamedTuple

import measure
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss import checks, create_loss
from symloss.functional import linear_loss
from symloss.losses.validation import plain

LOSSES = ("gce", "alpha-mae", "alpha-mae/l2", "sgce", "sgce/l2", "unhinged", "unhinged/l2")
"""The losses that are measured; ``/l2`` stands for scores that are divided by their norm."""
BASES = {"losses": "torch cross_entropy", "heads": "linear + cross_entropy"}
PACKAGES = {"Liger": "liger_kernel", "cut-cross-entropy": "cut_cross_entropy"}
"""Other libraries, and the packages that they are imported as."""

Row = dict[str, Any]
Step = Callable[..., Tensor]
COMPILER: Callable[[Step], Step] = functools.partial(torch.compile, dynamic=False, fullgraph=True)
Prepare = Callable[[], Callable[[], object]]
"""Prepares a run, and returns what is measured."""


class Size(NamedTuple):
    """Examples, classes, the type of scores or of features and weights, and the number of features of a head."""

    n: int
    c: int
    dtype: torch.dtype
    d: int | None = None


SIZES = {
    "losses": (Size(4096, 1000, torch.float32), Size(1024, 50_000, torch.float32), Size(8192, 151_936, torch.bfloat16)),
    "heads": (Size(1024, 50_000, torch.float32, 256), Size(8192, 151_936, torch.bfloat16, 2048)),
}
TINY = {"losses": (Size(6, 5, torch.float32),), "heads": (Size(6, 5, torch.float32, 4),)}


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
    """Return cross-entropy, our losses as torch operations, plain formulas and compiled, and Liger's cross-entropy.

    Args:
        compiler: ``torch.compile``, or what stands in for it.
    """
    base = BASES["losses"]
    ways = {base: Way(F.cross_entropy), f"{base}, compiled": Way(compiler(F.cross_entropy))}
    for name in LOSSES:
        spec, _, normalize = name.partition("/")
        loss = create_loss(spec, normalize=normalize or None)
        ways[f"{name}, torch operations"] = Way(loss)
        ways[f"{name}, plain formulas"] = Way(loss, plain)
        ways[f"{name}, compiled"] = Way(compiler(loss))
    return _with_others(ways, {"Liger": _liger_loss})


def head_ways() -> Ways:
    """Return a linear layer with cross-entropy, our heads, and those of other libraries."""

    def head_of(name: str) -> Step:
        spec, _, normalize = name.partition("/")
        loss = create_loss(spec).loss
        return lambda h, w, y: linear_loss(loss, h, w, None, y, normalize=normalize or None)

    ways = {BASES["heads"]: Way(lambda h, w, y: F.cross_entropy(F.linear(h, w), y))}
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


def measure_on(device: str, size: Size, repeats: int, gauge: Gauge, compiler: Callable[[Step], Step] = COMPILER) -> Row:
    """Measure forward and backward of every way at one size, with fewer examples if they don't fit into memory.

    Args:
        device: where the tensors are.
        size: of losses, or of heads if it has a number of features.
        repeats: number of turns that count.
        gauge: measures time and memory.
        compiler: ``torch.compile``, or what stands in for it.
    """
    torch.compiler.reset()
    rows = size.n
    while True:
        try:
            found = _compare_at(device, size._replace(n=rows), repeats, gauge, compiler)
        except torch.OutOfMemoryError:
            if rows == 1:
                raise ValueError("the memory of the device does not suffice for a single example") from None
            rows //= 2
            continue
        if rows < size.n:
            line = f"{size.n} examples of {size.c} classes do not fit into memory: measured with {rows}"
            found["left_out"].insert(0, line)
        return {"n": rows, "c": size.c, "dtype": str(size.dtype).removeprefix("torch.")} | found


def _compare_at(device: str, size: Size, repeats: int, gauge: Gauge, compiler: Callable[[Step], Step]) -> Row:
    def normal(*shape: int) -> Tensor:
        generator = torch.Generator(device).manual_seed(0)
        return torch.randn(*shape, dtype=size.dtype, device=device, generator=generator)

    if size.d is None:
        found, inputs = loss_ways(compiler), [normal(size.n, size.c)]
    else:
        found, inputs = head_ways(), [normal(size.n, size.d), normal(size.c, size.d).mul_(0.05)]
    labels = torch.arange(size.n, device=device) % size.c

    def prepare(step: Step) -> Callable[[], object]:
        fresh = [each.clone().requires_grad_() for each in inputs]  # Liger overwrites the scores
        return lambda: step(*fresh, labels).backward()  # type: ignore[no-untyped-call]

    return compare(found, prepare, gauge, repeats)


def compare(found: Ways, prepare: Callable[[Step], Callable[[], object]], gauge: Gauge, repeats: int) -> Row:
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
    return timed | {"extra_bytes": memory, "left_out": left_out}


def _inside(way: Way, prepare: Callable[[Step], Callable[[], object]]) -> Callable[[], object]:
    step = prepare(way.step)

    def run() -> None:
        with way.context():
            step()

    return run


def print_rows(what: str, rows: list[Row]) -> None:
    """Print ratios to the first way, milliseconds and megabytes, and what is left out on stderr."""

    def cell(row: Row, way: str) -> str:
        if way not in row["ratios"]:
            return "-"
        milliseconds, megabytes = 1e3 * row["seconds"][way], row["extra_bytes"][way] / 1e6
        return f"{row['ratios'][way]:.2f}, {milliseconds:,.3g} ms, {megabytes:,.0f} MB"

    print(f"{what}, forward and backward: ratio to the first way, time, memory beyond the inputs\n")
    ways = dict.fromkeys(way for row in rows for way in row["ratios"])
    measure.print_table(
        ("way", *(f"{row['n']} x {row['c']}, {row['dtype']}" for row in rows)),
        ((way, *(cell(row, way) for row in rows)) for way in ways),
    )
    print()
    for row in rows:
        for line in row["left_out"]:
            print(f"{row['n']} x {row['c']} {row['dtype']}: {line}", file=sys.stderr)


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--losses", action="store_true", help="time losses only")
    parser.add_argument("--heads", action="store_true", help="time linear layers with a loss only")
    parser.add_argument("--repeats", type=int, default=15, help="timed turns; the median counts (default: 15)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="a GPU of NVIDIA or AMD, or the CPU")
    parser.add_argument("--smallest", action="store_true", help="a tiny size, not compiled: whether it runs")
    given = parser.parse_args()
    on_gpu = given.device == "cuda"
    if on_gpu and not torch.cuda.is_available():
        parser.error("torch sees no CUDA or ROCm device on this machine")
    packages = metadata.packages_distributions()
    there = [name for each in ("triton", *PACKAGES.values()) for name in packages.get(each, [])[:1]]
    measure.print_environment(*there, device=torch.cuda.get_device_name() if on_gpu else "no GPU")
    wanted = [what for what in SIZES if getattr(given, what)] or list(SIZES)
    gauge = GpuGauge() if on_gpu else Gauge()
    compiler: Callable[[Step], Step] = (lambda step: step) if given.smallest else COMPILER
    for what in wanted:
        sizes = (TINY if given.smallest else SIZES)[what]
        work = (measure_on(given.device, size, given.repeats, gauge, compiler) for size in sizes)
        print_rows(what, measure.with_progress(work, [f"{what}, {size.n} x {size.c}" for size in sizes]))


if __name__ == "__main__":
    main()
