"""What the benchmarks share: timing, memory, processes of their own, options, progress and tables.

Timings on a shared machine drift. So runs take turns, and their medians are compared. Memory is measured in a new
process, because the peak of a process never falls.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from unittest.mock import patch

import torch

from symloss.environment import processor

T = TypeVar("T")
Runs = Mapping[str, Callable[[], object]]


class Timing(NamedTuple):
    """Seconds and page faults of one run."""

    seconds: float
    page_faults: int


def timed(run: Callable[[], object]) -> Timing:
    """Call ``run`` once and measure its seconds and page faults.

    >>> timed(lambda: None).seconds < 1
    True
    """
    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
    run()
    seconds = time.perf_counter() - start
    return Timing(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)


Clock = Callable[[Callable[[], Any]], Timing]
"""Calls a run once, and measures it."""


def turns(runs: Runs, repeats: int, clock: Clock = timed) -> Iterator[dict[str, Timing]]:
    """Time each run once per turn. One more turn comes first as a warm-up and isn't yielded.

    >>> [list(turn) for turn in turns({"a": int, "b": int}, repeats=2)]
    [['a', 'b'], ['a', 'b']]
    """
    for number in range(repeats + 1):
        turn = {name: clock(run) for name, run in runs.items()}
        if number > 0:
            yield turn


def interleaved(runs: Runs, repeats: int, inner: int = 1, clock: Clock = timed) -> dict[str, Any]:
    """Compare runs by their medians over turns.

    Args:
        runs: what to time, by name. The first is the base of all ratios.
        repeats: number of turns that count.
        inner: number of steps in a run. Seconds and page faults are per step.
        clock: measures a run.

    Returns:
        By name: ``seconds`` (the medians), ``ratios`` to the first run, ``spread`` (largest minus smallest time, as a
        multiple of the first median), ``page_faults``; and ``repeats``.

    >>> interleaved({"base": int, "other": int}, repeats=3)["ratios"]["base"]
    1.0
    """
    timings = list(turns(runs, repeats, clock))
    times = {name: [turn[name].seconds / inner for turn in timings] for name in runs}
    faults = {name: [turn[name].page_faults // inner for turn in timings] for name in runs}
    medians = {name: statistics.median(each) for name, each in times.items()}
    base = next(iter(medians.values()))
    return {
        "seconds": medians,
        "ratios": {name: median / base for name, median in medians.items()},
        "spread": {name: (max(each) - min(each)) / base for name, each in times.items()},
        "page_faults": {name: statistics.median(each) for name, each in faults.items()},
        "repeats": repeats,
    }


def peak_memory() -> int:
    """Return the most memory that this process ever held, in bytes."""
    # Linux counts the peak of a parent, too, in the ru_maxrss of a process that it has spawned.
    status = Path("/proc/self/status")
    if status.exists():
        return 1024 * int(status.read_text().partition("VmHWM:")[2].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_own_process(work: Callable[..., T], *arguments: Any, variables: Mapping[str, str] | None = None) -> T:
    """Call a function of a module in a new process, without warnings, with additional environment variables.

    >>> in_own_process(os.getenv, "COLOUR", variables={"COLOUR": "blue"})
    'blue'
    """
    spawned = multiprocessing.get_context("spawn")
    with (
        patch.dict(os.environ, {"PYTHONWARNINGS": "ignore", **(variables or {})}),
        ProcessPoolExecutor(1, mp_context=spawned) as pool,
    ):
        return pool.submit(work, *arguments).result()


def options(description: str | None) -> argparse.ArgumentParser:
    """Return a parser whose ``--help`` shows the docstring of a script as it is written."""
    return argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)


def environment(*packages: str) -> dict[str, Any]:
    """Return versions and hardware.

    Args:
        packages: further packages whose versions are added.

    >>> list(environment("numpy"))
    ['python', 'torch', 'processor', 'threads', 'system', 'numpy']
    """
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": processor() or "unknown",
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        **{package: metadata.version(package) for package in packages},
    }


def print_environment(*packages: str, **more: str) -> None:
    """Print versions and hardware in one line."""
    print(", ".join(f"{key} {value}" for key, value in (environment(*packages) | more).items()) + "\n", flush=True)


def with_progress(work: Iterable[T], pieces: Sequence[str]) -> list[T]:
    """Return the results of the work. Each prints a line on stderr, with the name of its piece."""
    found, start = [], time.perf_counter()
    for number, (piece, result) in enumerate(zip(pieces, work, strict=True), start=1):
        found.append(result)
        seconds = time.perf_counter() - start
        print(f"{number}/{len(pieces)} {piece} ({seconds:.0f} s)", file=sys.stderr, flush=True)
    return found


def row(*cells: object) -> str:
    """Return one line of a Markdown table.

    >>> row("gce", 0.5)
    '| gce | 0.5 |'
    """
    return f"| {' | '.join(map(str, cells))} |"


def header(*cells: object, left: int = 1) -> str:
    """Return the first two lines of a Markdown table, whose first ``left`` columns are aligned to the left.

    >>> print(header("loss", "seconds"))
    | loss | seconds |
    |---|---:|
    """
    return f"{row(*cells)}\n|{'---|' * left}{'---:|' * (len(cells) - left)}"


def print_table(cells: Sequence[object], rows: Iterable[Sequence[object]], left: int = 1) -> None:
    """Print a Markdown table, each line as soon as it is known."""
    print(header(*cells, left=left), flush=True)
    for each in rows:
        print(row(*each), flush=True)


def spread(values: Iterable[float | None], digits: int) -> str:
    """Return mean and standard deviation of the values that are not None, or a dash if there are none.

    >>> spread([1.0, 2.0, None], 1), spread([1.0], 1), spread([None], 1)
    ('1.5 ± 0.7', '1.0', '-')
    """
    known = [value for value in values if value is not None]
    if not known:
        return "-"
    deviation = f" ± {statistics.stdev(known):.{digits}f}" if len(known) > 1 else ""
    return f"{statistics.fmean(known):.{digits}f}{deviation}"


def judge(failures: Sequence[str]) -> None:
    """Print the targets that were missed on stderr, and exit with 1 if there are any."""
    for failure in failures:
        print(f"missed: {failure}", file=sys.stderr)
    print(f"{len(failures)} targets missed" if failures else "all targets met", file=sys.stderr)
    if failures:
        sys.exit(1)
