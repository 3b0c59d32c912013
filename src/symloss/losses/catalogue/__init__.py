"""The losses: one class each, in one file for each family. Functions, command-line names, docs and tests use them.

To add a loss, write a class in the file of its family and a line with its plain formula in tests/reference.py. Then
run ``make generate``.
"""

from collections.abc import Mapping
from types import MappingProxyType

from symloss.losses.catalogue import paper, probability, score_vector, sums
from symloss.losses.criterion import NamedLoss
from symloss.losses.published import SOURCES
from symloss.losses.record import Record

__all__ = ["LOSSES", "RECORDS", "SOURCES"]

FAMILIES = (paper, probability, score_vector, sums)
_FOUND = [(each, getattr(each, "record", each)) for family in FAMILIES for each in vars(family).values()]
RECORDS: Mapping[str, Record] = MappingProxyType({each.name: each for _, each in _FOUND if isinstance(each, Record)})
"""The record of each loss, by name, in the order of the files and of the losses in them."""
LOSSES: Mapping[str, type[NamedLoss]] = MappingProxyType(
    {record.name: loss for loss, record in _FOUND if isinstance(loss, type) and isinstance(record, Record)}
)
"""The class of each loss that has one, by name."""
