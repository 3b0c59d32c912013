"""What commands print: tables for people, JSON for programs, progress on the side."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead, for other programs.")]


def progress(what: str, work: Iterable[Any], total: int) -> list[Any]:
    from rich.progress import track

    return list(track(work, description=what, total=total, console=Console(stderr=True), transient=True))


def bar(*columns: ProgressColumn, **more: Any) -> Progress:
    """A progress bar beside the output, gone at the end; into a file it would write an empty line, so there is none."""
    from rich.progress import Progress

    terminal = Console(stderr=True)
    return Progress(*columns, console=terminal, transient=True, disable=not terminal.is_terminal, **more)


def console() -> Console:
    """Wide enough for whole rows when the output goes to a file or another program."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
