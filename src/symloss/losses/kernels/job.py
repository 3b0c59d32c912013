"""What a kernel gets and returns."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from symloss.losses.logits import Scores


class Job(NamedTuple):
    """A block of rows, as a kernel gets it. Dimension 1 holds the classes in every tensor."""

    z: Tensor  # the scores
    y: Tensor  # the labels, with size 1 along dimension 1; or a weight for each class, in the shape of the scores
    share: Tensor
    """What each example counts for in the gradient. Dimension 1 has size 1. It is a scalar if all examples agree."""
    out: Tensor  # the kernel writes the gradient here
    scratch: Sequence[Tensor]  # As many tensors like ``out`` as the kernel declares. The kernel may overwrite them.
    scores: Scores | None = None  # the scores again, if classes may be masked out; None if all classes are present
    norm: Tensor | None = None  # the norms of the score vectors, if they are known and no square overflows
    top: Tensor | None = None  # the largest score of each example, if it is known


class Kernel(ABC):
    """A kernel writes the gradient of a job, and returns the values with size 1 along dimension 1.

    It does not check whether classes are masked out or sums overflow. A NaN among the scores of a row becomes the value
    of that row, and every entry of its gradient.
    """

    shows_masks = False  # whether the values are not finite if a class is masked out and the job does not say so
    squares = False  # whether the kernel squares the scores
    adds = False  # whether it adds up scores of all classes, so that large ones may overflow
    scratch = 0  # how many scratch tensors it needs

    @abstractmethod
    def __call__(self, job: Job) -> Tensor: ...


@functools.lru_cache(maxsize=256)
def constant(value: float, dtype: torch.dtype) -> Tensor:
    """Return a number as a tensor. For a small batch torch would take longer for a Python number than for the batch."""
    return torch.tensor(value, dtype=dtype)


def class_mean(t: Tensor, scores: Scores | None) -> Tensor:
    """Return the mean over the classes that are present, with size 1 along dimension 1."""
    # torch's mean takes longer over few classes.
    return t.sum(1, keepdim=True).div_(t.shape[1]) if scores is None else scores.mean(t)
