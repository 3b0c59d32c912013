"""The settings of a run: everything that decides its result. Two runs with the same settings end with equal weights."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symloss import checks
from symloss.data.source import VOUCHED, DataSource
from symloss.noise.spec import parse
from symloss.noise.transition import METHODS

SCHEDULES = (
    "'constant', 'cosine', 'step:190' or 'step:190,0.1' (a factor every 190 epochs), 'exponential:0.1/10000' "
    "(a factor every 10000 steps, applied at every step) or 'epochs:0.97' (a factor every epoch)"
)


@dataclass(frozen=True)
class Schedule:
    """The learning rate as a function of time: a factor for every step. It has no state that could be lost.

    >>> half = Schedule.parse("cosine").factor(epoch=60, epochs=120, step=0)
    >>> round(half, 6), Schedule.parse("step:190").factor(epoch=190, epochs=200, step=0)
    (0.5, 0.1)
    """

    kind: str
    gamma: float = 1.0
    every: float = 1.0

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Read a schedule such as "cosine", "step:190,0.1", "exponential:0.1/10000" or "epochs:0.97"."""
        kind, _, rest = text.partition(":")
        every, _, gamma = rest.partition(",")
        numbers: dict[str, tuple[str, ...]] = {
            "constant": (),
            "cosine": (),
            "step": (gamma or "0.1", every),
            "exponential": rest.partition("/")[::2],
            "epochs": (rest,),
        }
        with contextlib.suppress(ValueError, KeyError):
            values = [float(number) for number in numbers[kind]]
            if bool(values) == bool(rest) and all(0 < value < math.inf for value in values):
                return cls(kind, *values)
        raise ValueError(f"schedule must be {SCHEDULES}; got {checks.brief(text)}")

    def factor(self, *, epoch: int, epochs: int, step: int) -> float:
        """Return the factor at a step (counted from the start of training) of an epoch. Both count from 0."""
        if self.kind == "cosine":
            return (1 + math.cos(math.pi * epoch / epochs)) / 2
        if self.kind == "step":
            return math.pow(self.gamma, epoch // self.every)
        if self.kind == "exponential":
            return math.pow(self.gamma, step / self.every)
        return math.pow(self.gamma, epoch) if self.kind == "epochs" else 1.0


OPTIMIZERS = ("sgd", "nesterov", "adam", "adamw")
PRECISIONS = {"32": "32-true", "bf16-mixed": "bf16-mixed"}
"""And what Lightning Fabric calls them."""
SCORES = ("loss", "none", "l2", "batch-norm")
FULL = "full"
PUBLISHED_CODE = "published-code"
"""The profile of the whole protocol with the losses as public code computes them."""
AUGMENT: dict[str, bool | str] = {"all": True, "crop": "crop", "none": False}
"""Words for what is done to training images, and the settings: two are as they were before there were words."""


@dataclass(frozen=True)
class Settings:
    """What to train, on what data, and how. The folder and the devices are no part of it.

    Args:
        data: the name of a published data set, or the path of the user's own.
        noise: the noise that is added to the training labels, as in :func:`symloss.noise.parse`.
        counts: how many labels change: "exact", "floor" or "sampled", as in :func:`symloss.noise.corrupt`.
        loss: the loss with its parameters, as in :func:`symloss.create_loss`.
        scores: how the scores are changed before the loss: "loss" (as the loss says), "none", "l2" (divided by their
            norm), or "batch-norm" (a layer behind the model).
        penalty: weight of the sum of absolute parameters (ANL).
        model: the model, as in ``symloss.training.models.create_model``.
        epochs: the number of passes over the training data.
        batch: the number of examples in a step.
        optimizer: "sgd", "nesterov", "adam" or "adamw".
        lr: the learning rate at the start.
        momentum: of "sgd" and "nesterov".
        weight_decay: weight of the squared parameters, as the optimizer applies it.
        schedule: how the learning rate changes: "constant", "cosine", "step:190", "step:190,0.1" (a factor every
            190 epochs), "exponential:0.1/10000" (a factor every 10000 steps) or "epochs:0.97" (one every epoch).
        clip: the largest norm of the gradient; 0 and None are no limit.
        augment: random changes of training images: all that the data set has (True), none (False), or "crop", which
            never flips.
        subset: train on a random subset of this size, the same for every seed; None for all.
        validation: the share of the training data that is held out.
        clean_validation: whether the examples that are held out have their true labels.
        seed: of the initial weights, the order of examples, augmentation, noise, and the choice of what is held out.
        noise_seed: of the noise alone; None for ``seed``.
        precision: "32" or "bf16-mixed".
        channels_last: whether images lie in memory with the channels last.
        compile: whether the model is compiled by ``torch.compile``.
        label: the column of the labels, in tables.
        image: the column of the image paths, in tables.
        test: clean data to test on, for the user's own data.
        drop: columns of a table of features to leave out, separated by commas.
        categorical: columns whose values are categories, although they are numbers.
        keep: columns to use as features, although they look like ids.
        size: the user's image files are resized to this many pixels on each side; None for a size that fits them. The
            images of a published data set are shrunk to it.
        fingerprint: a checksum of files that may change: the user's own data, published data that is not as published,
            a noise matrix. None where there are no such files.
        profile: the name of the reduced form of a recipe, or "published-code". It changes nothing by itself, but every
            report prints it.

    >>> Settings(loss="gce:q=0.5", noise="sym:0.4").epochs
    60
    """

    data: str = "digits"
    noise: str = "clean"
    counts: str = "exact"
    loss: str = "ce"
    scores: str = "loss"
    penalty: float = 0.0
    model: str = "mlp"
    epochs: int = 60
    batch: int = 128
    optimizer: str = "sgd"
    lr: float = 0.01
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "cosine"
    clip: float | None = 5.0
    augment: bool | str = True
    subset: int | None = None
    validation: float = 0.1
    clean_validation: bool = False
    seed: int = 0
    noise_seed: int | None = None
    precision: str = "32"
    channels_last: bool = False
    compile: bool = False
    label: str = "label"
    image: str | None = None
    test: str | None = None
    drop: str | None = None
    categorical: str | None = None
    keep: str | None = None
    fingerprint: str | None = None
    profile: str = FULL
    size: int | None = None

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, kind, value = field.name, str(field.type), getattr(self, field.name)
            if name in _INTERVALS and not (value is None and "None" in kind):
                # 1 and 1.0 are the same, and must have the same key.
                number = checks.number(name, value, _INTERVALS[name], whole=kind.startswith("int"))
                object.__setattr__(self, name, number)
            elif name not in _INTERVALS and (wanted := checks.kind(kind, value)) is not None:
                raise TypeError(f"{name} must be {wanted}; got {checks.brief(value)}")
        choices = {"optimizer": OPTIMIZERS, "precision": PRECISIONS, "counts": METHODS, "scores": SCORES}
        for name, allowed in choices.items():
            checks.choice(name, getattr(self, name), allowed)
        if isinstance(self.augment, str):
            checks.choice("augment", self.augment, AUGMENT)
            object.__setattr__(self, "augment", AUGMENT[self.augment])
        object.__setattr__(self, "clip", self.clip or None)
        object.__setattr__(self, "noise", str(parse(self.noise)))
        Schedule.parse(self.schedule)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by name, for JSON."""
        return dataclasses.asdict(self)

    def used(self) -> dict[str, Any]:
        """Return the settings by name, without rare ones that have their defaults: they do not change the key."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        return {name: v for name, v in self.to_dict().items() if name not in _RARE or v != defaults[name]}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Settings:
        """Return settings by name, as ``to_dict`` returns them. An unknown name raises ValueError."""
        known = {field.name for field in dataclasses.fields(cls)}
        for name in values:
            if name not in known:
                raise ValueError(f"there is no setting {name!r}; {checks.nearest(name, known)}")
        return cls(**values)

    @property
    def source(self) -> DataSource:
        """Where the data comes from and how it is read."""
        return DataSource.of(self.to_dict())

    @property
    def data_is_published(self) -> bool:
        """Whether the data is a published set by its name, not the user's own."""
        return self.source.is_published

    @property
    def key(self) -> str:
        """The same for the same settings, on every machine."""
        text = json.dumps(self.used(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def with_seeds(settings: Settings, seeds: int) -> list[Settings]:
    """Return the same settings with several seeds, from that of ``settings`` upwards."""
    return [dataclasses.replace(settings, seed=settings.seed + i) for i in range(seeds)]


AS_GIVEN = "as given"


def displayed_noise(data: str, noise: str) -> str:
    """Return the noise as people read it. Labels of unknown quality are "as given", not "clean".

    >>> displayed_noise("digits", "clean"), displayed_noise("photos/", "clean"), displayed_noise("photos/", "sym:0.4")
    ('clean', 'as given', 'sym:0.4')
    """
    return AS_GIVEN if noise == "clean" and data not in VOUCHED else noise


def displayed_profile(profile: str) -> str:
    """Return the profile as people read it. A reduced one says that it is reduced.

    >>> displayed_profile("full"), displayed_profile("mini")
    ('full', 'mini (reduced: not the published protocol)')
    """
    if profile == PUBLISHED_CODE:
        return f"{profile} (the clamps and the held focal factor of the public implementation)"
    return profile if profile == FULL else f"{profile} (reduced: not the published protocol)"


def is_whole(profile: str) -> bool:
    """Return whether runs of a profile follow the whole protocol, so that their figures compare with published ones."""
    return profile in (FULL, PUBLISHED_CODE)


_RARE = ("noise_seed", "fingerprint", "profile", "drop", "categorical", "keep", "size")
"""Settings that count only where they are used."""
_INTERVALS = {
    "epochs": "[1, inf)",
    "batch": "[1, inf)",
    "seed": "[0, 4294967296)",
    "noise_seed": "[0, 4294967296)",
    "subset": "[2, inf)",
    "size": "[1, 4096]",
    "lr": "(0, inf)",
    "momentum": "[0, 1)",
    "weight_decay": "[0, inf)",
    "penalty": "[0, inf)",
    "validation": "[0, 1)",
    "clip": "[0, inf)",
}
