"""Code of the user's own. What it raises passes through, with a note; a command shows it with its traceback."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

_NOTE = "this was raised in code of your own, "


@contextlib.contextmanager
def own_code(what: str | None) -> Iterator[None]:
    """While the user's code runs; None for code of ours.

    >>> try:
    ...     with own_code("mine:model"):
    ...         1 / 0
    ... except ZeroDivisionError as error:
    ...     print(note_of(error))
    this was raised in code of your own, mine:model
    """
    try:
        yield
    except Exception as error:
        if what is not None and note_of(error) is None:
            error.add_note(_NOTE + what)
        raise


def note_of(error: BaseException) -> str | None:
    """The note, if the user's own code raised the error, in this process or in another one that told of it."""
    lines = [*getattr(error, "__notes__", ()), *str(error).strip().splitlines()[-1:]]
    return next((line for line in lines if line.startswith(_NOTE)), None)
