"""``symloss data`` downloads data sets and describes data; what becomes of the columns of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from symloss.cli.options import DATA, OPTIONS, SOURCE, QuietGroup, QuietHelp, argument, option, with_options
from symloss.cli.output import bar, print_rows, say, visible
from symloss.data.columns import Column
from symloss.data.source import DataSource, warn
from symloss.training.progress import ProgressLines

NAMED = 3  # how many columns a remark names. `symloss data show` lists all.
LISTED = 60  # in a table with more columns than this, those of plain numbers share one line
PLAIN = "numbers"  # the reason of a column of which there is nothing to say

data = typer.Typer(help="Download published data sets and inspect data.", no_args_is_help=True, cls=QuietGroup)


@data.command("get", cls=QuietHelp)
@with_options("data_dir")
def get(
    name: Annotated[str, argument("mnist, fashion-mnist, cifar10 or cifar100.")],
    mirror: Annotated[str | None, option("URL of a mirror of the publisher's files.", panel=DATA)] = None,
    *,
    options: dict[str, Any],
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

        folder = fetch(name, options["data_dir"], progress=show, base_url=mirror)
    say(str(folder))


@data.command("show", cls=QuietHelp)
@with_options(
    *(*SOURCE, "drop"),
    settings=("image", "categorical", "keep", "data_dir", "encoder"),
    data=OPTIONS["data"]._replace(default=...),
)
def show(*, options: dict[str, Any]) -> None:
    """Show how data will be interpreted: the input shape, the columns of a table and the class counts."""
    from symloss.data import open_data

    opened = open_data(DataSource.of(options), root=options["data_dir"], on_bad=warn, progress=encoding())
    kind = "files, decoded when needed" if opened.streamed else "in memory"
    say(f"{visible(opened.name)}: inputs {' x '.join(map(str, opened.input_shape))}, {kind}")
    if opened.encoder is not None:
        print_rows(column_rows(opened.encoder.columns_))
    parts = {"train": opened.train, "test": opened.test}
    counts = {name: part.labels.bincount(minlength=len(opened.class_names)) for name, part in parts.items() if part}
    print_rows(
        [
            {"class": visible(name), **{part: int(each[number]) for part, each in counts.items()}}
            for number, name in enumerate(opened.class_names)
        ]
    )


def encoding(what: str = "texts") -> Callable[[int, int], None]:
    """Return what says on stderr how many texts or images are encoded, now and then; nothing of a few."""
    lines = ProgressLines()

    def tell(done: int, total: int) -> None:
        if done < total or lines.line:
            lines.step(f"encoding {what}", done, total)

    return tell


def say_columns(columns: Sequence[Column]) -> None:
    """Say in a line each which columns were left out without `--drop`, may be ids, or are free text."""
    groups = {
        "left out": ("left out", "--settings keep=COLUMN uses one that looks like an id"),
        "number": ("used as features", "--settings drop=COLUMN leaves one out"),
        "text": ("encoded", "--settings drop=COLUMN leaves one out"),
    }
    for kind, (what, hint) in groups.items():
        found = [column for column in columns if column.notable and column.kind == kind]
        if found:
            named = ", ".join(f"{column.name!r} ({column.reason})" for column in found[:NAMED])
            more = f" and {len(found) - NAMED} more" if len(found) > NAMED else ""
            say(f"{what}: {named}{more}; {hint}", err=True)


def column_rows(columns: Sequence[Column]) -> list[dict[str, str]]:
    """Return a row for each column of a table: its name, what it becomes, and why."""
    plain = [column for column in columns if column.reason == PLAIN] if len(columns) > LISTED else []
    shown = [(f"{len(plain)} columns", "number", PLAIN)] if plain else []
    shown += [(column.name, column.kind, column.reason) for column in columns if not (plain and column.reason == PLAIN)]
    return [dict(zip(("column", "becomes", "why"), map(visible, row), strict=True)) for row in shown]
