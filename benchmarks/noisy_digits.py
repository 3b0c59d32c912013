"""A perceptron on digits with wrong labels, in plain torch: the loop that plain_loop.py and several_labels.py share."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from symloss.training.best_epoch import reach_of, smoothed

Part = tuple[Tensor, Tensor]
Optimizer = Callable[[Iterable[Tensor]], torch.optim.Optimizer]


def split_digits(seed: int) -> tuple[Part, Part]:
    """Pixels and true labels: 1,437 digits to train on, and 360 to test on."""
    pixels, labels = load_digits(return_X_y=True)
    x, x_test, y, y_test = train_test_split(pixels / 16, labels, test_size=360, stratify=labels, random_state=seed)
    x, x_test = (torch.tensor(part, dtype=torch.float32) for part in (x, x_test))
    return (x, torch.tensor(y)), (x_test, torch.tensor(y_test))


def last_and_chosen(
    rows: Part,
    test: Part,
    *,
    outputs: int,
    optimizer: Optimizer,
    criterion: Callable[[Tensor, Tensor], Tensor],
    predict: Callable[[Tensor], Tensor],
    epochs: int,
) -> tuple[float, float]:
    """The share of right labels on test rows, in per cent: of the last epoch, and of the one that noisy labels choose.

    A tenth of the rows is held out. The epoch is that with the most right labels there, smoothed over five epochs.

    Args:
        rows: features and noisy labels.
        test: features and true labels.
        outputs: the number of scores.
        optimizer: makes one for weights.
        criterion: the loss of scores and labels.
        predict: turns scores into labels.
        epochs: how often the rows are learnt.
    """
    x, y = rows
    order = torch.randperm(len(y))
    held, train = order[: len(y) // 10], order[len(y) // 10 :]
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, outputs))
    stepper = optimizer(model.parameters())
    noisy, clean = {}, {}
    for epoch in range(1, epochs + 1):
        for batch in train[torch.randperm(len(train))].split(64):
            stepper.zero_grad()
            criterion(model(x[batch]), y[batch]).backward()
            stepper.step()
        with torch.no_grad():
            noisy[epoch] = _right(predict(model(x[held])), y[held])
            clean[epoch] = _right(predict(model(test[0])), test[1])
    chosen = max(noisy, key=lambda epoch: smoothed(noisy, epoch, reach_of(epoch, epochs)))
    return clean[epochs], clean[chosen]


def _right(predicted: Tensor, labels: Tensor) -> float:
    return 100 * float((predicted == labels).float().mean())
