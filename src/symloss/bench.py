"""Benchmarks: what a loss costs, as a multiple of torch's cross-entropy in the same run.

Runs are interleaved and medians compared, since timings on a shared machine drift. Large tensors cost what their memory
pages cost: the C library hands out recycled pages or fresh ones, and a fresh page takes longer than the work on it. So
each size is measured in two processes, one left as it is and one in which every large tensor gets fresh pages.
"""

from __future__ import annotations

import functools
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from symloss.losses import heads
from symloss.losses.catalogue import RECORDS
from symloss.losses.create import create_loss

SIZES = ((128, 10), (4096, 1000), (1024, 50_000))
LABEL = ("mae", "gce", "sce", "agce", "aul", "ael", "focal", "taylor-ce", "phuber-ce", "alpha-mae")
ALL = ("sgce", "nce", "nfl", "nce+rce", "nce+agce", "anl-ce")
UNIT = ("unhinged", "sgce", "alpha-mae")
# Largest ratio to cross-entropy at each size, and what normalisation may add.
LIMITS = {"label": (2.5, 0.5, 0.6), "all": (3.5, 1.2, 1.0), "unhinged": (1.8, 0.3, 0.3)}
UNIT_LIMIT = (1.4, 0.4, 0.4)
REGIMES = {"default": {}, "fresh pages": {"MALLOC_MMAP_THRESHOLD_": "131072", "MALLOC_TRIM_THRESHOLD_": "131072"}}

HEAD = (1024, 256)
HEAD_CLASSES = (1_000, 10_000, 50_000, 200_000, 1_000_000)
MOST_SCORES = 200_000
"""Beyond, the ways that form all scores would need tens of gigabytes."""


def group(name: str) -> str:
    base = name.removesuffix("/l2")
    return base if base == "unhinged" else "all" if base in ALL else "label"


def limit(name: str, size: tuple[int, int]) -> float:
    place = SIZES.index(size)
    return LIMITS[group(name)][place] + (UNIT_LIMIT[place] if name.endswith("/l2") else 0)


def loss_names() -> list[str]:
    return [*LABEL, *ALL, "unhinged", *(f"{name}/l2" for name in UNIT)]


def in_own_process(job: dict[str, Any], settings: dict[str, str]) -> Any:
    """What `work` returns for the job, computed by a process of its own."""
    command = [sys.executable, "-m", "symloss.bench", json.dumps(job)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **settings}, check=False)
    if done.returncode != 0:
        raise ValueError(f"the benchmark {job} failed: {done.stderr.strip().splitlines()[-1:]}")
    return json.loads(done.stdout)


def losses(repeats: int, sizes: tuple[tuple[int, int], ...] = SIZES) -> Iterator[dict[str, Any]]:
    """One result for each size and regime, as they come."""
    for n, c in sizes:
        for regime, settings in REGIMES.items():
            found = in_own_process({"what": "losses", "n": n, "c": c, "repeats": repeats}, settings)
            yield {"n": n, "c": c, "regime": regime, **found}


def head_jobs() -> list[dict[str, Any]]:
    return [
        {"what": "head", "way": way, "c": c}
        for c in HEAD_CLASSES
        for way in HEADS
        if c <= MOST_SCORES or way not in WITH_SCORES
    ]


def work(job: dict[str, Any]) -> dict[str, Any]:
    if job["what"] == "losses":
        return _time_losses(job["n"], job["c"], job["repeats"])
    if job["what"] == "heads":
        return _time_heads(job["c"], job["repeats"])
    return _one_head(job["way"], job["c"])


def _time_losses(n: int, c: int, repeats: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(0)
    scores, labels = torch.randn(n, c, generator=generator), torch.randint(c, (n,), generator=generator)
    steps: dict[str, Callable[[Tensor], Tensor]] = {"torch cross_entropy": lambda z: F.cross_entropy(z, labels)}
    for name in loss_names():
        base, _, unit = name.partition("/")
        loss = create_loss(base, normalize=unit or None)
        steps[name] = lambda z, loss=loss: loss(z, labels)  # type: ignore[misc]
    # The clock of a shared machine drifts: many short turns compare better than few long ones.
    inner = max(1, 20_000 // (n * c))
    turns = repeats if inner == 1 else 10 * repeats

    def run(step: Callable[[Tensor], Tensor]) -> None:
        z = scores.requires_grad_()
        for _ in range(inner):
            step(z).backward()  # type: ignore[no-untyped-call]
            z.grad = None

    return interleaved({name: functools.partial(run, step) for name, step in steps.items()}, turns, inner)


def interleaved(runs: dict[str, Callable[[], None]], repeats: int, inner: int = 1) -> dict[str, Any]:
    """Medians of interleaved runs, in seconds and as ratios to the first, and page faults of a run."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    faults: dict[str, list[int]] = {name: [] for name in runs}
    for turn in range(repeats + 1):
        for name, run in runs.items():
            before, start = resource.getrusage(resource.RUSAGE_SELF).ru_minflt, time.perf_counter()
            run()
            if turn > 0:  # the first turn warms up
                times[name].append((time.perf_counter() - start) / inner)
                faults[name].append((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) // inner)
    medians = {name: statistics.median(each) for name, each in times.items()}
    base = next(iter(medians.values()))
    return {
        "seconds": medians,
        "ratios": {name: median / base for name, median in medians.items()},
        "spread": {name: (max(each) - min(each)) / base for name, each in times.items()},
        "page_faults": {name: statistics.median(each) for name, each in faults.items()},
        "repeats": repeats,
    }


def _unit_unhinged(z: Tensor, y: Tensor) -> Tensor:
    """As one would write it down: normalise, mean, gather."""
    z = F.normalize(z, dim=1, eps=1e-5)
    return (z.mean(1) - z.gather(1, y[:, None]).squeeze(1)).mean()


def _parts(c: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, d = HEAD
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(n, d, generator=generator).requires_grad_()
    weight = torch.empty(c, d).normal_(std=0.05, generator=generator).requires_grad_()
    return features, weight, torch.zeros(c, requires_grad=True), torch.randint(c, (n,), generator=generator)


HEADS: dict[str, Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]] = {
    "linear + cross_entropy": lambda h, w, b, y: F.cross_entropy(F.linear(h, w, b), y),
    "linear + unit unhinged": lambda h, w, b, y: _unit_unhinged(F.linear(h, w, b), y),
    "unhinged head": heads.linear_unhinged,
    "unhinged head, raw scores": lambda h, w, b, y: heads.linear_unhinged(h, w, b, y, normalize=None),
    "alpha-mae head": lambda h, w, b, y: heads.linear_loss(RECORDS["alpha-mae"].loss(), h, w, b, y, normalize="l2"),
    "sgce head": lambda h, w, b, y: heads.linear_loss(RECORDS["sgce"].loss(), h, w, b, y, normalize="l2"),
}
WITH_SCORES = ("linear + cross_entropy", "linear + unit unhinged")


def _time_heads(c: int, repeats: int) -> dict[str, Any]:
    h, w, b, y = _parts(c)

    def run(way: str) -> None:
        HEADS[way](h, w, b, y).backward()  # type: ignore[no-untyped-call]
        h.grad = w.grad = b.grad = None

    return interleaved({way: functools.partial(run, way) for way in HEADS}, repeats)


def _one_head(way: str, c: int) -> dict[str, Any]:
    """Seconds of the best of three steps, and memory beyond features, parameters and their gradients."""
    HEADS[way](*_parts(8)).backward()  # type: ignore[no-untyped-call]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    h, w, b, y = _parts(c)
    own = 2 * sum(part.numel() * part.element_size() for part in (h, w, b))
    times = []
    for _ in range(3):
        start = time.perf_counter()
        HEADS[way](h, w, b, y).backward()  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - start)
        h.grad = w.grad = b.grad = None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    extra = (peak - before) * 1024 - own
    return {"way": way, "c": c, "seconds": min(times), "extra_bytes": max(extra, 0), "peak_bytes": peak * 1024}


def head_failures(timed: dict[str, Any], alone: list[dict[str, Any]]) -> list[str]:
    """Targets at C = 50,000, and the memory at a million classes."""
    ratio = timed["ratios"]
    extra = {(row["way"], row["c"]): row["extra_bytes"] for row in alone}
    whole = {(row["way"], row["c"]): row["peak_bytes"] for row in alone}
    scores, head, many = "linear + cross_entropy", "unhinged head", 50_000
    checks = {
        "unhinged head: 12 times faster than scores then loss": ratio["linear + unit unhinged"] >= 12 * ratio[head],
        "unhinged head: 6 times faster than linear + cross_entropy": 6 * ratio[head] <= 1,
        "a million classes in 4 GB": whole[head, 1_000_000] < 4e9,
    }
    for way in (head, "alpha-mae head", "sgce head"):
        checks[f"{way}: an eighth of the extra memory"] = 8 * extra[way, many] <= extra[scores, many]
    for way in ("alpha-mae head", "sgce head"):
        checks[f"{way}: at most 1.1 times the time"] = ratio[way] <= 1.1
    return [name for name, met in checks.items() if not met]


def loss_failures(results: list[dict[str, Any]]) -> list[str]:
    return [
        f"{name} at {row['n']} x {row['c']}: {ratio:.2f}, target {limit(name, (row['n'], row['c'])):.2f}"
        for row in results
        if row["regime"] == "default"
        for name, ratio in row["ratios"].items()
        if name != "torch cross_entropy" and ratio > limit(name, (row["n"], row["c"]))
    ]


if __name__ == "__main__":
    print(json.dumps(work(json.loads(sys.argv[1]))))
