"""Time and memory of a linear layer with a loss, from 1,000 to 1,000,000 classes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss.bench import measure
from symloss.functional import linear_loss, linear_unhinged
from symloss.losses.spec import create_loss

EXAMPLES, FEATURES = 1024, 256
CLASSES = (1_000, 10_000, 50_000, 200_000, 1_000_000)
MOST_SCORES = 200_000
"""With more classes, the ways that compute all scores would need tens of gigabytes."""


def _unit_unhinged(z: Tensor, y: Tensor) -> Tensor:
    """The unhinged loss of unit scores in plain torch: normalise, mean, gather."""
    z = F.normalize(z, dim=1, eps=1e-5)
    return (z.mean(1) - z.gather(1, y[:, None]).squeeze(1)).mean()


def _head_of(name: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    loss = create_loss(name).loss
    return lambda h, w, b, y: linear_loss(loss, h, w, b, y, normalize="l2")


HEADS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "linear + cross_entropy": lambda h, w, b, y: F.cross_entropy(F.linear(h, w, b), y),
    "linear + unit unhinged": lambda h, w, b, y: _unit_unhinged(F.linear(h, w, b), y),
    "unhinged head": linear_unhinged,
    "unhinged head, raw scores": lambda h, w, b, y: linear_unhinged(h, w, b, y, normalize=None),
    "alpha-mae head": _head_of("alpha-mae"),
    "sgce head": _head_of("sgce"),
}
"""Functions of features (N, d), weight (C, d), bias (C,) and labels (N,)."""
WITH_SCORES = ("linear + cross_entropy", "linear + unit unhinged")


def head_jobs() -> list[dict[str, Any]]:
    """The jobs of ``measure.in_own_process``: each way at each number of classes that fits into memory."""
    return [
        {"what": "head", "way": way, "c": c}
        for c in CLASSES
        for way in HEADS
        if c <= MOST_SCORES or way not in WITH_SCORES
    ]


def time_heads(c: int, repeats: int) -> dict[str, Any]:
    """Time forward and backward of every way with ``c`` classes, in turns."""
    h, w, b, y = _tensors(c)

    def run(way: str) -> None:
        HEADS[way](h, w, b, y).backward()  # type: ignore[no-untyped-call]
        h.grad = w.grad = b.grad = None

    return measure.interleaved({way: functools.partial(run, way) for way in HEADS}, repeats)


def time_one_head(way: str, c: int) -> dict[str, Any]:
    """Seconds of the best of three steps, and memory beyond features, parameters and their gradients."""
    HEADS[way](*_tensors(8)).backward()  # type: ignore[no-untyped-call]
    before = measure.peak_memory()
    h, w, b, y = _tensors(c)
    needed = 2 * sum(each.numel() * each.element_size() for each in (h, w, b))
    times = []
    for _ in range(3):
        times.append(measure.timed(lambda: HEADS[way](h, w, b, y).backward()).seconds)  # type: ignore[no-untyped-call]
        h.grad = w.grad = b.grad = None
    peak = measure.peak_memory()
    extra = max(peak - before - needed, 0)
    return {"way": way, "c": c, "seconds": min(times), "extra_bytes": extra, "peak_bytes": peak}


def _tensors(c: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(EXAMPLES, FEATURES, generator=generator).requires_grad_()
    weight = torch.empty(c, FEATURES).normal_(std=0.05, generator=generator).requires_grad_()
    return features, weight, torch.zeros(c, requires_grad=True), torch.randint(c, (EXAMPLES,), generator=generator)


def head_failures(timed: dict[str, Any], alone: list[dict[str, Any]]) -> list[str]:
    """The targets that were missed, each as one line.

    Args:
        timed: what ``time_heads`` returns at 50,000 classes.
        alone: what ``time_one_head`` returns for each of ``head_jobs``.
    """
    ratio = timed["ratios"]
    extra = {(row["way"], row["c"]): row["extra_bytes"] for row in alone}
    whole = {(row["way"], row["c"]): row["peak_bytes"] for row in alone}
    scores, head, many = "linear + cross_entropy", "unhinged head", 50_000
    checks = {
        "unhinged head: 12 times faster than scores then loss": ratio["linear + unit unhinged"] >= 12 * ratio[head],
        "unhinged head: 6 times faster than linear + cross_entropy": 6 * ratio[head] <= 1,
        "a million classes in 4 GB": whole[head, 1_000_000] < 4e9,
    }
    for way in (head, "alpha-mae head", "sgce head"):
        checks[f"{way}: an eighth of the extra memory"] = 8 * extra[way, many] <= extra[scores, many]
    for way in ("alpha-mae head", "sgce head"):
        checks[f"{way}: at most 1.1 times the time"] = ratio[way] <= 1.1
    return [name for name, met in checks.items() if not met]
