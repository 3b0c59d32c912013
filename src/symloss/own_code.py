"""Code of the user's own, by ``module:name``: imported from the working folder, as ``python -m`` would."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator


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


def load(place: str, argument: str, wanted: str) -> object:
    """What ``module:name`` names; an error inside the user's own module passes through."""
    module, _, name = place.partition(":")
    try:
        with working_folder():
            found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise
        raise ValueError(f"{argument} {place!r} must name {wanted}; there is no module {module!r}") from None
    if not hasattr(found, name):
        raise ValueError(f"{argument} {place!r} must name {wanted}; the module has no {name!r}")
    return getattr(found, name)
