"""The switch that turns the kernels off."""

from __future__ import annotations

import os
from contextvars import ContextVar, Token
from types import TracebackType

import torch

PLAIN: ContextVar[bool] = ContextVar("symloss_plain", default=os.environ.get("SYMLOSS_PLAIN", "0") not in ("", "0"))
"""Whether only the plain formulas are used. The environment variable SYMLOSS_PLAIN is read once, at import."""


class plain:  # noqa: N801
    """Compute every loss by its plain formula, without a kernel, inside ``with symloss.plain():``.

    Values and gradients are the same up to rounding. A breakpoint in the formula of a loss is then reached, because no
    kernel is used. The switch holds for the current thread or asynchronous task. ``SYMLOSS_PLAIN=1`` in the
    environment turns kernels off for a whole program.

    >>> import symloss
    >>> loss = symloss.SGCE(q=0.8)
    >>> with symloss.plain():
    ...     value = loss(torch.zeros(2, 3), torch.tensor([0, 2]))
    """

    def __init__(self) -> None:
        self._tokens: list[Token[bool]] = []

    def __enter__(self) -> None:
        if not torch.compiler.is_compiling():  # what is compiled is the plain formula
            self._tokens.append(PLAIN.set(True))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tokens:
            PLAIN.reset(self._tokens.pop())
