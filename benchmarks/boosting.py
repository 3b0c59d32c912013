"""Gradient boosting on wrong labels: the libraries' own loss against losses of symloss.

    python benchmarks/boosting.py                  # accuracy on clean test labels (about a minute)
    python benchmarks/boosting.py --max-depth 3    # shallow trees (about a minute)
    python benchmarks/boosting.py --hessian        # how often the exact Hessian is negative (seconds)
    python benchmarks/boosting.py --time           # what a fit costs, against the libraries' own loss (3 minutes)

Digits, 70 % of the rows to train on. Every parameter that is not an option here has the library's default, for both
sides. One thread. The tables are Markdown.
"""

from __future__ import annotations

import argparse
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import lightgbm
import measure
import numpy as np
import torch
import xgboost
from sklearn.datasets import load_digits, make_classification  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
from torch.autograd import grad

from symloss import create_loss
from symloss.adapters.boosting import RobustLGBMClassifier, RobustXGBClassifier
from symloss.noise import corrupt

LOSSES = ("ce", "gce:q=0.7", "mae", "sgce", "nce+rce", "anl-ce")
SIZES = ((1257, 64, 10), (20_000, 50, 10), (20_000, 50, 2))
REPEATS = 5
TIMED, TIMED_ROUNDS = (None, "ce", "gce:q=0.7", "sgce"), 20


class Library(NamedTuple):
    """A library: its own estimator, ours, quiet options, and how to predict after some rounds."""

    name: str
    built_in: type
    robust: type
    quiet: dict[str, Any]
    after: Callable[[int], dict[str, Any]]

    def make(self, loss: str | None, **options: Any) -> Any:
        """Return an estimator with a loss; None for the library's own."""
        options |= self.quiet | {"n_jobs": 1}
        return self.built_in(**options) if loss is None else self.robust(loss=loss, **options)


LIBRARIES = (
    Library(
        f"XGBoost {xgboost.__version__}",
        xgboost.XGBClassifier,
        RobustXGBClassifier,
        {"verbosity": 0},
        lambda rounds: {"iteration_range": (0, rounds)},
    ),
    Library(
        f"LightGBM {lightgbm.__version__}",
        lightgbm.LGBMClassifier,
        RobustLGBMClassifier,
        {"verbosity": -1},
        lambda rounds: {"num_iteration": rounds},
    ),
)


class Draw(NamedTuple):
    """Digits, with wrong labels to train on and true ones to test on."""

    features: Any
    labels: Any
    test: Any
    known: Any


def draw(noise: str, seed: int) -> Draw:
    features, true = load_digits(return_X_y=True)
    x, test, y, known = train_test_split(features, true, test_size=0.3, random_state=seed, stratify=true)
    return Draw(x, corrupt(y, noise, num_classes=10, seed=seed, dataset="digits").labels, test, known)


def accuracies(library: Library, loss: str | None, data: Draw, rounds: Sequence[int], depth: int | None) -> list[float]:
    """On true labels, after each number of rounds. Later rounds do not change earlier trees, so one fit is enough."""
    options = {} if depth is None else {"max_depth": depth}
    model = library.make(loss, n_estimators=max(rounds), **options).fit(data.features, data.labels)
    return [float(np.mean(model.predict(data.test, **library.after(each)) == data.known)) for each in rounds]


def print_accuracies(given: argparse.Namespace) -> None:
    draws = [draw(given.noise, seed) for seed in range(given.seeds)]
    print(f"Noise {given.noise}, {given.seeds} seeds, depth {given.max_depth or 'as the library has it'}. Clean test")
    print("accuracy, mean ± standard deviation; in brackets, in how many seeds it is above the library's own loss.\n")
    print(measure.header("loss", *(f"{lib.name}, {r} rounds" for lib in LIBRARIES for r in given.rounds)), flush=True)
    own: dict[str, Any] = {}
    for loss in (None, *given.losses):
        cells = []
        for library in LIBRARIES:
            found = np.array([accuracies(library, loss, each, given.rounds, given.max_depth) for each in draws])
            better = (found > own.setdefault(library.name, found)).sum(0)
            for column, wins in zip(found.T, better, strict=True):
                cells.append(measure.spread(100 * column, 1) + ("" if loss is None else f" ({wins})"))
        print(measure.row(loss or "built-in", *cells), flush=True)


def print_negative_hessians(given: argparse.Namespace) -> None:
    data = draw(given.noise, seed=0)
    labels = torch.from_numpy(data.labels)
    print("Negative entries on the diagonal of the exact Hessian, at the scores of XGBoost after 40 rounds.\n")
    print(measure.header("loss", "share"))
    for loss in given.losses:
        model = LIBRARIES[0].make(loss, n_estimators=40).fit(data.features, data.labels)
        scores = torch.from_numpy(model.model_.predict(data.features, output_margin=True)).double().requires_grad_()
        value = create_loss(loss, reduction="sum", normalize=None)(scores, labels)
        (gradient,) = grad(value, scores, create_graph=True)
        # Examples do not touch each other, so the sum over rows gives the diagonal of all of them, class by class.
        rows = [
            torch.autograd.grad(each.sum(), scores, retain_graph=True)[0][:, k] for k, each in enumerate(gradient.T)
        ]
        print(measure.row(loss, f"{(torch.stack(rows) < 0).double().mean():.1%}"), flush=True)


def processor_time(run: Callable[[], object]) -> measure.Timing:
    """Seconds of the processor, which other processes on the machine hardly change."""
    start = time.process_time()
    run()
    return measure.Timing(time.process_time() - start, 0)


def print_times() -> None:
    print(f"Seconds of one thread for {TIMED_ROUNDS} rounds, medians of {REPEATS} turns.\n")
    names = [loss or "built-in" for loss in TIMED]
    print(measure.header("library", "rows x features, classes", *names, "ratios", left=2), flush=True)
    for library in LIBRARIES:
        for rows, features, classes in SIZES:
            x, y = make_classification(rows, features, n_informative=10, n_classes=classes, random_state=0)
            models = {str(loss): library.make(loss, n_estimators=TIMED_ROUNDS) for loss in TIMED}
            runs = {loss: functools.partial(model.fit, x, y) for loss, model in models.items()}
            measured = measure.interleaved(runs, REPEATS, clock=processor_time)
            seconds = [f"{each:.2f}" for each in measured["seconds"].values()]
            ratios = ", ".join(f"{each:.2f}" for each in list(measured["ratios"].values())[1:])
            size = f"{rows:,} x {features}, {classes}"
            print(measure.row(library.name, size, *seconds, ratios), flush=True)


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--noise", default="sym:0.4", help="a noise of symloss, or clean")
    parser.add_argument("--seeds", type=int, default=5, help="draws of split and noise")
    parser.add_argument("--rounds", type=int, nargs="+", default=(40, 150), help="boosting rounds")
    parser.add_argument("--max-depth", type=int, help="of the trees; the library's default if left out")
    parser.add_argument("--losses", nargs="+", default=LOSSES, help="specs of losses")
    parser.add_argument("--hessian", action="store_true", help="count negative entries of the exact Hessian instead")
    parser.add_argument("--time", action="store_true", help="time fits instead")
    given = parser.parse_args()
    measure.print_environment("scikit-learn")
    if given.time:
        print_times()
    elif given.hessian:
        print_negative_hessians(given)
    else:
        print_accuracies(given)


if __name__ == "__main__":
    main()
