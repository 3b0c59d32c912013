"""``symloss data`` downloads data sets and describes data."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from symloss.cli.columns import column_lines
from symloss.cli.options import WHAT, DataDir, shared
from symloss.cli.output import bar, say, visible

SHOWN = ("data_dir", "label", "image", "test", "drop", "categorical", "keep", "skip_bad")
data = typer.Typer(help="Fetch published data sets, and look at data.", no_args_is_help=True)


@data.command("get")
def get(
    name: Annotated[str, typer.Argument(help="mnist, fashion-mnist, cifar10, cifar100.", show_default=False)],
    data_dir: DataDir = None,
    mirror: Annotated[str | None, typer.Option(help="Address of a mirror with the publisher's files.")] = None,
) -> None:
    """Download a data set from its publisher. Files are checked. An interrupted download continues."""
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


@data.command("show")
@shared({name: WHAT[name] for name in SHOWN})
def show(
    spec: Annotated[str, typer.Argument(help="A name, or the path of your own data.", show_default=False)],
    *,
    options: dict[str, Any],
) -> None:
    """Show the shape of inputs, what becomes of each column of a table, and how many examples each class has."""
    from symloss.data import open_data
    from symloss.data.source import DataSource, warn

    opened = open_data(DataSource.of(options | {"data": spec}), root=options["data_dir"], on_bad=warn)
    kind = "files, decoded when needed" if opened.streamed else "in memory"
    say(f"{visible(opened.name)}: inputs {' x '.join(map(str, opened.input_shape))}, {kind}")
    if opened.encoder is not None:
        for line in column_lines(opened.encoder.columns_):
            say(line)
    counts = [part.labels.bincount(minlength=len(opened.class_names)) for part in (opened.train, opened.test) if part]
    say("\t".join(["class", "train", "test"][: 1 + len(counts)]))
    for number, name in enumerate(opened.class_names):
        say("\t".join([visible(name), *(str(int(count[number])) for count in counts)]))
