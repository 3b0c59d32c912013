"""Published settings of losses, by data set. The file presets.toml holds them; no loss is imported here."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any

FILE = "losses/presets.toml"
BATCH_NORM = "batch-norm"


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
    found = tomllib.loads(resources.files("symloss").joinpath(FILE).read_text())
    return {loss: MappingProxyType(dict(_of_a_loss(**entries))) for loss, entries in found.items()}


def _of_a_loss(source: str, **entries: dict[str, Any]) -> list[tuple[str, Preset]]:
    return [(data, _preset(source, **values)) for data, values in entries.items()]


def _preset(source: str, penalty: float | None = None, scores: str | None = None, **values: Any) -> Preset:
    if scores is None:
        return Preset(values, source, penalty)
    if scores != BATCH_NORM:
        raise ValueError(f"scores of a preset must be {BATCH_NORM!r}; got {scores!r}")
    return Preset(values | {"normalize": None}, source, penalty, batch_norm_scores=True)
