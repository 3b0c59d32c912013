"""Compare the speed of the training loop on CIFAR-10 with that of its bare step on one fixed batch, in turns.

    python benchmarks/training_speed.py --check
    python benchmarks/training_speed.py --model cnn8:width=0.05 --steps 1 --rounds 1    # whether it runs

Without CIFAR-10, random images of the same shape are used.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import measure
import torch
from lightning_fabric import Fabric

from symloss.data.dataset import DataSet, Examples, Scaling
from symloss.data.opening import open_data
from symloss.experiments.layers import resolve
from symloss.noise import corrupt
from symloss.training.loop import Trainer
from symloss.training.settings import Settings
from symloss.training.task import Task, build_loss, build_model, build_optimizer

TARGET = 0.95
"""The smallest share of the bare step's speed that is on target."""


def measure_training(
    loss: str, steps: int, rounds: int, model: str | None, root: Path | None
) -> Iterator[dict[str, Any]]:
    """Time the training loop and the bare step in turns, and yield one row per round.

    Args:
        loss: the spec of the loss.
        steps: number of steps in a round.
        rounds: number of rounds that count. One more comes first as a warm-up.
        model: None for the model of the protocol of CIFAR-10.
        root: the folder of data sets.

    Yields:
        ``loop`` and ``bare`` in seconds, and ``data``, ``steps``, ``batch``, ``model``.
    """
    settings = resolve("cifar10", loss, model=model, validation=0.0, noise="sym:0.6")
    data, source = _data(root)
    trainer = Trainer(Fabric(accelerator="cpu", devices=1), settings, _task(data, settings, steps))
    bare, epochs = _bare_step(settings, trainer), itertools.count()
    runs = {"loop": lambda: trainer.train_epoch(next(epochs)), "bare": lambda: _repeat(bare, steps)}
    for turn in measure.turns(runs, rounds):
        seconds = {name: timing.seconds for name, timing in turn.items()}
        yield seconds | {"data": source, "steps": steps, "batch": settings.batch, "model": settings.model}


def speed(rows: list[dict[str, Any]]) -> float:
    """Return the loop's speed as a share of the bare step's: the median over rounds.

    >>> speed([{"loop": 2.0, "bare": 1.0}, {"loop": 1.0, "bare": 1.0}, {"loop": 4.0, "bare": 3.0}])
    0.75
    """
    return float(statistics.median(row["bare"] / row["loop"] for row in rows))


def _data(root: Path | None) -> tuple[DataSet, str]:
    try:
        return open_data("cifar10", root=root), "CIFAR-10"
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
    corruption = corrupt(part.labels.numpy(), settings.noise, num_classes=10, seed=0)
    return Task(data, part.relabel(torch.from_numpy(corruption.labels)), part.labels, None, None, corruption)


def _bare_step(settings: Settings, trainer: Trainer) -> Callable[[], None]:
    """Return a step on one fixed batch: forward, backward, clipping, optimiser."""
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


def _repeat(step: Callable[[], None], count: int) -> None:
    for _ in range(count):
        step()


def main() -> None:
    parser = measure.options(__doc__)
    parser.add_argument("--loss", default="alpha-mae", help="loss to train with (default: alpha-mae)")
    parser.add_argument("--model", help="network (default: cnn8)")
    parser.add_argument("--steps", type=int, default=8, help="steps per round (default: 8)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the median counts (default: 5)")
    parser.add_argument("--data-dir", type=Path, help="folder with CIFAR-10")
    parser.add_argument("--check", action="store_true", help="exit with 1 if the target is missed")
    given = parser.parse_args()
    measure.print_environment()
    work = measure_training(given.loss, given.steps, given.rounds, given.model, given.data_dir)
    rows = measure.with_progress(work, [f"round {number}" for number in range(1, given.rounds + 1)])
    share, first = speed(rows), rows[0]
    print(
        f"{first['model']} on {first['data']}, batch {first['batch']}, {len(rows)} rounds of {given.steps} steps: "
        f"the loop reaches {100 * share:.1f} % of the bare step's speed"
    )
    if given.check:
        measure.judge([f"the loop reaches {share:.3f}, target {TARGET}"] if share < TARGET else [])


if __name__ == "__main__":
    main()
