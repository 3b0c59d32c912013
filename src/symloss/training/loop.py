"""The training loop: one readable file, on Lightning Fabric."""

from __future__ import annotations

import dataclasses
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from symloss.data.batches import EVALUATION_BATCH, Batches
from symloss.data.dataset import Examples
from symloss.losses.layers import l1_penalty
from symloss.training.best_of_run import BestOfRun
from symloss.training.checkpoint import TO_GO_ON, load_checkpoint, must_fit, save_checkpoint
from symloss.training.margins import MarginRecorder
from symloss.training.models import model_errors
from symloss.training.results import EpochRow
from symloss.training.run_folder import RunFolder
from symloss.training.settings import Schedule, Settings
from symloss.training.task import Task, augmentation, build_loss, build_model, build_optimizer, require_scores

OnStep = Callable[[int, int], None]


class Diverged(ValueError):  # noqa: N818
    """The loss, the scores or the weights became infinite or nan."""


AT_ONCE = 2**18
"""Scores that are counted together, a megabyte of float32. Counting a small batch costs mostly the calls."""


def counts(scores: Tensor, labels: Tensor, clean: Tensor | None = None) -> Tensor:
    """Count the examples of a batch.

    Args:
        scores: (N, C).
        labels: (N,), which may be wrong.
        clean: (N,), the true labels; None where they are not known.

    Returns:
        (5,): all examples; those whose label has the largest score; those whose true label has it; those with a wrong
        label; and those of them whose wrong label has the largest score.
    """
    predicted, true = scores.argmax(1), labels if clean is None else clean
    hit, wrong = predicted == labels, labels != true
    return torch.stack([torch.ones_like(hit), hit, predicted == true, wrong, hit & wrong]).sum(1).float()


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
        self.margins = MarginRecorder(len(task.train), fabric.device, task.train.positions)
        if settings.channels_last:
            self.model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        module: nn.Module = torch.compile(self.model) if settings.compile else self.model  # type: ignore[assignment]
        ready = fabric.setup(module, self.optimizer)
        self.forward: nn.Module = ready[0]
        self.stepper: Any = ready[1]

    def _batches(self, examples: Examples, size: int, training: bool) -> Batches:
        data, settings = self.task.data, self.settings
        return Batches(
            examples,
            batch=size,
            scaling=data.scaling,
            augmentation=augmentation(settings, data) if training else (),
            shuffle=training,
            seed=settings.seed,
            device=self.fabric.device,
            rank=self.fabric.global_rank,
            world=self.fabric.world_size,
            size=data.size,
            workers=self.workers,
            channels_last=settings.channels_last,
        )

    def train_epoch(self, epoch: int) -> EpochRow:
        """One pass over the training data; epochs count from 0. The metrics are of the model while it changes."""
        mixed = np.random.SeedSequence([self.settings.seed, epoch, 2]).generate_state(1, np.uint64)[0]
        torch.manual_seed(int(mixed >> np.uint64(1)))  # for models that draw, by dropout
        self.forward.train()
        sums, pending = torch.zeros(6, device=self.fabric.device), None
        recent: list[tuple[Tensor, Tensor]] = []
        for step, batch in enumerate(self.train_batches.epoch(epoch)):
            lr = self._set_lr(epoch, epoch * len(self.train_batches) + step)
            labels = self.labels[batch.index]
            scores, loss = self._step(batch.inputs, labels, batch.total, f"step {step + 1} of epoch {epoch + 1}")
            if pending is not None:  # one step late, so that a GPU is never waited for
                self._refuse_nan(pending, epoch, step)
            pending = loss
            if self.on_step is not None:
                self.on_step(step + 1, len(self.train_batches))
            sums[-1] += loss * len(labels)
            recent.append((batch.index, scores))
            if len(recent) * scores.numel() >= AT_ONCE or step + 1 == len(self.train_batches):
                sums[:-1] += self._count(recent)
                recent = []
        if pending is not None:
            self._refuse_nan(pending, epoch, len(self.train_batches))
        if not all(bool(part.isfinite().all()) for part in self.model.parameters()):
            raise self._diverged("the weights became infinite or nan", f"the end of epoch {epoch + 1}")
        self.margins.end_epoch(self._summed)
        count, hits, clean, wrong, memorised, total = self._summed(sums).tolist()
        return EpochRow(
            epoch=epoch + 1,
            lr=lr,
            loss=total / count,
            train_accuracy=hits / count,
            clean_accuracy=None if self.clean is None else clean / count,
            memorised=memorised / wrong if wrong else None,
        )

    def _diverged(self, what: str, when: str) -> Diverged:
        advice = f"the last checkpoint is kept, and a learning rate below {self.settings.lr:g} may help"
        return Diverged(f"{what} at {when}; {advice}")

    def _refuse_nan(self, loss: Tensor, epoch: int, step: int) -> None:
        if not math.isfinite(float(loss)):
            raise self._diverged(f"the loss became {float(loss)}", f"step {step} of epoch {epoch + 1}")

    def _summed(self, share: Tensor) -> Tensor:
        """Return the sum over all processes."""
        total = self.fabric.all_reduce(share, reduce_op="sum")
        assert isinstance(total, Tensor)
        return total

    def _count(self, batches: list[tuple[Tensor, Tensor]]) -> Tensor:
        """Add the margins of some batches, positions and scores, to those of the run; return their counts."""
        index, scores = (torch.cat(parts) for parts in zip(*batches, strict=True))
        labels = self.labels[index]
        self.margins.add(index, scores, labels)
        return counts(scores, labels, None if self.clean is None else self.clean[index])

    def _step(self, inputs: Tensor, labels: Tensor, total: int, when: str) -> tuple[Tensor, Tensor]:
        self.stepper.zero_grad(set_to_none=True)
        # Batch normalisation has no statistics of a lone example: it goes by those of the batches before.
        scores = self._forward(inputs, training=len(inputs) > 1)
        # Each process has its share of the batch, and the gradients of all are averaged.
        share = len(labels) * self.fabric.world_size / total
        loss = self._loss(scores, labels, when) if len(labels) else scores.sum()
        objective = loss if share == 1 else loss * share
        if self.settings.penalty > 0:
            objective = objective + l1_penalty(self.model, self.settings.penalty)
        self.fabric.backward(objective)
        if (clip := self.settings.clip) is not None:
            self.fabric.clip_gradients(self.forward, self.stepper, max_norm=clip, error_if_nonfinite=False)
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

    def _forward(self, inputs: Tensor, training: bool) -> Tensor:
        if self.forward.training != training:
            self.forward.train(training)
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
        labels, sums = examples.labels.to(self.fabric.device), torch.zeros(5, device=self.fabric.device)
        with torch.inference_mode():
            for batch in self._batches(examples, EVALUATION_BATCH, training=False).epoch(0):
                sums += counts(self._forward(batch.inputs, training=False), labels[batch.index])
        count, hits, *_ = self._summed(sums).tolist()
        return float(hits / count)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps: the weights of the model, the state of the optimizer, the sums of margins."""
        model, optimizer = self.model.state_dict(), self.optimizer.state_dict()
        return {"model": model, "optimizer": optimizer, "margins": self.margins.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        """Take over what ``state`` returned from a checkpoint; raise if it does not fit."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for parameter, kept in self.optimizer.state.items():
            for name, value in kept.items():
                if isinstance(value, Tensor) and value.dim() and value.shape != parameter.shape:
                    raise ValueError(f"{name} of shape {tuple(value.shape)} for one of {tuple(parameter.shape)}")
        self.margins.load_state_dict(state["margins"])


def fit(trainer: Trainer, folder: RunFolder, on_epoch: Callable[[EpochRow], None] | None = None) -> BestOfRun:
    """Train from the last checkpoint, or from the start, to the end; return the best epoch."""
    settings, task, fabric = trainer.settings, trainer.task, trainer.fabric
    state = load_checkpoint(folder, needs=TO_GO_ON) or {"epoch": 0, "seconds": 0.0}
    if state["epoch"]:
        with must_fit(folder.path, settings.model):
            trainer.load(state)
    if fabric.is_global_zero:
        folder.cut_metrics(state["epoch"], EpochRow.from_json(state["last"]) if state["epoch"] else None)
        _warn_of_other_threads(state.get("threads"), fabric)
    best, seconds = BestOfRun.start(settings, state), state["seconds"]
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
