"""Searches in processes of their own, which can be held at a step and killed there."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from training.training_helpers import ended, start

MODEL = "tuning_helpers:logged"
BUILT = 0


class _Logged(nn.Module):
    """Stands still at the first step of the second epoch of the run that the environment names."""

    def __init__(self, inner: nn.Module, number: int):
        super().__init__()
        self.inner, self.steps = inner, 0
        self.last = int(os.environ.get("HOLD_STEP", "0")) if number == int(os.environ.get("HOLD_RUN", "0")) else 0

    def forward(self, inputs: Tensor) -> Tensor:
        self.steps += self.training
        if self.training and self.steps == self.last:
            Path("held").touch()
            signal.pause()
        scores: Tensor = self.inner(inputs)
        return scores


def logged(input_shape: tuple[int, ...], num_classes: int) -> nn.Module:
    """A model that leaves a line in a file, so that it can be counted how often anything was trained."""
    global BUILT  # noqa: PLW0603
    BUILT += 1
    with open("built", "a") as file:
        file.write(f"{os.getpid()}\n")
    return _Logged(nn.Sequential(nn.Flatten(), nn.Linear(torch.Size(input_shape).numel(), num_classes)), BUILT)


def _search(folder: Path, name: str, arguments: tuple[str, ...], environment: dict[str, str]) -> None:
    from symloss.cli import main  # noqa: PLC0415

    os.chdir(folder)
    os.environ |= environment
    for number, output in enumerate((f"{name}.stdout", f"{name}.stderr"), start=1):
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["symloss", *arguments]
    main()


def start_search(folder: Path, name: str, *arguments: str, **environment: str) -> Any:
    """``symloss ARGUMENTS`` in a folder; what it prints is in NAME.stdout and NAME.stderr there."""
    return start(_search, folder, name, arguments, environment)


__all__ = ["MODEL", "ended", "start_search"]
