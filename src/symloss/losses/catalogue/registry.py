"""All losses of the catalogue by name, in the order of the files and of the classes in them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

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


_CLASSES = [
    value
    for family in FAMILIES
    for value in vars(family).values()
    if isinstance(value, type) and issubclass(value, Criterion) and value is not Criterion
]
_RECORDS: list[Record] = [vars(loss)["record"] for loss in _CLASSES]
LOSSES: Mapping[str, type[Criterion]] = MappingProxyType(
    {record.name: loss for record, loss in zip(_RECORDS, _CLASSES, strict=True)}
)
"""The class of each loss, by name."""
RECORDS: Mapping[str, Record] = MappingProxyType({record.name: record for record in _RECORDS})
"""The record of each loss, by name."""
