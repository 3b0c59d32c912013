"""Measurements of time and memory.

Timings on a shared machine drift. So runs take turns, and their medians are compared. Memory is measured in a new
process, because the peak of a process never falls.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

Runs = Mapping[str, Callable[[], object]]


class Timing(NamedTuple):
    """Seconds and page faults of one run."""

    seconds: float
    page_faults: int


def timed(run: Callable[[], object]) -> Timing:
    """Call ``run`` once, and measure seconds and page faults.

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
    """Time each run once in each turn, by a clock. One more turn comes first, to warm up, and is not yielded.

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
        repeats: how many turns count.
        inner: how many steps a run makes. Seconds and page faults are those of one step.
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
    """The most memory that this process ever held, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_own_process(job: dict[str, Any], environment: dict[str, str]) -> Any:
    """Do a job of ``symloss.bench.__main__`` in a new process, with additional environment variables."""
    command = [sys.executable, "-m", "symloss.bench", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)
    if done.returncode != 0:
        raise ValueError(f"the benchmark {job} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)
