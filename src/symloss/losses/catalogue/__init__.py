"""The losses: one class each, in one file for each family. Functions, command-line names, docs and tests use them.

To add a loss, write a class in the file of its family and a line with its plain formula in tests/reference.py. Then
run ``make generate``.
"""

from symloss.losses.catalogue.references import SOURCES
from symloss.losses.catalogue.registry import LOSSES, RECORDS

__all__ = ["LOSSES", "RECORDS", "SOURCES"]
