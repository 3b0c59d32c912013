"""Corrupt labels and targets by an explicit seed, with a manifest of what was done; and estimate label noise.

Names are imported on first use, since reading the name of a noise must not import torch. ``__init__.pyi`` lists them.
"""

from symloss.lazy_names import attach, stub_names

__getattr__, __dir__ = attach(__name__)
__all__ = list(stub_names(__name__))
