"""The training loop: one readable file, on Lightning Fabric."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from symloss.data.batches import EVALUATION_BATCH, Batches
from symloss.data.dataset import Examples
from symloss.losses.layers import l1_penalty
from symloss.training.best_epoch import BestEpoch
from symloss.training.checkpoint import TO_GO_ON, load_checkpoint, must_fit, save_checkpoint
from symloss.training.margins import MarginSums
from symloss.training.models import model_errors
from symloss.training.results import EpochRow
from symloss.training.run_folder import RunFolder
from symloss.training.settings import Schedule, Settings
from symloss.training.task import Task, augmentation, build_loss, build_model, build_optimizer, require_scores

OnStep = Callable[[int, int], None]


class Diverged(ValueError):  # noqa: N818
    """The loss, the scores or the weights became infinite or nan."""


@dataclass
class Tally:
    """Counts that are kept on the device, and summed over the processes at the end of an epoch."""

    fabric: Fabric

    def __post_init__(self) -> None:
        self.sums = torch.zeros(6, device=self.fabric.device, dtype=torch.float32)
        self.knows_clean = False

    def add_loss(self, loss: Tensor, examples: int) -> None:
        """Add the mean loss of a batch with this number of examples."""
        self.sums[-1] += loss * examples

    def add(self, scores: Tensor, labels: Tensor, clean: Tensor | None) -> None:
        """Count a batch: scores (N, C), labels (N,) that may be wrong, and the true ones where they are known."""
        predicted = scores.argmax(1)
        hit = predicted == labels
        rows = [hit.sum(), torch.tensor(len(labels), device=self.sums.device)]
        if clean is not None:
            wrong = labels != clean
            rows += [(predicted == clean).sum(), wrong.sum(), (hit & wrong).sum()]
            self.knows_clean = True
        self.sums[: len(rows)] += torch.stack([row.to(self.sums.dtype) for row in rows])

    def accuracy(self) -> float:
        """Return the share of examples whose label had the largest score."""
        hits, count, *_ = self._totals()
        return hits / count

    def row(self, epoch: int, lr: float) -> EpochRow:
        """Return the metrics of an epoch of training."""
        hits, count, clean, wrong, memorised, loss = self._totals()
        return EpochRow(
            epoch=epoch,
            lr=lr,
            loss=loss / count,
            train_accuracy=hits / count,
            clean_accuracy=clean / count if self.knows_clean else None,
            memorised=memorised / wrong if wrong else None,
        )

    def _totals(self) -> list[float]:
        total = self.fabric.all_reduce(self.sums, reduce_op="sum") if self.fabric.world_size > 1 else self.sums
        assert isinstance(total, Tensor)
        return total.tolist()


class RecentBatches:
    """Keeps batches until they have ``most`` scores, then hands their numbers (M,) and scores (M, C) on as one.

    A megabyte of float32 by default.

    >>> recent = RecentBatches(lambda index, scores: print(index), most=6)
    >>> for first in (0, 2, 4):
    ...     recent.add(torch.tensor([first, first + 1]), torch.zeros(2, 2))
    tensor([0, 1, 2, 3])
    >>> recent.count_rest()
    tensor([4, 5])
    """

    def __init__(self, count: Callable[[Tensor, Tensor], None], most: int = 2**18):
        self.count, self.most = count, most
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self._size = 0

    def add(self, index: Tensor, scores: Tensor) -> None:
        """Take a batch."""
        self._waiting.append((index, scores))
        self._size += scores.numel()
        if self._size >= self.most:
            self.count_rest()

    def count_rest(self) -> None:
        """Hand on the batches that wait, if any do."""
        if self._waiting:
            index, scores = (torch.cat(parts) for parts in zip(*self._waiting, strict=True))
            self.count(index, scores)
        self._waiting, self._size = [], 0


class Trainer:
    """A run in progress: model, optimizer, loss and batches."""

    def __init__(self, fabric: Fabric, settings: Settings, task: Task, workers: int = 0, on_step: OnStep | None = None):
        self.fabric, self.settings, self.workers, self.on_step = fabric, settings, workers, on_step
        self.task = task = task.to(fabric.device)
        self.schedule = Schedule.parse(settings.schedule)
        self.model = build_model(settings, task.data.input_shape, len(task.data.class_names))
        self.optimizer = build_optimizer(settings, self.model.parameters())
        self.loss = build_loss(settings).to(fabric.device)
        self.train_batches = self._batches(task.train, settings.batch, training=True)
        # On the device, beside the inputs: what each example is labelled, and what it is.
        self.labels = task.train.labels.to(fabric.device)
        self.clean = None if task.clean is None else task.clean.to(fabric.device)
        self.margins = MarginSums(len(task.train), fabric)
        if settings.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module: nn.Module = torch.compile(self.model) if settings.compile else self.model  # type: ignore[assignment]
        ready = fabric.setup(module, self.optimizer)
        self.forward: nn.Module = ready[0]
        self.stepper: Any = ready[1]

    def _batches(self, examples: Examples, size: int, training: bool) -> Batches:
        data, settings = self.task.data, self.settings
        return Batches(
            examples, batch=size, scaling=data.scaling,
            augmentation=augmentation(settings, data) if training else (),
            shuffle=training, seed=settings.seed, device=self.fabric.device,
            rank=self.fabric.global_rank, world=self.fabric.world_size,
            size=data.size, workers=self.workers, channels_last=settings.channels_last,
        )  # fmt: skip

    def train_epoch(self, epoch: int) -> EpochRow:
        """One pass over the training data; epochs count from 0. The metrics are of the model while it changes."""
        mixed = np.random.SeedSequence([self.settings.seed, epoch, 2]).generate_state(1, np.uint64)[0]
        torch.manual_seed(int(mixed >> np.uint64(1)))  # for models that draw, by dropout
        self.forward.train()
        tally, pending = Tally(self.fabric), None
        recent = RecentBatches(functools.partial(self._count, tally))
        for step, batch in enumerate(self.train_batches.epoch(epoch)):
            lr = self._set_lr(epoch, epoch * len(self.train_batches) + step)
            labels = self.labels[batch.index]
            scores, loss = self._step(batch.inputs, labels, batch.total, f"step {step + 1} of epoch {epoch + 1}")
            if pending is not None:  # one step late, so that a GPU is never waited for
                self._refuse_nan(pending, epoch, step)
            pending = loss
            if self.on_step is not None:
                self.on_step(step + 1, len(self.train_batches))
            tally.add_loss(loss, len(labels))
            recent.add(batch.index, scores)
        recent.count_rest()
        if pending is not None:
            self._refuse_nan(pending, epoch, len(self.train_batches))
        if not all(bool(part.isfinite().all()) for part in self.model.parameters()):
            raise self._diverged("the weights became infinite or nan", f"the end of epoch {epoch + 1}")
        self.margins.end_epoch()
        return tally.row(epoch + 1, lr)

    def _diverged(self, what: str, when: str) -> Diverged:
        advice = f"the last checkpoint is kept, and a learning rate below {self.settings.lr:g} may help"
        return Diverged(f"{what} at {when}; {advice}")

    def _refuse_nan(self, loss: Tensor, epoch: int, step: int) -> None:
        if not math.isfinite(float(loss)):
            raise self._diverged(f"the loss became {float(loss)}", f"step {step} of epoch {epoch + 1}")

    def _count(self, tally: Tally, index: Tensor, scores: Tensor) -> None:
        labels = self.labels[index]
        tally.add(scores, labels, None if self.clean is None else self.clean[index])
        self.margins.add(index, scores, labels)

    def _step(self, inputs: Tensor, labels: Tensor, total: int, when: str) -> tuple[Tensor, Tensor]:
        self.stepper.zero_grad(set_to_none=True)
        scores = self._scores(inputs)
        # Each process has its share of the batch, and the gradients of all are averaged.
        share = len(labels) * self.fabric.world_size / total
        loss = self._loss(scores, labels, when) if len(labels) else scores.sum()
        objective = loss if share == 1 else loss * share
        if self.settings.penalty > 0:
            objective = objective + l1_penalty(self.model, self.settings.penalty)
        self.fabric.backward(objective)
        if self.settings.clip is not None:
            self.fabric.clip_gradients(
                self.forward, self.stepper, max_norm=self.settings.clip, error_if_nonfinite=False
            )
        self.stepper.step()
        return scores.detach(), loss.detach()

    def _loss(self, scores: Tensor, labels: Tensor, when: str) -> Tensor:
        require_scores(scores, len(self.task.data.class_names), self.settings.model)
        try:
            loss: Tensor = self.loss(scores, labels)
        except ValueError as error:
            if bool(scores.isfinite().all()):
                raise
            raise self._diverged(f"the scores became infinite ({error})", when) from None
        return loss

    def _scores(self, inputs: Tensor) -> Tensor:
        if len(inputs) > 1:
            return self._forward(inputs)
        # Batch normalisation has no statistics of a lone example: it goes by those of the batches before.
        self.forward.eval()
        scores = self._forward(inputs)
        self.forward.train()
        return scores

    def _forward(self, inputs: Tensor) -> Tensor:
        with model_errors(self.settings.model):
            scores: Tensor = self.forward(inputs)
        return scores

    def _set_lr(self, epoch: int, step: int) -> float:
        lr = self.settings.lr * self.schedule.factor(epoch=epoch, epochs=self.settings.epochs, step=step)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr

    def evaluate(self, examples: Examples) -> float:
        """Return the share of examples whose label has the largest score."""
        self.forward.eval()
        labels, tally = examples.labels.to(self.fabric.device), Tally(self.fabric)
        with torch.inference_mode():
            for batch in self._batches(examples, EVALUATION_BATCH, training=False).epoch(0):
                tally.add(self._forward(batch.inputs), labels[batch.index], None)
        return tally.accuracy()

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: the weights of the model, the state of the optimizer, the sums of margins."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "margins": self.margins.state(),
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned from a checkpoint; raise if it does not fit."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for parameter, kept in self.optimizer.state.items():
            for name, value in kept.items():
                if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                    raise ValueError(f"{name} of shape {tuple(value.shape)} for one of {tuple(parameter.shape)}")
        self.margins.load(state["margins"])


def fit(trainer: Trainer, folder: RunFolder, on_epoch: Callable[[EpochRow], None] | None = None) -> BestEpoch:
    """Train from the last checkpoint, or from the start, to the end; return the best epoch."""
    settings, task, fabric = trainer.settings, trainer.task, trainer.fabric
    state = load_checkpoint(folder, needs=TO_GO_ON) or {"epoch": 0, "seconds": 0.0}
    if state["epoch"]:
        with must_fit(folder.path, settings.model):
            trainer.load(state)
    if fabric.is_global_zero:
        folder.cut_metrics(state["epoch"], EpochRow.from_json(state["last"]) if state["epoch"] else None)
        _warn_of_other_threads(state.get("threads"), fabric)
    best, seconds = BestEpoch.start(settings, state), state["seconds"]
    for epoch in range(state["epoch"], settings.epochs):
        started = time.perf_counter()
        row = trainer.train_epoch(epoch)
        validation, test = (None if part is None else trainer.evaluate(part) for part in (task.validation, task.test))
        seconds += time.perf_counter() - started
        row = dataclasses.replace(row, validation_accuracy=validation, test_accuracy=test, seconds=round(seconds, 3))
        better = best.add(row)
        if fabric.is_global_zero:
            saved = {"epoch": epoch + 1, "seconds": seconds, "last": row.to_json()} | best.state() | trainer.state()
            saved["threads"] = torch.get_num_threads()
            folder.append_metrics(row)
            if task.validation is not None:
                best.keep_weights(folder, epoch + 1, saved["model"], better)
            save_checkpoint(folder, saved)
            best.forget_weights(folder, epoch + 1)
        fabric.barrier()
        if on_epoch is not None and fabric.is_global_zero:
            on_epoch(row)
    if fabric.is_global_zero:
        best.forget_weights(folder, settings.epochs)
    return best


def _warn_of_other_threads(before: int | None, fabric: Fabric) -> None:
    """Warn of another number of threads: sums are split among them, which changes their rounding."""
    now = torch.get_num_threads()
    if before not in (None, now) and fabric.device.type == "cpu":
        warnings.warn(
            f"The run was begun with {before} threads and is resumed with {now}. Its weights will differ in their last "
            "digits from those of an uninterrupted run.",
            stacklevel=2,
        )
