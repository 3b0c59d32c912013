"""An adapter imports its own library and no other, and its docstrings run."""

from __future__ import annotations

import ast
import doctest
import importlib
import sys
from pathlib import Path

import pytest

import symloss.adapters

FOLDER = Path(symloss.adapters.__file__).parent
OURS = {"symloss", "torch", "numpy", "scipy", "sklearn"}
"""What the package needs anyhow."""
LIBRARY = {
    "boosting": {"lightgbm", "xgboost"},
    "cleanlab": {"cleanlab", "pandas"},
    "criterion_of": set(),
    "hf": {"transformers"},
    "hf_causal": {"transformers"},
    "hf_tokens": {"pandas"},
    "keras": {"keras"},
    "lightning": {"lightning"},
    "margin_callbacks": set(),
    "openmmlab": {"mmengine"},
    "sentence_transformers": {"sentence_transformers"},
    "trl": {"trl"},
}
"""What each adapter may import besides."""


def foreign(path: Path) -> set[str]:
    """The libraries that a file imports, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {each.name.split(".")[0] for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found - OURS - sys.stdlib_module_names


def test_an_adapter_imports_its_own_library_alone():
    found = {path.stem: foreign(path) for path in FOLDER.glob("*.py") if path.stem != "__init__"}
    assert {name: imported for name, imported in found.items() if not imported <= LIBRARY[name]} == {}


def test_a_name_that_is_no_adapter_is_refused():
    with pytest.raises(AttributeError, match="no attribute 'catboost'"):
        symloss.adapters.catboost  # noqa: B018


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_docstrings_run(name):
    for library in LIBRARY[name]:
        pytest.importorskip(library)
    assert not doctest.testmod(importlib.import_module(f"symloss.adapters.{name}")).failed
