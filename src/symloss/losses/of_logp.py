"""``of_logp("gce:q=0.5")`` computes a loss from the label's log-probabilities, where no scores are at hand."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation
from symloss.losses.base import Loss, Sum
from symloss.losses.criterion import Criterion, as_criterion
from symloss.losses.logits import HALF, Scores, full_precision
from symloss.losses.operators import UnitSlope, slope_at_equal_scores
from symloss.losses.potentials import MAEPotential, Potential
from symloss.losses.spec import create_loss

IMPOSSIBLE = -1e15  # Stands for log 0. With it no potential overflows in float32.
ROUNDING, HALF_ROUNDING = 0.01, 0.5
"""A log-probability may be as far above 0 by rounding: in float32 and float64, and in half precision."""


@dataclass(frozen=True, repr=False)
class OfLogp:
    """A loss as a function of the label's log-probabilities. :func:`of_logp` makes it."""

    terms: tuple[tuple[float, Potential], ...]  # Potentials with their factors. The loss is their sum.

    def __call__(self, log_probs: Tensor) -> Tensor:
        """Return the loss of each entry, in the same shape."""
        logp = _checked(log_probs)
        first, *others = (factor * potential.phi(logp) for factor, potential in self.terms)
        return sum(others, first)

    def __repr__(self) -> str:
        return f"of_logp({Sum(self.terms)!r})"


def of_logp(spec: str | Loss | Criterion, *, num_classes: int | None = None, **options: Any) -> OfLogp:
    """Return a loss as a function of the label's log-probabilities alone, such as those of the tokens of a text.

    It takes the losses that depend on nothing else: potentials such as CE, MAE and GCE, and weighted sums of them. The
    result has one value for each entry: the reduction and ``ignore_index`` of a criterion play no part.

    A log-probability that rounding has put above 0 counts as 0, with the slope that the loss has there. ``-inf`` counts
    as -1e15 and gets no gradient. Entries that are padding should be left out after the call.

    Args:
        spec: a text as in :func:`create_loss`, a loss of the algebra or a :class:`Criterion`.
        num_classes: the number of classes, which ``scale="ce"`` needs.
        options: the parameters of the loss, if ``spec`` is a text.

    Shapes: log-probabilities of any shape and floating-point type. The result has the same shape. Half precision is
    computed, and returned, in float32.

    >>> of_logp("gce:q=0.5")(torch.tensor([0.81, 0.25, 0.0]).log())
    tensor([0.2000, 1.0000, 2.0000])
    >>> of_logp("0.1*ce + mae")
    of_logp(0.1 * CE() + MAE())
    """
    if num_classes is not None:
        checks.number("num_classes", num_classes, "[2, inf)", whole=True)
    if options and not isinstance(spec, str):
        raise TypeError(f"options {checks.brief([*options])} need the name of a loss; got {checks.brief(spec)}")
    criterion = create_loss(spec, **options) if isinstance(spec, str) else as_criterion(spec)
    name = checks.shortened(spec) if isinstance(spec, str) else checks.brief(criterion.loss)
    terms = tuple(_terms(1.0, criterion.loss, name, num_classes))
    for option in ("normalize", "weight", "label_smoothing"):
        value = getattr(criterion, option)
        if isinstance(value, Tensor) or value:
            raise _needs_more(name, f"{option}={checks.brief(value)}")
    return OfLogp(terms)


def _terms(factor: float, loss: Loss, name: str, classes: int | None) -> Iterator[tuple[float, Potential]]:
    """Return a loss as a sum of potentials, with their factors. A loss that is none raises an error."""
    if isinstance(loss, Potential):
        yield factor, loss
    elif factor == 0:  # a part that does not count may be any loss
        yield 0.0, MAEPotential()
    elif isinstance(loss, Sum):
        for a, term in loss.terms:
            yield from _terms(factor * a, term, name, classes)
    elif isinstance(loss, UnitSlope):
        inner = list(_terms(factor, loss.inner, name, classes))
        if classes is None:
            raise ValueError(f"{name} has scale='ce', which depends on the number of classes; pass num_classes")
        zeros = Scores(torch.zeros(classes, dtype=torch.float64))
        slope = float(slope_at_equal_scores(loss.inner, zeros, "scale='ce'"))
        yield from ((a / slope, potential) for a, potential in inner)
    else:
        raise _needs_more(name, checks.brief(loss))


def _needs_more(name: str, reason: str) -> ValueError:
    return ValueError(
        f"{name} needs more than the label's log-probability, because of {reason}; "
        "of_logp takes losses such as gce, and sums of them, without normalize, weight and label_smoothing"
    )


def _checked(log_probs: Tensor) -> Tensor:
    """Log-probabilities that a potential takes, in full precision. Other values raise an error."""
    validation.floating_point("log_probs", log_probs, "of log-probabilities")
    largest = float(log_probs.detach().amax()) if validation.can_look(log_probs) and log_probs.numel() else 0.0
    if largest > (HALF_ROUNDING if log_probs.dtype in HALF else ROUNDING):
        raise ValueError(
            f"log_probs must be log-probabilities, which are at most 0; got {largest:g} "
            "(of probabilities take the logarithm, of a cross-entropy the negative)"
        )
    logp = full_precision(log_probs)
    logp = torch.where(logp == -torch.inf, IMPOSSIBLE, logp)
    # Above 0 by rounding, a clamp would have no gradient, but the loss has one.
    return torch.where(logp > 0, logp - logp.detach(), logp)
