"""Noise-robust linear and kernel classifiers in closed form (appendix C of the paper).

>>> from sklearn.datasets import load_digits
>>> from symloss.closed_form import UnhingedClassifier
>>> x, y = load_digits(return_X_y=True)
>>> round(UnhingedClassifier().fit(x, y).score(x, y), 2)
0.87

Names are imported on first use. ``__init__.pyi`` lists them.
"""

from symloss.lazy_names import attach, stub_names

__getattr__, __dir__ = attach(__name__)
__all__ = list(stub_names(__name__))
