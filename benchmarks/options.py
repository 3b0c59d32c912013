"""What soft labels, class weights, label smoothing and torch.compile cost: python benchmarks/options.py

    OMP_NUM_THREADS=1 python benchmarks/options.py               # two minutes on an idle machine
    OMP_NUM_THREADS=1 python benchmarks/options.py --compiled    # torch.compile instead, at 1,024 x 1,000

Each number is the time of a loss, forward and backward, as a multiple of the time of ``F.cross_entropy`` with the same
option. The runs take turns in one process with one thread, and medians are compared. Large tensors get recycled memory
pages, because a fresh page costs more than the work on it: the script sets glibc's malloc thresholds for itself.
"""

from __future__ import annotations

import argparse
import functools
import os
import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import symloss
from symloss.bench import measure
from symloss.environment import hardware_and_versions

LOSSES = ("ce", "mae", "gce", "nce", "alpha-mae", "sgce")
SIZES = ((128, 10), (128, 100), (128, 1000), (1024, 1000))
RECYCLED = {"MALLOC_MMAP_THRESHOLD_": "1000000000", "MALLOC_TRIM_THRESHOLD_": "10000000000"}
KINDS = ("labels", "probabilities", "class weights", "label smoothing")

Step = Callable[[Tensor], Tensor]


def steps(kind: str, n: int, c: int) -> dict[str, Step]:
    """Return cross-entropy and each loss as functions of the scores, with an option or a kind of target."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(c, (n,), generator=generator)
    target = torch.randn(n, c, generator=generator).softmax(1) if kind == "probabilities" else labels
    weight = torch.rand(c, generator=generator) + 0.5
    options = {"class weights": {"weight": weight}, "label smoothing": {"label_smoothing": 0.1}}.get(kind, {})
    found: dict[str, Step] = {"cross_entropy": lambda z: F.cross_entropy(z, target, **options)}
    for name in LOSSES:
        loss = symloss.create_loss(name, normalize=None, **options)
        found[name] = lambda z, loss=loss: loss(z, target)  # type: ignore[misc]
    return found


def compiled_steps(n: int, c: int) -> dict[str, Step]:
    """Return compiled cross-entropy and each compiled loss as functions of the scores."""
    torch._dynamo.config.recompile_limit = 4 * len(LOSSES)
    labels = torch.randint(c, (n,), generator=torch.Generator().manual_seed(0))
    found: dict[str, Step] = {}
    functions = {"cross_entropy": F.cross_entropy} | {x: symloss.create_loss(x, normalize=None) for x in LOSSES}
    for name, function in functions.items():
        made = torch.compile(function, fullgraph=True)
        found[name] = lambda z, made=made: made(z, labels)  # type: ignore[misc]
    return found


def ratios(found: dict[str, Step], n: int, c: int, repeats: int) -> dict[str, float]:
    """Time all steps in turns, and return multiples of the first."""
    scores = torch.randn(n, c, generator=torch.Generator().manual_seed(1)).requires_grad_()
    inner = max(1, 30_000 // (n * c))

    def run(step: Step) -> None:
        for _ in range(inner):
            step(scores).backward()
            scores.grad = None

    jobs = {name: functools.partial(run, step) for name, step in found.items()}
    return measure.interleaved(jobs, repeats if n * c > 50_000 else 4 * repeats, inner)["ratios"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compiled", action="store_true", help="compile with inductor (needs a C++ compiler)")
    parser.add_argument("--repeats", type=int, default=40, help="turns that count (default: 40)")
    given = parser.parse_args()
    if not RECYCLED.items() <= os.environ.items():
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **RECYCLED})
    torch.set_num_threads(1)
    print(f"{hardware_and_versions()}\n")
    print(f"| size | target | {' | '.join(LOSSES)} |\n|---|---|{'---:|' * len(LOSSES)}")
    rows = (
        [("compiled", n, c) for n, c in SIZES[-1:]] if given.compiled else [(k, n, c) for k in KINDS for n, c in SIZES]
    )
    for kind, n, c in rows:
        found = ratios(compiled_steps(n, c) if given.compiled else steps(kind, n, c), n, c, given.repeats)
        print(f"| {n:,} x {c:,} | {kind} | {' | '.join(f'{found[name]:.2f}' for name in LOSSES)} |", flush=True)


if __name__ == "__main__":
    main()
