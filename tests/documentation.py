"""The code blocks of a page, and how they are run: as pasted, in order, in one folder.

Long shell lines are shortened by a comment before their block, which readers of the page do not see::

    <!-- shorter: train --epochs 1; reproduce --dry-run -->

Each entry adds its options to the lines of one command (of ``symloss``, or another program). A block for libraries of
another environment has a comment too, and is run there, by ``make frameworks``::

    <!-- environment: frameworks -->
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
FENCED = re.compile(
    r"(?:^<!-- shorter: (?P<shorter>[^>]*) -->\n+|^<!-- environment: (?P<environment>\w+) -->\n+)?"
    r"^```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int
    """Of the page, on which the code begins."""
    shorter: dict[str, str]
    environment: str | None = None
    """Where the block runs; None for the usual environment."""

    @property
    def shell(self) -> str:
        """The code with the options that shorten it; each of them must be of use."""
        lines = self.code.replace("\\\n", " ").splitlines()
        for command, options in self.shorter.items():
            call = re.compile(rf"(?<![\w/.-])((?:symloss )?{re.escape(command)}(?: [^#&;>]*)?)(?=$|[#&;>])")
            changed = [call.sub(rf"\1 {options} ", line) for line in lines]
            assert changed != lines, f"no line of the block calls {command!r}"
            lines = changed
        return "\n".join(lines)


def blocks(text: str) -> Iterator[Block]:
    for found in FENCED.finditer(text):
        entries = [entry.strip().partition(" ") for entry in (found["shorter"] or "").split(";")]
        shorter = {command: options for command, _, options in entries if command}
        line = 1 + text.count("\n", 0, found.start("code"))
        yield Block(found["language"], found["code"], line, shorter, found["environment"])


def script(page: Iterable[Block]) -> str:
    """All Python of a page, each line where it stands there, so that a traceback names the line."""
    lines: list[str] = []
    for block in page:
        lines += [""] * (block.line - 1 - len(lines)) + block.code.splitlines()
    return "\n".join(lines) + "\n"
