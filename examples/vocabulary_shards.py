"""A vocabulary in shards: each process holds some of the classes, and none holds all scores of a token.

The label's log-probability needs the largest score and the sum of exponentials of all shards: three numbers a token
travel, not the scores. Every loss that ``symloss.of_logp`` takes can go on from there.

    torchrun --nproc-per-node 2 examples/vocabulary_shards.py
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

import symloss


class _Sum(torch.autograd.Function):
    """The sum over all processes. Each process goes on with the same loss, so the gradient passes as it is."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient


class _Copy(torch.autograd.Function):
    """Features that all processes share: their gradient is the sum over all shards."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total


def sharded_log_probabilities(features: Tensor, weight: Tensor, labels: Tensor, first: int) -> Tensor:
    """Return the labels' log-probabilities (N,), the same in every process.

    Args:
        features: (N, d), the same in every process.
        weight: (c, d), the rows of the classes from ``first`` to ``first + c - 1``.
        labels: (N,), the same in every process.
        first: the number of the first class of this process.
    """
    scores = F.linear(_Copy.apply(features), weight).float()
    top = scores.detach().amax(1)
    dist.all_reduce(top, dist.ReduceOp.MAX)
    behind = scores - top[:, None]
    here = (labels >= first) & (labels < first + len(weight))
    place = torch.where(here, labels - first, 0)
    label = torch.where(here, behind.gather(1, place[:, None]).squeeze(1), 0.0)
    return _Sum.apply(label) - _Sum.apply(behind.exp().sum(1)).log()


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    features, table, labels = torch.randn(6, 8), torch.randn(1000, 8), torch.randint(1000, (6,))
    rows = len(table) // dist.get_world_size()
    first = rows * dist.get_rank()
    weight = table[first : first + rows].clone().requires_grad_()
    loss = symloss.of_logp("gce:q=0.7")(sharded_log_probabilities(features, weight, labels, first)).mean()
    loss.backward()
    expected = symloss.GCE(q=0.7)(features @ table.T, labels)
    print(f"process {dist.get_rank()}: {loss.item():.6f}, by all scores {expected.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
