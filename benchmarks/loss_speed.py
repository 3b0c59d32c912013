"""Time losses, forward and backward, as multiples of the time of torch's cross-entropy.

    OMP_NUM_THREADS=1 python benchmarks/loss_speed.py --check                   # every loss, at three sizes
    OMP_NUM_THREADS=1 python benchmarks/loss_speed.py --options --repeats 40    # soft labels, class weights, smoothing
    OMP_NUM_THREADS=1 python benchmarks/loss_speed.py --compiled --repeats 40   # torch.compile, at 1,024 x 1,000

The C library gives a large tensor either recycled memory pages or fresh ones, and a fresh page takes longer than the
work on it. So each size is measured in two processes: one as usual, one in which every large tensor gets fresh pages.
--options and --compiled time six losses with recycled pages, against cross-entropy with the same option.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import measure
import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss import create_loss

SIZES = ((128, 10), (4096, 1000), (1024, 50_000))
"""Pairs of examples and classes."""
BASE = "torch cross_entropy"
LABEL_ONLY = ("mae", "gce", "sce", "agce", "aul", "ael", "focal", "taylor-ce", "phuber-ce", "alpha-mae")
"""Losses that read the probability of the label only."""
ALL_CLASSES = ("sgce", "nce", "nfl", "nce+rce", "nce+agce", "anl-ce")
NORMALIZED = ("unhinged", "sgce", "alpha-mae")
LOSSES = (*LABEL_ONLY, *ALL_CLASSES, "unhinged", *(f"{name}/l2" for name in NORMALIZED))
"""``/l2`` stands for normalised scores."""
LIMITS = {"label": (2.5, 0.5, 0.6), "all": (3.5, 1.2, 1.0), "unhinged": (1.8, 0.3, 0.3)}
"""The largest ratio to cross-entropy that is on target, at each size."""
NORMALIZED_LIMIT = (1.4, 0.4, 0.4)
"""How much normalised scores may add to the ratio."""
REGIMES = {"default": {}, "fresh": {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}}
"""Environment variables of the two processes."""

FEW_LOSSES = ("ce", "mae", "gce", "nce", "alpha-mae", "sgce")
OPTION_SIZES = ((128, 10), (128, 100), (128, 1000), (1024, 1000))
RECYCLED = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "10000000000"}
OPTIONS = ("labels", "probabilities", "class weights", "label smoothing")

Size = tuple[int, int]
Row = dict[str, Any]


def limit(name: str, size: Size) -> float:
    """Return the target of a loss at one of ``SIZES``: its largest ratio to cross-entropy.

    >>> limit("gce", (4096, 1000)), limit("unhinged/l2", (128, 10))
    (0.5, 3.2)
    """
    base, at = name.removesuffix("/l2"), SIZES.index(size)
    group = base if base == "unhinged" else "all" if base in ALL_CLASSES else "label"
    return LIMITS[group][at] + (NORMALIZED_LIMIT[at] if name.endswith("/l2") else 0)


def measure_losses(repeats: int, sizes: Sequence[Size] = SIZES) -> Iterator[Row]:
    """Yield one result per size and regime, as soon as it is measured."""
    for n, c in sizes:
        for regime, variables in REGIMES.items():
            found = measure.in_own_process(time_losses, n, c, repeats, variables=variables)
            yield {"n": n, "c": c, "regime": regime, **found}


def time_losses(n: int, c: int, repeats: int, losses: Sequence[str] = LOSSES, kind: str = "labels") -> Row:
    """Time forward and backward of losses, in turns with cross-entropy.

    Args:
        n: number of examples.
        c: number of classes.
        repeats: number of turns; small batches get ten times as many.
        losses: specs of losses.
        kind: one of ``OPTIONS``, for losses and cross-entropy alike, or "compiled".
    """
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(n, c, generator=generator), torch.randint(c, (n,), generator=generator)
    target = torch.randn(n, c, generator=generator).softmax(1) if kind == "probabilities" else labels
    weight = torch.rand(c, generator=generator) + 0.5
    options: dict[str, Any] = {"class weights": {"weight": weight}, "label smoothing": {"label_smoothing": 0.1}}
    given = options.get(kind, {})
    steps: dict[str, Callable[..., Tensor]] = {BASE: functools.partial(F.cross_entropy, **given)}
    for name in losses:
        base, _, normalize = name.partition("/")
        steps[name] = create_loss(base, normalize=normalize or None, **given)
    if kind == "compiled":
        torch._dynamo.config.recompile_limit = 4 * len(losses)
        steps = {name: torch.compile(step, fullgraph=True) for name, step in steps.items()}
    # The clock of a shared machine drifts: many short turns compare better than few long ones.
    inner = max(1, 20_000 // (n * c))
    turns = repeats if inner == 1 else 10 * repeats

    def run(step: Callable[..., Tensor]) -> None:
        z = scores.requires_grad_()
        for _ in range(inner):
            step(z, target).backward()  # type: ignore[no-untyped-call]
            z.grad = None

    return measure.interleaved({name: functools.partial(run, step) for name, step in steps.items()}, turns, inner)


def loss_failures(results: Sequence[Row]) -> list[str]:
    """Return the targets that were missed, one line each. Only the default regime has targets."""
    return [
        f"{name} at {row['n']} x {row['c']}: {ratio:.2f}, target {limit(name, (row['n'], row['c'])):.2f}"
        for row in results
        if row["regime"] == "default"
        for name, ratio in row["ratios"].items()
        if name != BASE and ratio > limit(name, (row["n"], row["c"]))
    ]


def print_losses(results: Sequence[Row]) -> None:
    """Print ratios, with the target in brackets where it is missed."""

    def cell(found: Row, name: str) -> str:
        ratio, most = found["ratios"][name], limit(name, (found["n"], found["c"]))
        return f"{ratio:.2f} ({most:g})" if found["regime"] == "default" and ratio > most else f"{ratio:.2f}"

    print(measure.header("loss", *(f"{row['n']} x {row['c']}, {row['regime']}" for row in results)))
    print(measure.row(f"{BASE}, ms", *(f"{1e3 * row['seconds'][BASE]:.3g}" for row in results)))
    for name in list(results[0]["ratios"])[1:]:
        print(measure.row(name, *(cell(found, name) for found in results)))
    faults = (f"{row['page_faults'][BASE]:.0f} / {row['page_faults']['gce']:.0f}" for row in results)
    print(measure.row("page faults, cross_entropy / gce", *faults))


def print_kinds(kinds: Sequence[str], sizes: Sequence[Size], repeats: int) -> None:
    """Print the ratios of a few losses for each kind of target, with recycled pages."""
    print(measure.header("size", "target", *FEW_LOSSES, left=2))
    for kind in kinds:
        for n, c in sizes:
            timed = measure.in_own_process(time_losses, n, c, repeats, FEW_LOSSES, kind, variables=RECYCLED)
            ratios = (f"{timed['ratios'][name]:.2f}" for name in FEW_LOSSES)
            print(measure.row(f"{n:,} x {c:,}", kind, *ratios), flush=True)


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--repeats", type=int, default=15, help="timed turns; the median counts (default: 15)")
    parser.add_argument("--smallest", action="store_true", help="time the smallest size only")
    parser.add_argument("--options", action="store_true", help="time kinds of targets instead")
    parser.add_argument("--compiled", action="store_true", help="compile with inductor instead; needs a C++ compiler")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    given = parser.parse_args()
    measure.print_environment()
    if given.options or given.compiled:
        kinds, option_sizes = (OPTIONS, OPTION_SIZES) if given.options else (("compiled",), OPTION_SIZES[-1:])
        print_kinds(kinds, option_sizes[:1] if given.smallest else option_sizes, given.repeats)
        return
    sizes = SIZES[:1] if given.smallest else SIZES
    pieces = [f"{n} x {c}, {regime}" for n, c in sizes for regime in REGIMES]
    results = measure.with_progress(measure_losses(given.repeats, sizes), pieces)
    print_losses(results)
    if given.check:
        measure.judge(loss_failures(results))


if __name__ == "__main__":
    main()
