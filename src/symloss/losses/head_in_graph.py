"""A head as an operator of torch, so that a graph of ``torch.compile`` does not form its scores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from symloss.losses.algebra import Loss
from symloss.losses.kernels.batch import labelled
from symloss.losses.kernels.choice import kernel_for
from symloss.losses.kernels.linear_head import Allowance, value_and_gradients
from symloss.losses.kernels.products import Head
from symloss.losses.kernels.unit import CappedKernel, Unit
from symloss.losses.logits import working_type

Compute = Callable[[Head, Tensor, Tensor | None, Tensor | None, Sequence[bool]], tuple[Tensor, Sequence[Tensor | None]]]
"""A function of a head, labels, class weights, a count and which gradients are wanted, to value and gradients."""

_known: dict[str, tuple[Loss, Compute]] = {}
"""What computes a head, by the text that stands for it in a graph; and its loss."""


def _remember(text: str, loss: Loss, compute: Compute) -> str:
    """The text, or with a number behind it if it stands for another loss already."""
    key, number = text, 1
    while key in _known and _known[key][0] != loss:
        number += 1
        key = f"{text} #{number}"
    _known.setdefault(key, (loss, compute))
    return key


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def graph_key(
    loss: Loss,
    classes: int,
    unit: tuple[float, float] | tuple[()],
    ignore_index: int,
    reduction: str,
    softcap: float | None,
    memory: int | None,
    is_wide: bool,
) -> str:
    """The text that stands for a head in a graph; empty if the loss has no kernel. It is made while a graph is traced.

    Args:
        loss: an expression of the algebra.
        classes: the number of classes.
        unit: temperature and eps of scores that are divided by their norm; empty if they are not. (Dynamo hands over
            numbers and texts, but no named tuples.)
        ignore_index, reduction, softcap, memory: as in ``linear_loss``.
        is_wide: whether the gradient of the weights is added up in float32.
    """
    divides = Unit(*unit) if unit else None
    kernel = kernel_for(loss, classes, divides)
    if kernel is None:
        return ""
    capped = kernel if softcap is None else CappedKernel(kernel, softcap)
    allowance = Allowance(memory, torch.float32 if is_wide else None)

    def compute(
        head: Head, labels: Tensor, class_weight: Tensor | None, count: Tensor | None, wanted: Sequence[bool]
    ) -> tuple[Tensor, Sequence[Tensor | None]]:
        examples = labelled(labels, len(head.weight), ignore_index, class_weight, reduction, count)
        return value_and_gradients(capped, head, examples, allowance, wanted)

    return _remember(f"{loss!r} {divides} {ignore_index} {reduction} {softcap} {allowance}", loss, compute)


@torch.library.custom_op("symloss::head_loss", mutates_args=())
def head_loss(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    class_weight: Tensor | None,
    count: Tensor | None,
    key: str,
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The loss of a head, and its gradients in features, weight and bias. One that is not wanted is empty.

    Args:
        features: (N, d).
        weight: (C, d).
        bias: (C,), or None.
        labels: (N,).
        class_weight: (C,), or None.
        count: what a mean divides by; None for the number of examples.
        key: from :func:`graph_key`.
        wanted: whether each of the three gradients is wanted.
    """
    value, found = _known[key][1](Head(features, weight, bias), labels, class_weight, count, wanted)
    gradients = [features.new_empty(0) if each is None else each for each in found]
    return value, gradients[0], gradients[1], gradients[2]


@head_loss.register_fake
def _(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    labels: Tensor,
    class_weight: Tensor | None,
    count: Tensor | None,
    key: str,
    wanted: list[bool],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shapes = [
        torch.empty_like(part) if part is not None and want else features.new_empty(0)
        for part, want in zip((features, weight, bias), wanted, strict=True)
    ]
    return features.new_empty((), dtype=working_type(weight)), shapes[0], shapes[1], shapes[2]


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.wanted = inputs[-1]
    ctx.save_for_backward(*output[1:])
    ctx.mark_non_differentiable(*output[1:])


def _backward(ctx: Any, of_value: Tensor, *others: Any) -> tuple[Any, ...]:
    """The gradients, times what comes from above."""
    pairs = zip(ctx.saved_tensors, ctx.wanted, strict=True)
    return *((each * of_value).to(each.dtype) if want else None for each, want in pairs), *[None] * 5


head_loss.register_autograd(_backward, setup_context=_keep)
