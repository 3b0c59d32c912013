"""Protocols and profiles, read from protocols.toml and profiles.toml.

A protocol is how a data set is trained, and what each loss needs there. A profile shrinks the runs of a published table
for a small machine.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from symloss import checks
from symloss.training.settings import FULL

FILE = "experiments/recipes/protocols.toml"
PROFILES_FILE = "experiments/recipes/profiles.toml"
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


@functools.cache
def profiles() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """The settings that each profile changes, by protocol.

    >>> profiles()["scale16"]["cifar10"]["subset"], profiles()["full"]
    (10000, {})
    """
    return {FULL: {}} | tomllib.loads(resources.files("symloss").joinpath(PROFILES_FILE).read_text())


def changes(profile: str, protocol: str) -> Mapping[str, Any] | None:
    """The settings that a profile changes in a protocol; None if it has no form of this protocol.

    >>> changes("full", "cifar10"), changes("mini", "cifar10")
    ({}, None)
    """
    return {} if profile == FULL else profiles()[profile].get(protocol)
