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
    """
    if classes <= MANY or torch.compiler.is_compiling() or not isinstance(score_map, UnitScores):
        return
    temperature = score_map.temperature
    if temperature == "auto" or temperature < 1 or (kind := _kind(loss)) in _judged:
        return
    _judged.add(kind)
    bare = loss.inner if isinstance(loss, UnitSlope) else loss
    try:
        is_weak = abs(bare.slope(classes)) < 0.5
    except NoSlopeError:
        is_weak = False
    if _is_linear(bare) or (is_weak and bare is not loss):
        return
    warnings.warn(
        f"normalize='l2' at temperature {temperature:g} makes {classes} classes nearly equally probable, so that "
        f"{checks.brief(loss)} hardly tells them apart, with a gradient far below that of cross-entropy; "
        f"take temperature='auto'{' and scale=' + repr('ce') if is_weak else ''}, or normalize=None",
        stacklevel=3,
    )


def _is_linear(loss: Loss) -> bool:
    """Whether a loss is linear in the scores."""
    linear_parts = bool(loss.children) and all(map(_is_linear, loss.children))
    return loss.affine and (isinstance(loss, Symmetrize) or linear_parts)


def _kind(loss: Loss) -> str:
    """A loss without its parameters."""
    return f"{type(loss).__name__}({', '.join(map(_kind, loss.children))})"
