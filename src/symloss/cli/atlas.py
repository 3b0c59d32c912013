"""``symloss atlas`` writes a page with every loss as curves and maps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from symloss.cli.output import bar, say


def atlas(
    out: Annotated[Path, typer.Option("--out", "-o", help="The HTML file to write.")] = Path("atlas.html"),
    losses: Annotated[
        str | None, typer.Option("--losses", "-l", help="Only these losses, such as ce,gce,sgce (all).")
    ] = None,
) -> None:
    """Write a page to play with: every loss as curves and maps, and what wrong labels do to its minimum.

    The page is one file. It needs no network.
    """
    from symloss.atlas import write_atlas
    from symloss.atlas.data import known_losses

    names = None if losses is None else [name.strip() for name in losses.split(",") if name.strip()]
    with bar() as shown:
        task = shown.add_task("atlas", total=len(known_losses(names)))
        write_atlas(out, names, lambda number: shown.update(task, completed=number))
    say(f"written to {out} ({out.stat().st_size / 1e6:.1f} MB)")
