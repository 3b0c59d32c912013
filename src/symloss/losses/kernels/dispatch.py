"""The choice of the kernel for a loss."""

import functools

from symloss.losses.base import Loss, is_key
from symloss.losses.kernels.batch import Kernel
from symloss.losses.kernels.forms import form_of
from symloss.losses.kernels.labels import LabelKernel, SumsKernel
from symloss.losses.kernels.linear import LinearKernel, Unit, UnitKernel, UnitLinearKernel
from symloss.losses.kernels.soft import SoftKernel

LABELS, PROBABILITIES, WEIGHTS = "labels", "probabilities", "weights"
"""Targets: class indices; weights of the classes that sum to 1; any weights of the classes."""


def kernel_for(loss: Loss, classes: int, unit: Unit | None = None, target: str = LABELS) -> Kernel | None:
    """Return the kernel of a loss for this number of classes; None if there is none. ``unit`` divides the scores."""
    return _cached_kernel(loss, classes, unit, target) if is_key(loss) else None


@functools.lru_cache(maxsize=256)
def _cached_kernel(loss: Loss, classes: int, unit: Unit | None, target: str) -> Kernel | None:
    form = form_of(loss, classes)
    # With two classes the sum has one term, which may be as small as 1 - p. The plain formulas keep its digits.
    if form is None or (classes < 3 and form.summed):
        return None
    kernel: Kernel
    if target != LABELS:
        kernel = SoftKernel(form, target == PROBABILITIES)
    elif form.linear is not None:
        return LinearKernel(form.linear) if unit is None else UnitLinearKernel(form.linear, *unit.for_classes(classes))
    else:
        kernel = SumsKernel(form) if form.summed else LabelKernel(form, classes)
    return kernel if unit is None else UnitKernel(kernel, *unit.for_classes(classes))
