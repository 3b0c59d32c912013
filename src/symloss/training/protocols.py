"""Settings that nobody has to give: what was published, or found, for a data set and a loss, and where."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Any

from symloss import checks
from symloss.data import KNOWN
from symloss.losses.create import describe
from symloss.losses.record import Preset, Record
from symloss.losses.spec import parse, write
from symloss.training.settings import Settings

ABOUT = ("source", "losses_source", "presets", "like", "losses")
SCORES = {"l2": "divided by their norm", None: "as they are"}
GIVEN, DEFAULT = "as given", "the default"


@dataclass(frozen=True)
class Resolved:
    settings: Settings
    sources: dict[str, str]
    """Where each setting comes from."""


@functools.cache
def _protocols() -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("symloss.training").joinpath("protocols.toml").read_text())


def protocol(name: str) -> dict[str, Any]:
    """What a protocol says, with what it takes over from another."""
    known = _protocols()
    if name not in known:
        raise ValueError(f"there is no protocol {name!r}; {checks.nearest(name, known)}")
    own = known[name]
    return (protocol(own["like"]) if "like" in own else {}) | own


def protocol_of(data: str, kind: str) -> str:
    """The protocol of a known data set, or of a kind of one's own: "table", "images" or "streamed"."""
    return data.removesuffix("-imagenet") if data in KNOWN else kind


def resolved(name: str, data: str, loss: str, given: dict[str, Any]) -> Resolved:
    """Settings by a protocol, each with its source."""
    loss_name, parameters = parse(loss)
    record = describe(loss_name)
    rules = protocol(name)
    known, sources = _from_protocol(rules, record.name)
    values = known.pop("loss", {})
    loss_source = sources.pop("loss", record.source + ", its defaults" if record.parameters else record.source)
    preset = None if "preset" in parameters else _preset(record, rules.get("presets", [data] if data in KNOWN else []))
    if preset is not None:
        values, loss_source = dict(preset.values) | values, preset.source if not values else loss_source
        if preset.penalty is not None:
            known.setdefault("penalty", preset.penalty)
            sources.setdefault("penalty", preset.source)
        if preset.batch_norm_scores:
            known.setdefault("scores", "batch-norm")
            sources.setdefault("scores", preset.source)
            values.pop("normalize", None)
    if "preset" in parameters:
        values = {}
    known |= {"data": data, "loss": write(record.name, values | parameters)}
    sources |= {"data": GIVEN, "loss": GIVEN if parameters else loss_source}
    given = {key: value for key, value in given.items() if value is not None}
    settings = Settings(**_plain_scores(record, known | given))
    everything = dict.fromkeys(settings.to_dict(), DEFAULT) | sources | dict.fromkeys(given, GIVEN)
    if settings.scores == "loss":
        everything["scores"] = f"the loss, which takes them {SCORES[record.normalize]}"
    return Resolved(settings, everything)


def _from_protocol(rules: dict[str, Any], loss: str) -> tuple[dict[str, Any], dict[str, str]]:
    common = {key: value for key, value in rules.items() if key not in ABOUT}
    own = dict(rules.get("losses", {}).get(loss, {}))
    source = rules["source"]
    sources = dict.fromkeys(common, source) | dict.fromkeys(own, rules.get("losses_source", source))
    return common | own, sources


def _preset(record: Record, names: list[str]) -> Preset | None:
    return next((record.presets[name] for name in names if name in record.presets), None)


def _plain_scores(record: Record, values: dict[str, Any]) -> dict[str, Any]:
    """What a loss does to its scores anyhow needs no saying: the same run has the same settings."""
    said = values.get("scores")
    anyhow = record.normalize or "none"
    return values | {"scores": "loss"} if said == anyhow and "normalize" not in parse(values["loss"])[1] else values
