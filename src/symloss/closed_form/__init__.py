"""Noise-robust linear and kernel classifiers in closed form (appendix C of the paper).

>>> from sklearn.datasets import load_digits
>>> from symloss.closed_form import UnhingedClassifier
>>> x, y = load_digits(return_X_y=True)
>>> round(UnhingedClassifier().fit(x, y).score(x, y), 2)
0.87
"""

from symloss.closed_form.kernel import KernelUnhingedClassifier
from symloss.closed_form.networks import centroid_alignment, refit_head, squared_error_centroid, unhinged_centroid
from symloss.closed_form.unhinged import UnhingedClassifier, fit_distributed

__all__ = [
    "KernelUnhingedClassifier",
    "UnhingedClassifier",
    "centroid_alignment",
    "fit_distributed",
    "refit_head",
    "squared_error_centroid",
    "unhinged_centroid",
]
