"""Operators: new losses from old ones. They build every composite loss of the field in one line each::

symmetrize(L)         L_y - mean_k L_k                          the robust part of any loss
relative(L)           L_y / sum_k L_k                           NCE, NFL
complement(L)         1 - (A - L_y) / sum_k (A - L_k)           NNCE, NNFL
blend(L, alpha)       (1 - alpha) unhinged + alpha L / slope    alpha-MAE
dirichlet(L, alpha)   L_y + sum_k (alpha_k - 1) L_k
noisy(L, T)           sum_k T[y, k] L_k                         the risk under label noise
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Self

import torch
from torch import Tensor

from symloss import checks
from symloss.losses import validation
from symloss.losses.algebra import FirstOrder, Loss, NoSlopeError, refuse_no_loss
from symloss.losses.kernels import AtLabel, Partials, add_multiple
from symloss.losses.leaves import CE, Potential, Room
from symloss.losses.scores import Scores

NOTHING = 1e-38
"""Added to a part and to its whole: of nothing the part is 1."""


@dataclass(frozen=True, repr=False, eq=False)
class Operator(Loss):
    """A loss made of one other."""

    inner: Loss

    def __post_init__(self) -> None:
        refuse_no_loss(self.inner)

    def __repr__(self) -> str:
        others = [f for f in dataclasses.fields(self) if f.repr and f.name != "inner"]
        given = [f"{f.name}={getattr(self, f.name)!r}" for f in others if getattr(self, f.name) is not None]
        return f"{type(self).__name__.lower()}({', '.join([repr(self.inner), *given])})"

    @property
    def children(self) -> tuple[Loss, ...]:
        return (self.inner,)

    def _potential(self) -> tuple[Potential, ...] | None:
        """The inner loss, if it is a potential and all it takes to know is its sum over classes."""
        return (self.inner,) if isinstance(self.inner, Potential) else None

    def _unless_affine(self) -> tuple[Potential, ...] | None:
        """The same; but the mean of cross-entropy is the label's less the unhinged loss, and sums nothing."""
        return () if self.inner == CE() else self._potential()

    def map(self, change: Callable[[Loss], Loss]) -> Self:
        return dataclasses.replace(self, inner=self.inner.map(change))


@dataclass(frozen=True, repr=False, eq=False)
class OverLabels(Operator):
    """An operator that reads the mean of a loss over labels that are drawn uniformly, or from a prior."""

    prior: Tensor | None = None

    @property
    def any_classes(self) -> bool:
        return self.prior is None and super().any_classes

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        return self._unless_affine() if self.prior is None else None

    def refuse(self, s: Scores, kept: Tensor) -> None:
        super().refuse(s, kept)
        if self.prior is not None and bool((kept & (s.sum(self._drawn(s)) == 0)).any()):
            raise ValueError(
                "prior gives probability 0 to every class that is present, since the scores of all others are -inf, "
                "that is, masked out; it must be above 0 for a class that is present"
            )

    def _drawn(self, s: Scores) -> Tensor:
        """The prior, class by class."""
        assert self.prior is not None
        validation.class_vector("prior", self.prior, s.classes)
        return s.align(self.prior.to(s.z))

    def _mean(self, values: Tensor, s: Scores) -> Tensor:
        if self.prior is None:
            return s.mean(values)
        q = self._drawn(s)
        total = s.sum(q)
        some = total > 0
        # There is no mean of nothing; an ignored row that has none gets no gradient either.
        return torch.where(some, s.sum(q * values) / torch.where(some, total, 1.0), torch.nan)


@dataclass(frozen=True, repr=False, eq=False)
class Symmetrize(OverLabels):
    """The symmetric part: the loss less its mean over labels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # A constant cancels; a loss without it keeps the digits of what is left.
        bare = self.inner.less_constant if isinstance(self.inner, Potential) else self.inner
        object.__setattr__(self, "_bare", bare)

    _bare: ClassVar[Loss]

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        if self.prior is not None or self.inner == CE():
            return super().summed
        return (self._bare,) if isinstance(self._bare, Potential) else None

    @property
    def symmetric(self) -> bool:
        return self.prior is None

    @property
    def affine(self) -> bool:
        return self.inner.affine

    @property
    def linear(self) -> float | None:
        return 1.0 if self.prior is None and self.inner == CE() else None

    def partials(self, at: AtLabel) -> Partials:
        if self.inner.affine:
            return Partials(torch.zeros_like(at.miss), torch.zeros_like(at.miss), {}, linear=1.0)
        bare, share = self._bare.partials(at), 1 / at.classes
        value = add_multiple(bare.value, -share, bare.value + at.rest[self._bare])
        return Partials(value, bare.own * (1 - share), {self._bare: -share})

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        every = self._bare.values(_without_softmax(s) if self.inner.affine else s)
        return s.select(every, labels) - self._mean(every, s)

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(0 * value, slope)


def _without_softmax(s: Scores) -> Scores:
    """Scores that pass for log p: a loss that is affine in log p loses the log-sum-exp when it is symmetrized."""
    plain = Scores(s.z, s.dim)
    plain.__dict__["logp"] = s.shifted
    return plain


@dataclass(frozen=True, repr=False, eq=False)
class Insensitive(OverLabels):
    """The class-insensitive part: the mean over labels, at every label."""

    def partials(self, at: AtLabel) -> Partials:
        inner, share = self.inner.partials(at), 1 / at.classes
        if self.inner.affine:
            return dataclasses.replace(inner, linear=-1.0)
        return Partials((inner.value + at.rest[self.inner]) * share, inner.own * share, {self.inner: share})

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        mean = self._mean(self.inner.values(s), s)
        return mean.expand_as(s.z) if labels is None else mean

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(value, 0 * slope)


def _share(part: Tensor, rest: Tensor) -> Tensor:
    """part / (part + rest) for parts of at least 0; 1 where there is nothing to share.

    Dividing the smaller by the larger keeps the gradient free of cancellation.
    """
    leads = part > rest
    small, large = torch.where(leads, rest, part), torch.where(leads, part, rest)
    some = part + rest != 0
    ratio = small / torch.where(some, large, 1.0)
    return torch.where(some, torch.where(leads, 1 / (1 + ratio), ratio / (1 + ratio)), 1.0)


@dataclass(frozen=True, repr=False)
class Relative(Operator):
    @property
    def symmetric(self) -> bool:
        return True

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        return self._potential()

    def partials(self, at: AtLabel) -> Partials:
        inner, rest = self.inner.partials(at), at.rest[self.inner]
        part = inner.value + NOTHING
        total = part + rest
        slope = (inner.value / total).div_(total).neg_()
        return Partials(part.div_(total), (inner.own / total).mul_(rest / total), {self.inner: slope})

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        every = self.inner.values(s)
        return _share(s.select(every, labels), s.sum_others(every, labels))

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(1 / s.count, slope / (s.count * value))


@dataclass(frozen=True, repr=False)
class Complement(Operator):
    bound: float

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        return (Room(self.inner, self.bound),) if isinstance(self.inner, Potential) else None

    def partials(self, at: AtLabel) -> Partials:
        (room,) = self.summed or ()
        inner, rest = room.partials(at), at.rest[room]
        total = inner.value + rest
        value = rest / total
        per = inner.own.div(total).neg_()
        return Partials(value, per.mul_(value), {room: (inner.value / total).div_(total)})

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        room = (self.bound - self.inner.values(s)).clamp_min(0)
        return _share(s.sum_others(room, labels), s.select(room, labels))

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(1 - 1 / s.count, slope / (s.count * (self.bound - value)))


@dataclass(frozen=True, repr=False, eq=False)
class Dirichlet(Operator):
    alpha: float | Tensor

    @property
    def any_classes(self) -> bool:
        return not isinstance(self.alpha, Tensor) and super().any_classes

    def _excess(self, s: Scores) -> Tensor | float:
        if not isinstance(self.alpha, Tensor):
            return self.alpha - 1
        alpha = self.alpha.to(s.z)
        if alpha.shape == s.z.shape:
            return alpha - 1
        if alpha.shape == (s.classes,):
            return s.align(alpha) - 1
        raise ValueError(
            f"alpha must be a number, one entry for each of the {s.classes} classes or a tensor of the scores' shape "
            f"{tuple(s.z.shape)}; got shape {tuple(alpha.shape)}"
        )

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        return None if isinstance(self.alpha, Tensor) else self._unless_affine()

    def partials(self, at: AtLabel) -> Partials:
        assert not isinstance(self.alpha, Tensor)
        inner, excess = self.inner.partials(at), self.alpha - 1
        if self.inner.affine:
            total = excess * at.classes
            return dataclasses.replace(inner * (1 + total), linear=-total)
        value = inner.value * (1 + excess) + at.rest[self.inner] * excess
        return Partials(value, inner.own * (1 + excess), {self.inner: excess})

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        every = self.inner.values(s)
        return s.select(every, labels) + s.sum(self._excess(s) * every)

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(value * (1 + s.sum(torch.ones_like(s.z) * self._excess(s))), slope)


def _slope(loss: Loss, s: Scores, operator: str) -> Tensor:
    """The slope at equal scores, by which an operator divides."""
    try:
        slope = loss.first_order(s).slope
    except NoSlopeError as error:
        raise ValueError(f"{operator} divides by the slope at equal scores; {error}") from None
    # Where one class is left there is nothing to learn, whatever the scale.
    slope = torch.where(s.count > 1, slope, 1.0)
    if validation.can_look(slope) and bool((slope == 0).any()):
        raise ValueError(
            f"{operator} divides by the slope at equal scores, which is 0 for this loss; it must not be flat there"
        )
    return slope


@lru_cache(maxsize=1024)
def _known_slope(loss: Loss, classes: int, operator: str) -> float:
    return float(_slope(loss, Scores(torch.zeros(classes, dtype=torch.float64)), operator))


def _slope_at(loss: Loss, at: AtLabel, operator: str) -> float | Tensor:
    """The slope for as many classes as there are; where some may be masked out, example by example."""
    if isinstance(at.classes, int):
        return _known_slope(loss, at.classes, operator)
    assert at.scores is not None
    return _slope(loss, at.scores, operator)


@dataclass(frozen=True, repr=False)
class UnitSlope(Operator):
    """The loss divided by its slope at equal scores: it starts with cross-entropy's gradient."""

    @property
    def symmetric(self) -> bool:
        return self.inner.symmetric

    @property
    def affine(self) -> bool:
        return self.inner.affine

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        return self.inner.summed

    @property
    def linear(self) -> float | None:
        return None if self.inner.linear is None else 1.0

    def partials(self, at: AtLabel) -> Partials:
        return self.inner.partials(at) * (1 / _slope_at(self.inner, at, "scale='ce'"))

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        return self.inner.values(s, labels) / _slope(self.inner, s, "scale='ce'")

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(value / slope, slope / slope)


@dataclass(frozen=True, repr=False)
class Blend(Operator):
    alpha: float
    _checked: set[int] = field(default_factory=set, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.inner.any_classes:
            self._check(3)

    def _check(self, classes: int) -> None:
        if classes not in self._checked:
            _refuse_unblendable(self.inner, classes)
            self._checked.add(classes)

    @property
    def symmetric(self) -> bool:
        return True

    @property
    def summed(self) -> tuple[Potential, ...] | None:
        return self.inner.summed

    def partials(self, at: AtLabel) -> Partials:
        bent = self.inner.partials(at) * (self.alpha / _slope_at(self.inner, at, "blend"))
        return dataclasses.replace(bent, linear=bent.linear + 1 - self.alpha)

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        if not self.inner.any_classes and validation.can_look():
            self._check(s.classes)
        unhinged = s.mean(s.shifted) - s.select(s.shifted, labels)
        slope = _slope(self.inner, s, "blend")
        return (1 - self.alpha) * unhinged + self.alpha * self.inner.values(s, labels) / slope

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(self.alpha * value / slope, torch.ones_like(slope))


def _refuse_unblendable(loss: Loss, classes: int) -> None:
    """Symmetric, permutation-invariant and not flat at equal scores, or an error."""
    steps = torch.arange(32 * classes, dtype=torch.float64).reshape(32, classes)
    sizes = torch.tensor([0.1, 1.0, 3.0, 10.0], dtype=torch.float64).repeat(8)
    points = sizes[:, None] * (steps.square() + steps.sin()).cos()
    with torch.no_grad():
        every = loss.per_class(points)
        total = every.sum(-1)
        tolerance = 1e-8 * (1 + every.abs().max())
        if (total.max() - total.min()) > tolerance:
            raise ValueError(f"blend takes a symmetric loss; the sum over labels of {loss!r} is not constant")
        for order in validation.renamings(classes):
            if (loss.per_class(points[:, order]) - every[:, order]).abs().max() > tolerance:
                raise ValueError(f"blend takes a permutation-invariant loss; {loss!r} changes when classes are renamed")
    _slope(loss, Scores(points[:1]), "blend")


@dataclass(frozen=True, repr=False, eq=False)
class Noisy(Operator):
    """The expected loss when the label y is read as k with probability T[y, k]."""

    transition: Tensor

    @property
    def any_classes(self) -> bool:
        return False

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        if self.transition.shape != (s.classes, s.classes):
            raise ValueError(
                f"transition must have shape {(s.classes, s.classes)}, row = true class; "
                f"got {tuple(self.transition.shape)}"
            )
        with torch.autocast(s.z.device.type, enabled=False):
            every = self.inner.values(s).movedim(s.dim, -1) @ self.transition.to(s.z).T
        return s.select(every.movedim(-1, s.dim), labels)

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        agreement = self.transition.to(s.z).diagonal().mean()
        return FirstOrder(value, slope * (agreement * s.count - 1) / (s.count - 1))


def complement(loss: Loss, p_min: float = 1e-7, bound: float | None = None) -> Loss:
    """1 - (A - L_y) / sum_k (A - L_k) with L cut at A: the loss turned upside down.

    A is ``bound``, or the loss of a label whose probability is ``p_min``, where the loss depends on nothing else.
    """
    refuse_no_loss(loss)
    if bound is None:
        if not isinstance(loss, Potential):
            raise ValueError(
                f"complement needs bound=... for {loss!r}, which is no function of the label's probability alone"
            )
        checks.number("p_min", p_min, "(0, 1)")
        bound = float(loss.phi(torch.tensor(math.log(p_min), dtype=torch.float64)))
    return Complement(loss, checks.number("bound", bound, "(-inf, inf)"))


def relative(loss: Loss) -> Loss:
    """L_y / sum_k L_k, for a loss of at least 0 (normalised losses, Ma et al. 2020)."""
    return Relative(loss)


def blend(loss: Loss, alpha: float) -> Loss:
    """(1 - alpha) unhinged + alpha L / slope: alpha scales all that is not linear in a symmetric loss (sec. 6).

    The slope at equal scores is found from the loss: 1/C for MAE, C**-q for SGCE.
    """
    return Blend(loss, checks.number("alpha", alpha, "[0, inf)"))


def dirichlet(loss: Loss, alpha: float | Tensor) -> Loss:
    """L_y + sum_k (alpha_k - 1) L_k: the likelihood with a Dirichlet prior on the outputs (app. E).

    alpha is a number, one entry for each class, or a tensor of the scores' shape (alpha_k(x), example by example).
    """
    if isinstance(alpha, Tensor):
        if validation.can_look(alpha) and not bool((alpha > 0).all()):
            raise ValueError(f"alpha must be above 0; got {float(alpha.min()):g}")
        return Dirichlet(loss, alpha)
    return Dirichlet(loss, checks.number("alpha", alpha, "(0, inf)"))


def noisy(loss: Loss, transition: Tensor) -> Loss:
    """The expected loss under label noise: row y of the matrix says how the label y is read (app. A)."""
    if not isinstance(transition, Tensor) or transition.dim() != 2 or transition.shape[0] != transition.shape[1]:
        given = tuple(transition.shape) if isinstance(transition, Tensor) else type(transition).__name__
        raise ValueError(f"transition must be a square tensor, row = true class; got {given}")
    if not transition.is_floating_point():
        raise TypeError(f"transition must hold floating-point probabilities; got {transition.dtype}")
    validation.probabilities(transition, 1, "transition")
    return Noisy(loss, transition)
