"""Every public name of the package, and the check that the API pages have all of them. It is an extension of Sphinx."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import symloss
from symloss.lazy_names import stub_names

PRIVATE = ("bench", "cli")
"""Packages that are run, not imported."""


def public_modules() -> dict[str, ModuleType]:
    """The public modules by their full names."""
    packages = [each.name for each in pkgutil.iter_modules(symloss.__path__) if each.ispkg and each.name not in PRIVATE]
    names = [*packages, "functional", *(f"theory.{name}" for name in dir(symloss.theory))]
    return {f"symloss.{name}": importlib.import_module(f"symloss.{name}") for name in sorted(names)}


def top_level() -> list[str]:
    """The names in ``symloss`` itself, without its modules and the classes of the losses."""
    homes = stub_names("symloss").items()
    return [name for name, home in homes if home != "symloss" and not home.startswith("symloss.losses.catalogue")]


def exports(module: ModuleType) -> list[str]:
    """The names in ``__all__``; without it, the public functions and classes that the module defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    if module.__name__ == "symloss.losses":
        return list(stub_names(module.__name__))
    members = inspect.getmembers(module, lambda member: inspect.isclass(member) or inspect.isfunction(member))
    return [name for name, member in members if not name.startswith("_") and member.__module__ == module.__name__]


def public_names() -> list[str]:
    """The full name of everything public."""
    names = [f"symloss.{name}" for name, home in stub_names("symloss").items() if home != "symloss"]
    for home, module in public_modules().items():
        names += [home, *(f"{home}.{name}" for name in exports(module))]
    return names


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of every public name that no page documents. Warnings are errors of the build."""
    documented = set(env.domains.python_domain.objects)
    for name in public_names():
        if name not in documented:
            logging.getLogger(__name__).warning("the API pages must document %s; it is missing", name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("env-check-consistency", check)
    return {"version": symloss.__version__, "parallel_read_safe": True}
