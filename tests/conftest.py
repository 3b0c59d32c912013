"""What several test files share: quiet small inputs, and the value and gradient of a loss."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import symloss
from symloss.certificates import Certificate
from symloss.losses.catalogue import RECORDS

LOSSES = symloss.list_losses()
CLASSES = 4

every_loss = pytest.mark.parametrize("name", LOSSES)
"""Marks a test that must hold for each loss of the catalogue."""

# The tensors of the tests are tiny: threads only cost, and xdist has a process for each core.
torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Weights of models are the same in every run, in any order of tests."""
    torch.manual_seed(0)


@functools.cache
def certified(name: str, classes: int) -> Certificate:
    """The certificate of a loss at its defaults. Several tests read it, and it takes half a second."""
    return symloss.certify(RECORDS[name].loss(), classes)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def random_scores(*shape: int, seed: int = 0, spread: float = 1.5) -> Tensor:
    """Scores in float64 at which no loss is extreme."""
    return spread * torch.randn(*shape, dtype=torch.float64, generator=generator(seed))


def random_labels(*shape: int, classes: int = CLASSES, seed: int = 1) -> Tensor:
    return torch.randint(classes, shape, generator=generator(seed))


def random_probabilities(*shape: int, dim: int = 1, seed: int = 2) -> Tensor:
    return random_scores(*shape, seed=seed).softmax(dim)


def value_and_grad(
    loss: Callable[..., Tensor], scores: Tensor, *args: Tensor, **options: object
) -> tuple[Tensor, Tensor]:
    """The loss, and the gradient of its entries weighed 1, 2, 3, ... (so that none can hide behind another)."""
    leaf = scores.detach().requires_grad_()
    value = loss(leaf, *args, **options)
    weights = torch.arange(1, value.numel() + 1, dtype=value.dtype).reshape(value.shape)
    (gradient,) = torch.autograd.grad((weights * value).sum(), leaf)
    return value.detach(), gradient


def assert_close(actual: object, expected: object, tolerance: float = 1e-12, *, equal_nan: bool = False) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance, equal_nan=equal_nan)
