"""Properties that follow from how a loss is built, and from interval arithmetic over its potentials."""

from __future__ import annotations

from collections.abc import Callable
from functools import singledispatch

import torch

from symloss.losses.base import Loss, Sum
from symloss.losses.operators import Complement, Dirichlet, Insensitive, Relative, Symmetrize
from symloss.losses.potentials import CEPotential, MAEPotential, Potential
from symloss.losses.score_formulas import MSEFormula
from symloss.theory.intervals import proves

BY_CONSTRUCTION, BY_INTERVALS = "by construction", "by interval arithmetic"


def is_built_here(loss: Loss) -> bool:
    """Whether a loss knows no class by name and all its parts are of this package, whose declarations are tested.

    A potential from outside may have steps that are finer than any grid.
    """
    ours = type(loss).__module__.startswith("symloss.losses.")
    return ours and loss.any_classes and all(map(is_built_here, loss.children))


def proof(loss: Loss, fact: str, num_classes: int) -> str:
    """Return how a property of raw scores follows without a search; an empty text if it does not.

    >>> from symloss import create_loss
    >>> proof(create_loss("gce:q=0.7").loss, "non_increasing", 10)
    'by interval arithmetic'
    >>> proof(create_loss("sgce").loss, "symmetric", 10)
    'by construction'
    """
    if not is_built_here(loss) or not PROOFS[fact](simplified(loss), num_classes):
        return ""
    return BY_INTERVALS if fact in ("non_increasing", "bounded") else BY_CONSTRUCTION


def simplified(loss: Loss) -> Loss:
    """Drop the symmetrization of a symmetric loss, which changes a constant; replace that of MSE by twice MAE."""
    if isinstance(loss, Sum):
        return Sum(tuple((factor, simplified(term)) for factor, term in loss.terms))
    if isinstance(loss, Symmetrize) and loss.prior is None:
        if isinstance(loss.inner, MSEFormula):
            return MAEPotential(scale=2.0)
        return loss.inner if loss.inner.symmetric else loss
    return loss


@singledispatch
def _falls(loss: Loss) -> bool:
    """Whether the loss of the label never rises with its score."""
    return _parts(loss)


@singledispatch
def _parts(loss: Loss) -> bool:
    """Whether, besides, the losses of all other labels never fall with that score.

    The label's log p rises with its score and the others' fall, so that it holds for a falling potential.
    """
    return False


@_parts.register
def _(loss: Potential) -> bool:
    return proves(loss.derivative, lambda slope: slope.high <= 0)


@_parts.register
def _(loss: Sum) -> bool:
    return all(a >= 0 and _parts(term) for a, term in loss.terms)


@_falls.register
def _(loss: Sum) -> bool:
    return all(a >= 0 and _falls(term) for a, term in loss.terms)


@_falls.register
def _(loss: Symmetrize) -> bool:
    return loss.prior is None and _parts(loss.inner)


@_falls.register
def _(loss: Relative) -> bool:
    return _parts(loss.inner) and _is_at_least_0(loss.inner)


@_falls.register
def _(loss: Complement) -> bool:
    return _parts(loss.inner)


@_falls.register
def _(loss: Dirichlet) -> bool:
    # The derivative is alpha L_y' + (alpha - 1) sum_k L_k', and the first is negative.
    return isinstance(loss.alpha, float | int) and 0 <= loss.alpha <= 1 and _parts(loss.inner)


@singledispatch
def _is_bounded(loss: Loss) -> bool:
    return False


@_is_bounded.register
def _(loss: Potential) -> bool:
    return proves(loss.phi, lambda value: torch.maximum(value.low.abs(), value.high.abs()) < torch.inf)


@_is_bounded.register
def _(loss: Sum) -> bool:
    return all(a == 0 or _is_bounded(term) for a, term in loss.terms)


@_is_bounded.register
def _(loss: Symmetrize) -> bool:
    return _is_bounded(loss.inner)


@_is_bounded.register
def _(loss: Relative) -> bool:
    return _is_at_least_0(loss.inner)


@_is_bounded.register
def _(loss: Complement) -> bool:
    return True


@singledispatch
def _is_at_least_0(loss: Loss) -> bool:
    return False


@_is_at_least_0.register
def _(loss: Potential) -> bool:
    return proves(loss.phi, lambda value: value.low >= 0)


@_is_at_least_0.register
def _(loss: Sum) -> bool:
    return all(a >= 0 and _is_at_least_0(term) for a, term in loss.terms)


@singledispatch
def _log_sum_exp(loss: Loss, num_classes: int) -> float | None:
    """Return the multiple of the log-sum-exp in a loss that is linear otherwise; None for another loss."""
    return None


@_log_sum_exp.register
def _(loss: CEPotential, num_classes: int) -> float:
    return 1.0


@_log_sum_exp.register
def _(loss: Symmetrize, num_classes: int) -> float | None:
    return None if _log_sum_exp(loss.inner, num_classes) is None else 0.0


@_log_sum_exp.register
def _(loss: Insensitive, num_classes: int) -> float | None:
    return _log_sum_exp(loss.inner, num_classes)


@_log_sum_exp.register
def _(loss: Dirichlet, num_classes: int) -> float | None:
    inner = _log_sum_exp(loss.inner, num_classes)
    number = isinstance(loss.alpha, float | int)
    return None if inner is None or not number else inner * (1 + num_classes * (float(loss.alpha) - 1))


@_log_sum_exp.register
def _(loss: Sum, num_classes: int) -> float | None:
    parts = [(a, _log_sum_exp(term, num_classes)) for a, term in loss.terms]
    found = [a * part for a, part in parts if part is not None]
    return sum(found) if len(found) == len(parts) else None


def _is_convex(loss: Loss, num_classes: int) -> bool:
    multiple = _log_sum_exp(loss, num_classes)
    return multiple is not None and multiple >= 0


PROOFS: dict[str, Callable[[Loss, int], bool]] = {
    "symmetric": lambda loss, num_classes: loss.symmetric,
    "permutation_invariant": lambda loss, num_classes: True,
    "non_increasing": lambda loss, num_classes: _falls(loss),
    "convex": _is_convex,
    "bounded": lambda loss, num_classes: _is_bounded(loss),
}
