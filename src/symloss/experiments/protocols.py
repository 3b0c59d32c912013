"""The protocols of data sets, read from protocols.toml: how a data set is trained, and what each loss needs there."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from symloss import checks

FILE = "experiments/recipes/protocols.toml"
CONFIGURATION = ("epochs", "batch", "optimizer", "lr", "momentum", "weight_decay", "clip", "schedule")
"""The settings that a table of configurations prints for a loss."""
_NOT_SETTINGS = ("source", "sources", "losses_source", "presets", "borrowed", "like", "losses")
_NOT_SETTINGS_OF_A_LOSS = ("source", "sources", "configuration", "loss")


@dataclass(frozen=True)
class LossEntry:
    """The entry of a protocol for one loss."""

    values: Mapping[str, Any]
    """Settings that differ from those of the protocol."""
    parameters: Mapping[str, Any] | None
    """Parameters of the loss; None if the protocol has none for it."""
    source: str
    sources: Mapping[str, str]
    """Sources of single settings. Any layer may set their values."""


@dataclass(frozen=True)
class TrainingProtocol:
    """A protocol, merged with the protocol that it is like."""

    name: str
    values: Mapping[str, Any]
    """Settings for all losses."""
    source: str
    sources: Mapping[str, str]
    """Sources of single settings, where they differ."""
    losses: Mapping[str, LossEntry]
    presets: tuple[str, ...]
    """The names of the presets that apply. A loss takes the first one that it has."""
    borrowed: tuple[str, ...]
    """Presets of other data sets, for losses that have none here."""


def list_protocols() -> list[str]:
    """The names of all protocols."""
    return list(_protocols())


@functools.cache
def load_protocol(name: str) -> TrainingProtocol:
    """A protocol by its name.

    >>> cifar10 = load_protocol("cifar10")
    >>> cifar10.values["epochs"], cifar10.losses["sgce"].values["weight_decay"]
    (120, 0.005)
    """
    rules = _merged(name)
    source = rules["source"]
    losses_source = rules.get("losses_source", source)
    return TrainingProtocol(
        name,
        {key: value for key, value in rules.items() if key not in _NOT_SETTINGS},
        source,
        rules["sources"],
        {loss: _entry(entry, losses_source) for loss, entry in rules.get("losses", {}).items()},
        tuple(rules.get("presets", ())),
        tuple(rules.get("borrowed", ())),
    )


def trained_as(data: str) -> str:
    """The data set with the same training data, for data sets that differ only in their test data.

    >>> trained_as("webvision-mini-imagenet"), trained_as("cifar10")
    ('webvision-mini', 'cifar10')
    """
    return data.removesuffix("-imagenet")


@functools.cache
def _protocols() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("symloss").joinpath(FILE).read_text())


def _merged(name: str) -> dict[str, Any]:
    """The entries of a protocol, merged with those of the protocol that it is like."""
    known = _protocols()
    if name not in known:
        raise ValueError(f"there is no protocol {name!r}; {checks.nearest(name, known)}")
    rules = known[name]
    other = _merged(rules["like"]) if "like" in rules else {}
    return other | rules | {"sources": other.get("sources", {}) | rules.get("sources", {})}


def _entry(entry: dict[str, Any], usual_source: str) -> LossEntry:
    configuration = dict.fromkeys(CONFIGURATION, entry["configuration"]) if "configuration" in entry else {}
    return LossEntry(
        {key: value for key, value in entry.items() if key not in _NOT_SETTINGS_OF_A_LOSS},
        entry.get("loss"),
        entry.get("source", usual_source),
        configuration | entry.get("sources", {}),
    )
