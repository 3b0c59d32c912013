"""Heads of a language model: time, memory and rounding errors with a vocabulary of 151,936, in float32 and bfloat16."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss.bench import measure
from symloss.functional import linear_loss
from symloss.losses.algebra import Loss
from symloss.losses.operators import Symmetrize
from symloss.losses.potentials import CEPotential, GCEPotential, MAEPotential
from symloss.losses.validation import plain

SIZE = (2048, 512, 151_936)
"""Tokens, features and classes."""
ERROR_SIZE = (2048, 128, 20_000)
"""The same where errors are measured: float64 needs all scores."""
TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LOSSES: dict[str, Loss] = {
    "gce": GCEPotential(0.5),
    "alpha-mae:kappa=2": Symmetrize(CEPotential()) + 2.0 * MAEPotential(),
}
BASE = "scores, then cross_entropy"
WIDE = ", float32 sum"
"""Marks heads that add up the gradient of the weights in float32."""
MOST_EXTRA = {"float32": 200e6, "bfloat16": 300e6}
"""The most memory, in bytes, that a head may take beyond features, weights and their gradients."""
MOST_TIME = 1.1
"""The longest time of a head, as a multiple of that of cross-entropy by way of the scores."""


def ways(dtype: str) -> list[str]:
    """The ways that are measured with a type: cross-entropy by way of the scores, and heads."""
    heads = [f"{name} head" for name in LOSSES]
    return [BASE, *heads, *(f"{head}{WIDE}" for head in heads if dtype != "float32")]


def _step(way: str) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    if way == BASE:
        return lambda h, w, y: F.cross_entropy(F.linear(h, w), y)
    name, _, kind = way.partition(" head")
    accumulate = torch.float32 if kind == WIDE else None
    return lambda h, w, y: linear_loss(LOSSES[name], h, w, None, y, accumulate=accumulate)


def _tensors(dtype: str, size: tuple[int, int, int]) -> tuple[Tensor, Tensor, Tensor]:
    n, d, c = size
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, d, generator=generator).to(TYPES[dtype]).requires_grad_()
    weight = torch.empty(c, d, dtype=TYPES[dtype]).normal_(std=0.05, generator=generator).requires_grad_()
    return features, weight, torch.randint(c, (n,), generator=generator)


def token_jobs(repeats: int, size: tuple[int, int, int] = SIZE) -> list[dict[str, Any]]:
    """The jobs of ``measure.in_own_process``: the times of each type, the memory of each way, and the errors."""
    times = [{"what": "token times", "dtype": dtype, "repeats": repeats, "size": size} for dtype in TYPES]
    memory = [
        {"what": "token memory", "dtype": dtype, "way": way, "size": size} for dtype in TYPES for way in ways(dtype)
    ]
    return [*times, *memory, {"what": "token errors"}]


def time_token_heads(dtype: str, repeats: int, size: tuple[int, int, int] = SIZE) -> dict[str, Any]:
    """Time forward and backward of all ways with a type, in turns."""
    h, w, y = _tensors(dtype, size)

    def run(step: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        step(h, w, y).backward()  # type: ignore[no-untyped-call]
        h.grad = w.grad = None

    runs = {way: functools.partial(run, _step(way)) for way in ways(dtype)}
    return {"dtype": dtype, **measure.interleaved(runs, repeats)}


def token_head_memory(dtype: str, way: str, size: tuple[int, int, int] = SIZE) -> dict[str, Any]:
    """The memory of a step, in bytes, beyond features, weights and their gradients."""
    step = _step(way)
    step(*_tensors(dtype, (8, 8, 8))).backward()  # type: ignore[no-untyped-call]
    before = measure.peak_memory()
    h, w, y = _tensors(dtype, size)
    step(h, w, y).backward()  # type: ignore[no-untyped-call]
    needed = 2 * (h.numel() + w.numel()) * h.element_size()
    return {"dtype": dtype, "way": way, "extra_bytes": max(measure.peak_memory() - before - needed, 0)}


def token_head_errors(size: tuple[int, int, int] = ERROR_SIZE) -> dict[str, Any]:
    """The relative errors of gradients in bfloat16 against float64, of features and weights, by loss and way."""
    h, w, y = _tensors("bfloat16", size)
    memory = 184 * size[2] * 6  # as many blocks as with the whole vocabulary

    def gradients(loss: Loss, dtype: torch.dtype, **options: Any) -> list[Tensor]:
        parts = [part.detach().to(dtype).clone().requires_grad_() for part in (h, w)]
        value = linear_loss(loss, parts[0], parts[1], None, y, **options)
        return [each.double() for each in torch.autograd.grad(value, parts)]

    errors: dict[str, Any] = {}
    for name, loss in LOSSES.items():
        exact = gradients(loss, torch.float64)
        with plain():
            found = {"scores, then loss": gradients(loss, torch.bfloat16)}
        found["head"] = gradients(loss, torch.bfloat16, memory=memory)
        found[f"head{WIDE}"] = gradients(loss, torch.bfloat16, memory=memory, accumulate=torch.float32)
        errors[name] = {
            way: [float((one - true).norm() / true.norm()) for one, true in zip(each, exact, strict=True)]
            for way, each in found.items()
        }
    return errors


def token_head_failures(
    times: list[dict[str, Any]], memory: list[dict[str, Any]], errors: dict[str, Any], size: tuple[int, int, int] = SIZE
) -> list[str]:
    """The targets that were missed, each as one line. The arguments are what the jobs return."""
    missed = []
    for row in times:
        slow = {way: ratio for way, ratio in row["ratios"].items() if ratio > MOST_TIME and WIDE not in way}
        missed += [f"{way}, {row['dtype']}: {ratio:.2f} times the time, target 1.1" for way, ratio in slow.items()]
    for row in memory:
        wide = 4 * size[1] * size[2] if WIDE in row["way"] else 0
        if row["way"] != BASE and row["extra_bytes"] > MOST_EXTRA[row["dtype"]] + wide:
            missed.append(f"{row['way']}, {row['dtype']}: {row['extra_bytes'] / 1e6:.0f} MB extra")
    for name, found in errors.items():
        for way, most in (("head", 2.0), (f"head{WIDE}", 1.05)):
            for one, base in zip(found[way], found["scores, then loss"], strict=True):
                if one > most * base:
                    missed.append(f"{name} {way}: error {one:.1e} where all scores at once have {base:.1e}")
    return missed
