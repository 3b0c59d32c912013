"""The time of a loss, as a multiple of the time of torch's cross-entropy in the same run.

The C library gives a large tensor either recycled memory pages or fresh ones, and a fresh page takes longer than the
work on it. So each size is measured in two processes. In one of them every large tensor gets fresh pages.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss.bench import measure
from symloss.losses.spec import create_loss

SIZES = ((128, 10), (4096, 1000), (1024, 50_000))
"""Pairs of examples and classes."""
BASE = "torch cross_entropy"
LABEL_ONLY = ("mae", "gce", "sce", "agce", "aul", "ael", "focal", "taylor-ce", "phuber-ce", "alpha-mae")
"""Losses that read the probability of the label only."""
ALL_CLASSES = ("sgce", "nce", "nfl", "nce+rce", "nce+agce", "anl-ce")
NORMALIZED = ("unhinged", "sgce", "alpha-mae")
LIMITS = {"label": (2.5, 0.5, 0.6), "all": (3.5, 1.2, 1.0), "unhinged": (1.8, 0.3, 0.3)}
"""The largest ratio to cross-entropy that is on target, at each size."""
NORMALIZED_LIMIT = (1.4, 0.4, 0.4)
"""How much normalised scores may add to the ratio."""
REGIMES = {"default": {}, "fresh pages": {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}}
"""Environment variables of the two processes."""


def loss_names() -> list[str]:
    """The losses that are timed; ``/l2`` stands for normalised scores."""
    return [*LABEL_ONLY, *ALL_CLASSES, "unhinged", *(f"{name}/l2" for name in NORMALIZED)]


def limit(name: str, size: tuple[int, int]) -> float:
    """The target of a loss at one of ``SIZES``: its largest ratio to cross-entropy.

    >>> limit("gce", (4096, 1000)), limit("unhinged/l2", (128, 10))
    (0.5, 3.2)
    """
    base, at = name.removesuffix("/l2"), SIZES.index(size)
    group = base if base == "unhinged" else "all" if base in ALL_CLASSES else "label"
    return LIMITS[group][at] + (NORMALIZED_LIMIT[at] if name.endswith("/l2") else 0)


def measure_losses(repeats: int, sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[dict[str, Any]]:
    """Yield one result for each size and regime, as soon as it is measured."""
    for n, c in sizes:
        for regime, environment in REGIMES.items():
            job = {"what": "losses", "n": n, "c": c, "repeats": repeats}
            yield {"n": n, "c": c, "regime": regime, **measure.in_own_process(job, environment)}


def time_losses(n: int, c: int, repeats: int) -> dict[str, Any]:
    """Time forward and backward of each loss on ``n`` examples and ``c`` classes, in turns with cross-entropy."""
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(n, c, generator=generator), torch.randint(c, (n,), generator=generator)
    steps: dict[str, Callable[[Tensor], Tensor]] = {BASE: lambda z: F.cross_entropy(z, labels)}
    for name in loss_names():
        base, _, normalize = name.partition("/")
        loss = create_loss(base, normalize=normalize or None)
        steps[name] = lambda z, loss=loss: loss(z, labels)  # type: ignore[misc]
    # The clock of a shared machine drifts: many short turns compare better than few long ones.
    inner = max(1, 20_000 // (n * c))
    turns = repeats if inner == 1 else 10 * repeats

    def run(step: Callable[[Tensor], Tensor]) -> None:
        z = scores.requires_grad_()
        for _ in range(inner):
            step(z).backward()  # type: ignore[no-untyped-call]
            z.grad = None

    return measure.interleaved({name: functools.partial(run, step) for name, step in steps.items()}, turns, inner)


def loss_failures(results: list[dict[str, Any]]) -> list[str]:
    """The targets that were missed, each as one line. Only the default regime has targets."""
    return [
        f"{name} at {row['n']} x {row['c']}: {ratio:.2f}, target {limit(name, (row['n'], row['c'])):.2f}"
        for row in results
        if row["regime"] == "default"
        for name, ratio in row["ratios"].items()
        if name != BASE and ratio > limit(name, (row["n"], row["c"]))
    ]
