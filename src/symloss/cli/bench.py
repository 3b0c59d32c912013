"""``symloss bench``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from symloss.cli.output import AsJson, console, print_json, progress

bench = typer.Typer(help="Measure what losses and heads cost, against torch's cross-entropy.", no_args_is_help=True)

Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Timed runs of each; the median counts.")]
Check = Annotated[bool, typer.Option("--check", help="Compare with the targets; exit with 1 if any is missed.")]


@bench.command("losses")
def bench_losses(repeats: Repeats = 15, as_json: AsJson = False, check: Check = False) -> None:
    """Time every loss forward and backward, at three sizes and with recycled and fresh memory pages."""
    from symloss import bench as benchmarks

    rows = progress("timing losses", benchmarks.losses(repeats), len(benchmarks.SIZES) * len(benchmarks.REGIMES))
    if as_json:
        print_json({"environment": benchmarks.environment(), "results": rows})
    else:
        _print_environment(benchmarks.environment())
        console().print(_ratio_table(rows))
    _report(benchmarks.loss_failures(rows), check)


@bench.command("heads")
def bench_heads(repeats: Repeats = 5, as_json: AsJson = False, check: Check = False) -> None:
    """Time linear layers with a loss, and their memory, from 1,000 to 1,000,000 classes."""
    from symloss import bench as benchmarks

    jobs = [{"what": "heads", "c": 50_000, "repeats": repeats}, *benchmarks.head_jobs()]
    timed, *alone = progress("timing heads", (benchmarks.in_own_process(job, {}) for job in jobs), len(jobs))
    if as_json:
        print_json({"environment": benchmarks.environment(), "at_50000": timed, "alone": alone})
    else:
        _print_environment(benchmarks.environment())
        console().print(_head_table(timed, alone))
    _report(benchmarks.head_failures(timed, alone), check)


def _print_environment(environment: dict[str, Any]) -> None:
    console().print(", ".join(f"{key} {value}" for key, value in environment.items()))


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


def _report(failures: list[str], check: bool) -> None:
    if not check:
        return
    for failure in failures:
        typer.echo(f"missed: {failure}", err=True)
    typer.echo(f"{len(failures)} targets missed" if failures else "all targets met", err=True)
    if failures:
        raise typer.Exit(1)
