"""Scores and targets as they come in, each refused in one sentence if it is none."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

# Private, and the only cheap test there is: inside vmap a look at values raises an error.
_transforms_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def can_look(*tensors: Tensor) -> bool:
    """May Python look at the values? Not while tracing, nor on a device where a look would wait."""
    if torch.compiler.is_compiling() or _transforms_active():
        return False
    for tensor in tensors:  # noqa: SIM110 (all() takes twice as long, for every batch)
        if not tensor.is_cpu:
            return False
    return True


def is_eager(*tensors: Tensor) -> bool:
    """Whether Python may look at the values, and no forward-mode derivatives are being taken."""
    return can_look(*tensors) and getattr(torch.autograd.forward_ad, "_current_level", 0) < 0


def class_dim(scores: Tensor) -> int:
    """The dimension of the classes, as in torch: the second, or the only one."""
    return 0 if scores.dim() == 1 else 1


def renamings(classes: int) -> list[Tensor]:
    """A transposition and the full cycle, as orders of the classes: all other permutations are made of these two."""
    cycle = torch.arange(1, classes + 1) % classes
    if classes == 2:
        return [cycle]
    swap = torch.arange(classes)
    swap[:2] = torch.tensor([1, 0])
    return [swap, cycle]


def scores(value: object) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"input must be a tensor of scores; got {type(value).__name__}")
    if not value.is_floating_point():
        raise TypeError(f"input must hold floating-point scores; got {value.dtype}")
    if value.dim() == 0 or value.shape[0 if value.dim() == 1 else 1] == 0:
        raise ValueError(
            f"input must have shape (C,), (N, C) or (N, C, d1, ...) with at least one class; got {tuple(value.shape)}"
        )


def is_soft(input: Tensor, target: object) -> bool:
    """Whether the target holds class probabilities (else indices). Scores and targets of a wrong kind are refused."""
    scores(input)
    if not isinstance(target, Tensor):
        raise TypeError(f"target must be a tensor of labels or of probabilities; got {type(target).__name__}")
    shape = input.shape
    hard_shape = shape[:0] if len(shape) == 1 else shape[:1] + shape[2:]
    if target.is_floating_point():
        if target.shape != shape:
            raise ValueError(
                f"target of probabilities must have the input's shape {tuple(shape)}; "
                f"got {tuple(target.shape)} (class indices must be integers)"
            )
        return True
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must hold integer labels or floating-point probabilities; got {target.dtype}")
    if target.shape != hard_shape:
        raise ValueError(
            f"target must have shape {tuple(hard_shape)} for class indices with input of shape "
            f"{tuple(shape)}; got {tuple(target.shape)}"
        )
    return False


def kept(target: Tensor, classes: int, ignore_index: int) -> Tensor | None:
    """Which examples are not ignored; None if all are kept. Labels are checked on the way."""
    low, high = (int(end) for end in target.aminmax())
    if low >= 0 and high < classes and not low <= ignore_index <= high:
        return None
    labels(target, classes, ignore_index)
    return target != ignore_index


def labels(target: Tensor, classes: int, ignore_index: int) -> None:
    """Every label is a class or ignore_index; the exception is torch's."""
    if not can_look(target) or target.numel() == 0:
        return
    wrong = target[((target < 0) | (target >= classes)) & (target != ignore_index)]
    if wrong.numel():
        raise IndexError(
            f"target holds the label {int(wrong[0])}; with {classes} classes labels are 0 to {classes - 1} "
            f"(or ignore_index, {ignore_index})"
        )


def present_labels(scores: Tensor, target: Tensor, kept: Tensor, dim: int) -> None:
    """No label is a class that is masked out. Labels, and which of them are kept, have size 1 along dim."""
    if not can_look(target, scores):
        return
    masked = (scores.gather(dim, target) == -torch.inf) & kept
    if bool(masked.any()):
        raise ValueError(
            f"target holds the label {int(target[masked][0])} where its score is -inf, that is, masked out; "
            "a label must be a class that is present"
        )


def probabilities(target: Tensor, dim: int, argument: str = "target") -> None:
    if not can_look(target) or target.numel() == 0:
        return
    if not bool((target >= 0).all()):
        worst = float(target.min())
        raise ValueError(f"{argument} must hold probabilities of at least 0; got {worst:g}")
    total = target.sum(dim, dtype=torch.float64)
    # Half precision rounds each of the C entries by up to its eps.
    tolerance = max(1e-4, 4 * torch.finfo(target.dtype).eps)
    off = (total - 1).abs()
    if bool((off > tolerance).any()):
        worst = float(total.flatten()[off.flatten().argmax()])
        raise ValueError(f"{argument} must hold probabilities that sum to 1 over the classes; got a sum of {worst:g}")


def class_vector(argument: str, value: object, classes: int | None = None) -> None:
    """A vector with one entry for each class; any number of them where classes is None."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        given = str(value.dtype) if isinstance(value, Tensor) else type(value).__name__
        raise TypeError(f"{argument} must be a floating-point tensor with one entry for each class; got {given}")
    if value.dim() != 1 or classes not in (None, len(value)):
        wanted = "one dimension" if classes is None else f"shape ({classes},)"
        raise ValueError(f"{argument} must have {wanted}, one entry for each class; got {tuple(value.shape)}")
