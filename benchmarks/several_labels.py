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
from noisy_digits import last_and_chosen, split_digits
from torch import Tensor

from symloss.theory.binary import MarginCriterion
from symloss.training.results import Spread

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
    (x, digits), (x_test, digits_test) = split_digits(seed)
    labels = TASKS[task](digits)
    noisy = labels ^ (torch.rand(labels.shape) < flips)
    rate, epochs = SETUPS[setup]
    return last_and_chosen(
        (x, noisy),
        (x_test, TASKS[task](digits_test)),
        outputs=labels.shape[1],
        optimizer=lambda weights: torch.optim.Adam(weights, lr=rate),
        criterion=MarginCriterion(loss),
        predict=lambda scores: scores > 0,
        epochs=epochs,
    )


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
