"""Import the public names of a package on first use. Its stub file, ``__init__.pyi``, is the one list of them."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from symloss import extras


@functools.cache
def stub_names(package: str) -> dict[str, str]:
    """Return the names that the stub of a package exports, and the module of each.

    Reads lines of the form ``from symloss.losses.heads import LinearLoss as LinearLoss``.

    >>> stub_names("symloss")["LinearLoss"]
    'symloss.losses.heads'
    """
    import ast  # noqa: PLC0415  (``import symloss`` needs none of it)

    stub = Path(str(importlib.import_module(package).__file__)).with_name("__init__.pyi")
    imports = [node for node in ast.parse(stub.read_text()).body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def imported(home: str, name: str, called: str) -> Any:
    """Return a name of a module, or a module of a package. A missing extra is one sentence."""
    with extras.needed_by(called):
        if f"{home}.{name}" == called:  # a module of the package itself
            return importlib.import_module(called)
        return getattr(importlib.import_module(home), name)


def attach(package: str, *elsewhere: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` for a package whose stub lists its names.

    Args:
        package: the package's ``__name__``.
        elsewhere: packages whose stubs are searched for a hint when a name is missing.
    """

    def get(name: str) -> Any:
        home = None if name.startswith("__") else stub_names(package).get(name)
        if home is None:
            others = [] if name.startswith("_") else [other for other in elsewhere if name in stub_names(other)]
            hint = f"; use {others[0]}.{name}" if others else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")
        return imported(home, name, f"{package}.{name}")

    def names() -> list[str]:
        return sorted([*stub_names(package), "__version__"] if package == "symloss" else stub_names(package))

    return get, names
