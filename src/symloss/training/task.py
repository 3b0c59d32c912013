"""What a run trains on: data with its labels made noisy, what is held out of it, and clean examples to test on."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from symloss.data import KNOWN, data_root, open_data
from symloss.data.augment import chosen
from symloss.data.bad_files import warn
from symloss.data.dataset import DataSet, Examples
from symloss.data.published import deviation
from symloss.noise import Corruption, corrupt, parse
from symloss.runs.settings import Settings


@dataclass(frozen=True)
class Task:
    data: DataSet
    train: Examples
    clean: Tensor | None
    """The true labels of the training examples, where they are known."""
    validation: Examples | None
    test: Examples | None
    corruption: Corruption

    def to(self, device: torch.device) -> Task:
        """Small data sets live on the device, once: training and validation examples share their memory."""
        train = self.train.to(device)
        shared = None if self.validation is None else replace(self.validation, inputs=train.inputs)
        return replace(self, train=train, validation=shared, test=None if self.test is None else self.test.to(device))


def opened(
    data: str,
    root: Path | None = None,
    label: str = "label",
    image: str | None = None,
    test: str | None = None,
    skip_bad: bool = False,
) -> DataSet:
    """The data set; remembered while it does not change, as many runs follow one another on the same one."""
    changed = () if data in KNOWN else tuple(_changed(path) for path in (data, test) if path is not None)
    return _opened(data, root, label, image, test, skip_bad, changed)


@functools.lru_cache(maxsize=1)
def _opened(
    data: str, root: Path | None, label: str, image: str | None, test: str | None, skip_bad: bool, state: object
) -> DataSet:
    return open_data(data, root=root, label=label, image=image, test=test, skip_bad=skip_bad, on_bad=warn)


def _changed(path: str) -> tuple[int, ...]:
    """When the file, or each folder, was last written to; of a folder also when a file in it came, went or moved."""
    places = [path, *(folder for folder, _, _ in os.walk(path))]
    return tuple(os.stat(place).st_mtime_ns for place in places if os.path.exists(place))


def prepare(settings: Settings, root: Path | None = None, skip_bad: bool = False) -> Task:
    """Open the data, corrupt its labels (all of them), then take a subset if one is wanted, and hold some of it out."""
    data = opened(settings.data, root, settings.label, settings.image, settings.test, skip_bad)
    clean_is_known = data.labels_are_true or settings.noise != "clean"
    _refuse_changed(settings, data, root)
    _refuse_what_data_lacks(settings, data, clean_is_known)
    true = data.train.labels
    corruption = corrupt(
        true.numpy(),
        settings.noise,
        classes=len(data.classes),
        seed=settings.seed if settings.noise_seed is None else settings.noise_seed,
        counts=settings.counts,
        dataset=data.name if settings.data in KNOWN else None,
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
    """What is done to training images."""
    return chosen(settings.augment, data.augmentation, data.input_shape)


def fingerprint(data: str, own: DataSet | None, noise: str, root: Path | None) -> str | None:
    """Of what a name stands for and may change under it; None if all of it is as published.

    That is data of one's own, files of a known data set that are not the publisher's, and the matrix in a file.
    """
    spec = parse(noise)
    found = deviation(data, data_root() if root is None else root) if own is None else own.fingerprint
    parts = [] if found is None else [found]
    if spec.kind == "matrix" and spec.path is not None and Path(spec.path).is_file():
        parts.append(hashlib.sha256(Path(spec.path).read_bytes()).hexdigest()[:12])
    return "-".join(parts) or None


def _refuse_changed(settings: Settings, data: DataSet, root: Path | None) -> None:
    if settings.fingerprint is None:
        return
    found = fingerprint(settings.data, None if settings.data in KNOWN else data, settings.noise, root)
    if settings.fingerprint != found:
        raise ValueError(
            f"{settings.data} with noise {settings.noise} must be as it was when these settings were made, with the "
            f"fingerprint {settings.fingerprint}; it has changed, and has {found}"
        )


def _refuse_what_data_lacks(settings: Settings, data: DataSet, clean_is_known: bool) -> None:
    if settings.clean_validation and not clean_is_known:
        raise ValueError(f"clean_validation must be left out for {settings.data}: nobody knows which labels are true")
    if data.streamed and parse(settings.noise).kind == "instance":
        raise ValueError(
            f"noise must be of a kind that needs no inputs, as images stay in files; got {settings.noise!r}"
        )


def _subset(count: int, size: int | None) -> Tensor:
    """All examples, or so many of them: the same for every seed."""
    if size is None:
        return torch.arange(count)
    if size > count:
        raise ValueError(f"subset must be at most the {count} training examples there are; got {size}")
    order = np.random.Generator(np.random.PCG64(0)).permutation(count)[:size]
    return torch.from_numpy(np.sort(order))


def _split(used: Tensor, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """The examples that are held out, and the others, both in order."""
    cut = round(share * len(used))
    if share > 0 and not 0 < cut < len(used):
        raise ValueError(f"validation must leave examples on both sides; got {share} of {len(used)} examples")
    order = torch.from_numpy(np.random.Generator(np.random.PCG64([seed, 1])).permutation(len(used)))
    return used[order[:cut].sort().values], used[order[cut:].sort().values]
