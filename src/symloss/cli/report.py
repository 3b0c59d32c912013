"""``symloss report`` writes a report of runs."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from symloss.cli.output import print_data, say, visible

if TYPE_CHECKING:
    from symloss.experiments import Report

SUFFIXES = {".md": "markdown", ".markdown": "markdown", ".tex": "latex", ".csv": "csv", ".html": "html", ".htm": "html"}
NAMES = {"markdown": "report.md", "latex": "report.tex", "csv": "report.csv", "html": "report.html"}


def report(
    runs: Annotated[Path, typer.Argument(help="Folder of runs.", show_default=False)],
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help="markdown, latex, csv or html (what --out says; else markdown)."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="A file (.md, .tex, .csv, .html), or a folder for all of them.")
    ] = None,
    table: Annotated[
        list[str] | None, typer.Option("--table", "-t", help="Only this table, such as table1 or digits; repeatable.")
    ] = None,
) -> None:
    """Show the results of runs beside the published figures: as tables, or as a page with curves and noise.

    Runs of a recipe are shown as its table. All others are grouped by the settings that they share. Runs without a
    result are listed.
    """
    targets = _targets(format, out)
    from symloss.experiments import compose, read_runs

    words = ["symloss", "report", str(runs)]
    words += ["--format", format] if format else []
    for name in table or []:
        words += ["--table", name]
    composed = compose(read_runs(runs), table or None, shlex.join(words))
    _write(composed, targets)
    for line in composed.missing:
        say(f"without a figure: {visible(line)}", err=True)


def _targets(format: str | None, out: Path | None) -> dict[str, Path | None]:
    """The formats to write, and the file of each; None is the standard output."""
    from symloss import checks

    if format is not None:
        checks.choice("--format", format, NAMES)
    if out is None:
        return {format or "markdown": None}
    if out.is_dir() or not out.suffix:
        return {name: out / file for name, file in NAMES.items() if format in (None, name)}
    by_suffix = SUFFIXES.get(out.suffix.lower())
    if by_suffix is None and format is None:
        raise ValueError(
            f"--out must end in {', '.join(SUFFIXES)}, or be a folder, or come with --format; got {str(out)!r}"
        )
    if by_suffix is not None and format not in (None, by_suffix):
        raise ValueError(f"--out must be a file of --format {format}; got {str(out)!r}, which is {by_suffix}")
    return {format or str(by_suffix): out}


def _write(composed: Report, targets: dict[str, Path | None]) -> None:
    from symloss.experiments import FORMATS
    from symloss.writing import clear_write_errors, write_whole

    # All formats are rendered before the first file is written, so that an error leaves no part of a report.
    # A file name that is no valid Unicode must not stop it.
    texts = {name: FORMATS[name](composed).encode(errors="replace") for name in targets}
    for name, path in targets.items():
        if path is None:
            print_data(texts[name].decode())
            continue
        with clear_write_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, texts[name])
        say(f"written to {path}", err=True)
