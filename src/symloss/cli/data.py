"""``symloss data`` downloads data sets and describes data; what becomes of the columns of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from symloss.cli.options import DATA, OPTIONS, QuietGroup, QuietHelp, with_options
from symloss.cli.output import bar, say, visible

if TYPE_CHECKING:
    from symloss.data.columns import Column

NAMED = 3
"""How many columns a remark names. `symloss data show` lists all."""
LISTED = 60
"""In a table with more columns than this, those of plain numbers share one line."""
PLAIN = "numbers"
"""The reason of a column of which there is nothing to say."""

data = typer.Typer(help="Download published data sets and inspect data.", no_args_is_help=True, cls=QuietGroup)


@data.command("get", cls=QuietHelp)
def get(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, cifar10 or cifar100.", show_default=False)],
    data_dir: Annotated[Path | None, OPTIONS["data_dir"].declared()] = None,
    mirror: Annotated[
        str | None, typer.Option(help="URL of a mirror of the publisher's files.", rich_help_panel=DATA)
    ] = None,
) -> None:
    """Download a published data set and verify its files. Interrupted downloads resume."""
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    from symloss.data.download import get as fetch

    amounts = (DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), *amounts)
    with bar(*columns) as progress:
        tasks: dict[str, int] = {}

        def show(file: str, here: int, total: int | None) -> None:
            if file not in tasks:
                tasks[file] = progress.add_task(file, total=total)
            progress.update(tasks[file], completed=here, total=total)  # type: ignore[arg-type]

        folder = fetch(name, data_dir, progress=show, base_url=mirror)
    say(str(folder))


@data.command("show", cls=QuietHelp)
@with_options(
    *("data", "label", "test", "drop", "skip_bad"),
    settings=("image", "categorical", "keep", "data_dir"),
    data=OPTIONS["data"]._replace(default=...),
)
def show(*, options: dict[str, Any]) -> None:
    """Show how data will be interpreted: the input shape, the columns of a table and the class counts."""
    from symloss.data import open_data
    from symloss.data.source import DataSource, warn

    opened = open_data(DataSource.of(options), root=options["data_dir"], on_bad=warn)
    kind = "files, decoded when needed" if opened.streamed else "in memory"
    say(f"{visible(opened.name)}: inputs {' x '.join(map(str, opened.input_shape))}, {kind}")
    if opened.encoder is not None:
        for line in column_lines(opened.encoder.columns_):
            say(line)
    counts = [part.labels.bincount(minlength=len(opened.class_names)) for part in (opened.train, opened.test) if part]
    say("\t".join(["class", "train", "test"][: 1 + len(counts)]))
    for number, name in enumerate(opened.class_names):
        say("\t".join([visible(name), *(str(int(count[number])) for count in counts)]))


def say_columns(columns: Sequence[Column]) -> None:
    """Say in a line each which columns were left out though nobody asked for it, and which may be ids."""
    from symloss.data.columns import NO_TEXT

    groups = {
        ("left out", False): ("left out", "--settings keep=COLUMN uses one that looks like an id"),
        ("left out", True): ("left out", NO_TEXT),
        ("number", False): ("used as features", "--settings drop=COLUMN leaves one out"),
    }
    for group, (what, hint) in groups.items():
        found = [column for column in columns if column.notable and (column.kind, column.is_free_text) == group]
        if found:
            named = ", ".join(f"{column.name!r} ({column.reason})" for column in found[:NAMED])
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            say(f"{what}: {named}{more}; {hint}", err=True)


def column_lines(columns: Sequence[Column]) -> Iterator[str]:
    """Return a line for each column: its name, what it becomes, and why."""
    plain = [column for column in columns if column.reason == PLAIN] if len(columns) > LISTED else []
    yield "column\tbecomes\twhy"
    if plain:
        yield f"{len(plain)} columns\tnumber\t{PLAIN}"
    for column in columns:
        if not (plain and column.reason == PLAIN):
            yield "\t".join(map(visible, (column.name, column.kind, column.reason)))
