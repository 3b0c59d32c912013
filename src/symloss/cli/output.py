"""Output of the commands: tables for people, JSON for programs, and progress on stderr."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console, JustifyMethod
from rich.markup import escape
from rich.text import Text

from symloss.training.progress import ProgressLines

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn

# Control characters, characters that change the direction of writing, line and paragraph separators, and surrogates,
# which no stream can write.
_STEERING = re.compile("[\0-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
LINES = "\n\t"  # control characters that are printed as they are


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
    if err:  # by print, which writes above a live line: typer.echo would write into it
        print(visible(text, keep=LINES), file=sys.stderr)
    else:
        typer.echo(visible(text, keep=LINES))


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


class LiveProgress(ProgressLines):
    """One live line on a terminal: what is done, a bar, the time left, and the best so far or the latest metrics."""

    def __init__(self, progress: Progress):
        super().__init__()
        self.progress, self.done, self.status = progress, 0, ""
        self.task = progress.add_task("", total=None, status="")

    @staticmethod
    def columns() -> tuple[ProgressColumn, ...]:
        """Return the columns of the line. In a narrow terminal only the last one is cut."""
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.table import Column

        rest = Column(ratio=1, no_wrap=True, overflow="ellipsis")
        status = TextColumn("{task.fields[status]}", table_column=rest, markup=False)
        what = TextColumn("{task.description}", markup=False)
        return what, BarColumn(10), MofNCompleteColumn(), TimeRemainingColumn(), status

    def step(self, what: str, done: int, total: int, status: str = "") -> None:
        """Move the bar. The time that is left is that of the steps with this name."""
        if what != self.line:
            self.phase(what)
        self.done = done
        self.status = visible(status) or self.status
        self.progress.update(self.task, completed=done, total=total, status=self.status)

    def phase(self, line: str) -> None:
        """Start a new bar, whose length is not known yet. The status stays."""
        self.line, self.done = line, 0
        self.progress.reset(self.task, description=visible(line), total=None)

    def inside(self, step: int, steps: int) -> None:
        """Move the bar within a step, ten times a second at most."""
        now = time.monotonic()
        if now - self.last >= 0.1:
            self.last = now
            self.progress.update(self.task, completed=self.done + min(step / steps, 0.999))


@contextlib.contextmanager
def show_progress(*, quiet: bool = False) -> Iterator[ProgressLines]:
    """Show progress on stderr: one live line on a terminal, plain lines elsewhere unless ``quiet``."""
    terminal = _Harmless(stderr=True)
    if not terminal.is_terminal or terminal.is_dumb_terminal or terminal.no_color:
        yield ProgressLines(not quiet)
        return
    with bar(*LiveProgress.columns(), expand=True) as progress:
        yield LiveProgress(progress)


def console() -> Console:
    """Return a console for tables, wide enough for whole rows if the output goes to a file or another program."""
    return _Harmless() if sys.stdout.isatty() else _Harmless(width=160)


def print_json(data: Any) -> None:
    """Print data as JSON."""
    typer.echo(visible_json(json.dumps(data, indent=2, ensure_ascii=False)))


def print_rows(
    rows: Sequence[Mapping[str, Any]],
    title: str | None = None,
    caption: str | None = None,
    align: Mapping[str, JustifyMethod] | None = None,
) -> None:
    """Print a table: no lines, title and caption on the left. The keys of the first row are the headings.

    None is printed as a dash. Texts are folded; figures, which stand on the right, are never cut.
    """
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), title_justify="left", caption_justify="left")
    table.title, table.caption = (None if text is None else escape(text) for text in (title, caption))
    cells = [["-" if value is None else str(value) for value in row.values()] for row in rows]
    for column, name in enumerate(rows[0]):
        justify = (align or {}).get(name, "left")
        least = max(len(row[column]) for row in cells) if justify == "right" else None
        table.add_column(name, justify=justify, overflow="fold", min_width=least)
    for row in cells:
        table.add_row(*map(escape, row))
    console().print(table)
