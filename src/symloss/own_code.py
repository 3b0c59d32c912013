"""Import the user's own code by ``module:name``, from the working folder too, as ``python -m`` does.

An error in that code is raised as it is, with a note. A command shows it with its traceback.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator

from symloss import checks

_NOTE = "this was raised in code of your own, "


@contextlib.contextmanager
def working_folder() -> Iterator[None]:
    """Make modules of the working folder importable."""
    here = os.getcwd()
    sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.remove(here)


@contextlib.contextmanager
def own_code(what: str) -> Iterator[None]:
    """Add a note to errors that the user's code raises.

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
        if note_of(error) is None:
            error.add_note(_NOTE + what)
        raise


def note_of(error: BaseException) -> str | None:
    """Return the note of an error that the user's code raised, also in another process; None for other errors."""
    lines = [*getattr(error, "__notes__", ()), *str(error).strip().splitlines()[-1:]]
    return next((line for line in lines if line.startswith(_NOTE)), None)


def load(place: str, argument: str, wanted: str, hint: str = "") -> object:
    """Import an object by ``module:name``. An error inside the user's module is raised as it is, with a note.

    Args:
        place: ``module:name``.
        argument: the name of the argument, for messages.
        wanted: what the object must be, for messages.
        hint: the end of messages.

    >>> load("math:pi", "loss", "a number")
    3.141592653589793
    """
    module, _, name = place.partition(":")
    allowed = f"{argument} must be module:name of {wanted}, which Python can import"
    if not all(part.isidentifier() for part in [*module.split("."), name]):
        raise ValueError(f"{allowed}; got {checks.brief(place)}{hint}")
    try:
        with working_folder(), own_code(place):
            found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):  # one that the user's own module wants
            raise
        raise ValueError(
            f"{allowed}; got {checks.brief(place)}, and there is no module {checks.brief(error.name)}{hint}"
        ) from None
    if not hasattr(found, name):
        raise ValueError(f"{allowed}; got {checks.brief(place)}, and the module has no {checks.brief(name)}")
    return getattr(found, name)
