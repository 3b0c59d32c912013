"""The pages of the API: one for each public module, with every name that it exports."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from loss_pages import class_path, file_name
from sphinx.pycode import ModuleAnalyzer

import symloss
from symloss.lazy_names import stub_names
from symloss.losses.catalogue import LOSSES, RECORDS

TITLES = {
    "symloss.losses": "symloss.losses: the classes of the losses",
    "symloss.functional": "symloss.functional: the losses as functions",
}
DECORATED = ("keras", "openmmlab")
"""Adapters whose classes are decorated by their library, which the build does without: their methods are hidden."""


def public_modules() -> dict[str, ModuleType]:
    """Return the public modules by their full names."""
    packages = [each.name for each in pkgutil.iter_modules(symloss.__path__) if each.ispkg and each.name != "cli"]
    names = [*packages, "functional", *(f"theory.{name}" for name in dir(symloss.theory))]
    return {f"symloss.{name}": importlib.import_module(f"symloss.{name}") for name in sorted(names)}


def top_level() -> list[str]:
    """Return the names in ``symloss`` itself, without its modules and the classes of the losses."""
    homes = stub_names("symloss").items()
    return [name for name, home in homes if home != "symloss" and not home.startswith("symloss.losses.catalogue")]


def exports(module: ModuleType) -> list[str]:
    """Return the names in ``__all__``; without it, the public functions and classes that the module defines."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    if module.__name__ in ("symloss.losses", "symloss.adapters"):
        return list(stub_names(module.__name__))
    members = inspect.getmembers(module, lambda member: inspect.isclass(member) or inspect.isfunction(member))
    return [name for name, member in members if not name.startswith("_") and member.__module__ == module.__name__]


def public_names() -> list[str]:
    """Return the full name of everything public."""
    names = [f"symloss.{name}" for name, home in stub_names("symloss").items() if home != "symloss"]
    for home, module in public_modules().items():
        names += [home, *(f"{home}.{name}" for name in exports(module))]
    return names


def pages() -> dict[str, str | Path]:
    """Every page by its name in the site."""
    seen: dict[int, str] = {}
    texts: dict[str, str | Path] = {"api/symloss.rst": _page("symloss", _names("symloss", symloss, top_level(), seen))}
    texts["api/losses.rst"] = _page("symloss.losses", _losses(seen))
    for name, module in public_modules().items():
        if name not in ("symloss.losses", "symloss.adapters"):
            texts[f"api/{_file(name)}.rst"] = _page(name, _entries(name, module, seen))
    texts["api/adapters.rst"] = _page("symloss.adapters", _adapters())
    listed = [page.removesuffix(".rst") for page in sorted(texts, key=lambda page: page != "api/symloss.rst")]
    return texts | {"api.rst": _contents(listed)}


def _file(name: str) -> str:
    return name.removeprefix("symloss.").replace(".", "-")


def _contents(listed: list[str]) -> str:
    text = "Every public name, from its docstring: by :ref:`the alphabet <genindex>`, or by :ref:`modules <modindex>`."
    lines = [_heading("API"), text, "", ".. toctree::", "   :maxdepth: 1", ""]
    return "\n".join([*lines, *(f"   {page}" for page in listed), ""])


def _heading(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"


def _page(name: str, entries: Iterator[str]) -> str:
    module = f".. automodule:: {name}\n   :no-members:\n"
    return "\n".join([_heading(TITLES.get(name, name)), module, *entries])


def _entries(name: str, module: ModuleType, seen: dict[int, str]) -> Iterator[str]:
    if name == "symloss.functional":
        yield from map(_function_of_loss, LOSSES)
        yield from _names(name, module, ["linear_loss", "linear_unhinged"], seen)
    else:
        yield from _names(name, module, exports(module), seen)


def _names(home: str, module: Any, names: list[str], seen: dict[int, str]) -> Iterator[str]:
    """Return an entry for each name. What is documented on an earlier page is linked to."""
    for name in names:
        thing, full = getattr(module, name), f"{home}.{name}"
        if id(thing) in seen:
            kind, role = ("class", "class") if inspect.isclass(thing) else ("function", "func")
            yield f".. py:{kind}:: {name}\n   :no-index-entry:\n\n   The same as :{role}:`{seen[id(thing)]}`.\n"
        else:
            seen[id(thing)] = full
            yield _entry(full, name, thing)


def _entry(full: str, name: str, thing: Any) -> str:
    if inspect.isclass(thing):
        return f".. autoclass:: {full}\n   :members:\n"
    if inspect.isroutine(thing):
        return f".. autofunction:: {full}\n"
    return f".. py:data:: {name}\n\n   {_described(name)}\n"


def _described(name: str) -> str:
    """Return the text that stands under a constant in the source."""
    for module in [module for module in _loaded() if name in vars(module)]:
        found = ModuleAnalyzer.for_module(module.__name__).find_attr_docs().get(("", name))
        if found:
            return " ".join(found).strip()
    raise ValueError(f"{name} must have a docstring under it; it has none")


def _loaded() -> list[ModuleType]:
    return [module for name, module in sorted(sys.modules.items()) if name.startswith("symloss.")]


def _losses(seen: dict[int, str]) -> Iterator[str]:
    yield "Most losses are names of ``symloss`` too: ``symloss.SGCE(q=0.7)``. The page of a loss shows more examples.\n"
    for name, loss in LOSSES.items():
        seen[id(loss)] = class_path(loss.__name__)
        yield f".. autoclass:: {class_path(loss.__name__)}\n"
        yield f"   :doc:`The page of {name} </losses/{file_name(name)}>`.\n"
    shown = {class_path(loss.__name__) for loss in LOSSES.values()}
    others = [name for name in exports(symloss.losses) if f"symloss.losses.{name}" not in shown]
    yield from _names("symloss.losses", symloss.losses, others, seen)


def _function_of_loss(name: str) -> str:
    record = RECORDS[name]
    defaults = [
        f"{p.name}=None" if p.instead_of or p.default is None else f"{p.name}={p.default}" for p in record.parameters
    ]
    arguments = ", ".join(["input", "target", *defaults, "**options"])
    signature = f".. py:function:: {record.function_name}({arguments})\n"
    return f"{signature}\n   :class:`{class_path(record.class_name)}` as a function: ``{record.formula}``.\n"


def _adapters() -> Iterator[str]:
    for name in dir(symloss.adapters):
        full = f"symloss.adapters.{name}"
        yield _heading(full, "-")
        yield f".. automodule:: {full}\n   :no-members:\n"
        for kind, each in _defined(name):
            members = "   :members:\n" if kind == "class" and name not in DECORATED else ""
            yield f".. auto{kind}:: {full}.{each}\n{members}"


def _defined(adapter: str) -> Iterator[tuple[str, str]]:
    """Return the public classes and functions of an adapter, from its source: its library may be missing."""
    kinds = {ast.ClassDef: "class", ast.FunctionDef: "function"}
    source = Path(symloss.adapters.__file__).with_name(f"{adapter}.py").read_text()
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
            yield kinds[type(node)], node.name
