"""Losses: an algebra, a dozen potentials, and a catalogue with one class for every published loss.

Names are imported on first use. ``__init__.pyi`` lists them.
"""

from symloss.lazy_names import attach

__getattr__, __dir__ = attach(__name__)
