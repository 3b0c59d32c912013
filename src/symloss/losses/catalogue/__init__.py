"""The losses: one class each, in a few files by family. Functions, command-line names, docs and tests follow from them.

To add a loss: a class in the file of its family, one line with its plain formula in tests/reference.py, and
``make generated``.
"""

from symloss.losses.catalogue.references import SOURCES
from symloss.losses.catalogue.registry import LOSSES, RECORDS

__all__ = ["LOSSES", "RECORDS", "SOURCES"]
