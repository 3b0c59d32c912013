"""Every fused kernel: run by Triton's interpreter against the plain formulas, and compiled for three GPUs.

    python benchmarks/fused.py            # all losses, types and numbers of classes (an hour on one core)
    python benchmarks/fused.py --quick    # four losses (a minute)

No GPU is needed. The first table shows the largest error of each kernel, as a part of the largest entry of its row of
the gradient. The second one shows registers, spilled registers and shared memory.
"""

from __future__ import annotations

import argparse
import itertools

import torch

import symloss
from symloss.losses.fast.kernel_choice import Unit
from symloss.losses.fused.compiling import TARGETS, compile_for
from symloss.losses.fused.fused_kernel import FusedKernel, fused_kernel, reason, served

QUICK = ("gce", "sgce", "nce", "alpha-mae")
TYPES = (torch.float32, torch.float16, torch.bfloat16)
CLASSES = (2, 3, 10, 100, 1000, 5000, 20000)
QUICK_CLASSES = (3, 1000, 10000)
COMPILED_CLASSES = (10, 1000, 8192, 32768)
ROWS = 8


def unit_of(criterion: symloss.Criterion) -> Unit | None:
    """How a loss divides scores by their norm."""
    scores = criterion.score_map
    return Unit(scores.temperature, scores.eps) if isinstance(scores, symloss.UnitScores) else None


def batch(classes: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Scores with a confident row, a hopeless one, one with masked classes and an ignored one; labels; shares."""
    generator = torch.Generator().manual_seed(classes)
    z = (4 * torch.randn(ROWS, classes, generator=generator)).to(dtype)
    y = torch.randint(classes, (ROWS,), generator=generator)
    z[0, y[0]] += 20
    z[1, y[1]] -= 30
    if classes > 3:
        z[2, (y[2] + 1) % classes] = -torch.inf
    share = torch.ones(ROWS)
    share[3] = 0
    return z, y, share


def error(criterion: symloss.Criterion, kernel: FusedKernel, dtype: torch.dtype) -> tuple[float, float]:
    """The largest errors of the values and of the gradient, against the plain formulas in float64."""
    z, y, share = batch(kernel.classes, dtype)
    exact = z.double().requires_grad_()
    with symloss.plain():
        truth = criterion.loss(exact, y, reduction="none", score_map=criterion.score_map)
    (slopes,) = torch.autograd.grad(truth[share != 0].sum(), exact)
    out = torch.empty_like(z)
    values = kernel(z, y, share, out)
    kept = share != 0
    off = (values - truth.detach()).abs() / (1 + truth.detach().abs())
    smallest = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps  # half types cannot hold less
    gap = ((out.double() - slopes).abs().amax(1) - 2 * smallest).clamp_min(0) / slopes.abs().amax(1).clamp_min(1e-30)
    return float(off[kept].max()), float(gap[kept].max())


def compare(names: list[str], numbers: tuple[int, ...]) -> bool:
    """Print the errors of all kernels. Returns whether all are small."""
    good = True
    print(f"{'loss':16} {'classes':>7} {'type':>9} {'reads':>5} {'value':>9} {'gradient':>9}")
    for name, classes, dtype in itertools.product(names, numbers, TYPES):
        criterion = symloss.create_loss(name)
        if not served(criterion.loss, classes):
            continue
        kernel = fused_kernel(criterion.loss, classes, unit_of(criterion), interpret=True)
        value, gradient = error(criterion, kernel, dtype)
        allowed = max(2e-5, torch.finfo(dtype).eps)
        fits = value < 2e-5 and gradient < allowed
        good, mark = good and fits, "" if fits else "  too large"
        kind = str(dtype).removeprefix("torch.")
        print(f"{name:16} {classes:7} {kind:>9} {kernel.reads:5} {value:9.1e} {gradient:9.1e}{mark}", flush=True)
    return good


def resources(names: list[str], numbers: tuple[int, ...]) -> None:
    """Print what all kernels use on three GPUs."""
    head = "".join(f" | {target:>8}: {'reg':>3} {'spill':>5} {'shared':>6} {'warps':>5}" for target in TARGETS)
    print(f"{'loss':16} {'classes':>7}{head}")
    for name, classes in itertools.product(names, numbers):
        criterion = symloss.create_loss(name)
        if not served(criterion.loss, classes):
            continue
        kernel = fused_kernel(criterion.loss, classes, unit_of(criterion), interpret=False)
        line = f"{name:16} {classes:7}"
        for target in TARGETS:
            found = compile_for(kernel, target)
            spilled = found.spilled + found.scalars_spilled
            line += f" | {'':8}  {found.registers:3} {spilled:5} {found.shared:6} {found.warps:5}"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four losses, three numbers of classes")
    parser.add_argument("--loss", action="append", help="this loss alone; may be given several times")
    parser.add_argument("--part", choices=("errors", "resources"), help="one of the two tables")
    given = parser.parse_args()
    names = given.loss or [*QUICK] if given.quick or given.loss else symloss.list_losses()
    for name in names:
        if why := reason(symloss.create_loss(name).loss, 10):
            print(f"{name} is not served: {why}")
    good = given.part == "resources" or compare(names, QUICK_CLASSES if given.quick else CLASSES)
    if given.part != "errors":
        resources(names, (8192,) if given.quick else COMPILED_CLASSES)
    if not good:
        raise SystemExit("some errors are too large")


if __name__ == "__main__":
    main()
