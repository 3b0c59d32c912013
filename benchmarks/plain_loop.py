"""A loss in a training loop that was written for cross-entropy: python plain_loop.py

The loop is plain torch: a perceptron with 256 hidden units on the digits of scikit-learn, batches of 64, no weight
decay, no schedule. A setup is an optimizer, its learning rate and a number of epochs, as somebody has chosen them for
cross-entropy. Only the loss changes. The seed draws 360 test digits, the noise, the weights and the order. A tenth of
the noisy digits is held out. The first figure is the accuracy on clean test digits after the last epoch. The second is
that of the epoch with the highest accuracy on the held-out noisy labels, smoothed over five epochs.
``--losses``, ``--setups``, ``--noise`` and ``--seeds`` take other values.
"""

from __future__ import annotations

import argparse
import statistics

import torch
from noisy_digits import Optimizer, last_and_chosen, split_digits

import symloss
from symloss.noise import corrupt

LOSSES = (
    "ce",
    "gce:q=0.7",
    "gce:q=0.7,scale=ce",
    "sgce:q=0.8",
    "sgce:q=0.8,scale=ce",
    "alpha-mae:alpha=2",
)
NOISE = ("clean", "sym:0.6", "pair:0.3")
SETUPS: dict[str, tuple[Optimizer, int]] = {
    "sgd-0.01-10": (lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9), 10),
    "sgd-0.1-30": (lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9), 30),
    "adam-0.001-10": (lambda weights: torch.optim.Adam(weights, lr=0.001), 10),
    "adam-0.001-30": (lambda weights: torch.optim.Adam(weights, lr=0.001), 30),
}


def accuracies(spec: str, noise: str, seed: int, setup: str) -> tuple[float, float]:
    """Clean test accuracy in per cent: of the last epoch, and of the one that held-out noisy labels choose."""
    torch.manual_seed(seed)
    (x, y), test = split_digits(seed)
    noisy = torch.tensor(corrupt(y.numpy(), noise, num_classes=10, seed=seed).labels)
    optimizer, epochs = SETUPS[setup]
    return last_and_chosen(
        (x, noisy),
        test,
        outputs=10,
        optimizer=optimizer,
        criterion=symloss.create_loss(spec),
        predict=lambda scores: scores.argmax(1),
        epochs=epochs,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--losses", nargs="+", default=LOSSES)
    parser.add_argument("--setups", nargs="+", choices=SETUPS, default=list(SETUPS))
    parser.add_argument("--noise", nargs="+", default=NOISE)
    parser.add_argument("--seeds", type=int, default=5)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for noise in chosen.noise:
        print(
            f"\n{noise}: last epoch / epoch chosen by noisy labels, mean ± standard deviation of {chosen.seeds} seeds\n"
        )
        print("| loss | " + " | ".join(chosen.setups) + " |")
        print("|---" + "|---:" * len(chosen.setups) + "|")
        for spec in chosen.losses:
            print(
                f"| {spec} | " + " | ".join(_cell(spec, noise, setup, chosen.seeds) for setup in chosen.setups) + " |",
                flush=True,
            )


def _cell(spec: str, noise: str, setup: str, seeds: int) -> str:
    runs = [accuracies(spec, noise, seed, setup) for seed in range(seeds)]
    return " / ".join(_mean(column) for column in zip(*runs, strict=True))


def _mean(values: tuple[float, ...]) -> str:
    spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{spread}"


if __name__ == "__main__":
    main()
