"""Output of the commands: tables for people, JSON for programs, and progress on stderr."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn
    from rich.table import Table

# Control characters, characters that change the direction of writing, line and paragraph separators, and surrogates,
# which no stream can write.
_STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LINES = "\n\t"
"""Control characters that are printed as they are."""


def visible(text: str, keep: str = "") -> str:
    r"""Write control characters as Python does, except those to keep, so that the text cannot steer a terminal.

    >>> print(visible("\x1b[2Jcat\nsymloss: all is well"))
    \x1b[2Jcat\nsymloss: all is well
    """
    return _STEERING.sub(lambda found: found[0] if found[0] in keep else ascii(found[0])[1:-1], text)


def visible_json(document: str) -> str:
    r"""Escape control characters in JSON, so that it cannot steer a terminal.

    >>> print(visible_json('"\x9b2J"'))
    "\u009b2J"
    """
    return _STEERING.sub(lambda found: found[0] if found[0] == "\n" else f"\\u{ord(found[0]):04x}", document)


def say(text: str, *, err: bool = False) -> None:
    """Print a line. Control characters in names of classes and files, or in a server's answer, are made visible."""
    typer.echo(visible(text, keep=LINES), err=err)


def print_data(text: str) -> None:
    """Print a whole document: unchanged for another program, with visible control characters in a terminal."""
    # typer.echo would remove some characters.
    sys.stdout.write(visible(text, keep=LINES) if sys.stdout.isatty() else text)
    sys.stdout.flush()


class _Harmless(Console):
    """A console that makes control characters in cells and titles visible."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text, keep=LINES), **options)


def bar(*columns: ProgressColumn, **more: Any) -> Progress:
    """Return a progress bar on stderr that disappears at the end. If stderr is a file, there is none."""
    from rich.progress import Progress

    terminal = _Harmless(stderr=True)
    return Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal, **more)


def console() -> Console:
    """Return a console for tables, wide enough for whole rows if the output goes to a file or another program."""
    return _Harmless() if sys.stdout.isatty() else _Harmless(width=160)


def print_json(data: Any) -> None:
    """Print data as JSON."""
    typer.echo(visible_json(json.dumps(data, indent=2, ensure_ascii=False)))


def new_table(title: str | None = None, caption: str | None = None) -> Table:
    """Return an empty table in the style of all commands: no lines, title and caption on the left."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left", caption_justify="left")
    table.title, table.caption = (None if text is None else escape(text) for text in (title, caption))
    return table


def print_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table. The keys of the first row are the headings. None is printed as a dash."""
    from rich.markup import escape

    table = new_table()
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(escape("-" if value is None else str(value)) for value in row.values()))
    console().print(table)
