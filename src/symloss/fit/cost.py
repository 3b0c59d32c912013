"""What candidates cost: seconds of one core for a fit, with predictions for a quarter as many rows.

These are formulas, not measurements: the same data and budget must always give the same candidates. They were fitted to
times of 100 to 100,000 rows with 10 to 5,000 features, and most are right within a factor of two, see
docs/results/fit-cost.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from symloss.fit.learners import Candidate, Shape
from symloss.fit.networks import NetworkSchedule

HALVED = 0.45
"""The share of its epochs that a network sees on average, where the worse half is given up twice."""


def seconds(candidate: Candidate, shape: Shape) -> float:
    """Return what one fit of a candidate costs; of a network, one training of a stacked one to the end."""
    return _SECONDS[candidate.learner](candidate, shape)


def _unhinged(c: Candidate, s: Shape) -> float:
    return 5e-4 + s.rows * (6e-8 + s.features * (4.5e-10 + 1.2e-11 * s.num_classes))


def _logistic(c: Candidate, s: Shape) -> float:
    products = s.features * (2.8e-10 * s.rows + (1.7e-10 * s.rows + 1e-7) * (s.num_classes - 1))
    # Fewer where the features separate the classes.
    iterations = (c["C"] * s.rows) ** (1 / 6) * s.features**0.4 / math.sqrt(1 + c["C"] * s.features / s.rows)
    return float(1.5e-3 + 5e-5 * s.num_classes + 9e-8 * s.rows * (s.num_classes - 1) + iterations * products)


def _lda(c: Candidate, s: Shape) -> float:
    squares = s.features**2 * (1.6e-10 * s.features + 4e-9 * s.num_classes + 2.5e-11 * s.rows)
    return 1e-3 + 5.5e-4 * s.num_classes + 1.8e-8 * s.rows * s.features + squares


def _kernel_unhinged(c: Candidate, s: Shape) -> float:
    return 1e-3 + s.rows**2 * (5e-9 + 5e-11 * (s.features + s.num_classes))


def _k_nn(c: Candidate, s: Shape) -> float:
    if s.features <= 15:  # k-d trees
        return 1e-3 + 1.4e-7 * s.rows * math.sqrt(s.rows)
    return 1e-3 + s.rows**2 * (3e-10 + 1e-11 * s.features)


def _svc(c: Candidate, s: Shape) -> float:
    pairs = 1.1e-6 * s.num_classes * (s.num_classes + s.rows)
    return 5e-4 + pairs + s.rows**2 * (1e-8 + 2.6e-10 * s.features + 5e-9 * math.sqrt(c["C"]))


def _forest(c: Candidate, s: Shape) -> float:
    depth = max(1.0, math.log2(s.rows / (2 * c["leaf"])))
    tried = (c.get("share") or s.features**-0.5) * s.features
    return 0.05 + s.rows * depth * (6e-6 + tried * (3.2e-6 + 8e-8 * s.num_classes))


def _boosting(c: Candidate, s: Shape) -> float:
    trees = s.num_classes if s.num_classes > 2 else 1
    leaves = min(2 ** (c.get("depth") or math.log2(31)), s.rows / 32)
    grown = leaves * (1.2e-3 + 8e-5 * s.features) + s.rows * (1e-6 + 1.1e-7 * s.features)
    return 8e-3 + 1.5e-7 * s.rows * s.features + trees * grown


def _boosting_of_others(c: Candidate, s: Shape) -> float:
    return 0.1 + c["rounds"] * s.num_classes * (5e-4 + 5e-9 * s.rows * s.features)


def _perceptron(c: Candidate, s: Shape) -> float:
    batch = NetworkSchedule.of(s.rows).batch
    products = batch * (6.5e-9 * s.features + 1.1e-8 * s.num_classes)
    return _steps(s) * (9e-5 + 3.5e-6 * batch + 1.1e-6 * s.features + products)


def _linear(c: Candidate, s: Shape) -> float:
    batch = NetworkSchedule.of(s.rows).batch
    return _steps(s) * (1e-4 + s.features * (4e-8 + 1.5e-9 * s.num_classes + batch * (1.8e-9 + 3e-11 * s.num_classes)))


def _steps(shape: Shape) -> int:
    schedule = NetworkSchedule.of(shape.rows)
    return schedule.epochs * max(1, shape.rows // schedule.batch)


_SECONDS: dict[str, Callable[[Candidate, Shape], float]] = {
    "unhinged": _unhinged,
    "logistic": _logistic,
    "lda": _lda,
    "kernel-unhinged": _kernel_unhinged,
    "k-nn": _k_nn,
    "svc": _svc,
    "forest": _forest,
    "boosting": _boosting,
    "xgboost": _boosting_of_others,
    "lightgbm": _boosting_of_others,
    "network": _perceptron,
    "linear": _linear,
}
