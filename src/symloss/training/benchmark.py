"""How much of a training step's time the loop around it takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from lightning_fabric import Fabric

from symloss.data.dataset import DataSet, Examples, Scaling
from symloss.noise import corrupt
from symloss.runs.settings import Settings
from symloss.training.build import build_loss, build_model, build_optimizer
from symloss.training.loop import Trainer
from symloss.training.plan import resolve
from symloss.training.task import Task, opened

TARGET = 0.95
"""The least share of the bare step's speed that the loop must reach."""


def overhead(loss: str, steps: int, rounds: int, model: str | None, root: Path | None) -> Iterator[dict[str, Any]]:
    """The loop and the bare step in turns: seconds of so many steps each, one row for each round."""
    settings = resolve("cifar10", loss, model=model, validation=0.0, noise="sym:0.6")
    data, source = _data(root)
    trainer = Trainer(Fabric(accelerator="cpu", devices=1), settings, _task(data, settings, steps))
    bare = _bare_step(settings, trainer)
    for number in range(rounds + 1):
        row = {"loop": _seconds(lambda n=number: trainer.train_epoch(n)), "bare": _seconds(lambda: _times(bare, steps))}
        if number:  # the first warms up
            yield row | {"data": source, "steps": steps, "batch": settings.batch, "model": settings.model}


def speed(rows: list[dict[str, Any]]) -> float:
    """The loop's speed as a share of the bare step's: the median over rounds."""
    return float(statistics.median(row["bare"] / row["loop"] for row in rows))


def _data(root: Path | None) -> tuple[DataSet, str]:
    try:
        return opened("cifar10", root, "label", None, None), "CIFAR-10"
    except FileNotFoundError:
        random = torch.Generator().manual_seed(0)
        images = torch.randint(0, 256, (50_000, 3, 32, 32), dtype=torch.uint8, generator=random)
        labels = torch.randint(0, 10, (50_000,), generator=random)
        train = Examples(images, labels)
        scaling = Scaling((0.5,) * 3, (0.25,) * 3)
        names = tuple(map(str, range(10)))
        return DataSet("cifar10", train, None, names, scaling, ("crop:4", "flip")), "random images like CIFAR-10"


def _task(data: DataSet, settings: Settings, steps: int) -> Task:
    part = data.train.take(torch.arange(steps * settings.batch))
    corruption = corrupt(part.labels.numpy(), settings.noise, classes=10, seed=0)
    return Task(data, part.relabel(torch.from_numpy(corruption.labels)), part.labels, None, None, corruption)


def _bare_step(settings: Settings, trainer: Trainer) -> Any:
    """Forward, backward, clip, optimiser, on one fixed batch."""
    model = build_model(settings, trainer.task.data.input_shape, 10).train()
    optimizer, loss = build_optimizer(settings, model.parameters()), build_loss(settings)
    batch = next(trainer.train_batches.epoch(0))
    labels = trainer.labels[batch.index]

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        loss(model(batch.inputs), labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip or 5.0)
        optimizer.step()

    return step


def _times(step: Any, count: int) -> None:
    for _ in range(count):
        step()


def _seconds(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
