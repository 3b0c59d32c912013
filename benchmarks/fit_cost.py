"""Measure what one fit of each candidate of `symloss fit` costs, and compare it with the formulas that plan the budget.

    OMP_NUM_THREADS=1 python benchmarks/fit_cost.py                 # hours; Ctrl-C and rerun to resume
    OMP_NUM_THREADS=1 python benchmarks/fit_cost.py --most 5        # minutes: no fit above 5 seconds
    python benchmarks/fit_cost.py --show                            # tables of the kept rows, nothing is measured

Figures are processor seconds of one core for a fit on `rows` rows with predictions for a quarter as many. The data are
overlapping Gaussian classes with correlated features, standardised, and 30 % symmetric label noise. Shapes are measured
from the cheapest on. One that must take longer than `--most` seconds, by smaller ones of the same candidate, is left
out; a fit that takes twice as long is ended, and its row says "more than".
"""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
import statistics
import sys
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import measure
import numpy as np
import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from symloss.fit.cost import seconds
from symloss.fit.held_out import probabilities
from symloss.fit.learners import CLASSICAL, Candidate, Shape
from symloss.fit.networks import Networks, NetworkSchedule, one_thread
from symloss.fit.stacks import LinearLayers, NetworkMember, Perceptrons

KEPT = Path(__file__).parents[1] / "docs" / "results" / "fit-cost.jsonl"
FEATURES = (10, 100, 400, 1280, 5000)
ROWS = (100, 1_000, 5_000, 20_000, 100_000)
CLASSES = (2, 10, 77)
NOISE = 0.3
LATENTS = 64
"""Correlated directions of the features, with variances 1, 1/2, 1/3, ..."""
FOLDS = 5
"""Networks are trained as a stack of this many, and the seconds are of one of them."""
EPOCHS = 2
"""Of a network's schedule, at the most, that are trained. The others cost the same."""
WARM = Shape(40, 4, 2)
"""What every candidate is fitted to first, so that nothing is imported while it is timed."""
SHORT = 0.2
"""Shorter runs are repeated until they have taken this long, because the system counts in ticks of milliseconds."""

SETTINGS: dict[str, tuple[tuple[tuple[str, float], ...], ...]] = {
    "unhinged": ((),),
    "lda": ((),),
    "logistic": tuple((("C", cost),) for cost in (3e-4, 1e-3, 1e-2, 0.1, 1.0)),
    "kernel-unhinged": ((("gamma", 1.0),),),
    "k-nn": ((("neighbours", 15.0),),),
    "svc": tuple((("C", cost), ("gamma", 1.0)) for cost in (0.3, 1.0, 3.0, 10.0)),
    "forest": ((("leaf", 5.0),), (("leaf", 5.0), ("share", 0.6))),
    "boosting": ((("rate", 0.1),), (("rate", 0.1), ("depth", 3.0))),
    "network": ((),),
    "linear": ((),),
}
"""What is measured of each learner."""
STACKS = {"network": Perceptrons, "linear": LinearLayers}


class Cost(NamedTuple):
    """The measured cost of a candidate."""

    candidate: Candidate
    shape: Shape
    seconds: float
    """Of the processor."""
    more: bool = False
    """Whether the fit was ended at this time."""

    @property
    def name(self) -> str:
        """The candidate in words, without the scaling, which is the same for all."""
        return self.candidate.name.removesuffix(" (standard)")

    @property
    def formula(self) -> float:
        """The seconds by the formula."""
        return seconds(self.candidate, self.shape)

    @property
    def ratio(self) -> float:
        """The seconds by the formula, as a multiple of those measured."""
        return self.formula / self.seconds


def read(path: Path) -> list[Cost]:
    """Return the rows that were kept."""
    rows = []
    for line in path.read_text().splitlines() if path.is_file() else ():
        row = json.loads(line)
        candidate = Candidate(row["learner"], tuple(row["settings"].items()), "standard")
        shape = Shape(row["rows"], row["features"], row["classes"])
        rows.append(Cost(candidate, shape, row["seconds"], row.get("more", False)))
    return rows


def keep(path: Path, cost: Cost) -> None:
    """Append a row."""
    shape = {"rows": cost.shape.rows, "features": cost.shape.features, "classes": cost.shape.num_classes}
    row: dict[str, Any] = {"learner": cost.candidate.learner, "settings": dict(cost.candidate.settings)} | shape
    row["seconds"] = float(f"{cost.seconds:.4g}")
    with path.open("a") as file:
        file.write(json.dumps(row | ({"more": True} if cost.more else {})) + "\n")


@lru_cache(maxsize=1)
def data_of(shape: Shape) -> tuple[Any, Any, int]:
    """Return features of 5/4 as many rows, standardised, in float32; noisy labels; and the number to train on.

    >>> features, labels, rows = data_of(Shape(20, 3, 2))
    >>> features.shape, labels.shape, rows
    ((25, 3), (25,), 20)
    """
    rng = np.random.default_rng(0)
    count = shape.rows + shape.rows // 4
    latents = min(shape.features, LATENTS)
    means = 2.5 / math.sqrt(2) * rng.standard_normal((shape.num_classes, latents)) / math.sqrt(min(latents, 10))
    labels = rng.integers(shape.num_classes, size=count)
    hidden = (means * (np.arange(latents) < 10))[labels] + rng.standard_normal((count, latents))
    hidden *= np.arange(1, latents + 1) ** -0.5
    mixing = rng.standard_normal((latents, shape.features))
    features = rng.standard_normal((count, shape.features), dtype=np.float32)
    for rows in np.array_split(np.arange(count), max(1, count // 5000)):
        features[rows] += (hidden[rows] @ mixing).astype(np.float32)
    features -= features.mean(0)
    features /= features.std(0)
    wrong = rng.random(count) < NOISE
    labels[wrong] = (labels[wrong] + rng.integers(1, shape.num_classes, size=int(wrong.sum()))) % shape.num_classes
    return features, labels, shape.rows


def fit_and_predict(candidate: Candidate, shape: Shape) -> float:
    """Fit a candidate, predict, and return the processor seconds. Short runs are repeated, and give their mean."""
    features, labels, rows = data_of(shape)
    run = network_run if candidate.learner in STACKS else classical_run
    times: list[float] = []
    while not times or (sum(times) < SHORT and len(times) < 100):
        times.append(run(candidate, shape, features, labels, rows))
    return max(statistics.fmean(times), 1e-5)


def classical_run(candidate: Candidate, shape: Shape, features: Any, labels: Any, rows: int) -> float:
    """Return the seconds of a learner other than a network."""
    learner = CLASSICAL[candidate.learner]
    estimator = learner.type(**learner.options(candidate, 1 / shape.features, 0))
    start = time.process_time()
    estimator.fit(features[:rows], labels[:rows])
    probabilities(estimator, features[rows:], shape.num_classes)
    return time.process_time() - start


def network_run(candidate: Candidate, shape: Shape, features: Any, labels: Any, rows: int) -> float:
    """Return the seconds of one network in a stack."""
    schedule = NetworkSchedule.of(rows)
    members = [NetworkMember("gce", 1e-3, torch.arange(rows), fold) for fold in range(FOLDS)]
    inputs, given = torch.from_numpy(features), torch.from_numpy(labels)
    stack = STACKS[candidate.learner]
    networks = Networks(inputs, given, torch.ones(len(labels)), shape.num_classes, members, schedule, 0, stack)
    epochs = min(EPOCHS, schedule.epochs)
    start = time.process_time()
    for _ in range(epochs):
        networks.train_epoch()
    trained = time.process_time()
    networks.scores([torch.arange(rows, len(labels))] * FOLDS)
    return ((trained - start) * schedule.epochs / epochs + time.process_time() - trained) / FOLDS


def _in_child(candidate: Candidate, shape: Shape, most: float, sender: Any) -> None:
    spent = time.process_time()
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(spent + 2 * most), math.ceil(spent + 2 * most) + 5))
    warnings.simplefilter("ignore")
    sender.send(fit_and_predict(candidate, shape))


def measured(candidate: Candidate, shape: Shape, most: float) -> Cost:
    """Return the cost of a candidate, measured in a child process that the system ends after twice ``most`` seconds."""
    data_of(shape)  # the child inherits it
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_in_child, args=(candidate, shape, most, sender))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads, which are idle here
        child.start()
    sender.close()
    try:
        found = receiver.recv()
    except EOFError:  # ended
        found = None
    child.join()
    return Cost(candidate, shape, 2 * most, more=True) if found is None else Cost(candidate, shape, found)


def expected(candidate: Candidate, shape: Shape, known: Iterable[Cost]) -> float:
    """Return the seconds by the formula, or those measured on fewer rows, features and classes if they were more.

    >>> knn = Candidate("k-nn", (("neighbours", 15.0),), "standard")
    >>> expected(knn, Shape(2000, 10, 2), [Cost(knn, Shape(1000, 10, 2), 4.0)])
    4.0
    """
    smaller = (
        one.seconds
        for one in known
        if one.candidate == candidate
        and one.shape.rows <= shape.rows
        and one.shape.features <= shape.features
        and one.shape.num_classes <= shape.num_classes
    )
    return max(seconds(candidate, shape), *smaller, 0.0)


def shapes(rows: Sequence[int], features: Sequence[int], classes: Sequence[int]) -> list[Shape]:
    """Return all combinations, the smallest first."""
    every = [Shape(n, d, k) for n in rows for d in features for k in classes]
    return sorted(every, key=lambda s: s.rows * s.features * math.sqrt(s.num_classes))


def candidates(learners: Iterable[str]) -> list[Candidate]:
    """Return what is measured."""
    return [Candidate(name, settings, "standard") for name in learners for settings in SETTINGS[name]]


def measure_all(path: Path, tried: Sequence[Candidate], every: Sequence[Shape], most: float, budget: float) -> None:
    """Measure what is missing, and keep it."""
    known = {(cost.candidate, cost.shape): cost for cost in read(path)}
    started = time.process_time()
    for shape in every:
        for candidate in tried:
            kept = known.get((candidate, shape))
            if kept is not None and not (kept.more and kept.seconds < 2 * most):
                continue
            if expected(candidate, shape, known.values()) > most:
                continue
            children = resource.getrusage(resource.RUSAGE_CHILDREN)
            if time.process_time() - started + children.ru_utime + children.ru_stime > budget:
                return
            cost = measured(candidate, shape, most)
            known[candidate, shape] = cost
            keep(path, cost)
            print(f"{candidate.name} {shape}: {cost.seconds:.3g} s", file=sys.stderr, flush=True)


def costs(path: Path) -> list[Cost]:
    """Return the rows that were kept, each candidate and shape once, in the order of the tables."""
    found = {(cost.candidate, cost.shape): cost for cost in read(path)}
    place = {one: number for number, one in enumerate(candidates(SETTINGS))}
    return sorted(
        found.values(), key=lambda c: (place[c.candidate], c.shape.features, c.shape.rows, c.shape.num_classes)
    )


def is_right(cost: Cost) -> bool:
    """Whether the formula is right within a factor of two."""
    return cost.ratio > 0.5 and (cost.more or cost.ratio < 2)


def summary(found: Sequence[Cost]) -> Iterator[tuple[object, ...]]:
    """Yield a line for each candidate: shapes, share within a factor of two, and the ratios."""
    groups: dict[str, list[Cost]] = {}
    for cost in found:
        groups.setdefault(cost.name, []).append(cost)
    for name, group in (groups | {"all": list(found)}).items():
        ratios = [cost.ratio for cost in group if not cost.more] or [math.nan]
        share = statistics.fmean(is_right(cost) for cost in group)
        ends = np.quantile(ratios, (0, 0.05, 0.5, 0.95, 1))
        yield name, len(group), f"{100 * share:.0f} %", *(f"{end:.2f}" for end in ends)


def lines(found: Sequence[Cost], rows: Sequence[int]) -> Iterator[tuple[object, ...]]:
    """Yield a line for each candidate and number of features: the seconds, and the ratio, by the number of rows."""
    for name, features in dict.fromkeys((cost.name, cost.shape.features) for cost in found):
        same = {cost.shape.rows: cost for cost in found if (cost.name, cost.shape.features) == (name, features)}
        yield name, f"{features:,}", *(_cell(same[n]) if n in same else "" for n in rows)


def _cell(cost: Cost) -> str:
    return f"{'> ' if cost.more else ''}{cost.seconds:.2g} ({cost.ratio:.2f})"


def print_tables(found: Sequence[Cost]) -> None:
    """Print the summary, and a table for each number of classes."""
    head = ("candidate", "shapes", "within a factor of two", "least ratio", "5 %", "median", "95 %", "largest")
    measure.print_table(head, summary(found))
    rows = sorted({cost.shape.rows for cost in found})
    for classes in sorted({cost.shape.num_classes for cost in found}):
        print(f"\n{classes} classes: seconds (ratio) by the number of rows\n")
        some = [cost for cost in found if cost.shape.num_classes == classes]
        measure.print_table(("candidate", "features", *(f"{n:,} rows" for n in rows)), lines(some, rows))


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--learners", nargs="+", choices=list(SETTINGS), default=list(SETTINGS), metavar="NAME")
    parser.add_argument("--rows", type=int, nargs="+", default=ROWS, metavar="N")
    parser.add_argument("--features", type=int, nargs="+", default=FEATURES, metavar="D")
    parser.add_argument("--classes", type=int, nargs="+", default=CLASSES, metavar="K")
    parser.add_argument("--most", type=float, default=60, metavar="SECONDS", help="of one fit (default: 60)")
    parser.add_argument("--budget", type=float, default=math.inf, metavar="SECONDS", help="of the processor, in all")
    parser.add_argument("--rows-file", type=Path, default=KEPT, metavar="FILE", help="rows that are kept")
    parser.add_argument("--show", action="store_true", help="measure nothing")
    given = parser.parse_args()
    measure.print_environment("numpy", "scipy", "scikit-learn")
    if not given.show:
        tried, every = candidates(given.learners), shapes(given.rows, given.features, given.classes)
        with threadpool_limits(1), one_thread():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                for candidate in tried:
                    fit_and_predict(candidate, WARM)
            measure_all(given.rows_file, tried, every, given.most, given.budget)
    print_tables(costs(given.rows_file))


if __name__ == "__main__":
    main()
