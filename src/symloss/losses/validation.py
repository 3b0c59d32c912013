"""Checks of scores and targets. Wrong ones raise an error of one sentence."""

import os
from collections.abc import Callable
from contextvars import ContextVar, Token
from typing import Any

import torch
from torch import Tensor

# Inside vmap Python cannot read values. This function of torch is private, but it is the only cheap test.
_transforms_active: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", lambda: True)


def can_look(*tensors: Tensor) -> bool:
    """Whether Python may read values: not while tracing; on a GPU, where it must wait, only inside ``checked()``."""
    if torch.compiler.is_compiling() or _transforms_active():
        return False
    wanted = CHECKED.get()
    if wanted is not None:
        return wanted
    for tensor in tensors:  # noqa: SIM110 (all() takes twice as long, for every batch)
        if not tensor.is_cpu:
            return False
    return True


def looks_at(tensor: Tensor) -> bool:
    """Whether Python may read the values on this device, while nothing is traced."""
    wanted = CHECKED.get()
    return tensor.is_cpu if wanted is None else wanted


def is_eager() -> bool:
    """Whether nothing is being traced or transformed, and no forward-mode derivatives are being taken."""
    tracing = torch.compiler.is_compiling() or _transforms_active()
    return not tracing and getattr(torch.autograd.forward_ad, "_current_level", 0) < 0


def class_dim(scores: Tensor) -> int:
    """Return the dimension of the classes, as in torch: the second one, or the only one."""
    return 0 if scores.dim() == 1 else 1


def renamings(classes: int) -> list[Tensor]:
    """Return a transposition and the full cycle of the classes. They generate all permutations."""
    swap, cycle = torch.tensor([1, 0, *range(2, classes)]), torch.arange(1, classes + 1) % classes
    return [cycle] if classes == 2 else [swap, cycle]


def floating_point(argument: str, value: object, what: str) -> Tensor:
    """Return a floating-point tensor as it is. Anything else raises an error."""
    if isinstance(value, Tensor) and value.is_floating_point():
        return value
    kind = value.dtype if isinstance(value, Tensor) else type(value).__name__
    raise TypeError(f"{argument} must be a floating-point tensor {what}; got {kind}")


def scores(value: object) -> None:
    """Raise an error unless this is a tensor of scores with at least one class."""
    value = floating_point("input", value, "of scores")
    if value.dim() == 0 or value.shape[class_dim(value)] == 0:
        shapes = "(C,), (N, C) or (N, C, d1, ...) with at least one class"
        raise ValueError(f"input must have shape {shapes}; got {tuple(value.shape)}")


def is_soft(input: Tensor, target: object) -> bool:
    """Whether the target holds probabilities, not class indices. Wrong types and shapes raise an error."""
    shape = input.shape if isinstance(input, Tensor) and input.is_floating_point() else ()
    if not shape or shape[:2][-1] == 0:  # no scores, or no class among them
        scores(input)
    if not isinstance(target, Tensor):
        raise TypeError(f"target must be a tensor of labels or of probabilities; got {type(target).__name__}")
    if target.is_floating_point():
        if target.shape != shape:
            wanted = f"target of probabilities must have the input's shape {tuple(shape)}"
            raise ValueError(f"{wanted}; got {tuple(target.shape)} (class indices must be integers)")
        return True
    if target.dtype == torch.bool or target.is_complex():
        raise TypeError(f"target must hold integer labels or floating-point probabilities; got {target.dtype}")
    hard_shape = shape[:0] if len(shape) == 1 else shape[:1] + shape[2:]
    if target.shape != hard_shape:
        wanted = f"target must have shape {tuple(hard_shape)} for class indices with input of shape {tuple(shape)}"
        raise ValueError(f"{wanted}; got {tuple(target.shape)}" + (SINGLE_LOGIT if target.shape == shape else ""))
    return False


SINGLE_LOGIT = " (for one logit and binary labels use symloss.theory.binary.MarginCriterion)"
"""Behind an error about scores of one class."""


def kept(target: Tensor, classes: int, ignore_index: int) -> Tensor | None:
    """Which examples are not ignored; None if all are known to count. Wrong labels raise an error, of torch's type."""
    if not can_look(target) or target.numel() == 0:
        return target != ignore_index
    low, high = (int(end) for end in target.aminmax())
    if low >= 0 and high < classes and not low <= ignore_index <= high:
        return None
    counted = target != ignore_index
    wrong = target[((target < 0) | (target >= classes)) & counted]
    if wrong.numel():
        allowed = f"with {classes} classes labels are 0 to {classes - 1} (or ignore_index, {ignore_index})"
        hint = SINGLE_LOGIT if classes == 1 else ""
        raise IndexError(f"target holds the label {int(wrong[0])}; {allowed}{hint}")
    return counted


def present_labels(scores: Tensor, target: Tensor, kept: Tensor, dim: int) -> None:
    """Raise an error if a label that counts is masked out. ``target`` and ``kept`` have size 1 along dim."""
    if not can_look(target, scores):
        return
    masked = (scores.gather(dim, target) == -torch.inf) & kept
    if bool(masked.any()):
        found = f"target holds the label {int(target[masked][0])} where its score is -inf, that is, masked out"
        raise ValueError(f"{found}; a label must be a class that is present")


def probabilities(target: Tensor, dim: int, argument: str = "target") -> None:
    """Raise an error unless the entries are at least 0 and sum to 1 along dim. ``argument`` names them in the error."""
    if not can_look(target) or target.numel() == 0:
        return
    ends = target.sum(dim).aminmax()
    if float(target.amin()) >= 0 and float(ends.min) > 1 - 5e-5 and float(ends.max) < 1 + 5e-5:
        return  # which is quick to see, and a more exact sum agrees
    wanted = f"{argument} must hold probabilities"
    if not bool((target >= 0).all()):
        raise ValueError(f"{wanted} of at least 0; got {float(target.min()):g}")
    total = target.sum(dim, dtype=torch.float64)
    # Half precision rounds each of the C entries by up to its eps.
    tolerance = max(1e-4, 4 * torch.finfo(target.dtype).eps)
    off = (total - 1).abs()
    if bool((off > tolerance).any()):
        worst = float(total.flatten()[off.flatten().argmax()])
        hint = SINGLE_LOGIT if target.shape[dim] == 1 else ""
        raise ValueError(f"{wanted} that sum to 1 over the classes; got a sum of {worst:g}{hint}")


def class_vector(argument: str, value: object, classes: int | None = None) -> None:
    """Raise an error unless this is a floating-point tensor (C,). If classes is None, any C will do."""
    value = floating_point(argument, value, "with one entry for each class")
    if value.dim() != 1 or classes not in (None, len(value)):
        wanted = "one dimension" if classes is None else f"shape ({classes},)"
        raise ValueError(f"{argument} must have {wanted}, one entry for each class; got {tuple(value.shape)}")


def pair(input: Any, target: Any) -> None:
    """Raise an error unless predictions and targets are of one shape: broadcasting is mostly a mistake."""
    for name, value in (("input", input), ("target", target)):
        if not isinstance(value, Tensor) or value.is_complex() or not (name == "target" or value.is_floating_point()):
            given = value.dtype if isinstance(value, Tensor) else type(value).__name__
            kind = "floating-point" if name == "input" else "real"
            raise TypeError(f"{name} must be a tensor of {kind} numbers; got {given}")
    if input.shape != target.shape:
        raise ValueError(f"target must have the input's shape {tuple(input.shape)}; got {tuple(target.shape)}")


def one_each(wanted: str, values: object, like: Tensor) -> Tensor:
    """Return the values, which must be a tensor of the shape of another one."""
    if isinstance(values, Tensor) and values.shape == like.shape:
        return values
    given = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
    raise ValueError(f"{wanted}, shape {tuple(like.shape)}; got {given}")


PLAIN: ContextVar[bool | None] = ContextVar(
    "symloss_plain", default=os.environ.get("SYMLOSS_PLAIN", "0") not in ("", "0")
)
"""Whether only the plain formulas are used. The environment is read once, at import."""
CHECKED: ContextVar[bool | None] = ContextVar("symloss_checked", default=None)
"""Whether values are looked at; None if it depends on the device."""


class _Switch:
    """A variable that has another value inside ``with``, for the current thread or asynchronous task."""

    def __init__(self, variable: ContextVar[bool | None], on: bool) -> None:
        self.variable, self._on = variable, on
        self._tokens: list[Token[bool | None]] = []

    def __enter__(self) -> None:
        if not torch.compiler.is_compiling():  # what is compiled is the plain formula, and looks at nothing
            self._tokens.append(self.variable.set(self._on))

    def __exit__(self, *error: object) -> None:
        if self._tokens:
            self.variable.reset(self._tokens.pop())


class plain(_Switch):  # noqa: N801
    """Compute every loss by its plain formula, without a kernel, inside ``with symloss.losses.plain():``.

    Values and gradients are the same up to rounding. A breakpoint in the formula of a loss is then reached, because no
    kernel is used. The switch holds for the current thread or asynchronous task. ``SYMLOSS_PLAIN=1`` in the
    environment turns kernels off for a whole program.

    >>> import symloss
    >>> loss = symloss.SGCE(q=0.8)
    >>> with symloss.losses.plain():
    ...     value = loss(torch.zeros(2, 3), torch.tensor([0, 2]))
    """

    def __init__(self) -> None:
        super().__init__(PLAIN, True)


class checked(_Switch):  # noqa: N801
    """Check labels and scores on every device inside ``with symloss.losses.checked():``.

    On a CPU wrong labels, masked labels and targets that are no probabilities raise an error. On other devices such a
    check would have to wait for the device, so it is left out unless it is asked for. The switch holds for the current
    thread or asynchronous task.

    Args:
        on: False leaves the checks out on a CPU too.

    >>> import symloss
    >>> loss, scores = symloss.SGCE(q=0.8), torch.zeros(2, 3)
    >>> with symloss.losses.checked():
    ...     value = loss(scores, torch.tensor([0, 2]))
    """

    def __init__(self, on: bool = True) -> None:
        super().__init__(CHECKED, bool(on))
