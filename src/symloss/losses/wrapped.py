"""``Wrapped`` makes a loss of the algebra out of any module or function of (input, target)."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
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
        if isinstance(self.function, type) or not callable(self.function):
            is_class, kind = isinstance(self.function, type), type(self.function).__name__
            got = f"the class {_name(self.function)} (an instance is needed)" if is_class else kind
            raise TypeError(f"loss must be a Loss, a torch module or a function of (input, target); got {got}")
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
        last = s.z.movedim(s.dim, -1)
        rows = last.reshape(-1, s.classes)
        if labels is not None:
            values = self._called(rows, labels.movedim(s.dim, -1).reshape(-1))
            return values.reshape(*last.shape[:-1], 1).movedim(-1, s.dim)
        # One call gets every row C times, once with each label.
        each = torch.arange(s.classes, device=s.z.device).repeat_interleave(rows.shape[0])
        values = self._called(rows.repeat(s.classes, 1), each)
        return values.reshape(s.classes, *last.shape[:-1]).movedim(0, s.dim)

    def _called(self, rows: Tensor, labels: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            values = self.copy_for_graphs(rows, labels)
        else:
            before = _replaced(self.function, EACH)  # a module itself is called, so that it keeps its state
            try:
                with own_code(_name(self.function)):
                    values = (self.function if self.modules else self.copy_for_graphs)(rows, labels)
            finally:
                _replaced(self.function, before)
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
        jacobian = torch.func.jacrev(lambda z: self.values(Scores(z)))(zero)
        at_label, everywhere = jacobian.diagonal().mean(), jacobian.sum() / s.classes**2
        slope = (everywhere - at_label) / (1 - 1 / s.classes)
        ones = torch.ones_like(s.count)
        return FirstOrder(self.values(Scores(zero)).mean() * ones, slope * ones)


def as_loss(loss: object) -> Loss:
    """A loss of the algebra. A module or function of (input, target) is wrapped; a Loss is returned as it is."""
    return loss if isinstance(loss, Loss) else Wrapped(loss)  # type: ignore[arg-type]


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)


EACH: dict[str, Any] = {"reduction": "none", "ignore_index": -100}
"""The attributes with which a module returns one value for each example and ignores no label."""


def _replaced(function: Callable[..., Tensor], values: dict[str, Any]) -> dict[str, Any]:
    """Set those attributes that a module has, and return their values before."""
    own = [name for name in values if isinstance(function, nn.Module) and hasattr(function, name)]
    before = {name: getattr(function, name) for name in own}
    for name in own:
        setattr(function, name, values[name])
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
