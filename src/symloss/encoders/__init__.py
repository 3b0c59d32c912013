"""Encoders turn images and texts into features, with weights that were trained elsewhere.

Names are imported on first use. ``__init__.pyi`` lists them.
"""

from symloss.lazy_names import attach, stub_names

__getattr__, __dir__ = attach(__name__)
__all__ = list(stub_names(__name__))
