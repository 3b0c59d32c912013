"""The choice of the kernel for a loss."""

from __future__ import annotations

import functools
from typing import NamedTuple

from symloss.losses.algebra import Loss
from symloss.losses.fast.kernels import Kernel, LabelKernel, SumsKernel, UnitKernel
from symloss.losses.fast.linear_kernels import LinearKernel, UnitLinearKernel
from symloss.losses.fast.partials import fast_form
from symloss.losses.layers import UnitScores


class Unit(NamedTuple):
    """The loss sees the scores divided by temperature * max(norm, eps)."""

    temperature: float
    eps: float


def unit_of(scores: UnitScores | None, classes: int) -> Unit | None:
    """How a layer divides scores of so many classes; None if there is no layer."""
    return None if scores is None else Unit(scores.temperature_for(classes), scores.eps)


class _NotCachedError(Exception):
    """The loss holds tensors or modules. It has no kernel, and a cache must not keep it alive."""


def kernel_for(loss: Loss, classes: int, unit: Unit | None = None) -> Kernel | None:
    """The kernel of a loss for this number of classes; None if there is none.

    With ``unit`` the kernel divides the scores by their norm first.
    """
    try:
        return _cached_kernel(loss, classes, unit)
    except _NotCachedError:
        return None
    except TypeError:
        if not has_hash(loss):  # a loss from outside this package; its kernel is built anew for each batch
            return _kernel(loss, classes, unit) if loss.any_classes else None
        raise


@functools.lru_cache(maxsize=256)
def _cached_kernel(loss: Loss, classes: int, unit: Unit | None) -> Kernel | None:
    if not loss.any_classes:
        raise _NotCachedError
    return _kernel(loss, classes, unit)


def has_hash(loss: Loss) -> bool:
    """Whether a loss can be a key of a cache. One from outside this package may not be."""
    try:
        hash(loss)
    except TypeError:
        return False
    return True


def _kernel(loss: Loss, classes: int, unit: Unit | None) -> Kernel | None:
    form = fast_form(loss, classes)
    # With two classes the sum has one term, which may be as small as 1 - p. The plain formulas keep its digits.
    if form is None or (classes < 3 and form.summed):
        return None
    if form.linear is not None:
        return LinearKernel(form.linear) if unit is None else UnitLinearKernel(form.linear, *unit)
    kernel = SumsKernel(form) if form.summed else LabelKernel(form, classes)
    return kernel if unit is None else UnitKernel(kernel, *unit)
