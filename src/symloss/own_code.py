"""Code of the user's own, by ``module:name``, imported from the working folder as ``python -m`` would.

What it raises passes through, with a note; a command shows it with its traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator

_NOTE = "this was raised in code of your own, "


@contextlib.contextmanager
def working_folder() -> Iterator[None]:
    """Modules of the working folder can be imported."""
    here = os.getcwd()
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


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


def load(place: str, argument: str, wanted: str, hint: str = "") -> object:
    """What ``module:name`` names; an error inside the user's own module passes through, with a note."""
    module, _, name = place.partition(":")
    allowed = f"{argument} must be module:name of {wanted}, which Python can import"
    if not all(part.isidentifier() for part in [*module.split("."), name]):
        raise ValueError(f"{allowed}; got {place!r}{hint}")
    try:
        with working_folder(), own_code(place):
            found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # one that the user's own module wants
            raise
        raise ValueError(f"{allowed}; got {place!r}, and there is no module {error.name!r}{hint}") from None
    if not hasattr(found, name):
        raise ValueError(f"{allowed}; got {place!r}, and the module has no {name!r}")
    return getattr(found, name)
