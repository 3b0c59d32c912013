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
from collections.abc import Callable, Iterable

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

import symloss
from symloss.noise import corrupt
from symloss.runs.smoothed_accuracy import reach_of, smoothed

LOSSES = (
    "ce",
    "gce:q=0.7",
    "gce:q=0.7,scale=ce",
    "sgce:q=0.8",
    "sgce:q=0.8,scale=ce",
    "alpha-mae:alpha=2",
)
NOISE = ("clean", "sym:0.6", "pair:0.3")
SETUPS: dict[str, tuple[Callable[[Iterable[Tensor]], torch.optim.Optimizer], int]] = {
    "sgd-0.01-10": (lambda weights: torch.optim.SGD(weights, lr=0.01, momentum=0.9), 10),
    "sgd-0.1-30": (lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9), 30),
    "adam-0.001-10": (lambda weights: torch.optim.Adam(weights, lr=0.001), 10),
    "adam-0.001-30": (lambda weights: torch.optim.Adam(weights, lr=0.001), 30),
}


def accuracies(spec: str, noise: str, seed: int, setup: str) -> tuple[float, float]:
    """Clean test accuracy in per cent: of the last epoch, and of the one that held-out noisy labels choose."""
    torch.manual_seed(seed)
    pixels, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(pixels / 16, labels, test_size=360, stratify=labels, random_state=seed)
    y = corrupt(y, noise, classes=10, seed=seed).labels
    x, x_test = (torch.tensor(part, dtype=torch.float32) for part in (x, x_test))
    y, y_test = torch.tensor(y), torch.tensor(y_test)
    order = torch.randperm(len(y))
    held, train = order[: len(y) // 10], order[len(y) // 10 :]

    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    make, epochs = SETUPS[setup]
    optimizer, loss = make(model.parameters()), symloss.create_loss(spec)
    noisy, clean = {}, {}
    for epoch in range(1, epochs + 1):
        for batch in train[torch.randperm(len(train))].split(64):
            optimizer.zero_grad()
            loss(model(x[batch]), y[batch]).backward()
            optimizer.step()
        noisy[epoch] = _accuracy(model, x[held], y[held])
        clean[epoch] = _accuracy(model, x_test, y_test)
    chosen = max(noisy, key=lambda epoch: smoothed(noisy, epoch, reach_of(epoch, epochs)))
    return clean[epochs], clean[chosen]


def _accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    with torch.no_grad():
        return 100 * float((model(x).argmax(1) == y).float().mean())


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
