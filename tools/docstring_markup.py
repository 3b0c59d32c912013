"""Docstrings are plain text: what looks like markup of Sphinx in their formulas is escaped. An extension of Sphinx."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

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


def setup(app: Sphinx) -> dict[str, Any]:
    """Called by Sphinx."""
    app.connect("autodoc-process-docstring", escape, priority=100)  # before napoleon, whose own stars stay
    return {"version": "1", "parallel_read_safe": True}
