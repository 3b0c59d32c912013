"""Data sets: published ones by name, and the user's own.

>>> from symloss.data import open_data
>>> open_data("digits").train.inputs.shape
torch.Size([1437, 1, 8, 8])

Names are imported on first use. ``__init__.pyi`` lists them.
"""

from symloss.lazy_names import attach, stub_names

__getattr__, __dir__ = attach(__name__)
__all__ = list(stub_names(__name__))
