"""All losses of the catalogue by name, in the order of the files and of the classes in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType, ModuleType

from symloss import checks
from symloss.losses.catalogue import (
    asymmetric_losses,
    bounded_ce,
    normalized,
    paper,
    penalized_sums,
    probability,
    score_vector,
    smoothing,
    weighted_sums,
)
from symloss.losses.criterion import Criterion
from symloss.losses.record import Record

FAMILIES = (
    paper,
    probability,
    asymmetric_losses,
    bounded_ce,
    score_vector,
    normalized,
    weighted_sums,
    penalized_sums,
    smoothing,
)


def _defined_in(family: ModuleType) -> Iterator[tuple[type[Criterion], Record]]:
    for value in vars(family).values():
        if isinstance(value, type) and issubclass(value, Criterion) and value is not Criterion:
            yield value, vars(value)["record"]


_ENTRIES = [entry for family in FAMILIES for entry in _defined_in(family)]
LOSSES: Mapping[str, type[Criterion]] = MappingProxyType({record.name: loss for loss, record in _ENTRIES})
"""The class of each loss, by name."""
RECORDS: Mapping[str, Record] = MappingProxyType({record.name: record for _, record in _ENTRIES})
"""The record of each loss, by name."""


def find(name: str) -> Record:
    """The record of a loss, by its name. For an unknown name the error suggests the nearest one.

    >>> find("sgce").formula
    '(mean_k p_k^q - p_y^q) / q'
    """
    if name not in RECORDS:
        raise ValueError(f"there is no loss named {name!r}; {checks.nearest(name, RECORDS)}")
    return RECORDS[name]
