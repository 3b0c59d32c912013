"""Switches for a part of a program: ``plain()`` turns the kernels off, ``checked()`` the checks of values on or off."""

from __future__ import annotations

import os
from contextvars import ContextVar, Token
from typing import ClassVar

import torch

PLAIN: ContextVar[bool | None] = ContextVar(
    "symloss_plain", default=os.environ.get("SYMLOSS_PLAIN", "0") not in ("", "0")
)
"""Whether only the plain formulas are used. The environment is read once, at import."""
CHECKED: ContextVar[bool | None] = ContextVar("symloss_checked", default=None)
"""Whether values are looked at; None if it depends on the device."""


class _Switch:
    """A variable that has another value inside ``with``, for the current thread or asynchronous task."""

    variable: ClassVar[ContextVar[bool | None]]

    def __init__(self, on: bool = True) -> None:
        self._on = bool(on)
        self._tokens: list[Token[bool | None]] = []

    def __enter__(self) -> None:
        if not torch.compiler.is_compiling():  # what is compiled is the plain formula, and looks at nothing
            self._tokens.append(self.variable.set(self._on))

    def __exit__(self, *error: object) -> None:
        if self._tokens:
            self.variable.reset(self._tokens.pop())


class plain(_Switch):  # noqa: N801
    """Compute every loss by its plain formula, without a kernel, inside ``with symloss.plain():``.

    Values and gradients are the same up to rounding. A breakpoint in the formula of a loss is then reached, because no
    kernel is used. The switch holds for the current thread or asynchronous task. ``SYMLOSS_PLAIN=1`` in the
    environment turns kernels off for a whole program.

    >>> import symloss
    >>> loss = symloss.SGCE(q=0.8)
    >>> with symloss.plain():
    ...     value = loss(torch.zeros(2, 3), torch.tensor([0, 2]))
    """

    variable = PLAIN

    def __init__(self) -> None:
        super().__init__()


class checked(_Switch):  # noqa: N801
    """Check labels and scores on every device inside ``with symloss.checked():``.

    On a CPU wrong labels, masked labels and targets that are no probabilities raise an error. On other devices such a
    check would have to wait for the device, so it is left out unless it is asked for. The switch holds for the current
    thread or asynchronous task.

    Args:
        on: False leaves the checks out on a CPU too.

    >>> import symloss
    >>> loss, scores = symloss.SGCE(q=0.8), torch.zeros(2, 3)
    >>> with symloss.checked():
    ...     value = loss(scores, torch.tensor([0, 2]))
    """

    variable = CHECKED
