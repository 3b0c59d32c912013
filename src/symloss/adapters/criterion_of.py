"""Turn what a user passes as a loss into a criterion, or refuse it in one sentence."""

from __future__ import annotations

import copy

from symloss import checks
from symloss.losses.base import Loss
from symloss.losses.criterion import MANY, Criterion, as_criterion
from symloss.losses.layers import UnitScores
from symloss.losses.spec import create_loss, parse

AnyCriterion = str | Loss | Criterion  # a spec such as ``"gce:q=0.5"``, an expression of the algebra, or a criterion


def criterion_of(loss: AnyCriterion) -> Criterion:
    """Return the criterion of a spec or an expression of the algebra, or the criterion itself."""
    if isinstance(loss, (str, Criterion, Loss)):
        return as_criterion(loss)
    raise TypeError(f"loss must be a spec such as 'gce:q=0.5', or a symloss loss; got {checks.brief(loss)}")


def with_reduction(loss: AnyCriterion, reduction: str) -> Criterion:
    """Return a copy of a loss of ``reduction="mean"`` that has another reduction."""
    criterion = copy.copy(criterion_of(loss))
    if criterion.reduction != "mean":
        raise ValueError(f"loss must have reduction='mean' here; got reduction={criterion.reduction!r}")
    criterion.reduction = reduction
    return criterion


def criterion_of_raw_scores(loss: AnyCriterion, because: str) -> Criterion:
    """Return the criterion for raw scores, which must not be divided by their norm. A spec means raw scores here."""
    is_open = isinstance(loss, str) and "normalize" not in parse(loss)[1]
    criterion = create_loss(str(loss), normalize=None) if is_open else criterion_of(loss)
    if criterion.normalize is not None:
        raise ValueError(
            f"loss must have normalize=None here, because {because}; got {checks.brief(criterion.loss)} "
            f"with normalize={checks.brief(criterion.normalize)}"
        )
    return criterion


def refuse_flat_scores(criterion: Criterion, num_classes: int) -> None:
    """Raise an error if unit scores make all of many classes, such as tokens, nearly equally probable."""
    scores = criterion.score_map
    if num_classes <= MANY or not isinstance(scores, UnitScores):
        return
    if scores.temperature != "auto" and scores.temperature >= 1:
        raise ValueError(
            f"{checks.brief(criterion.loss)} with normalize='l2' cannot learn {num_classes:,} classes, because unit "
            "scores make them all nearly equally probable; pass normalize=None, or temperature='auto' with scale='ce'"
        )
