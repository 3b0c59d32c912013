"""What commands print: tables for people, JSON for programs, progress on the side."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead, for other programs.")]


def progress(what: str, work: Iterable[Any], total: int) -> list[Any]:
    from rich.progress import track

    return list(track(work, description=what, total=total, console=Console(stderr=True), transient=True))


def console() -> Console:
    """Wide enough for whole rows when the output goes to a file or another program."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))
