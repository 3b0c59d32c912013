"""The losses: one class each, in one file for each family. Functions, command-line names, docs and tests use them.

To add a loss, write a class in the file of its family and a line with its plain formula in tests/reference.py. Then
run ``make generate``.
"""

from collections.abc import Mapping
from types import MappingProxyType

from symloss.losses.catalogue import normalized, paper, probability, score_vector, sums
from symloss.losses.criterion import NamedLoss
from symloss.losses.published import SOURCES
from symloss.losses.record import Record

__all__ = ["LOSSES", "RECORDS", "SOURCES"]

FAMILIES = (paper, probability, score_vector, normalized, sums)
_NAMED = [each for family in FAMILIES for each in vars(family).values() if each is not NamedLoss]
_CLASSES = [each for each in _NAMED if isinstance(each, type) and issubclass(each, NamedLoss)]
LOSSES: Mapping[str, type[NamedLoss]] = MappingProxyType({each.record.name: each for each in _CLASSES})
"""The class of each loss that has one, by name."""
_RECORDS = [
    each.record if each in _CLASSES else each for each in _NAMED if each in _CLASSES or isinstance(each, Record)
]
RECORDS: Mapping[str, Record] = MappingProxyType({record.name: record for record in _RECORDS})
"""The record of each loss, by name, in the order of the files and of the losses in them."""
