"""Published settings: the presets of losses and the protocols of data sets, as two TOML files hold them.

A preset is what a paper uses for one loss. A protocol is how a data set is trained, and what each loss needs there. The
file knows nothing of the losses themselves, so that they may read it.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

from symloss import checks

PRESETS, PROTOCOLS = "presets.toml", "protocols.toml"
BATCH_NORM = "batch-norm"
CONFIGURATION = ("epochs", "batch", "optimizer", "lr", "momentum", "weight_decay", "clip", "schedule")
"""The settings that a table of configurations prints for a loss."""
_NOT_SETTINGS = ("source", "sources", "losses_source", "presets", "borrowed", "like", "losses")
_NOT_SETTINGS_OF_A_LOSS = ("source", "sources", "configuration", "loss")


@dataclass(frozen=True)
class Preset:
    """Published settings of a loss on a data set."""

    values: Mapping[str, Any]
    """Parameters and options of the loss."""
    source: str
    penalty: float | None = None
    """Weight of the sum of absolute parameters, for ``l1_penalty``."""
    batch_norm_scores: bool = False
    """Whether the published run put batch normalisation on the scores."""


def presets_of(loss: str) -> Mapping[str, Preset]:
    """The published settings of a loss, by the name of the data set; none for a loss without any.

    >>> presets_of("sgce")["cifar10"].values["q"]
    0.8
    """
    return _presets().get(loss, MappingProxyType({}))


@functools.cache
def _presets() -> dict[str, Mapping[str, Preset]]:
    found = tomllib.loads(resources.files("symloss.recipes").joinpath(PRESETS).read_text())
    return {loss: MappingProxyType(dict(_of_a_loss(**entries))) for loss, entries in found.items()}


def _of_a_loss(source: str, **entries: dict[str, Any]) -> list[tuple[str, Preset]]:
    return [(data, _preset(source, **values)) for data, values in entries.items()]


def _preset(source: str, penalty: float | None = None, scores: str | None = None, **values: Any) -> Preset:
    if scores is None:
        return Preset(values, source, penalty)
    if scores != BATCH_NORM:
        raise ValueError(f"scores of a preset must be {BATCH_NORM!r}; got {scores!r}")
    return Preset(values | {"normalize": None}, source, penalty, batch_norm_scores=True)


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
    return tomllib.loads(resources.files("symloss.recipes").joinpath(PROTOCOLS).read_text())


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
