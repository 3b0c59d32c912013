"""Train a perceptron on digits with noisy labels in plain torch, as a loop written for cross-entropy does.

    python benchmarks/plain_loop.py classes    # the ten classes, with losses of symloss in place of cross-entropy
    python benchmarks/plain_loop.py labels     # yes-or-no labels, with margin losses

The network has 256 hidden units. Batches of 64, no weight decay, no schedule. The seed draws 360 test digits, the
noise, the weights and the order. A tenth of the noisy digits is held out. The first figure is the share of right labels
on clean test digits after the last epoch. The second is that of the epoch with the most right labels among those held
out, smoothed over five epochs.

classes: a setup is an optimizer, its learning rate and a number of epochs, as somebody has chosen them for
cross-entropy. Only the loss changes.

labels: a digit's labels are either which segments of a seven-segment display show it (seven, most of them on), or
whether it is even (one, balanced). Each is flipped with the same probability. Adam trains for 30 epochs with a learning
rate of 0.001, or too long, for 100 with 0.003.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import measure
import torch
from sklearn.datasets import load_digits  # type: ignore[import-untyped]
from sklearn.model_selection import train_test_split  # type: ignore[import-untyped]
from torch import Tensor, nn

import symloss
from symloss.noise import corrupt
from symloss.theory.binary import MarginCriterion
from symloss.training.best_epoch import reach_of, smoothed

LOSSES = ("ce", "gce:q=0.7", "gce:q=0.7,scale=ce", "sgce:q=0.8", "sgce:q=0.8,scale=ce", "alpha-mae:alpha=2")
NOISES = ("clean", "sym:0.6", "pair:0.3")
Optimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]
SETUPS: dict[str, tuple[Optimizer, int]] = {
    "sgd-0.01-10": (lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9), 10),
    "sgd-0.1-30": (lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9), 30),
    "adam-0.001-10": (lambda weights: torch.optim.Adam(weights, lr=0.001), 10),
    "adam-0.001-30": (lambda weights: torch.optim.Adam(weights, lr=0.001), 30),
}
"""Optimizers and numbers of epochs."""

MARGIN_LOSSES = ("logistic", "savage", "sigmoid", "ramp", "unhinged")
SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")
"""Which of the segments a to g each digit lights up."""
LIT = torch.tensor([[letter in segments for letter in "abcdefg"] for segments in SEGMENTS])
TASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "segments": lambda digits: LIT[digits],
    "even": lambda digits: (digits % 2 == 0)[:, None],
}
"""The labels of digits, shape (N, labels)."""
BINARY_SETUPS: dict[str, tuple[Optimizer, int]] = {
    "short": (lambda weights: torch.optim.Adam(weights, lr=0.001), 30),
    "long": (lambda weights: torch.optim.Adam(weights, lr=0.003), 100),
}

Part = tuple[Tensor, Tensor]


def split_digits(seed: int) -> tuple[Part, Part]:
    """Return pixels and true labels: 1,437 digits to train on, and 360 to test on."""
    pixels, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(pixels / 16, labels, test_size=360, stratify=labels, random_state=seed)
    x, x_test = (torch.tensor(part, dtype=torch.float32) for part in (x, x_test))
    return (x, torch.tensor(y)), (x_test, torch.tensor(y_test))


def last_and_chosen(
    rows: Part,
    test: Part,
    outputs: int,
    setup: tuple[Optimizer, int],
    criterion: Callable[[Tensor, Tensor], Tensor],
    predict: Callable[[Tensor], Tensor],
) -> tuple[float, float]:
    """Return the share of right test labels, in per cent, at the last epoch and at the one that noisy labels choose.

    Args:
        rows: features and noisy labels.
        test: features and true labels.
        outputs: the number of scores.
        setup: an optimizer and the number of epochs.
        criterion: the loss of scores and labels.
        predict: turns scores into labels.
    """
    (x, y), (optimizer, epochs) = rows, setup
    order = torch.randperm(len(y))
    held, train = order[: len(y) // 10], order[len(y) // 10 :]
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, outputs))
    stepper = optimizer(model.parameters())
    noisy, clean = {}, {}
    for epoch in range(1, epochs + 1):
        for batch in torch.split(train[torch.randperm(len(train))], 64):
            stepper.zero_grad()
            criterion(model(x[batch]), y[batch]).backward()  # type: ignore[no-untyped-call]
            stepper.step()
        with torch.no_grad():
            noisy[epoch] = _right(predict(model(x[held])), y[held])
            clean[epoch] = _right(predict(model(test[0])), test[1])
    chosen = max(noisy, key=lambda epoch: smoothed(noisy, epoch, reach_of(epoch, epochs)))
    return clean[epochs], clean[chosen]


def _right(predicted: Tensor, labels: Tensor) -> float:
    return 100 * float((predicted == labels).float().mean())


def learn_classes(loss: str, setup: str, seed: int, noise: str) -> tuple[float, float]:
    """Return both accuracies on clean test digits."""
    torch.manual_seed(seed)
    (x, y), test = split_digits(seed)
    noisy = torch.tensor(corrupt(y.numpy(), noise, num_classes=10, seed=seed).labels)
    return last_and_chosen((x, noisy), test, 10, SETUPS[setup], symloss.create_loss(loss), lambda z: z.argmax(1))


def learn_labels(loss: str, flips: float, seed: int, task: str, setup: str) -> tuple[float, float]:
    """Return both shares of right yes-or-no labels on clean test digits."""
    torch.manual_seed(seed)
    (x, digits), (x_test, digits_test) = split_digits(seed)
    labels = TASKS[task](digits)
    noisy = labels ^ (torch.rand(labels.shape) < flips)
    test, count = (x_test, TASKS[task](digits_test)), labels.shape[1]
    return last_and_chosen((x, noisy), test, count, BINARY_SETUPS[setup], MarginCriterion(loss), lambda z: z > 0)


def print_figures(
    title: str,
    losses: Sequence[str],
    columns: Mapping[str, Any],
    seeds: int,
    learn: Callable[[str, Any, int], tuple[float, float]],
) -> None:
    """Print both figures of each loss in each column; ``learn`` gets a loss, the value of a column and a seed."""

    def cell(loss: str, value: Any) -> str:
        runs = [learn(loss, value, seed) for seed in range(seeds)]
        return " / ".join(measure.spread(figures, 1) for figures in zip(*runs, strict=True))

    print(f"{title}: last epoch / epoch chosen by noisy labels, mean ± standard deviation of {seeds} seeds\n")
    rows = ((loss, *(cell(loss, value) for value in columns.values())) for loss in losses)
    measure.print_table(("loss", *columns), rows)
    print()


def main() -> None:
    parser = measure.options(__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    classes = commands.add_parser("classes", help="the ten classes")
    classes.add_argument("--losses", nargs="+", default=LOSSES, metavar="SPEC", help="losses of symloss")
    classes.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    classes.add_argument("--noise", nargs="+", default=NOISES, metavar="SPEC", help="clean, sym:0.6 ...")
    labels = commands.add_parser("labels", help="yes-or-no labels")
    labels.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    labels.add_argument("--setups", nargs="+", choices=BINARY_SETUPS, default=list(BINARY_SETUPS))
    labels.add_argument("--flips", nargs="+", type=float, default=(0.0, 0.2, 0.4), help="shares of flipped labels")
    for command in (classes, labels):
        command.add_argument("--seeds", type=int, default=5, help="number of seeds (default: 5)")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.command == "classes":
        setups = {setup: setup for setup in given.setups}
        for noise in given.noise:
            print_figures(noise, given.losses, setups, given.seeds, functools.partial(learn_classes, noise=noise))
    else:
        flips = {f"{100 * share:g} % flipped": share for share in given.flips}
        for task in given.tasks:
            for setup in given.setups:
                learn = functools.partial(learn_labels, task=task, setup=setup)
                print_figures(f"{task}, {setup}", MARGIN_LOSSES, flips, given.seeds, learn)


if __name__ == "__main__":
    main()
