"""Settings that nobody has to give: what was published, or found, for a data set and a loss, and where."""

from __future__ import annotations

import functools
import tomllib
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

from symloss import checks
from symloss.data import KNOWN
from symloss.losses.create import describe
from symloss.losses.record import Record
from symloss.losses.spec import parse, write
from symloss.recipes.presets import Preset
from symloss.runs.settings import Settings

ABOUT = ("source", "sources", "losses_source", "presets", "borrowed", "like", "losses")
ABOUT_A_LOSS = ("source", "sources", "configuration")
CONFIGURATION = ("epochs", "batch", "optimizer", "lr", "momentum", "weight_decay", "clip", "schedule")
"""What a table prints that says how a loss was trained."""
SCORES = {"l2": "divided by their norm", None: "as they are"}
GIVEN, DEFAULT, OURS = "as given", "the default", "not published; ours"


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
    other = protocol(own["like"]) if "like" in own else {}
    return other | own | {"sources": other.get("sources", {}) | own.get("sources", {})}


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
    preset = None if "preset" in parameters else _preset(record, rules, data)
    if preset is None:
        sources.setdefault("loss", OURS if record.parameters else record.source)
    else:
        values = dict(preset.values) | values
        sources.setdefault("loss", preset.source)
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
    sources |= {"data": GIVEN} | ({"loss": GIVEN} if parameters else {})
    given = {key: value for key, value in given.items() if value is not None}
    settings = Settings(**_plain_scores(record, known | given))
    everything = dict.fromkeys(settings.to_dict(), DEFAULT) | sources | dict.fromkeys(given, GIVEN)
    if settings.scores == "loss":
        everything["scores"] = f"the loss, which takes them {SCORES[record.normalize]}"
    return Resolved(settings, everything)


def _from_protocol(rules: dict[str, Any], loss: str) -> tuple[dict[str, Any], dict[str, str]]:
    """What a protocol says of a loss, and where that comes from."""
    source = rules["source"]
    common = {key: value for key, value in rules.items() if key not in ABOUT}
    entry = rules.get("losses", {}).get(loss, {})
    own = {key: value for key, value in entry.items() if key not in ABOUT_A_LOSS}
    sources = dict.fromkeys(common, source) | rules["sources"]
    sources |= dict.fromkeys(own, entry.get("source", rules.get("losses_source", source)))
    if "configuration" in entry:
        sources |= dict.fromkeys(CONFIGURATION, entry["configuration"])
    return common | own, sources | entry.get("sources", {})


def _preset(record: Record, rules: dict[str, Any], data: str) -> Preset | None:
    """The preset of a loss for a data set, or else one that is borrowed, whose source then says so."""
    for name in rules.get("presets", [data] if data in KNOWN else []):
        if name in record.presets:
            return record.presets[name]
    for name in rules.get("borrowed", []):
        if name in record.presets:
            found = record.presets[name]
            return replace(found, source=f"{found.source}, for {name}")
    return None


def _plain_scores(record: Record, values: dict[str, Any]) -> dict[str, Any]:
    """What a loss does to its scores anyhow needs no saying: the same run has the same settings."""
    said = values.get("scores")
    anyhow = record.normalize or "none"
    return values | {"scores": "loss"} if said == anyhow and "normalize" not in parse(values["loss"])[1] else values
