"""What was published about the losses: references.bib and, by data set, the settings of presets.toml."""

import functools
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import Any, NamedTuple

FILE = "losses/presets.toml"


@dataclass(frozen=True)
class Preset:
    """Published settings of a loss on a data set."""

    values: Mapping[str, Any]  # parameters and options of the loss
    source: str
    penalty: float | None = None  # weight of the sum of absolute parameters, for ``l1_penalty``
    batch_norm_scores: bool = False  # whether the published run put batch normalisation on the scores


def presets_of(loss: str) -> Mapping[str, Preset]:
    """Return the published settings of a loss, by the name of the data set; none for a loss without any.

    >>> presets_of("sgce")["cifar10"].values["q"]
    0.8
    """
    return _presets().get(loss, MappingProxyType({}))


@functools.cache
def _presets() -> dict[str, Mapping[str, Preset]]:
    found = tomllib.loads(resources.files("symloss").joinpath(FILE).read_text())
    sources = {loss: entries.pop("source") for loss, entries in found.items()}
    return {
        loss: MappingProxyType({data: _preset(sources[loss], **values) for data, values in entries.items()})
        for loss, entries in found.items()
    }


def _preset(source: str, penalty: float | None = None, scores: str | None = None, **values: Any) -> Preset:
    normalized = scores == "batch-norm"
    return Preset(values | {"normalize": None} if normalized else values, source, penalty, normalized)


_ENTRY = re.compile(r"^@\w+\{\w+,\n(?:  \w+ = \{.*\},\n)+\}$", re.MULTILINE)


class Publication(NamedTuple):
    """An entry of the bibliography."""

    bibtex: str
    fields: dict[str, str]  # author, title, year and, of a conference, series and booktitle

    @property
    def key(self) -> str:
        """The first author's family name and the year, by which records name their source."""
        return f"{self.fields['author'].partition(',')[0]} {self.fields['year']}"

    @property
    def text(self) -> str:
        """One line for people: authors, title, conference and year."""
        families = [author.partition(",")[0] for author in self.fields["author"].split(" and ")]
        who = " and ".join(families) if len(families) < 3 else f"{families[0]} et al."
        title, venue = self.fields["title"].strip("{}"), self.fields.get("series")
        ending = "" if title.endswith("?") else "."
        return f"{who}: {title}" + (f"{ending} {venue} {self.fields['year']}" if venue else "")


def _read() -> list[Publication]:
    entries = _ENTRY.findall(resources.files("symloss.losses").joinpath("references.bib").read_text())
    return [Publication(entry, dict(re.findall(r"^  (\w+) = \{(.*)\},$", entry, re.MULTILINE))) for entry in entries]


PAPER = "Lemire Paquin 2026"
PUBLICATIONS = {publication.key: publication for publication in _read()}
SOURCES = {key: publication.text for key, publication in PUBLICATIONS.items()}  # the source of each loss, as one line
SOURCES["textbook"] = "the negative log-likelihood"
