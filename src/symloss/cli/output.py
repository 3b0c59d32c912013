"""What commands print: tables for people, JSON for programs, progress on the side."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from symloss.text import visible, visible_json

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead, for other programs.")]


LINES = "\n\t"
"""Control characters of our own making."""


def say(text: str, *, err: bool = False) -> None:
    """Print a line. Whatever name it holds, of a class, a file or a server's answer, it steers no terminal."""
    typer.echo(visible(text, keep=LINES), err=err)


def print_data(text: str) -> None:
    """Print a whole document: as it is for another program, harmless in a terminal."""
    # Not by echo, which takes some of it out.
    sys.stdout.write(visible(text, keep=LINES) if sys.stdout.isatty() else text)
    sys.stdout.flush()


class _Harmless(Console):
    """Tables whose cells and titles steer no terminal either."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(visible(text, keep=LINES), **options)


def progress(what: str, work: Iterable[Any], total: int) -> list[Any]:
    from rich.progress import track

    return list(track(work, description=what, total=total, console=_Harmless(stderr=True), transient=True))


def bar(*columns: ProgressColumn, **more: Any) -> Progress:
    """A progress bar beside the output, gone at the end; into a file it would write an empty line, so there is none."""
    from rich.progress import Progress

    terminal = _Harmless(stderr=True)
    return Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal, **more)


def console() -> Console:
    """Wide enough for whole rows when the output goes to a file or another program."""
    return _Harmless() if sys.stdout.isatty() else _Harmless(width=160)


def print_json(data: Any) -> None:
    typer.echo(visible_json(json.dumps(data, indent=2, ensure_ascii=False)))
