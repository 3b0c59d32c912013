"""What a run trains, made from its settings: the data with noisy labels, the model, the loss and the optimizer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from symloss.data.augment import crops_of
from symloss.data.dataset import DataSet, Examples
from symloss.data.download import SOURCES
from symloss.data.opening import open_data
from symloss.data.published import deviation
from symloss.data.source import warn
from symloss.environment import data_root
from symloss.losses.catalogue import RECORDS
from symloss.losses.criterion import Criterion, ScoreMap
from symloss.losses.layers import BatchNormScores, append_scores
from symloss.losses.spec import create_loss, parse as parse_loss, write
from symloss.noise.labels import corrupt
from symloss.noise.manifest import Corruption
from symloss.noise.spec import parse
from symloss.training.models import create_model
from symloss.training.settings import Settings


@dataclass(frozen=True)
class Task:
    """The data of a run."""

    data: DataSet  # the whole data set
    train: Examples  # the examples to train on, with noisy labels
    clean: Tensor | None  # (N,), the true labels of the training examples; None where they are not known
    validation: Examples | None  # the examples that are held out; None if there are none
    test: Examples | None  # the clean examples to test on; None if there are none
    corruption: Corruption  # all labels of the training data, noisy and clean, with the manifest

    def to(self, device: torch.device) -> Task:
        """Move small data sets to the device. Training and validation examples share their memory."""
        train = self.train.to(device)
        shared = None if self.validation is None else replace(self.validation, inputs=train.inputs)
        return replace(self, train=train, validation=shared, test=None if self.test is None else self.test.to(device))


def prepare(
    settings: Settings,
    root: Path | None = None,
    skip_bad: bool = False,
    data: DataSet | None = None,
    encoder: str = "auto",
) -> Task:
    """Corrupt the labels of the training data (all of them), take the subset, and hold the validation data out.

    Where no ``data`` is given, it is opened, with this ``encoder`` of free text.
    """
    if data is None:
        data = open_data(replace(settings.source, skip_bad=skip_bad, encoder=encoder), root=root, on_bad=warn)
    clean_is_known = data.labels_are_true or settings.noise != "clean"
    if settings.fingerprint is not None:
        current = fingerprint(settings.data, None if settings.data_is_published else data, settings.noise, root)
        if settings.fingerprint != current:
            raise ValueError(
                f"{settings.data} with noise {settings.noise} has changed since these settings were made (fingerprint "
                f"{settings.fingerprint}, now {current})."
            )
    if settings.clean_validation and not clean_is_known:
        raise ValueError(f"clean_validation must be left out for {settings.data}: the true labels are unknown")
    if data.streamed and parse(settings.noise).kind == "instance":
        raise ValueError(
            f"noise must be of a kind that needs no inputs, as images stay in files; got {settings.noise!r}"
        )
    true = data.train.labels
    corruption = corrupt(
        true.numpy(),
        settings.noise,
        num_classes=len(data.class_names),
        seed=settings.seed if settings.noise_seed is None else settings.noise_seed,
        counts=settings.counts,
        dataset=data.name if settings.data_is_published else None,
        inputs=data.train.inputs if isinstance(data.train.inputs, Tensor) else None,
        root=data_root() if root is None else root,
        split="before" if settings.validation > 0 else None,
    )
    noisy = torch.from_numpy(corruption.labels)
    used = _subset(len(true), settings.subset)
    held, rest = _split(used, settings.validation, settings.seed)
    held_labels = true if settings.clean_validation else noisy
    return Task(
        data=data,
        train=data.train.relabel(noisy) if len(rest) == len(true) else data.train.relabel(noisy).take(rest),
        # What was there before we corrupted it counts as true.
        clean=true[rest] if clean_is_known else None,
        validation=data.train.relabel(held_labels).take(held) if len(held) else None,
        test=data.test,
        corruption=corruption,
    )


def augmentation(settings: Settings, data: DataSet) -> tuple[str, ...]:
    """Return the random changes of training images: all steps of the data set, its crops alone, or none."""
    if isinstance(settings.augment, bool):
        return data.augmentation if settings.augment else ()
    return crops_of(data.augmentation, data.input_shape)


def fingerprint(data: str, users_data: DataSet | None, noise: str, root: Path | None) -> str | None:
    """Return a checksum of the files that may change while their name stays the same; None if all are as published.

    These are the user's own data, files of a known data set that are not the publisher's, and a noise matrix in a file.
    """
    spec = parse(noise)
    of_data = None if users_data is None else users_data.fingerprint
    if data in SOURCES:
        of_data = deviation(data, data_root() if root is None else root)
    parts = [] if of_data is None else [of_data]
    if spec.kind == "matrix" and spec.path is not None and Path(spec.path).is_file():
        parts.append(hashlib.sha256(Path(spec.path).read_bytes()).hexdigest()[:12])
    return "-".join(parts) or None


def _subset(count: int, size: int | None) -> Tensor:
    """Return the indices of all examples, or of a random subset, the same for every seed."""
    if size is None:
        return torch.arange(count)
    if size > count:
        raise ValueError(f"subset must be at most the {count} training examples there are; got {size}")
    order = np.random.Generator(np.random.PCG64(0)).permutation(count)[:size]
    return torch.from_numpy(np.sort(order))


def _split(used: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """Return the indices of the held-out examples, and of the others, both in order."""
    cut = round(share * len(used))
    if share > 0 and not 0 < cut < len(used):
        raise ValueError(f"validation must leave examples on both sides; got {share} of {len(used)} examples")
    order = torch.from_numpy(np.random.Generator(np.random.PCG64([seed, 1])).permutation(len(used)))
    return used[order[:cut].sort().values], used[order[cut:].sort().values]


def build_model(settings: Settings, input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return the untrained model, with a layer of batch normalisation on the scores if the settings ask for one."""
    model = create_model(settings.model, input_shape=input_shape, num_classes=classes, seed=settings.seed)
    return append_scores(model, BatchNormScores(classes)) if settings.scores == "batch-norm" else model


def require_scores(scores: Tensor, classes: int, model: str) -> None:
    """Raise ValueError unless the scores of a model have shape (N, classes)."""
    if scores.dim() != 2 or scores.shape[1] != classes:
        got = f"a tensor of shape {tuple(scores.shape)}"
        raise ValueError(f"model {model!r} must return {classes} scores for each example; got {got}")


def build_loss(settings: Settings) -> Criterion:
    """Return the loss, with the normalisation of scores that the settings ask for.

    >>> build_loss(Settings(loss="gce:q=0.5", scores="l2")).loss
    GCE(q=0.5)
    """
    if settings.scores == "loss":
        return create_loss(settings.loss)
    return create_loss(settings.loss, normalize="l2" if settings.scores == "l2" else None)


def build_score_map(settings: Settings) -> ScoreMap | None:
    """Return how the loss changes the scores; None if it does not. The user's own code is not imported."""
    name, options = parse_loss(settings.loss)
    loss = settings.loss if name in RECORDS else write("ce", options)
    return build_loss(replace(settings, loss=loss)).score_map


def build_optimizer(settings: Settings, parameters: Iterator[nn.Parameter]) -> torch.optim.Optimizer:
    """Return the optimizer that the settings name, for these parameters."""
    common: dict[str, Any] = {"lr": settings.lr, "weight_decay": settings.weight_decay}
    if settings.optimizer in ("adam", "adamw"):
        adam = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
        # One kernel for a tensor's update; a tenth of a step of a small network.
        return adam(parameters, fused=True, **common)
    nesterov = settings.optimizer == "nesterov"
    return torch.optim.SGD(parameters, momentum=settings.momentum, nesterov=nesterov, **common)
