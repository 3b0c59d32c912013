"""Which measurements ``symloss bench fit`` makes, and where their rows are kept."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from symloss import checks
from symloss.bench.fit_examples import PUBLISHED, SOURCES
from symloss.bench.fit_rivals import RIVALS
from symloss.data.opening import open_data
from symloss.environment import data_root
from symloss.noise import parse
from symloss.noise.labels import human_file, require_human_file

METHODS = ("symloss", *RIVALS, "cleanlab")

Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """Which measurement a row is of."""

    data: str
    noise: str
    seed: int
    method: str

    def __str__(self) -> str:
        return f"{self.data} {self.noise}, seed {self.seed}, {self.method}"

    def path(self, folder: Path) -> Path:
        """The file of the row."""
        return folder / self.data / f"{re.sub(r'[^a-z0-9.]+', '-', self.noise.lower())}-{self.seed}-{self.method}.json"


@dataclass(frozen=True)
class Plan:
    """Measurements, cell by cell, and a line for all that is left out."""

    places: list[Place]
    left_out: list[str]


def parse_plan(data: str, noise: str | None, seeds: str | None, methods: str | None, root: Path | None) -> Plan:
    """The plan of options as they are typed; see the help of the command. None stands for all.

    >>> [str(place) for place in parse_plan("wine", None, "0,2", "svc", None).places]
    ['wine sym:0.3, seed 0, svc', 'wine sym:0.3, seed 2, svc']
    """
    names, left_out = _listed("data", data, SOURCES), []
    for name in list(names):
        missing = _missing(name, root)
        if missing:
            names.remove(name)
            left_out.append(f"{name} is left out: {missing}")
    wanted = list(METHODS) if methods is None else _listed("methods", methods, METHODS)
    if "cleanlab" in wanted and not has_cleanlab():
        wanted.remove("cleanlab")
        left_out.append("cleanlab is left out: it is not installed (pip install 'symloss[cleanlab]')")
    noises = None if noise is None else [str(parse(one.strip())) for one in noise.split(",")]
    return Plan(planned(names, noises, None if seeds is None else _seeds(seeds), wanted), left_out)


def planned(
    data: Sequence[str], noises: Sequence[str] | None, seeds: Sequence[int] | None, methods: Sequence[str]
) -> list[Place]:
    """All measurements. cleanlab comes last in a cell, and brings along the rivals that it builds on.

    Args:
        data: names of ``SOURCES``.
        noises: specs of noise; None for those of each data set.
        seeds: None for as many as each data set has.
        methods: some of ``METHODS``.
    """
    wanted = [one for one in METHODS if one in methods or ("cleanlab" in methods and one in RIVALS)]
    return [
        Place(name, noise, seed, method)
        for name in data
        for noise in (SOURCES[name].noises if noises is None else noises)
        for seed in (range(SOURCES[name].seeds) if seeds is None else seeds)
        for method in wanted
    ]


def read_rows(folder: Path, places: Sequence[Place]) -> list[Row]:
    """The rows that are finished."""
    return [json.loads(file.read_text()) for file in (place.path(folder) for place in places) if file.exists()]


def has_cleanlab() -> bool:
    """Whether cleanlab is installed."""
    return importlib.util.find_spec("cleanlab") is not None


def _missing(name: str, root: Path | None) -> str:
    """Why a published data set cannot be opened; empty if it can."""
    if name not in PUBLISHED:
        return ""
    folder = data_root() if root is None else root
    try:
        open_data(PUBLISHED[name], root=folder)
        for noise in SOURCES[name].noises:
            if noise.startswith("human"):
                require_human_file(human_file(parse(noise), folder))
    except FileNotFoundError as error:
        return str(error)
    return ""


def _listed(option: str, text: str, allowed: Any) -> list[str]:
    found = [one.strip() for one in text.split(",")]
    for one in found:
        checks.choice(option, one, tuple(allowed))
    return list(dict.fromkeys(found))


def _seeds(text: str) -> list[int]:
    found: list[int] = []
    for part in text.split(","):
        ends = re.fullmatch(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?", part)
        if ends is None or int(ends[2] or ends[1]) < int(ends[1]):
            raise ValueError(f"seeds must be whole numbers by commas, or a range as in 0-4; got {text!r}")
        found += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return list(dict.fromkeys(found))
