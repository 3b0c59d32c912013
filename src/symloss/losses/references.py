"""The publications in which the losses were introduced, read from references.bib."""

from __future__ import annotations

import re
from importlib import resources
from typing import NamedTuple

_ENTRY = re.compile(r"^@\w+\{\w+,\n(?:  \w+ = \{.*\},\n)+\}$", re.MULTILINE)


class Publication(NamedTuple):
    """An entry of the bibliography."""

    bibtex: str
    fields: dict[str, str]
    """Author, title, year and, of a conference, series and booktitle."""

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
SOURCES = {key: publication.text for key, publication in PUBLICATIONS.items()}
SOURCES["textbook"] = "the negative log-likelihood"
"""The source of each loss, as one line."""
