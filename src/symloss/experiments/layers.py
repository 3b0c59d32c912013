"""``resolve`` finds every setting of a run in an ordered list of layers. A later layer overrides those before it.

The layers, from the first to the last:

1. the defaults of :class:`Settings`;
2. the loss itself, with the defaults of its parameters;
3. the protocol of the data set (protocols.toml);
4. the published preset of the loss, or one that is borrowed from another data set (presets.toml);
5. the entry of the protocol for this loss (protocols.toml);
6. the data and the loss of the request, with the parameters in the text of the loss;
7. layers of the caller: options of a command, the recipe of a table (tables/), a profile (profiles.toml).

A protocol is how a data set is trained, and what each loss needs there. A profile shrinks the runs of a published table
for a small machine.
"""

from __future__ import annotations

import functools
import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from symloss import checks
from symloss.data.source import DataSource, warn
from symloss.losses.published import FILE as PRESETS_FILE
from symloss.training.settings import FULL, PUBLISHED_CODE, Settings

if TYPE_CHECKING:
    from symloss.data.dataset import DataSet
    from symloss.losses.record import Record

FILE = "experiments/recipes/protocols.toml"
PROFILES_FILE = "experiments/recipes/profiles.toml"
DEVIATIONS = "deviations"  # an entry of this file that is no profile
CONFIGURATION = ("epochs", "batch", "optimizer", "lr", "momentum", "weight_decay", "clip", "schedule")
"""The settings that a table of configurations prints for a loss."""
_NOT_SETTINGS = ("source", "sources", "losses_source", "presets", "borrowed", "like", "losses")
_NOT_SETTINGS_OF_A_LOSS = ("source", "sources", "configuration", "loss")


@dataclass(frozen=True)
class Layer:
    """Values of settings, and where they come from."""

    name: str
    values: Mapping[str, Any]
    source: str
    parameters: Mapping[str, Any] | None = None
    """Parameters and options of the loss, merged with those of other layers. None: the layer has none."""
    sources: Mapping[str, str] = field(default_factory=dict)
    """The sources of single settings, if they differ. An earlier layer may set the value."""
    file: str | None = None

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
    presets: tuple[str, ...] = ()  # the names of the presets that apply. A loss takes the first one that it has.
    borrowed: tuple[str, ...] = ()  # presets of other data sets, for losses that have none here


@functools.cache
def load_protocol(name: str) -> TrainingProtocol:
    """Return a protocol by its name."""
    rules = _merged(name)
    source = rules.get("losses_source", rules["source"])
    losses = {}
    for loss, entry in rules.get("losses", {}).items():
        configuration = dict.fromkeys(CONFIGURATION, entry["configuration"]) if "configuration" in entry else {}
        values = {key: value for key, value in entry.items() if key not in _NOT_SETTINGS_OF_A_LOSS}
        sources = configuration | entry.get("sources", {})
        title = f"protocol {name}, for {loss}"
        losses[loss] = Layer(title, values, entry.get("source", source), entry.get("loss"), sources, FILE)
    values = {key: value for key, value in rules.items() if key not in _NOT_SETTINGS}
    presets = [tuple(rules.get(kind, ())) for kind in ("presets", "borrowed")]
    return TrainingProtocol(f"protocol {name}", values, rules["source"], None, rules["sources"], FILE, losses, *presets)


def trained_as(data: str) -> str:
    """Return the data set with the same training data, for data sets that differ only in their test data."""
    return data.removesuffix("-imagenet")


@functools.cache
def _packaged(file: str) -> dict[str, dict[str, Any]]:
    return tomllib.loads(resources.files("symloss").joinpath(file).read_text())


def _merged(name: str) -> dict[str, Any]:
    """Return the entries of a protocol, merged with those of the protocol that it is like."""
    known = _packaged(FILE)
    if name not in known:
        raise ValueError(f"there is no protocol {name!r}; {checks.nearest(name, known)}")
    rules = known[name]
    other = _merged(rules["like"]) if "like" in rules else {}
    return other | rules | {"sources": other.get("sources", {}) | rules.get("sources", {})}


def profiles() -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Return the settings that each profile changes, by protocol."""
    return {FULL: {}} | {name: profile for name, profile in _packaged(PROFILES_FILE).items() if name != DEVIATIONS}


def deviation(profile: str, loss: str) -> Mapping[str, str]:
    """Return the keyword by which the public implementation's form of a loss differs, if the profile asks for it.

    >>> deviation("published-code", "gce:q=0.7"), deviation("published-code", "ce"), deviation("full", "gce")
    ({'deviation': 'clamped-probability'}, {}, {})
    """
    from symloss.losses.spec import parse  # noqa: PLC0415 (with the losses comes torch)

    name = parse(loss)[0]
    known: Mapping[str, Any] = _packaged(PROFILES_FILE)[DEVIATIONS] if profile == PUBLISHED_CODE else {}
    return {"deviation": known[name]} if name in known else {}


def changes(profile: str, protocol: str) -> Mapping[str, Any] | None:
    """Return the settings that a profile changes in a protocol; None if it has no form of this protocol."""
    return {} if profile == FULL else profiles()[profile].get(protocol)


GIVEN, DEFAULT, OURS = "as given", "the default", "not published; ours"
DEFAULTS = Layer(
    "defaults", {name: value for name, value in Settings().to_dict().items() if name not in ("data", "loss")}, DEFAULT
)
_LOSS_TAKES_SCORES = {"l2": "divided by their norm", None: "as they are"}


@dataclass(frozen=True)
class Resolved:
    """The settings of a run, with the source of each and all layers."""

    settings: Settings
    sources: dict[str, str]
    layers: tuple[Layer, ...] = field(repr=False)
    loss: str  # the name of the loss, without parameters

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters and options of the loss. :meth:`history` takes these names too."""
        from symloss.losses.spec import describe  # noqa: PLC0415 (with the losses comes torch)

        return {f"loss.{name}": value for name, value in _parameters(describe(self.loss), self.layers).items()}

    def history(self, setting: str) -> list[dict[str, Any]]:
        """Return the layers that set a setting or a parameter of the loss, with value and source; the first holds."""
        from symloss.losses.spec import write  # noqa: PLC0415 (with the losses comes torch)

        found = []
        whole, _, parameter = setting.partition(".")
        for at, following in itertools.pairwise([*_setters(self.layers, setting), len(self.layers)]):
            layer, parameters = self.layers[at], self.layers[at].parameters or {}
            of_loss = parameters[parameter] if parameter else write(self.loss, parameters)
            value = layer.values[setting] if whole != "loss" else of_loss
            source = _source(self.layers[at:following], setting)
            found.append({"layer": layer.name, "value": value, "source": source})
        return found[::-1]


def resolve_layers(protocol: str, data: str, loss: str, *added: Layer, source: str = GIVEN) -> Resolved:
    """Return every setting of a run by a protocol, each with its source.

    The added layers override all others. The source is that of the data and of the parameters in the loss's text.
    """
    from symloss.losses.spec import describe, parse, write  # noqa: PLC0415 (with the losses comes torch)

    name, parameters = parse(loss)
    record, rules = describe(name), load_protocol(protocol)
    entry = rules.losses.get(record.name)
    of_loss: list[Layer | None] = [_preset_layer(record, rules), entry]
    defaults = _default_parameters(record)
    if "preset" in parameters:  # a preset in the text replaces all other parameters
        of_loss, defaults = [entry and replace(entry, parameters=None)], {}
    layers = (
        DEFAULTS,
        Layer(f"loss {record.name}", {}, OURS if record.parameters else record.source, defaults),
        rules,
        *(layer for layer in of_loss if layer is not None),
        Layer("data and loss", {"data": data}, source, parameters=parameters or None),
        *added,
    )
    values: dict[str, Any] = {}
    for layer in layers:
        values |= layer.values
    # The text of the loss holds the chosen parameters, but no defaults. The name of a run depends on this text.
    chosen = _parameters(record, layers[2:])
    values["loss"] = write(record.name, chosen)
    if values["scores"] == (record.normalize or "none") and "normalize" not in chosen:
        values["scores"] = "loss"  # the loss does it by itself, so equal runs have equal settings
    settings = Settings(**values)
    sources = {setting: _source(layers, setting) for setting in settings.to_dict()}
    if settings.scores == "loss" and layers[_setters(layers, "scores")[-1]].source in (DEFAULT, GIVEN):
        sources["scores"] = f"the loss, which takes them {_LOSS_TAKES_SCORES[record.normalize]}"
    return Resolved(settings, sources, layers, record.name)


def _preset_layer(record: Record, rules: TrainingProtocol) -> Layer | None:
    """Return the preset of a loss for a data set, or one that is borrowed from another data set. The source says so."""
    name = next((name for name in (*rules.presets, *rules.borrowed) if name in record.presets), None)
    if name is None:
        return None
    preset = record.presets[name]
    source = preset.source if name in rules.presets else f"{preset.source}, for {name}"
    values: dict[str, Any] = {} if preset.penalty is None else {"penalty": preset.penalty}
    parameters = dict(preset.values)
    if preset.batch_norm_scores:
        values["scores"] = "batch-norm"
        parameters.pop("normalize", None)
    return Layer(f"preset of {record.name} for {name}", values, source, parameters, file=PRESETS_FILE)


def _parameters(record: Record, layers: Sequence[Layer]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for layer in layers:
        joined = record.overridden(joined, layer.parameters or {})
    return joined


def _default_parameters(record: Record) -> dict[str, Any]:
    return {name: value for name, value in record.defaults.items() if value is not None}


def _setters(layers: Sequence[Layer], setting: str) -> list[int]:
    """Return the numbers of the layers that set a setting. The value of the last one holds."""
    return [at for at, layer in enumerate(layers) if layer.sets(setting)]


def _source(layers: Sequence[Layer], setting: str) -> str:
    """Return the source of a setting: that of the last layer which names one."""
    return next(source for layer in reversed(layers) if (source := layer.source_of(setting)) is not None)


def with_default_parameters(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Add the defaults of the other parameters of a loss. Unknown losses are left as they are.

    >>> with_default_parameters("sgce", {"scale": "ce"})
    {'q': 0.7, 'scale': 'ce'}
    """
    from symloss.losses.spec import describe  # noqa: PLC0415 (with the losses comes torch)

    try:
        record = describe(name)
    except (ValueError, TypeError, KeyError):
        return dict(values)
    return record.overridden(_default_parameters(record), values)


TINY, SMALL = 8, 48
"""Pixels of a side: below the first, three pools leave nothing of an image; above the second, a network for small
images costs more than a ResNet-18, which shrinks an image at once."""
FEW, MANY = 10_000, 100_000
"""Numbers of training images: below the first a narrow network is enough; from the second on a deep one learns."""
SIZE_SOURCE = "ours: the shorter side of the median image, at most 224"


def resolve(data: str | Path, loss: str, **options: Any) -> Settings:
    """Return the settings for a data set and a loss; options as in :func:`explain`.

    >>> found = resolve("cifar10", "sgce")
    >>> found.loss, found.model, found.weight_decay
    ('sgce:q=0.8', 'cnn8', 0.005)
    """
    return explain(data, loss, **options).settings


def explain(
    data: str | Path,
    loss: str,
    *,
    root: Path | None = None,
    skip_bad: bool = False,
    opened: DataSet | None = None,
    **given: Any,
) -> Resolved:
    """Resolve the settings for a data set and a loss, with the source of each and the layers that they were made of.

    A setting that is not given, or is None, is what the recipes say for the loss, or for all losses.

    Args:
        data: a known data set by its name, or the path of the user's own. That is opened: its kind decides the
            protocol, and its content is part of the settings.
        loss: a loss as text, such as "sgce" or "sgce:q=0.5".
        root: where known data sets are. Files that are not the publisher's are part of the settings too.
        skip_bad: skip unreadable images instead of refusing them.
        opened: the data set, if it is open already.
        given: settings by name, see :class:`Settings`.
    """
    from symloss.data.opening import open_data  # noqa: PLC0415
    from symloss.training.task import augmentation, fingerprint  # noqa: PLC0415

    data = str(data)
    source = DataSource.of(given | {"data": data, "skip_bad": skip_bad})
    users = None
    if not source.is_published:
        users = opened or open_data(source, root=root, on_bad=warn)
        given.pop("size", None)
    protocol = trained_as(data) if users is None else protocol_for(users, given.get("model"))
    given["fingerprint"] = fingerprint(data, users, given.get("noise") or "clean", root)
    asked = Layer("given", {name: value for name, value in given.items() if value is not None}, GIVEN)
    size_source = SIZE_SOURCE if source.size is None else GIVEN
    sizes = [Layer("size of images", {"size": users.size}, size_source)] if users and users.size is not None else []
    found = resolve_layers(protocol, data, loss, *sizes, asked)
    if users is not None:
        augmentation(found.settings, users)  # refuses what cannot be done to it, before a run is begun
    return found


def protocol_for(data: DataSet, model: str | None = None) -> str:
    """Return the protocol of protocols.toml, and with it the network, that fits data of the user's own.

    - A table: ``table``, an MLP. So are images below 8 pixels.
    - Images of up to 48 pixels: ``images``, eight layers as for CIFAR-10; ``few-images``, half as wide, below 10,000.
    - Larger ones: ``photos``, a ResNet-18; ``many-photos``, a ResNet-50, from 100,000 on.
    - A model with pretrained weights is fine-tuned: ``pretrained``.
    """
    from symloss.training.models import has_pretrained_weights  # noqa: PLC0415

    if len(data.input_shape) == 1 or min(data.input_shape[1:]) < TINY:
        return "table"
    if model is not None and has_pretrained_weights(model):
        return "pretrained"
    count = len(data.train)
    if max(data.input_shape[1:]) <= SMALL:
        return "few-images" if count < FEW else "images"
    return "photos" if count < MANY else "many-photos"
