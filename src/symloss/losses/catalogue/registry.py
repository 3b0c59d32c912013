"""All losses of the catalogue by name, in the order of the files and of the classes in them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from symloss.losses.catalogue import normalized, paper, probability, score_vector, sums
from symloss.losses.criterion import Criterion
from symloss.losses.record import Record

FAMILIES = (paper, probability, score_vector, normalized, sums)
_CLASSES = [each for family in FAMILIES for each in vars(family).values() if isinstance(each, type)]
LOSSES: Mapping[str, type[Criterion]] = MappingProxyType(
    {each.record.name: each for each in _CLASSES if issubclass(each, Criterion) and each is not Criterion}
)
"""The class of each loss, by name."""
RECORDS: Mapping[str, Record] = MappingProxyType({name: loss.record for name, loss in LOSSES.items()})
"""The record of each loss, by name."""
