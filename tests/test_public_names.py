"""What people find on ``symloss`` after one import; each name has a docstring, which explains its arguments."""

import ast
import dataclasses
import functools
import importlib
import inspect
import itertools
import pkgutil
import re
import subprocess
import sys
import textwrap

import pytest

import symloss
from symloss.lazy_names import stub_names
from symloss.losses.catalogue import LOSSES

SIGNATURE_ONLY = re.compile(r"\w+\(.*\)", re.DOTALL)
"""The docstring that Python makes up for a dataclass or a named tuple."""


@functools.cache
def modules():
    names = [each.name for each in pkgutil.walk_packages(symloss.__path__, "symloss.")]
    public = [name for name in names if not any(part.startswith("_") for part in name.split("."))]
    return [symloss, *filter(None, map(imported, public))]


def imported(name):
    """The module; None for an adapter whose library is missing."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if name.startswith("symloss.adapters.") and not str(error.name).startswith("symloss"):
            return None
        raise


def public(members):
    return {name: member for name, member in members.items() if not name.startswith("_")}


def doc_of(thing):
    doc = inspect.getdoc(thing) if not inspect.isclass(thing) else vars(thing).get("__doc__")
    made_up = inspect.isclass(thing) and SIGNATURE_ONLY.fullmatch(doc or "")
    return "" if made_up else (doc or "")


def undocumented(module):
    """Names of a module without a docstring. A method that overrides a documented one has its docstring."""
    if not module.__doc__:
        yield module.__name__
    for name, member in public(vars(module)).items():
        is_own = getattr(member, "__module__", None) == module.__name__
        if not is_own or not (inspect.isclass(member) or inspect.isroutine(member)):
            continue
        if not doc_of(member):
            yield f"{module.__name__}.{name}"
        if inspect.isclass(member):
            yield from (f"{module.__name__}.{name}.{each}" for each in undocumented_methods(member))


def undocumented_methods(cls):
    for name, member in public(vars(cls)).items():
        is_method = inspect.isroutine(member) or isinstance(member, property | functools.cached_property)
        documented = any(getattr(vars(base).get(name), "__doc__", None) for base in cls.__mro__)
        if is_method and not documented:
            yield name


def unexplained(name, thing):
    """Parameters of an exported function or class that its docstring does not name."""
    if not (inspect.isclass(thing) or inspect.isfunction(thing)) or not thing.__module__.startswith("symloss"):
        return
    text = doc_of(thing)
    if inspect.isclass(thing):
        ours = [base for base in thing.__mro__ if base.__module__.startswith("symloss")]
        text = " ".join([*map(doc_of, ours), *(field for base in ours for field in described_fields(base))])
    elif name.startswith("symloss.functional."):
        text += doc_of(symloss.Criterion)  # whose options every loss has
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.kind not in variable and not re.search(rf"\b{parameter.name}\b", text):
            yield f"{name}({parameter.name})"


def described_fields(cls):
    """Fields of a dataclass or a named tuple that a string follows."""
    if not (dataclasses.is_dataclass(cls) or issubclass(cls, tuple)):
        return
    body = ast.parse(textwrap.dedent(inspect.getsource(cls))).body[0].body
    for field, after in itertools.pairwise(body):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            yield ast.unparse(field.target)


def test_every_public_name_has_a_docstring():
    missing = [name for module in modules() for name in undocumented(module)]
    assert not missing, "\n".join(missing)


def test_exported_names_explain_their_arguments():
    homes = (symloss, symloss.losses)
    exported = {
        f"{home.__name__}.{name}": getattr(home, name) for home in homes for name in public(dict.fromkeys(dir(home)))
    }
    for module in modules():
        names = [f"{module.__name__}.{name}" for name in getattr(module, "__all__", ())]
        exported |= {name: getattr(module, name.rpartition(".")[2]) for name in names}
    missing = sorted({each for name, thing in exported.items() for each in unexplained(name, thing)})
    assert not missing, "\n".join(missing)


# After one import, in an interpreter of one's own.

MODULES = sorted(name for name, home in stub_names("symloss").items() if home == "symloss")
LIBRARIES = {"cleanlab", "keras", "lightgbm", "lightning", "sentence_transformers", "transformers", "trl", "xgboost"}
"""What adapters serve, and nothing else imports."""


def test_every_public_module_is_an_attribute_after_one_import():
    # By the hook itself: one module may bring in another, which then is an attribute anyhow.
    script = f"""
import sys, symloss
assert not {{"ast", "torch"}} & set(sys.modules)
import torch
print(symloss.functional.sgce(torch.zeros(1, 2), torch.tensor([0]), q=0.8))
for name in {MODULES}:
    assert symloss.__getattr__(name) is sys.modules["symloss." + name], name
import symloss.adapters.boosting  # which serves two libraries, and imports none of them before a fit
assert not {LIBRARIES} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("tensor(")
    assert {"functional", "losses", "noise", "theory", "data", "fit"} <= set(MODULES)


def test_the_top_level_is_small_and_every_name_and_loss_exists():
    assert len(dir(symloss)) <= 60
    for package in (symloss, symloss.losses, symloss.theory, symloss.data):
        assert all(getattr(package, name) is not None for name in dir(package))
    assert {loss.__name__ for loss in LOSSES.values()} <= set(dir(symloss.losses))


def test_names_that_moved_are_pointed_to():
    for name in ("plain", "checked", "relative", "noisy", "complement"):
        with pytest.raises(AttributeError, match=rf"use symloss\.losses\.{name}$"):
            getattr(symloss, name)
    with pytest.raises(AttributeError, match=r"has no attribute 'binary'$"):
        symloss.binary  # noqa: B018
