"""A warning where unit scores make all of many classes nearly equally probable, so that a loss hardly learns."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from symloss import checks
from symloss.losses.algebra import Loss, NoSlopeError
from symloss.losses.layers import UnitScores
from symloss.losses.operators import Symmetrize, UnitSlope

MANY = 500
"""Above this number of classes the probabilities of unit scores differ by a few percent at temperature 1."""

_judged: set[str] = set()
"""The kinds of losses that were looked at, and warned about if need be."""


def warn_of_flat_scores(loss: Loss, score_map: Callable[[Tensor], Tensor], classes: int) -> None:
    """Warn, once for each kind of loss, if the loss sees many classes as nearly equally probable.

    No loss that is linear in the scores is warned about: it does not depend on probabilities, and to it the temperature
    is a factor. Nor is one that ``scale="ce"`` has given a larger gradient.

    Args:
        loss: an expression of the algebra.
        score_map: the function of the scores that is applied first.
        classes: the number of classes. Callers need not call for :data:`MANY` or fewer.
    """
    if classes <= MANY or torch.compiler.is_compiling() or not isinstance(score_map, UnitScores):
        return
    temperature = score_map.temperature
    if temperature == "auto" or temperature < 1 or (kind := _kind(loss)) in _judged:
        return
    _judged.add(kind)
    is_scaled, is_weak = isinstance(loss, UnitSlope), _is_weak(loss, classes)
    if _is_linear(loss) or (is_scaled and is_weak):
        return
    warnings.warn(
        f"normalize='l2' at temperature {temperature:g} makes {classes} classes nearly equally probable, so that "
        f"{checks.brief(loss)} hardly tells them apart, with a gradient far below that of cross-entropy; "
        f"take temperature='auto'{' and scale=' + repr('ce') if is_weak else ''}, or normalize=None",
        stacklevel=3,
    )


def _is_weak(loss: Loss, classes: int) -> bool:
    """Whether a loss, without ``scale="ce"``, has a much smaller slope than cross-entropy."""
    try:
        return abs((loss.inner if isinstance(loss, UnitSlope) else loss).slope(classes)) < 0.5
    except NoSlopeError:
        return False


def _is_linear(loss: Loss) -> bool:
    """Whether a loss is linear in the scores."""
    if isinstance(loss, Symmetrize):
        return loss.affine
    return bool(loss.children) and all(map(_is_linear, loss.children)) and loss.affine


def _kind(loss: Loss) -> str:
    """A loss without its parameters."""
    return f"{type(loss).__name__}({', '.join(map(_kind, loss.children))})"
