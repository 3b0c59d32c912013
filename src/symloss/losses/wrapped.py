"""``Wrapped`` makes a loss of the algebra out of any module or function of (input, target)."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses.algebra import FirstOrder, Loss
from symloss.losses.logits import Scores
from symloss.own_code import own_code


@dataclass(frozen=True, eq=False, repr=False)
class Wrapped(Loss):
    """A callable that maps scores (N, C) and labels (N,) to one value for each example."""

    function: Callable[..., Tensor]
    # torch.compile cannot trace how attributes of a module are replaced and put back. It gets a copy instead.
    copy_for_graphs: Callable[..., Tensor] = field(init=False)

    def __post_init__(self) -> None:
        wanted = "loss must be a Loss, a torch module or a function of (input, target)"
        if isinstance(self.function, type):
            raise TypeError(f"{wanted}; got the class {self.function.__name__} (an instance is needed)")
        if not callable(self.function):
            raise TypeError(f"{wanted}; got {type(self.function).__name__}")
        object.__setattr__(self, "copy_for_graphs", unreduced_copy(self.function))

    def __repr__(self) -> str:
        return checks.brief(self.function) if isinstance(self.function, nn.Module) else _name(self.function)

    @property
    def any_classes(self) -> bool:
        return False

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        return (self.function,) if isinstance(self.function, nn.Module) else ()

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        if labels is None:
            return self._every(s.z, s.dim)
        rows = s.z.movedim(s.dim, -1)
        values = self._called(rows.reshape(-1, rows.shape[-1]), labels.movedim(s.dim, -1).reshape(-1))
        return values.reshape(*rows.shape[:-1], 1).movedim(-1, s.dim)

    def _every(self, z: Tensor, dim: int) -> Tensor:
        """The value at every label, by one call. The call gets every row C times, once with each label."""
        last = z.movedim(dim, -1)
        classes = last.shape[-1]
        rows = last.reshape(-1, classes)
        labels = torch.arange(classes, device=z.device).repeat_interleave(rows.shape[0])
        values = self._called(rows.repeat(classes, 1), labels)
        return values.reshape(classes, *last.shape[:-1]).movedim(0, dim)

    def _called(self, rows: Tensor, labels: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            values = self.copy_for_graphs(rows, labels)
        else:
            with own_code(_name(self.function)), _unreduced(self.modules):
                values = (self.function if self.modules else self.copy_for_graphs)(rows, labels)
        if not isinstance(values, Tensor) or values.shape != labels.shape:
            returned = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"the loss {_name(self.function)} must return one value for each example (reduction='none'), "
                f"shape {tuple(labels.shape)}; got {returned}"
            )
        return values

    def first_order(self, s: Scores) -> FirstOrder:
        # The gradient at zero scores is projected on that of the unhinged loss. Both numbers are means over the labels.
        zero = torch.zeros(s.classes, dtype=s.z.dtype, device=s.z.device)
        jacobian = torch.func.jacrev(lambda z: self._every(z, -1))(zero)
        at_label, everywhere = jacobian.diagonal().mean(), jacobian.sum() / s.classes**2
        slope = (everywhere - at_label) / (1 - 1 / s.classes)
        ones = torch.ones_like(s.count)
        return FirstOrder(self._every(zero, -1).mean() * ones, slope * ones)


def as_loss(loss: object) -> Loss:
    """A loss of the algebra. A module or function of (input, target) is wrapped; a Loss is returned as it is.

    >>> as_loss(torch.nn.functional.cross_entropy).per_class(torch.zeros(4))
    tensor([1.3863, 1.3863, 1.3863, 1.3863])
    """
    return loss if isinstance(loss, Loss) else Wrapped(loss)  # type: ignore[arg-type]


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)


EACH: dict[str, Any] = {"reduction": "none", "ignore_index": -100}
"""The attributes with which a module returns one value for each example and ignores no label."""


@contextlib.contextmanager
def _unreduced(modules: tuple[nn.Module, ...]) -> Iterator[None]:
    """Let modules return one value for each example inside ``with``. They keep their state."""
    before = [_replaced(module, EACH) for module in modules]
    try:
        yield
    finally:
        for module, values in zip(modules, before, strict=True):
            _replaced(module, values)


def _replaced(module: nn.Module, values: dict[str, Any]) -> dict[str, Any]:
    """Set those attributes that a module has, and return their values before."""
    before = {name: getattr(module, name) for name in values if hasattr(module, name)}
    for name in before:
        setattr(module, name, values[name])
    return before


def unreduced_copy(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the same loss with one value for each example. A module is copied."""
    if isinstance(function, nn.Module):
        twin = copy.copy(function)
        _replaced(twin, EACH)
        return twin
    try:
        takes_reduction = "reduction" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        takes_reduction = False
    return functools.partial(function, reduction="none") if takes_reduction else function
