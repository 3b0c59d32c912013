"""``of_logp("gce:q=0.5")`` computes a loss from the label's log-probabilities, where no scores are at hand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import Loss, Sum
from symloss.losses.create import create_loss
from symloss.losses.criterion import Criterion
from symloss.losses.logits import HALF, Scores, full_precision
from symloss.losses.operators import (
    Blend,
    Complement,
    Dirichlet,
    Insensitive,
    Noisy,
    Relative,
    Symmetrize,
    UnitSlope,
    slope_at_equal_scores,
)
from symloss.losses.potentials import MAEPotential, Potential

IMPOSSIBLE = -1e15
"""Stands for log 0. With it no potential overflows in float32."""
ROUNDING, HALF_ROUNDING = 0.01, 0.5
"""A log-probability may be as far above 0 by rounding: in float32 and float64, and in half precision."""

_READS: dict[type[Loss], str] = {
    Symmetrize: "subtracts the mean over labels",
    Insensitive: "is a mean over labels",
    Relative: "divides by the sum over labels",
    Complement: "divides by a sum over labels",
    Dirichlet: "adds a sum over labels",
    Noisy: "is a mean over labels",
    Blend: "holds the unhinged loss, mean_k z_k - z_y",
}


@dataclass(frozen=True, repr=False)
class OfLogp:
    """A loss as a function of the label's log-probabilities. :func:`of_logp` makes it.

    Args:
        terms: potentials, each with its factor. The loss is their sum.
    """

    terms: tuple[tuple[float, Potential], ...]

    def __call__(self, log_probs: Tensor) -> Tensor:
        """The loss of each entry, in the same shape."""
        _check(log_probs)
        logp = _in_range(full_precision(log_probs))
        first, *others = (factor * potential.phi(logp) for factor, potential in self.terms)
        return sum(others, first)

    def __repr__(self) -> str:
        return f"of_logp({Sum(self.terms)!r})"


def of_logp(spec: str | Loss | Criterion, *, num_classes: int | None = None, **options: Any) -> OfLogp:
    """A loss as a function of the label's log-probabilities alone, such as those of the tokens of a text.

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
    if not isinstance(spec, (str, Loss, Criterion)):
        raise TypeError(f"spec must be a text such as 'gce:q=0.5', a Loss or a Criterion; got {type(spec).__name__}")
    if options and not isinstance(spec, str):
        option = checks.shortened(next(iter(options)))
        raise TypeError(f"options such as {option} go with the name of a loss; got {checks.brief(spec)}")
    criterion = create_loss(spec, **options) if isinstance(spec, str) else spec
    whole = criterion.loss if isinstance(criterion, Criterion) else criterion
    name = checks.shortened(spec) if isinstance(spec, str) else checks.brief(whole)
    terms = tuple(_terms(1.0, whole, _Asked(name, whole, num_classes)))
    if isinstance(criterion, Criterion):
        _refuse_options(name, criterion)
    return OfLogp(terms)


@dataclass(frozen=True)
class _Asked:
    """The loss that was asked for, for messages."""

    name: str
    whole: Loss
    classes: int | None


def _terms(factor: float, loss: Loss, asked: _Asked) -> Iterable[tuple[float, Potential]]:
    """A loss as a sum of potentials, with their factors. A loss that is none raises an error."""
    if isinstance(loss, Potential):
        yield factor, loss
    elif factor == 0:  # a part that does not count may be any loss
        yield 0.0, MAEPotential()
    elif isinstance(loss, Sum):
        for a, term in loss.terms:
            yield from _terms(factor * a, term, asked)
    elif isinstance(loss, UnitSlope):
        inner = list(_terms(factor, loss.inner, asked))
        slope = _slope(loss.inner, asked)
        yield from ((a / slope, potential) for a, potential in inner)
    else:
        _refuse(loss, asked)


def _slope(loss: Loss, asked: _Asked) -> float:
    if asked.classes is None:
        raise ValueError(
            f"{asked.name} needs the number of classes, because scale='ce' divides by the slope at equal scores; "
            "pass it as num_classes"
        )
    return float(slope_at_equal_scores(loss, Scores(torch.zeros(asked.classes, dtype=torch.float64)), "scale='ce'"))


def _refuse(loss: Loss, asked: _Asked) -> NoReturn:
    reads = _READS.get(type(loss))
    needed = "scores" if reads is None else "log-probabilities"
    inner = asked.whole.inner if isinstance(asked.whole, UnitSlope) else asked.whole
    part = "it" if loss is inner else f"its part {checks.brief(loss)}"
    raise ValueError(
        f"{asked.name} needs the {needed} of all classes, because {part} "
        f"{reads or 'is no function of the probability of the label alone'}; "
        "of_logp takes losses such as gce, which read the label's log-probability alone, and sums of them"
    )


def _refuse_options(name: str, criterion: Criterion) -> None:
    if criterion.score_map is not None:
        raise ValueError(
            f"{name} needs the scores of all classes, because normalize={checks.brief(criterion.normalize)} changes "
            "them; of_logp takes normalize=None"
        )
    if criterion.weight is not None:
        raise ValueError(
            f"{name} needs the labels, because it has weights of classes; of_logp takes weight=None, "
            "and its values can be multiplied by weights"
        )
    if criterion.label_smoothing > 0:
        raise ValueError(
            f"{name} needs the log-probabilities of all classes, because label_smoothing="
            f"{criterion.label_smoothing:g} adds their mean; of_logp takes label_smoothing=0"
        )


def _check(log_probs: Tensor) -> None:
    """Raise an error unless these can be log-probabilities."""
    if not isinstance(log_probs, Tensor):
        raise TypeError(f"log_probs must be a tensor of log-probabilities; got {type(log_probs).__name__}")
    if not log_probs.is_floating_point():
        raise TypeError(f"log_probs must hold floating-point log-probabilities; got {log_probs.dtype}")
    if not validation.can_look(log_probs) or log_probs.numel() == 0:
        return
    largest = float(log_probs.detach().amax())
    if largest > (HALF_ROUNDING if log_probs.dtype in HALF else ROUNDING):
        raise ValueError(
            f"log_probs must be log-probabilities, which are at most 0; got {largest:g} "
            "(of probabilities take the logarithm, of a cross-entropy the negative)"
        )


def _in_range(logp: Tensor) -> Tensor:
    """log p, as 0 where it is above by rounding. There a clamp would have no gradient, but the loss has one."""
    logp = torch.where(logp == -torch.inf, IMPOSSIBLE, logp)
    return torch.where(logp > 0, logp - logp.detach(), logp)
