"""Settings that nobody has to give: what was published, or found, for a data set and a loss."""

from __future__ import annotations

import functools
import tomllib
from importlib import resources
from typing import Any

from symloss.losses.catalogue import RECORDS, find
from symloss.losses.create import parse
from symloss.training.settings import Settings

PRESETS = {
    "digits": "mnist",
    "webvision-mini": "webvision",
    "webvision-mini-imagenet": "webvision",
    "fashion-mnist": "mnist",
}
"""Under which name the catalogue holds the parameters of losses for a data set, where it is not the same."""


@functools.cache
def _protocols() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("symloss.training").joinpath("protocols.toml").read_text())


def protocol(data: str, kind: str) -> dict[str, Any]:
    """Of a known data set, or of a kind of one's own: "table", "images" or "streamed"."""
    known = _protocols()
    return known.get(data.removesuffix("-imagenet"), known[kind])


def resolve(data: str, loss: str, kind: str = "images", **given: Any) -> Settings:
    """Settings for a data set and a loss: what is given, else what the protocol says for the loss, or for all losses.

    >>> found = resolve("cifar10", "sgce")
    >>> found.loss, found.model, found.weight_decay
    ('sgce:q=0.8', 'cnn8', 0.005)
    """
    name, parameters = parse(loss)
    record = find(name)
    common = {key: value for key, value in protocol(data, kind).items() if key not in ("losses", "source")}
    own = dict(protocol(data, kind).get("losses", {}).get(record.name, {}))
    values = own.pop("loss", {})
    preset = RECORDS[record.name].presets.get(PRESETS.get(data, data))
    if preset is not None:
        values = dict(preset.values) | values
        if preset.penalty is not None:
            own.setdefault("penalty", preset.penalty)
        if preset.batch_norm_scores:
            own.setdefault("scores", "batch-norm")
            values.pop("normalize", None)
    if "preset" in parameters:
        values = {}
    given = {key: value for key, value in given.items() if value is not None}
    return Settings(**common | own | {"data": data, "loss": spec(record.name, values | parameters)} | given)


def spec(name: str, values: dict[str, Any]) -> str:
    """A loss and its parameters as one string."""
    text = ",".join(f"{key}={value}" for key, value in values.items())
    return f"{name}:{text}" if text else name
