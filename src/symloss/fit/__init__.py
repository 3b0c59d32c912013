"""Learning from noisy labels: a classifier that is chosen by noisy labels alone, and the audit of the labels.

Names are imported on first use. ``__init__.pyi`` lists them.
"""

from symloss.lazy_names import attach, stub_names

__getattr__, __dir__ = attach(__name__)
__all__ = list(stub_names(__name__))
