"""``symloss bench`` runs the benchmarks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from symloss.cli.options import DataDir
from symloss.cli.output import AsJson, console, print_data, print_json, progress, say
from symloss.environment import hardware_and_versions

bench = typer.Typer(
    help="Measure what losses and heads cost, and what learning from wrong labels reaches.", no_args_is_help=True
)

Repeats = Annotated[int, typer.Option("--repeats", min=1, help="Timed runs of each; the median counts.")]
Check = Annotated[bool, typer.Option("--check", help="Compare with the targets; exit with 1 if any is missed.")]

Device = Annotated[
    str, typer.Option("--device", help="cpu, or cuda for a GPU of NVIDIA or AMD, which is compared in other ways.")
]


@bench.command("losses")
def bench_losses(repeats: Repeats = 15, device: Device = "cpu", as_json: AsJson = False, check: Check = False) -> None:
    """Time every loss forward and backward, at three sizes and with recycled and fresh memory pages.

    On a GPU, compare a few losses by torch operations, by plain formulas and compiled, and Liger where installed.
    """
    from symloss.bench import device_speed, loss_speed

    device_speed.check_device(device, check)
    if device != "cpu":
        sizes = [f"{n} x {c}, {dtype}" for n, c, dtype in device_speed.LOSS_SIZES]
        work = device_speed.measure_losses_on(device, repeats, device_speed.GpuGauge())
        _show_device(progress("timing losses", work, sizes), "forward and backward", as_json)
        return
    pieces = [f"{n} x {c}, {regime}" for n, c in loss_speed.SIZES for regime in loss_speed.REGIMES]
    rows = progress("timing losses", loss_speed.measure_losses(repeats), pieces)
    if as_json:
        print_json({"environment": hardware_and_versions(), "results": rows})
    else:
        _print_environment(hardware_and_versions())
        console().print(_ratio_table(rows))
    _report(loss_speed.loss_failures(rows), check)


@bench.command("heads")
def bench_heads(repeats: Repeats = 11, device: Device = "cpu", as_json: AsJson = False, check: Check = False) -> None:
    """Time linear layers with a loss, and their memory, from 1,000 to 1,000,000 classes.

    On a GPU they are compared with Liger and cut-cross-entropy, at 50,000 and 151,936 classes.
    """
    from symloss.bench import device_speed, head_speed, measure

    device_speed.check_device(device, check)
    if device != "cpu":
        sizes = [f"{n} x {c}, {dtype}" for n, _, c, dtype in device_speed.HEAD_SIZES]
        work = device_speed.measure_heads_on(device, repeats, device_speed.GpuGauge())
        _show_device(progress("timing heads", work, sizes), "linear layer and loss", as_json)
        return
    jobs = [*head_speed.head_jobs(), {"what": "heads", "c": 50_000, "repeats": repeats}]
    pieces = [f"{job.get('way', 'all in turns')}, C {job['c']:,}" for job in jobs]
    *alone, timed = progress("timing heads", (measure.in_own_process(job, {}) for job in jobs), pieces)
    if as_json:
        print_json({"environment": hardware_and_versions(), "at_50000": timed, "alone": alone})
    else:
        _print_environment(hardware_and_versions())
        console().print(_head_table(timed, alone))
    _report(head_speed.head_failures(timed, alone), check)


@bench.command("tokens")
def bench_tokens(repeats: Repeats = 3, as_json: AsJson = False, check: Check = False) -> None:
    """Time heads of a language model with 151,936 classes, their memory and their rounding errors in bfloat16."""
    from symloss.bench import measure, token_heads

    jobs = token_heads.token_jobs(repeats)
    pieces = [", ".join(str(job[key]) for key in ("what", "dtype", "way") if key in job) for job in jobs]
    *rows, errors = progress("timing heads of tokens", (measure.in_own_process(job, {}) for job in jobs), pieces)
    times, memory = [row for row in rows if "ratios" in row], [row for row in rows if "extra_bytes" in row]
    if as_json:
        print_json({"environment": hardware_and_versions(), "times": times, "memory": memory, "errors": errors})
    else:
        _print_environment(hardware_and_versions())
        console().print(_token_table(times, memory))
        console().print(_error_table(errors))
    _report(token_heads.token_head_failures(times, memory, errors), check)


@bench.command("training")
def bench_training(
    loss: Annotated[str, typer.Option(help="The loss to train with.")] = "alpha-mae",
    model: Annotated[str | None, typer.Option(help="Another model than cnn8.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps of a round.")] = 8,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 5,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    check: Check = False,
) -> None:
    """Compare the training loop on cnn8 and CIFAR-10 with its bare step on one fixed batch, in turns."""
    from symloss.bench import training_speed

    pieces = [f"round {number}" for number in range(1, rounds + 1)]
    work = training_speed.measure_training(loss, steps, rounds, model, data_dir)
    rows = progress("timing the loop", work, pieces)
    share = training_speed.speed(rows)
    if as_json:
        print_json({"environment": hardware_and_versions(), "rounds": rows, "speed": share})
    else:
        _print_environment(hardware_and_versions())
        first = rows[0]
        console().print(
            f"{first['model']} on {first['data']}, batch {first['batch']}, {len(rows)} rounds of {steps} steps: "
            f"the loop reaches {100 * share:.1f} % of the bare step's speed"
        )
    _report(training_speed.training_failures(rows), check)


@bench.command("closed-form")
def bench_closed_form(
    repeats: Repeats = 7,
    examples: Annotated[int, typer.Option(min=100, help="Training examples.")] = 60_000,
    rows: Annotated[int, typer.Option(min=100, help="Rows of the large matrix.")] = 1_000_000,
    data_dir: DataDir = None,
    as_json: AsJson = False,
    check: Check = False,
) -> None:
    """Time the centroid classifier against logistic regression on noisy MNIST, and against one matrix product."""
    from symloss.bench import closed_form_speed

    work = closed_form_speed.measure_closed_form(repeats, data_dir, examples, rows)
    digits, matrix = progress("timing the closed form", work, ["digits", "one large matrix"])
    if as_json:
        print_json({"environment": hardware_and_versions("numpy", "scikit-learn"), "digits": digits, "matrix": matrix})
    else:
        _print_environment(hardware_and_versions("numpy", "scikit-learn"))
        console().print(_closed_form_table(digits))
        n, d = matrix["shape"]
        console().print(
            f"fit of {n:,} x {d} float32, {matrix['classes']} classes: {matrix['seconds']['fit']:.3f} s, "
            f"{matrix['ratios']['fit']:.2f} times one product X^T Y (medians of {matrix['repeats']} in turns)"
        )
    _report(closed_form_speed.closed_form_failures(digits, matrix), check)


@bench.command("fit")
def bench_fit(
    data: Annotated[
        str,
        typer.Option(
            "--data", "-d", help="By commas: digits, wine, breast-cancer, table, mnist, mnist-all, photos, cifar10n."
        ),
    ] = "digits,wine,breast-cancer,table,mnist,photos,cifar10n",
    noise: Annotated[
        str | None,
        typer.Option("--noise", "-n", help="By commas: clean, sym:0.6 ...", show_default="those of each data set"),
    ] = None,
    seeds: Annotated[
        str | None, typer.Option(help="0-4, or 0,2,7.", show_default="5 of digits, 3 of other data, 1 of mnist-all")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(
            help="By commas: symloss, logistic, forest, boosting, svc, k-nn, ce, gce, cleanlab. "
            "cleanlab builds on the best of the others, and brings them along.",
            show_default="all",
        ),
    ] = None,
    rows: Annotated[
        Path, typer.Option(help="Folder of finished rows, a JSON file each. They are not measured again.")
    ] = (Path("docs/results/fit")),
    only_show: Annotated[
        bool, typer.Option("--only-show", help="Measure nothing: show what is finished.", show_default="off")
    ] = False,
    data_dir: DataDir = None,
    as_json: AsJson = False,
) -> None:
    """Measure RobustClassifier and its rivals on wrong labels: accuracy, rank, audit, noise rate and time, in Markdown.

    Rivals choose among up to four settings by the same noisy folds. Every finished row is kept at once, so that the
    command can be killed and started again. Set OMP_NUM_THREADS=1 for times that can be compared.

    Data sets whose files are not there are left out with a line.

    Example: symloss bench fit --data digits --noise sym:0.6,asym:0.4 --seeds 0-1 --methods symloss,svc,k-nn
    """
    from symloss.bench import fit_accuracy, fit_plan, fit_table

    wanted = fit_plan.parse_plan(data, noise, seeds, methods, data_dir)
    for line in wanted.left_out:
        say(line, err=True)
    left = [] if only_show else [place for place in wanted.places if not place.path(rows).exists()]
    if left:
        progress("fit", fit_accuracy.measure_all(rows, left, data_dir), [str(place) for place in left])
    finished = fit_plan.read_rows(rows, wanted.places)
    if not finished:
        raise ValueError(f"rows must be a folder with finished rows of what is shown; got {str(rows)!r} with none")
    if as_json:
        print_json({"environment": fit_accuracy.environment(), "rows": finished})
    else:
        print_data(fit_table.markdown(finished))


def _show_device(rows: list[dict[str, Any]], what: str, as_json: bool) -> None:
    from symloss.bench.device_speed import device_environment

    if as_json:
        print_json({"environment": device_environment(), "results": rows})
        return
    _print_environment(device_environment())
    console().print(_device_table(rows, what))
    for row in rows:
        for line in row["left_out"]:
            say(f"{row['n']} x {row['c']} {row['dtype']}: {line}", err=True)


def _device_table(rows: list[dict[str, Any]], what: str) -> Any:
    from rich.table import Table

    table = Table(title=f"{what}: ratio to the first way, time, memory beyond the inputs", title_justify="left")
    table.add_column("way")
    for row in rows:
        table.add_column(f"{row['n']} x {row['c']}\n{row['dtype']}", justify="right")
    for way in dict.fromkeys(way for row in rows for way in row["ratios"]):
        table.add_row(way, *(_device_cell(row, way) for row in rows))
    return table


def _device_cell(row: dict[str, Any], way: str) -> str:
    if way not in row["ratios"]:
        return "-"
    milliseconds, megabytes = 1e3 * row["seconds"][way], row["extra_bytes"][way] / 1e6
    return f"{row['ratios'][way]:.2f} {milliseconds:,.3g} ms {megabytes:,.0f} MB"


def _print_environment(environment: dict[str, Any]) -> None:
    console().print(", ".join(f"{key} {value}" for key, value in environment.items()))


def _ratio_table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    from symloss.bench.loss_speed import limit

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
    by_way_and_classes = {(row["way"], row["c"]): row for row in alone}
    for way, ratio in timed["ratios"].items():
        cells = [by_way_and_classes.get((way, c)) for c in counts]
        texts = [
            "-" if cell is None else f"{cell['seconds']:.3f} s {cell['extra_bytes'] / 1e6:,.0f} MB" for cell in cells
        ]
        table.add_row(way, f"{ratio:.3f}", *texts)
    return table


def _token_table(times: list[dict[str, Any]], memory: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title="N 2,048, d 512, C 151,936: seconds, ratio and extra memory", title_justify="left")
    for name in ("type", "way", "seconds", "ratio", "extra memory"):
        table.add_column(name, justify="left" if name in ("type", "way") else "right")
    extra = {(row["dtype"], row["way"]): row["extra_bytes"] for row in memory}
    for row in times:
        for way, seconds in row["seconds"].items():
            bytes_ = f"{extra[row['dtype'], way] / 1e6:,.0f} MB"
            table.add_row(row["dtype"], way, f"{seconds:.2f}", f"{row['ratios'][way]:.2f}", bytes_)
    return table


def _error_table(errors: dict[str, Any]) -> Any:
    from rich.table import Table

    table = Table(title="N 2,048, d 128, C 20,000, bfloat16: errors of gradients against float64", title_justify="left")
    for name in ("loss", "way", "features", "weights"):
        table.add_column(name, justify="left" if name in ("loss", "way") else "right")
    for loss, found in errors.items():
        for way, (features, weights) in found.items():
            table.add_row(loss, way, f"{features:.1e}", f"{weights:.1e}")
    return table


def _closed_form_table(digits: dict[str, Any]) -> Any:
    from rich.table import Table

    n, d = digits["shape"]
    title = f"{digits['data']}, {n:,} x {d}, {digits['noise']}: {digits['times_faster']:.0f} times faster"
    table = Table(title=title, title_justify="left")
    for name in ("classifier", "seconds", "accuracy on clean test data"):
        table.add_column(name, justify="left" if name == "classifier" else "right")
    for name, accuracy in digits["accuracy"].items():
        seconds = digits["seconds"].get(name)
        table.add_row(name, "-" if seconds is None else f"{seconds:.3f}", f"{100 * accuracy:.1f} %")
    return table


def _report(failures: list[str], check: bool) -> None:
    if not check:
        return
    for failure in failures:
        typer.echo(f"missed: {failure}", err=True)
    typer.echo(f"{len(failures)} targets missed" if failures else "all targets met", err=True)
    if failures:
        raise typer.Exit(1)
