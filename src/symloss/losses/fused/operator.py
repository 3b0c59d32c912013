"""Fused kernels as operators of torch, which ``torch.compile`` keeps in its graph.

An operator takes a key in place of a loss. ``fused_key`` makes the key, and remembers the loss for the process.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from symloss.losses.algebra import Loss
from symloss.losses.fast.kernel_choice import Unit
from symloss.losses.fused.fused_kernel import fused_kernel, served

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def _constant_result(function: Decorated) -> Decorated:
    """Let Dynamo call a function while it traces, and take its result for a constant."""
    decorated: Decorated = torch.compiler.assume_constant_result(function)  # type: ignore[no-untyped-call]
    return decorated


class _Known(NamedTuple):
    loss: Loss
    unit: Unit | None


_known: dict[str, _Known] = {}


def fused_key(loss: Loss, classes: int, unit: Unit | None = None) -> str:
    """The key of a loss for the operators; empty if it has no fused kernel.

    Args:
        loss: an expression of the algebra.
        classes: the number of classes.
        unit: how scores are divided by their norm; None if they are not.
    """
    # Dynamo hands numbers over to the function that it calls, but no named tuple.
    return _key(loss, classes) if unit is None else _key(loss, classes, unit.temperature, unit.eps)


@_constant_result
def _key(loss: Loss, classes: int, *unit: float) -> str:
    if not served(loss, classes):
        return ""
    known = _Known(loss, Unit(*unit) if unit else None)
    base = key = f"{loss!r} {known.unit}"
    number = 1
    while key in _known and _known[key] != known:  # two losses may have one text
        number += 1
        key = f"{base} #{number}"
    _known[key] = known
    return key


def _run(scores: Tensor, labels: Tensor, share: Tensor, key: str, out: Tensor) -> Tensor:
    loss, unit = _known[key]
    # Only the interpreter can compute on the CPU.
    kernel = fused_kernel(loss, scores.shape[1], unit, interpret=True if scores.is_cpu else None)
    return kernel(scores, labels, share, out)


@torch.library.custom_op("symloss::fused_loss", mutates_args=())
def fused_loss(scores: Tensor, labels: Tensor, share: Tensor, key: str) -> tuple[Tensor, Tensor]:
    """The values at the labels, and the gradient of sum(share * values) in the scores.

    Args:
        scores: (N, C). The entries of a row lie next to each other.
        labels: (N,), as int64.
        share: what each example counts for in the gradient, as float32: (N,), or a scalar.
        key: from :func:`fused_key`.
    """
    gradient = torch.empty(scores.shape, dtype=scores.dtype, device=scores.device)
    return _run(scores, labels, share, key, gradient), gradient


@torch.library.custom_op("symloss::fused_loss_", mutates_args={"scores"})
def fused_loss_in_place(scores: Tensor, labels: Tensor, share: Tensor, key: str) -> Tensor:
    """The values at the labels. The gradient is written over the scores. The arguments are those of `fused_loss`."""
    return _run(scores, labels, share, key, scores)


def _values_like(scores: Tensor) -> Tensor:
    return scores.new_empty(scores.shape[0], dtype=torch.float32)


@fused_loss.register_fake
def _(scores: Tensor, labels: Tensor, share: Tensor, key: str) -> tuple[Tensor, Tensor]:
    return _values_like(scores), scores.new_empty(scores.shape)


@fused_loss_in_place.register_fake
def _(scores: Tensor, labels: Tensor, share: Tensor, key: str) -> Tensor:
    return _values_like(scores)


def _keep_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _backward(ctx: Any, of_values: Tensor, of_gradient: Tensor | None) -> tuple[Tensor, None, None, None]:
    """The gradient in the scores. Each row of it holds the share of its example already."""
    (gradient,) = ctx.saved_tensors
    return (gradient * of_values[:, None]).to(gradient.dtype), None, None, None


fused_loss.register_autograd(_backward, setup_context=_keep_gradient)
