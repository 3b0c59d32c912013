"""Protocols and profiles, read from protocols.toml and profiles.toml.

A protocol is how a data set is trained, and what each loss needs there. A profile shrinks the runs of a published table
for a small machine.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
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
class Layer:
    """Values of settings, and where they come from.

    >>> layer = Layer("protocol", {"lr": 0.1, "batch": 128}, "the paper", sources={"batch": "public code"})
    >>> layer.source_of("lr"), layer.source_of("batch"), layer.source_of("epochs")
    ('the paper', 'public code', None)
    """

    name: str
    values: Mapping[str, Any]
    """The values by setting, without the loss."""
    source: str
    parameters: Mapping[str, Any] | None = None
    """Parameters and options of the loss. They are merged with those of other layers. None: the layer has none."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sources of single settings, if they differ. An earlier layer may set the value."""
    file: str | None = None
    """The file that holds the values, relative to the package."""

    def sets(self, setting: str) -> bool:
        """Return whether the layer sets a setting, the loss, or a parameter of the loss ("loss.q")."""
        whole, _, parameter = setting.partition(".")
        if whole != "loss":
            return setting in self.values
        return self.parameters is not None and (not parameter or parameter in self.parameters)

    def source_of(self, setting: str) -> str | None:
        """Return the source that the layer names for a setting; None if it names none."""
        return self.sources.get(setting.partition(".")[0], self.source if self.sets(setting) else None)


@dataclass(frozen=True)
class TrainingProtocol(Layer):
    """A protocol, merged with the protocol that it is like: the settings for all losses, and more for each."""

    losses: Mapping[str, Layer] = field(default_factory=dict)
    """What single losses need on top of it, by loss."""
    presets: tuple[str, ...] = ()
    """The names of the presets that apply. A loss takes the first one that it has."""
    borrowed: tuple[str, ...] = ()
    """Presets of other data sets, for losses that have none here."""


def list_protocols() -> list[str]:
    """Return the names of all protocols."""
    return list(_protocols())


@functools.cache
def load_protocol(name: str) -> TrainingProtocol:
    """Return a protocol by its name.

    >>> cifar10 = load_protocol("cifar10")
    >>> cifar10.values["epochs"], cifar10.losses["sgce"].values["weight_decay"]
    (120, 0.005)
    """
    rules = _merged(name)
    source = rules.get("losses_source", rules["source"])
    losses = {}
    for loss, entry in rules.get("losses", {}).items():
        configuration = dict.fromkeys(CONFIGURATION, entry["configuration"]) if "configuration" in entry else {}
        losses[loss] = Layer(
            f"protocol {name}, for {loss}",
            {key: value for key, value in entry.items() if key not in _NOT_SETTINGS_OF_A_LOSS},
            entry.get("source", source),
            entry.get("loss"),
            configuration | entry.get("sources", {}),
            FILE,
        )
    return TrainingProtocol(
        f"protocol {name}",
        {key: value for key, value in rules.items() if key not in _NOT_SETTINGS},
        rules["source"],
        sources=rules["sources"],
        file=FILE,
        losses=losses,
        presets=tuple(rules.get("presets", ())),
        borrowed=tuple(rules.get("borrowed", ())),
    )


def trained_as(data: str) -> str:
    """Return the data set with the same training data, for data sets that differ only in their test data.

    >>> trained_as("webvision-mini-imagenet"), trained_as("cifar10")
    ('webvision-mini', 'cifar10')
    """
    return data.removesuffix("-imagenet")


@functools.cache
def _protocols() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("symloss").joinpath(FILE).read_text())


def _merged(name: str) -> dict[str, Any]:
    """Return the entries of a protocol, merged with those of the protocol that it is like."""
    known = _protocols()
    if name not in known:
        raise ValueError(f"there is no protocol {name!r}; {checks.nearest(name, known)}")
    rules = known[name]
    other = _merged(rules["like"]) if "like" in rules else {}
    return other | rules | {"sources": other.get("sources", {}) | rules.get("sources", {})}


@functools.cache
def profiles() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return the settings that each profile changes, by protocol.

    >>> profiles()["scale16"]["cifar10"]["subset"], profiles()["full"]
    (10000, {})
    """
    return {FULL: {}} | tomllib.loads(resources.files("symloss").joinpath(PROFILES_FILE).read_text())


def changes(profile: str, protocol: str) -> Mapping[str, Any] | None:
    """Return the settings that a profile changes in a protocol; None if it has no form of this protocol.

    >>> changes("full", "cifar10"), changes("mini", "cifar10")
    ({}, None)
    """
    return {} if profile == FULL else profiles()[profile].get(protocol)
