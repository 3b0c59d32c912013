"""Every public name of the package, and the check that the API pages have all of them. It is an extension of Sphinx."""

from __future__ import annotations

import importlib
import inspect
from types import ModuleType
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

import symloss
from symloss.loss_names import LOSS_CLASSES
from symloss.public_names import HOMES, MODULES


def public_modules() -> dict[str, ModuleType]:
    """The public modules by their full names."""
    return {name: importlib.import_module(name) for name in MODULES.values()}


def exports(module: ModuleType) -> list[str]:
    """The names in ``__all__``; without it, the public functions and classes that the module defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    members = inspect.getmembers(module, lambda member: inspect.isclass(member) or inspect.isfunction(member))
    return [name for name, member in members if not name.startswith("_") and member.__module__ == module.__name__]


def public_names() -> list[str]:
    """The full name of everything public."""
    names = [f"symloss.{name}" for name in (*HOMES, *LOSS_CLASSES)]
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
