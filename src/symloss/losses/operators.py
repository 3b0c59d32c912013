"""Operators make new losses from others. ``compose`` has the functions that apply them to losses of any kind::

symmetrize(L)         L_y - mean_k L_k                          the robust part of any loss
relative(L)           L_y / sum_k L_k                           NCE, NFL
complement(L)         1 - (A - L_y) / sum_k (A - L_k)           NNCE, NNFL
blend(L, alpha)       (1 - alpha) unhinged + alpha L / slope    alpha-MAE
dirichlet(L, alpha)   L_y + sum_k (alpha_k - 1) L_k
noisy(L, T)           sum_k T[y, k] L_k                         the risk under label noise
"""

import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from symloss import checks
from symloss.losses import validation
from symloss.losses.base import FirstOrder, Loss, NoSlopeError, same, shown
from symloss.losses.logits import Scores, WithoutSoftmax, without_autocast
from symloss.own_code import own_code


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class Operator(Loss):  # noqa: PLW1641 (the dataclass writes the hash)
    """A loss that is made of another one. Two operators are equal if their parts are. The hash ignores tensors."""

    inner: Loss

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(same(one, getattr(other, name)) for name, one in vars(self).items())

    def __repr__(self) -> str:
        given = {name: value for name, value in vars(self).items() if name != "inner" and value is not None}
        arguments = [repr(self.inner), *(f"{name}={shown(value)}" for name, value in given.items())]
        return f"{type(self).__name__.lower()}({', '.join(arguments)})"

    @property
    def children(self) -> tuple[Loss, ...]:
        return (self.inner,)

    @property
    def any_classes(self) -> bool:
        return not any(isinstance(part, Tensor) for part in vars(self).values()) and self.inner.any_classes

    def map(self, change: Callable[[Loss], Loss]) -> Self:
        return dataclasses.replace(self, inner=self.inner.map(change))


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class OverLabels(Operator):
    """An operator that reads the mean of a loss over all labels: uniform, or weighted by a prior (C,)."""

    prior: Tensor | None = field(default=None, hash=False)

    def refuse(self, s: Scores, kept: Tensor) -> None:
        super().refuse(s, kept)
        if self.prior is not None and bool((kept & (s.sum(self._drawn(s)) == 0)).any()):
            raise ValueError(
                "prior gives probability 0 to every class that is present, since the scores of all others are -inf, "
                "that is, masked out; it must be above 0 for a class that is present"
            )

    def _drawn(self, s: Scores) -> Tensor:
        """Return the prior, shaped to broadcast against the scores."""
        assert self.prior is not None
        validation.class_vector("prior", self.prior, s.classes)
        return s.align(self.prior.to(s.z))

    def _mean(self, values: Tensor, s: Scores) -> Tensor:
        if self.prior is None:
            return s.mean(values)
        q = self._drawn(s)
        total = s.sum(q)
        some = total > 0
        # If every class with a prior above 0 is masked out, there is no mean. Such a row must be an ignored one.
        return torch.where(some, s.sum(q * values) / torch.where(some, total, 1.0), torch.nan)


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class Symmetrize(OverLabels):
    """The symmetric part of a loss, its value minus its mean over labels: L_y - mean_k L_k."""

    @property
    def bare(self) -> Loss:
        """The inner loss without its constant. The constant cancels anyway, and would only cost digits."""
        return self.inner.less_constant

    @property
    def symmetric(self) -> bool:
        return self.prior is None

    @property
    def affine(self) -> bool:
        return self.inner.affine

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        # In a loss that is affine in log p the log-sum-exp cancels.
        bare = self.bare
        chosen, every = bare.label_and_every(WithoutSoftmax(s) if self.inner.affine else s, labels)
        # The mean of a symmetric loss is constant. All that autograd could find is the rounding of its sum.
        constant = self.prior is None and bare.symmetric
        return chosen - self._mean(every.detach() if constant else every, s)

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(0 * value, slope)


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class Insensitive(OverLabels):
    """The class-insensitive part of a loss, its mean over labels: mean_k L_k."""

    def __repr__(self) -> str:
        return f"{super().__repr__().replace('insensitive', 'decompose', 1)}.insensitive"

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        mean = self._mean(self.inner.values(s), s)
        return mean.expand_as(s.z) if labels is None else mean

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(value, 0 * slope)


def _share(part: Tensor, rest: Tensor) -> Tensor:
    """part / (part + rest), both at least 0; 1 if both are 0."""
    leads = part > rest  # the smaller number is divided by the larger one, so that nothing cancels in the gradient
    small, large = torch.where(leads, rest, part), torch.where(leads, part, rest)
    some = part + rest != 0
    ratio = small / torch.where(some, large, 1.0)
    return torch.where(some, torch.where(leads, 1 / (1 + ratio), ratio / (1 + ratio)), 1.0)


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class Relative(Operator):
    """The loss divided by its sum over labels: L_y / sum_k L_k."""

    symmetric = True

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        chosen, every = self.inner.label_and_every(s, labels)
        return _share(chosen * s.small, s.sum_others(every * s.small, labels))

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(1 / s.count, slope / (s.count * value))


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class Complement(Operator):
    """The normalised negative loss: 1 - (A - L_y) / sum_k (A - L_k), with L cut at the bound A."""

    bound: float
    symmetric = True

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        chosen, room = ((self.bound - part).clamp_min(0) * s.small for part in self.inner.label_and_every(s, labels))
        return _share(s.sum_others(room, labels), chosen)

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(1 - 1 / s.count, slope / (s.count * (self.bound - value)))


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class Dirichlet(Operator):
    """The loss with a Dirichlet prior on the outputs: L_y + sum_k (alpha_k - 1) L_k."""

    alpha: float | Tensor = field(hash=False)

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

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        chosen, every = self.inner.label_and_every(s, labels)
        return chosen + s.sum(self._excess(s) * every)

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(value * (1 + s.sum(torch.ones_like(s.z) * self._excess(s))), slope)


def slope_at_equal_scores(loss: Loss, s: Scores, operator: str) -> Tensor:
    """Return the slope of a loss at equal scores. Raise an error that names the operator unless it is positive."""
    try:
        slope = loss.first_order(s).slope
    except NoSlopeError as error:
        raise ValueError(f"{operator} divides by the slope at equal scores; {error}") from None
    # If only one class is left, the loss is constant, and its scale does not matter.
    slope = torch.where(s.count > 1, slope, 1.0)
    if validation.can_look(slope) and bool((slope <= 0).any()):
        raise ValueError(
            f"{operator} divides by the slope at equal scores, which must be positive; got {float(slope.min()):g} (a "
            "loss that is flat there has 0, and one that prefers the other labels is negative)"
        )
    return slope


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class UnitSlope(Operator):
    """The loss divided by its slope at equal scores: L / slope. There it has the gradient of cross-entropy."""

    def __repr__(self) -> str:
        return f"Criterion({self.inner!r}, scale='ce')"

    @property
    def symmetric(self) -> bool:
        return self.inner.symmetric

    @property
    def affine(self) -> bool:
        return self.inner.affine

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        return self.inner.values(s, labels) / slope_at_equal_scores(self.inner, s, "scale='ce'")

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(value / slope, slope / slope)


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class Noisy(Operator):
    """The expected loss if the label y turns into k with probability T[y, k]: sum_k T[y, k] L_k."""

    transition: Tensor = field(hash=False)

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        if self.transition.shape != (s.classes, s.classes):
            raise ValueError(
                f"transition must have shape {(s.classes, s.classes)}, row = true class; "
                f"got {tuple(self.transition.shape)}"
            )
        with without_autocast(s.z.device):
            every = self.inner.values(s).movedim(s.dim, -1) @ self.transition.to(s.z).T
        return s.select(every.movedim(-1, s.dim), labels)

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        agreement = self.transition.to(s.z).diagonal().mean()
        return FirstOrder(value, slope * (agreement * s.count - 1) / (s.count - 1))


@dataclass(frozen=True, repr=False, eq=False, unsafe_hash=True)
class Blend(Operator):
    """A blend with the unhinged loss: (1 - alpha) unhinged + alpha L / slope. alpha scales the non-linear part."""

    alpha: float
    symmetric = True

    def __post_init__(self) -> None:
        if self.inner.any_classes:
            _refuse_unblendable(self.inner, 3)

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        if not self.inner.any_classes and validation.can_look(s.z):
            known = _blendable.setdefault(self.inner, set())
            if s.classes not in known:
                _refuse_unblendable(self.inner, s.classes)
                known.add(s.classes)
        # Both parts read log p: a graph that gathers one label's and sums all would have to store it.
        compiling = torch.compiler.is_compiling()
        own = self.inner.label_and_every(s, labels)[0] if compiling else self.inner.values(s, labels)
        unhinged = s.mean(s.logp) - s.select(s.logp, labels, alone=False)
        slope = slope_at_equal_scores(self.inner, s, "blend")
        return (1 - self.alpha) * unhinged + self.alpha * own / slope

    def first_order(self, s: Scores) -> FirstOrder:
        value, slope = self.inner.first_order(s)
        return FirstOrder(self.alpha * value / slope, torch.ones_like(slope))


_blendable: WeakKeyDictionary[Loss, set[int]] = WeakKeyDictionary()
"""The losses that passed the check, each with the numbers of classes for which it did."""


def _refuse_unblendable(loss: Loss, classes: int) -> None:
    """Raise an error unless the loss is symmetric, permutation-invariant and not flat at equal scores."""
    steps = torch.arange(32 * classes, dtype=torch.float64).reshape(32, classes)
    sizes = torch.tensor([0.1, 1.0, 3.0, 10.0], dtype=torch.float64).repeat(8)
    points = sizes[:, None] * (steps.square() + steps.sin()).cos()
    with torch.no_grad():
        every = loss.per_class(points)
        total = every.sum(-1)
        tolerance = 1e-8 * (1 + every.abs().max())
        if (total.max() - total.min()) > tolerance:
            raise ValueError(
                f"blend takes a symmetric loss; the sum over labels of {checks.brief(loss)} is not constant"
            )
        for order in validation.renamings(classes):
            if (loss.per_class(points[:, order]) - every[:, order]).abs().max() > tolerance:
                raise ValueError(
                    f"blend takes a permutation-invariant loss; {checks.brief(loss)} changes when classes are renamed"
                )
    slope_at_equal_scores(loss, Scores(points[:1]), "blend")


@dataclass(frozen=True, eq=False, repr=False)
class Wrapped(Loss):
    """A callable that maps scores (N, C) and labels (N,) to one value for each example."""

    function: Callable[..., Tensor]
    # torch.compile cannot trace how attributes of a module are replaced and put back. It gets a copy instead.
    copy_for_graphs: Callable[..., Tensor] = field(init=False)

    def __post_init__(self) -> None:
        if isinstance(self.function, type) or not callable(self.function):
            is_class, kind = isinstance(self.function, type), type(self.function).__name__
            got = f"the class {_name(self.function)} (an instance is needed)" if is_class else kind
            raise TypeError(f"loss must be a Loss, a torch module or a function of (input, target); got {got}")
        object.__setattr__(self, "copy_for_graphs", unreduced_copy(self.function))

    def __repr__(self) -> str:
        return checks.brief(self.function) if isinstance(self.function, nn.Module) else _name(self.function)

    @property
    def any_classes(self) -> bool:
        return False

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        return (self.function,) if isinstance(self.function, nn.Module) else ()

    def values(self, s: Scores, labels: Tensor | None = None) -> Tensor:
        last = s.z.movedim(s.dim, -1)
        rows = last.reshape(-1, s.classes)
        if labels is not None:
            values = self._called(rows, labels.movedim(s.dim, -1).reshape(-1))
            return values.reshape(*last.shape[:-1], 1).movedim(-1, s.dim)
        # One call gets every row C times, once with each label.
        each = torch.arange(s.classes, device=s.z.device).repeat_interleave(rows.shape[0])
        values = self._called(rows.repeat(s.classes, 1), each)
        return values.reshape(s.classes, *last.shape[:-1]).movedim(0, s.dim)

    def _called(self, rows: Tensor, labels: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            values = self.copy_for_graphs(rows, labels)
        else:
            before = _replaced(self.function, EACH)  # a module itself is called, so that it keeps its state
            try:
                with own_code(_name(self.function)):
                    values = (self.function if self.modules else self.copy_for_graphs)(rows, labels)
            finally:
                _replaced(self.function, before)
        if not isinstance(values, Tensor) or values.shape != labels.shape:
            returned = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"the loss {_name(self.function)} must return one value for each example (reduction='none'), "
                f"shape {tuple(labels.shape)}; got {returned}"
            )
        return values

    def first_order(self, s: Scores) -> FirstOrder:
        # The gradient at zero scores is projected on that of the unhinged loss. Both numbers are means over the labels.
        zero = torch.zeros(s.classes, dtype=s.z.dtype, device=s.z.device)
        jacobian = torch.func.jacrev(lambda z: self.values(Scores(z)))(zero)
        at_label, everywhere = jacobian.diagonal().mean(), jacobian.sum() / s.classes**2
        slope = (everywhere - at_label) / (1 - 1 / s.classes)
        ones = torch.ones_like(s.count)
        return FirstOrder(self.values(Scores(zero)).mean() * ones, slope * ones)


def as_loss(loss: object) -> Loss:
    """Return a loss of the algebra. A module or function of (input, target) is wrapped; a Loss is returned as it is."""
    return loss if isinstance(loss, Loss) else Wrapped(loss)  # type: ignore[arg-type]


def _name(function: object) -> str:
    return getattr(function, "__name__", type(function).__name__)


EACH: dict[str, Any] = {"reduction": "none", "ignore_index": -100}
"""The attributes with which a module returns one value for each example and ignores no label."""


def _replaced(function: Callable[..., Tensor], values: dict[str, Any]) -> dict[str, Any]:
    """Set those attributes that a module has, and return their values before."""
    own = [name for name in values if isinstance(function, nn.Module) and hasattr(function, name)]
    before = {name: getattr(function, name) for name in own}
    for name in own:
        setattr(function, name, values[name])
    return before


def unreduced_copy(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the same loss with one value for each example. A module is copied."""
    if isinstance(function, nn.Module):
        twin = copy.copy(function)
        _replaced(twin, EACH)
        return twin
    try:
        takes_reduction = "reduction" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        takes_reduction = False
    return functools.partial(function, reduction="none") if takes_reduction else function
