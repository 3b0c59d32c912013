"""Our extension of Sphinx: it misses no public name, and escapes what looks like markup in docstrings."""

from __future__ import annotations

import re
from typing import Any

from api_pages import public_names
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

LITERAL = re.compile(r"(``.+?``|:\w+:`[^`]+`|`[^`]+`)")
MARKUP = re.compile(r"\||\*|(?<=\w)_(?!\w)")
"""Bars of a norm, stars, and an underscore at the end of a name."""


def escape(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Escape the lines of a docstring that are neither an example nor indented code."""
    in_example = False
    for number, line in enumerate(lines):
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        if not in_example:
            parts = LITERAL.split(line)
            parts[::2] = [MARKUP.sub(lambda found: "\\" + found[0], part) for part in parts[::2]]
            lines[number] = "".join(parts)


def check(app: Sphinx, env: BuildEnvironment) -> None:
    """Warn of every public name that no page documents. Warnings are errors of the build."""
    documented = set(env.domains.python_domain.objects)
    for name in public_names():
        if name not in documented:
            logging.getLogger(__name__).warning("the API pages must document %s; it is missing", name)


def setup(app: Sphinx) -> dict[str, Any]:
    """Connect the hooks. Called by Sphinx."""
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon, whose own stars stay
    app.connect("env-check-consistency", check)
    return {"version": "1", "parallel_read_safe": True}
