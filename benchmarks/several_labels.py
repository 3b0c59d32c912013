"""Yes-or-no labels of which some are wrong: python benchmarks/several_labels.py

The labels of a digit of scikit-learn's are either which of the segments of a seven-segment display show it (seven, most
of them on), or whether it is even (one, balanced). Each is flipped with the same probability. A perceptron with 256
hidden units learns them with Adam (batches of 64, no weight decay), by each margin loss: for 30 epochs with a learning
rate of 0.001, or too long, for 100 with 0.003. A tenth of the noisy digits is held out. The first figure is the share
of right labels on 360 clean test digits after the last epoch, the second that of the epoch with the most right labels
among those held out, smoothed over five epochs. ``--tasks``, ``--setups``, ``--flips`` and ``--seeds`` take other
values.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from symloss.runs.result import Spread
from symloss.runs.smoothed_accuracy import reach_of, smoothed
from symloss.theory.binary import MarginCriterion

LOSSES = ("logistic", "savage", "sigmoid", "ramp", "unhinged")
SEGMENTS = ("abcdef", "bc", "abged", "abgcd", "fgbc", "afgcd", "afgedc", "abc", "abcdefg", "abcdfg")
"""Which of the segments a to g each digit lights up."""
LIT = torch.tensor([[letter in segments for letter in "abcdefg"] for segments in SEGMENTS])
TASKS: dict[str, Callable[[Tensor], Tensor]] = {
    "segments": lambda digits: LIT[digits],
    "even": lambda digits: (digits % 2 == 0)[:, None],
}
"""The labels of digits, shape (N, labels)."""
SETUPS = {"short": (0.001, 30), "long": (0.003, 100)}
"""Learning rate and epochs."""


def right_labels(task: str, setup: str, loss: str, flips: float, seed: int) -> tuple[float, float]:
    """The share of right labels in per cent: after the last epoch, and at the epoch that noisy labels choose."""
    torch.manual_seed(seed)
    pixels, digits = load_digits(return_X_y=True)
    parts = train_test_split(pixels / 16, digits, test_size=360, stratify=digits, random_state=seed)
    x, x_test = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    y, y_test = (TASKS[task](torch.tensor(part)) for part in parts[2:])
    y = y ^ (torch.rand(y.shape) < flips)
    order = torch.randperm(len(y))
    held, train = order[: len(y) // 10], order[len(y) // 10 :]

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, y.shape[1]))
    rate, epochs = SETUPS[setup]
    optimizer, criterion = torch.optim.Adam(model.parameters(), lr=rate), MarginCriterion(loss)
    noisy, clean = {}, {}
    for epoch in range(1, epochs + 1):
        for batch in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            criterion(model(x[batch]), y[batch]).backward()
            optimizer.step()
        noisy[epoch] = _right(model, x[held], y[held])
        clean[epoch] = _right(model, x_test, y_test)
    chosen = max(noisy, key=lambda epoch: smoothed(noisy, epoch, reach_of(epoch, epochs)))
    return clean[epochs], clean[chosen]


def _right(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return 100 * float(((model(x) > 0) == y).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--flips", nargs="+", type=float, default=[0.0, 0.2, 0.4])
    parser.add_argument("--seeds", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for task in chosen.tasks:
        for setup in chosen.setups:
            print(f"\n{task}, {setup}: last epoch / epoch chosen by noisy labels, {chosen.seeds} seeds\n")
            print("| loss | " + " | ".join(f"{100 * share:g} % flipped" for share in chosen.flips) + " |")
            print("|---" + "|---:" * len(chosen.flips) + "|")
            for loss in LOSSES:
                runs = [
                    [right_labels(task, setup, loss, share, seed) for seed in range(chosen.seeds)]
                    for share in chosen.flips
                ]
                cells = (
                    " / ".join(Spread.of(column).rounded(1) for column in zip(*seeds, strict=True)) for seeds in runs
                )
                print(f"| {loss} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
