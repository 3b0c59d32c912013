"""The command line. Heavy imports wait until a command needs them, so that ``--help`` answers at once."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from typing import Annotated, Any

import typer
from rich.console import Console

from symloss import __version__

app = typer.Typer(
    name="symloss",
    help="Losses that stay right when the labels are wrong.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead, for other programs.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"symloss {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Losses that stay right when the labels are wrong."""


@app.command()
def losses(
    as_json: AsJson = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table instead.")] = False,
) -> None:
    """List every loss: its formula, parameters, facts, presets and source."""
    from symloss.losses.catalogue import RECORDS, SOURCES

    rows = [_row(record) | {"reference": SOURCES[record.source]} for record in RECORDS.values()]
    if as_json:
        _print_json(rows)
    elif as_markdown:
        typer.echo(_losses_markdown(rows))
    else:
        _console().print(_losses_table(rows))


@app.command()
def certify(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="SPEC",
            help="A loss such as 'sgce:q=0.8', or 'package.module:name' of your own with --own.",
            show_default=False,
        ),
    ],
    classes: Annotated[int, typer.Option("--classes", "-c", help="Number of classes.")] = 10,
    own: Annotated[
        bool, typer.Option("--own", help="SPEC names a Python function or module of (input, target).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure what a loss of raw scores is: symmetric, convex, bounded, smooth ... with counter-examples."""
    from symloss.certificates import certify as measure

    certificate = measure(_import(spec) if own else spec, classes)
    if as_json:
        _print_json(certificate.to_dict())
    else:
        _console().print(certificate)


bench = typer.Typer(help="Measure what losses and heads cost, against torch's cross-entropy.", no_args_is_help=True)
app.add_typer(bench, name="bench")

Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Timed runs of each; the median counts.")]
Check = Annotated[bool, typer.Option("--check", help="Compare with the targets; exit with 1 if any is missed.")]


@bench.command("losses")
def bench_losses(repeats: Repeats = 15, as_json: AsJson = False, check: Check = False) -> None:
    """Time every loss forward and backward, at three sizes and with recycled and fresh memory pages."""
    from symloss import bench as benchmarks

    rows = _progress("timing losses", benchmarks.losses(repeats), len(benchmarks.SIZES) * len(benchmarks.REGIMES))
    if as_json:
        _print_json({"environment": benchmarks.environment(), "results": rows})
    else:
        _print_environment(benchmarks.environment())
        _console().print(_ratio_table(rows))
    _report(benchmarks.loss_failures(rows), check)


@bench.command("heads")
def bench_heads(repeats: Repeats = 5, as_json: AsJson = False, check: Check = False) -> None:
    """Time linear layers with a loss, and their memory, from 1,000 to 1,000,000 classes."""
    from symloss import bench as benchmarks

    jobs = [{"what": "heads", "c": 50_000, "repeats": repeats}, *benchmarks.head_jobs()]
    timed, *alone = _progress("timing heads", (benchmarks.in_own_process(job, {}) for job in jobs), len(jobs))
    if as_json:
        _print_json({"environment": benchmarks.environment(), "at_50000": timed, "alone": alone})
    else:
        _print_environment(benchmarks.environment())
        _console().print(_head_table(timed, alone))
    _report(benchmarks.head_failures(timed, alone), check)


def _progress(what: str, work: Iterable[Any], total: int) -> list[Any]:
    from rich.progress import track

    return list(track(work, description=what, total=total, console=Console(stderr=True), transient=True))


def _print_environment(environment: dict[str, Any]) -> None:
    _console().print(", ".join(f"{key} {value}" for key, value in environment.items()))


def _ratio_table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    from symloss.bench import limit

    table = Table(title="time, forward and backward, as a multiple of torch's cross-entropy", title_justify="left")
    table.add_column("loss")
    for row in rows:
        table.add_column(f"{row['n']} x {row['c']}\n{row['regime']}", justify="right")
    seconds = [f"{1e3 * row['seconds']['torch cross_entropy']:.3g} ms" for row in rows]
    table.add_row("torch cross_entropy", *seconds, end_section=True)
    for name in list(rows[0]["ratios"])[1:]:
        cells = []
        for row in rows:
            ratio, most = row["ratios"][name], limit(name, (row["n"], row["c"]))
            cells.append(f"[{'green' if ratio <= most else 'yellow'}]{ratio:.2f}[/] [dim]<={most:g}[/]")
        table.add_row(name, *cells)
    faults = [f"{row['page_faults']['torch cross_entropy']:.0f} / {row['page_faults']['gce']:.0f}" for row in rows]
    table.add_row("page faults, cross_entropy / gce", *faults)
    return table


def _head_table(timed: dict[str, Any], alone: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title="linear layer and loss, N 1024, d 256: seconds and extra memory", title_justify="left")
    counts = sorted({row["c"] for row in alone})
    table.add_column("way")
    table.add_column("ratio at C 50,000", justify="right")
    for c in counts:
        table.add_column(f"C {c:,}", justify="right")
    found = {(row["way"], row["c"]): row for row in alone}
    for way, ratio in timed["ratios"].items():
        cells = [found.get((way, c)) for c in counts]
        texts = [
            "-" if cell is None else f"{cell['seconds']:.3f} s {cell['extra_bytes'] / 1e6:,.0f} MB" for cell in cells
        ]
        table.add_row(way, f"{ratio:.3f}", *texts)
    return table


def _cost(cell: dict[str, Any]) -> str:
    return f"{cell['seconds']:.3f} s {cell['extra_bytes'] / 1e6:,.0f} MB"


def _report(failures: list[str], check: bool) -> None:
    if not check:
        return
    for failure in failures:
        typer.echo(f"missed: {failure}", err=True)
    typer.echo(f"{len(failures)} targets missed" if failures else "all targets met", err=True)
    if failures:
        raise typer.Exit(1)


def _row(record: Any) -> dict[str, Any]:
    facts = record.facts.at(10, **record.defaults)
    return {
        "name": record.name,
        "class": record.class_name,
        "formula": record.formula,
        "parameters": [vars(parameter) for parameter in record.parameters],
        "normalize": record.normalize,
        "facts": facts,
        "presets": {
            name: {
                "values": dict(p.values),
                "penalty": p.penalty,
                "batch_norm_scores": p.batch_norm_scores,
                "source": p.source,
            }
            for name, p in record.presets.items()
        },
        "source": record.source,
    }


HEADINGS = ("name", "formula", "parameters (default, range)", "symmetric", "convex", "bounded", "source")
CAPTION = "Facts of raw scores, at the defaults, with 10 classes."


def _cells(row: dict[str, Any]) -> list[str]:
    parameters = ", ".join(f"{p['name']} {p['default']:g} {p['interval']}" for p in row["parameters"])
    marks = ["yes" if row["facts"][fact] else "-" for fact in HEADINGS[3:6]]
    return [row["name"], row["formula"], parameters, *marks, row["source"]]


def _losses_table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title=f"{len(rows)} losses", caption=CAPTION, title_justify="left")
    for heading in HEADINGS:
        table.add_column(heading, justify="center" if heading in HEADINGS[3:6] else "left")
    for row in rows:
        table.add_row(*_cells(row))
    return table


def _losses_markdown(rows: list[dict[str, Any]]) -> str:
    """The table of losses, their presets and their sources, as a page of the documentation."""
    lines = ["# Losses", "", "Written by `symloss losses --markdown`. " + CAPTION, ""]
    lines += ["| " + " | ".join(HEADINGS) + " |", "|" + "---|" * len(HEADINGS)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in _cells(row)) + " |" for row in rows]
    lines += ["", "## Presets", "", "| loss | preset | values | penalty | source |", "|---|---|---|---|---|"]
    for row in rows:
        for name, preset in row["presets"].items():
            values = ", ".join(f"{key}={value}" for key, value in preset["values"].items()) or "-"
            values += " and batch-norm scores" if preset["batch_norm_scores"] else ""
            penalty = "-" if preset["penalty"] is None else f"{preset['penalty']:g}"
            lines.append(f"| {row['name']} | {name} | {values} | {penalty} | {preset['source']} |")
    lines += ["", "## Sources", ""]
    lines += [f"- {name}: {reference}" for name, reference in {r["source"]: r["reference"] for r in rows}.items()]
    return "\n".join(lines)


def _console() -> Console:
    """Wide enough for whole rows when the output goes to a file or another program."""
    return Console() if sys.stdout.isatty() else Console(width=160)


def _print_json(data: Any) -> None:
    typer.echo(json.dumps(data, indent=2, ensure_ascii=False))


def _import(name: str) -> Any:
    import importlib

    module, _, attribute = name.partition(":")
    if not attribute:
        raise ValueError(f"with --own, SPEC must read package.module:name; got {name!r}")
    sys.path.insert(0, "")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"with --own, SPEC must name what Python can import; got {name!r}: {error}") from error


def main() -> None:
    """Run a command; bad input ends in one sentence and exit code 2, not in a traceback."""
    try:
        app()
    except (ValueError, TypeError) as error:
        typer.echo(f"symloss: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


if __name__ == "__main__":
    main()
